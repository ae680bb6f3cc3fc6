"""Rounds in which not every client is there, answers, or finishes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.engine.cohort import sample_cohort, steps_taken
from fedjax_skew.engine.keys import seed_keys
from fedjax_skew.engine.round import run_clients
from fedjax_skew.simulation.pure import make_simulation

KEYS = seed_keys(jnp.arange(2000))


def draw(weights, size):
    typed = jax.random.wrap_key_data(KEYS)
    log_weights = jnp.log(jnp.asarray(weights, jnp.float32))
    return np.asarray(sample_cohort(typed, len(weights), size, log_weights))


def test_clients_are_drawn_in_proportion_to_their_weights():
    first = draw([1, 2, 0, 5], 1)
    shares = np.bincount(first[:, 0], minlength=4) / len(first)
    np.testing.assert_allclose(shares, [0.125, 0.25, 0, 0.625], atol=0.04)
    pairs = draw([1, 2, 0, 5], 2)
    assert all(len(set(pair)) == 2 for pair in pairs.tolist())
    both = np.mean([set(pair) == {1, 3} for pair in pairs.tolist()])
    # Sequential draws without replacement: 2/8 * 5/6 + 5/8 * 2/3.
    np.testing.assert_allclose(both, 0.25 * 5 / 6 + 0.625 * 2 / 3, atol=0.04)


def test_steps_are_drawn_by_seed_round_and_client():
    steps = jnp.full((2000, 3), 10)
    cohort = jnp.tile(jnp.arange(3), (2000, 1))

    def take(cohort=cohort, round_=0, dropout=0.2, stragglers=0.5):
        return np.asarray(
            steps_taken(steps, cohort, KEYS, round_, dropout=dropout, stragglers=stragglers)
        )

    found = take()
    assert abs((found == 0).mean() - 0.2) < 0.03
    late = found[(found > 0) & (found < 10)]
    assert abs(len(late) / (found > 0).sum() - 0.5) < 0.03
    assert set(late) == set(range(1, 10))
    np.testing.assert_array_equal(take(cohort[:, ::-1]), found[:, ::-1])
    assert (take(round_=1) != found).any()
    np.testing.assert_array_equal(take(dropout=0.0, stragglers=0.0), steps)
    np.testing.assert_array_equal(take(dropout=0.0) == 10, (take(dropout=1e-9) == 10))
    assert (take(dropout=0.0, stragglers=1.0) < 10).all()


def test_a_client_of_one_step_always_takes_it():
    steps = jnp.ones((2000, 1), jnp.int32)
    cohort = jnp.zeros((2000, 1), jnp.int32)
    found = steps_taken(steps, cohort, KEYS, 0, dropout=0.0, stragglers=1.0)
    assert (np.asarray(found) == 1).all()


@pytest.fixture
def make(tiny_config, blobs):
    def simulation(**changes):
        return make_simulation(tiny_config(momentum=0.5, **changes), dataset=blobs)

    return simulation


def assert_equal(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7), a, b)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fednova", "feddyn"])
def test_who_is_not_there_leaves_no_trace(make, tmp_path, method):
    path = tmp_path / "schedule"
    path.write_text("4 1\n")
    simulation = make(method=method, availability=f"schedule(path={path})")
    spec, state = simulation.problem.phases[0].spec, simulation.init()
    some, report = jax.jit(simulation.round)(state, simulation.arrays)
    cohort = jnp.array([[1, 4]])
    alone, _ = jax.jit(lambda s, d: run_clients(spec, s, d, cohort))(state, simulation.arrays.data)
    assert_equal(some.params, alone.params)
    assert_equal(some.server, alone.server)
    assert_equal(some.clients, alone.clients)
    assert report.asked.tolist() == report.answered.tolist() == [2]


def test_who_never_answers_keeps_its_state_and_the_weights_of_the_others_add_up_to_one(make):
    simulation = make(method="scaffold", dropout=0.5, rounds=1)
    state = simulation.init()
    after, report = jax.jit(simulation.round)(state, simulation.arrays)
    rows = np.asarray(after.clients.method["head"]["kernel"][0])
    answered = [k for k in range(6) if rows[k].any()]
    assert report.asked.tolist() == [6]
    assert report.answered.tolist() == [len(answered)] and 0 < len(answered) < 6
    spec, cohort = simulation.problem.phases[0].spec, jnp.array([answered])
    plain = make(method="scaffold").problem.phases[0].spec
    alone, expected = jax.jit(lambda s, d: run_clients(plain, s, d, cohort))(
        state, simulation.arrays.data
    )
    assert spec.dropout == 0.5 and plain.dropout == 0.0
    assert_equal(after.params, alone.params)
    assert_equal(after.server, alone.server)
    for name in ("loss", "update_norm", "mean_update_norm", "cosine", "samples"):
        np.testing.assert_allclose(getattr(report, name), getattr(expected, name), rtol=1e-4)


def test_a_round_that_nobody_answers_changes_nothing(make):
    simulation = make(dropout=1.0, method="scaffold")
    state = simulation.init()
    after, report = jax.jit(simulation.round)(state, simulation.arrays)
    assert report.answered.tolist() == [0]
    assert np.asarray(report.params_finite).all() and float(report.loss[0]) == 0.0
    assert_equal(after._replace(round=state.round), state)


def test_stragglers_take_part_of_their_steps_and_methods_see_how_many(make):
    whole = make(method="fednova", local_epochs=4)
    late = make(method="fednova", local_epochs=4, stragglers=1.0)
    (_, all_steps), (after, some_steps) = (
        jax.jit(s.round)(s.init(), s.arrays) for s in (whole, late)
    )
    assert 6 <= int(some_steps.useful_steps) < int(all_steps.useful_steps)
    assert int(some_steps.samples) < int(all_steps.samples)
    assert int(some_steps.answered[0]) == 6
    assert np.isfinite(np.asarray(after.params["head"]["kernel"])).all()


def test_draws_do_not_depend_on_where_samples_and_state_are(tiny_config, blobs):
    import fedjax_skew

    def final(**changes):
        config = tiny_config(
            method="scaffold",
            participation=0.5,
            dropout=0.4,
            stragglers=0.5,
            rounds=4,
            num_seeds=2,
            **changes,
        )
        return fedjax_skew.simulate(config, dataset=blobs).params

    on_device = final()
    on_host = final(dataset__placement="host", state_placement="host")
    jax.tree.map(np.testing.assert_array_equal, on_device, on_host)
