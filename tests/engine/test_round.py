"""The vectorised round against a plain loop in numpy, and its independence of the execution."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from fedjax_skew.data.federated import federate
from fedjax_skew.data.partition import partition
from fedjax_skew.engine.cohort import assign_clients, sample_cohort
from fedjax_skew.engine.keys import Stream, seed_keys, stream_keys
from fedjax_skew.engine.local import ClientState, LocalSpec
from fedjax_skew.engine.mesh import client_mesh, replicate
from fedjax_skew.engine.round import RoundSpec, State, run_rounds
from fedjax_skew.engine.shuffle import permute
from fedjax_skew.engine.target import Target
from fedjax_skew.methods.base import Method, RunInfo
from fedjax_skew.models.functional import from_module

CLIENTS, CLASSES, DIM, BATCH = 7, 3, 5, 8
LR, MOMENTUM, DECAY = 0.1, 0.9, 0.01


shuffled = jax.jit(permute)


class Linear(nn.Module):
    @nn.compact
    def __call__(self, x, *, train, where=None):
        return nn.Dense(CLASSES, name="head")(x), x


def make_data(seeds):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 150).astype(np.int32)
    x = (rng.normal(size=(150, DIM)) + labels[:, None]).astype(np.float32)
    parts = [
        partition(
            "dirichlet(beta=0.3,min_size=2)",
            labels,
            num_clients=CLIENTS,
            num_classes=CLASSES,
            seed=s,
        )
        for s in seeds
    ]
    return federate(x, labels, parts)


def sgd(decay, momentum):
    return optax.chain(optax.add_decayed_weights(decay), optax.trace(momentum))


def make_work(chunk=2, cohort=CLIENTS, method=Method("fedavg"), devices=1, **changes):
    info = RunInfo(CLIENTS, CLASSES, cohort, 10, BATCH, MOMENTUM, DECAY)
    local = LocalSpec(
        info=info,
        model=from_module(Linear(), lambda x: x),
        method=method,
        optimizer=Partial(sgd, DECAY, MOMENTUM),
        local_epochs=2,
        local_steps=0,
        drop_last=False,
        augment=lambda x, key: x,
        keep_momentum=False,
        skip_nonfinite=False,
    )
    local = dataclasses.replace(local, **changes)
    return RoundSpec(
        local, client_mesh(devices), Target("cpu"), chunk, Partial(lambda lr, round_: lr, LR)
    )


def make_state(spec, keys, x):
    params, stats = jax.vmap(lambda k: spec.local.model.init(k, x[:1]))(
        stream_keys(keys, Stream.INIT)
    )
    momentum = None
    if spec.local.keep_momentum:
        momentum = jax.tree.map(
            lambda a: jnp.zeros((a.shape[0], CLIENTS, *a.shape[1:])),
            jax.vmap(spec.local.optimizer().init)(params),
        )
    return State(params, stats, None, ClientState(None, momentum), jnp.int32(0), keys)


def run(spec, seeds=(0,), rounds=2):
    data = jax.tree.map(jnp.asarray, make_data(seeds))
    keys = seed_keys(jnp.array(seeds, jnp.uint32))
    fn = jax.jit(functools.partial(run_rounds, spec, rounds))
    state, report = fn(make_state(spec, keys, data.x), data, jnp.int32(rounds))
    return state, report


def loop_fedavg(seed, rounds, cohort_size, *, epochs=2, steps=0, drop_last=False, keep=False):
    """FedAvg with Python loops and float64 numpy; only the random draws are shared."""
    data = make_data([seed])
    spec = make_work()
    key = seed_keys(jnp.array([seed], jnp.uint32))
    params, _ = spec.local.model.init(stream_keys(key, Stream.INIT)[0], data.x[:1])
    w = np.asarray(params["head"]["kernel"], np.float64)
    b = np.asarray(params["head"]["bias"], np.float64)
    momenta = {}
    for rnd in range(rounds):
        cohort = sample_cohort(stream_keys(key, Stream.COHORT, rnd), CLIENTS, cohort_size)[0]
        new_w, new_b, total = 0.0, 0.0, 0
        for k in np.asarray(cohort):
            ids = data.order[0, data.offsets[0, k] : data.offsets[0, k + 1]]
            n = len(ids)
            client_key = jax.random.fold_in(stream_keys(key, Stream.CLIENT, rnd)[0], int(k))
            per_epoch = max(n // BATCH if drop_last else -(-n // BATCH), 1)
            lw, lb = w.copy(), b.copy()
            mw, mb = momenta.get(k, (0 * w, 0 * b)) if keep else (0 * w, 0 * b)
            for t in range(steps or epochs * per_epoch):
                order = np.asarray(shuffled(client_key, jnp.arange(150), n, t // per_epoch))[:n]
                at = t % per_epoch * BATCH
                batch = ids[order[at : at + BATCH]]
                x, y = data.x[batch].astype(np.float64), data.labels[batch]
                logits = x @ lw + lb
                p = np.exp(logits - logits.max(-1, keepdims=True))
                p /= p.sum(-1, keepdims=True)
                p[np.arange(len(y)), y] -= 1
                mw = MOMENTUM * mw + x.T @ p / len(y) + DECAY * lw
                mb = MOMENTUM * mb + p.mean(0) + DECAY * lb
                lw, lb = lw - LR * mw, lb - LR * mb
            momenta[k] = mw, mb
            new_w, new_b, total = new_w + n * lw, new_b + n * lb, total + n
        w, b = new_w / total, new_b / total
    return w, b


@pytest.mark.parametrize(
    "local",
    [{}, {"steps": 5}, {"drop_last": True}, {"keep": True}],
    ids=["epochs", "steps", "drop_last", "kept_momentum"],
)
@pytest.mark.parametrize("cohort", [CLIENTS, 3])
def test_equals_a_plain_loop(local, cohort):
    names = {"steps": "local_steps", "keep": "keep_momentum", "drop_last": "drop_last"}
    changes = {names[k]: v for k, v in local.items()}
    if "steps" in local:
        changes["local_epochs"] = 0
    state, _ = run(make_work(cohort=cohort, **changes), rounds=3)
    w, b = loop_fedavg(0, 3, cohort, **local)
    np.testing.assert_allclose(state.params["head"]["kernel"][0], w, atol=1e-5)
    np.testing.assert_allclose(state.params["head"]["bias"][0], b, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_chunk_size_does_not_matter(chunk):
    expected, _ = run(make_work(chunk=2, cohort=5))
    found, _ = run(make_work(chunk=chunk, cohort=5))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), expected.params, found.params
    )


def test_seeds_as_a_batch_axis_equal_separate_runs():
    together, report = run(make_work(cohort=3), seeds=(3, 4, 5))
    for i, seed in enumerate((3, 4, 5)):
        alone, alone_report = run(make_work(cohort=3), seeds=(seed,))
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b[0], atol=1e-6),
            together.params,
            alone.params,
        )
        np.testing.assert_allclose(report.loss[:, i], alone_report.loss[:, 0], atol=1e-6)


def test_two_calls_equal_one():
    spec = make_work(cohort=3)
    data = jax.tree.map(jnp.asarray, make_data([0]))
    keys = seed_keys(jnp.array([0], jnp.uint32))
    fn = jax.jit(functools.partial(run_rounds, spec, 4))
    whole, _ = fn(make_state(spec, keys, data.x), data, jnp.int32(4))
    half, _ = fn(make_state(spec, keys, data.x), data, jnp.int32(2))
    half, _ = fn(half, data, jnp.int32(4))
    jax.tree.map(np.testing.assert_array_equal, whole.params, half.params)


def test_rounds_and_calls_share_one_program():
    spec = make_work(cohort=3)
    data = replicate(make_data([0]), spec.mesh)
    keys = replicate(seed_keys(jnp.array([0], jnp.uint32)), spec.mesh)
    state = replicate(make_state(spec, keys, data.x), spec.mesh)
    fn = jax.jit(functools.partial(run_rounds, spec, 4), out_shardings=state.round.sharding)
    for until in (1, 3, 4):
        state, _ = fn(state, data, jnp.int32(until))
    assert fn._cache_size() == 1


def test_eight_devices_compute_the_same(simulate):
    changes = {"rounds": 2, "num_seeds": 2, "participation": 0.5, "num_clients": 6}
    one = simulate("scaffold", **changes).state
    eight = simulate("scaffold", **changes, num_devices=8).state
    assert len(jax.tree.leaves(eight.params)[0].sharding.device_set) == 8
    kept = jax.tree.map(lambda a: a[:, :6], eight.clients)  # Two of eight rows are padding.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        (one.params, one.server, one.clients),
        (eight.params, eight.server, kept),
    )


def test_report_counts_real_work():
    _, report = run(make_work(chunk=1), rounds=1)
    sizes = np.diff(make_data([0]).offsets[0])
    assert report.useful_steps[0] == sum(2 * -(-n // BATCH) for n in sizes)
    assert report.executed_steps[0] == report.useful_steps[0]
    assert report.samples[0] == 2 * 150


def test_schedule_deals_every_client_once_and_evenly():
    rng = np.random.default_rng(0)
    cohort = jnp.arange(22).reshape(2, 11)
    steps = jnp.asarray(rng.integers(1, 100, (2, 11)))
    items, slots, places = assign_clients(cohort, steps, 4, 2)
    assert items.num_steps.shape == (4, 3, 2)
    assert sorted(np.asarray(slots).ravel())[:22] == list(range(22))
    np.testing.assert_array_equal(items.client.reshape(-1)[places], cohort.reshape(-1))
    totals = items.num_steps.sum((1, 2))
    assert totals.max() - totals.min() <= steps.max()
    items, _, _ = assign_clients(jnp.arange(6)[None], jnp.asarray([[1, 30, 5, 15, 1, 10]]), 2, 1)
    assert items.num_steps[..., 0].tolist() == [[30, 1, 1], [15, 10, 5]]


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_client_that_diverges_is_named_or_skipped(policy):
    def explode(gradient, params, client):
        bad = jnp.where(client.id == 4, jnp.nan, 1.0)
        return jax.tree.map(lambda g: g * bad, gradient)

    spec = make_work(
        method=Method("bad", correct_gradient=explode), skip_nonfinite=policy == "skip"
    )
    spec = dataclasses.replace(spec, stop_nonfinite=policy == "stop")
    state, report = run(spec, rounds=2)
    assert report.nonfinite[0, 0] == 1
    assert report.bad_clients[0, 0, 0] == 4 and report.bad_clients[0, 0, 1] == -1
    assert bool(np.isfinite(state.params["head"]["bias"]).all()) == (policy == "skip")
    assert int(state.round) == (1 if policy == "stop" else 2)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 17, 600, 4097])
def test_permute_is_a_bijection_that_depends_on_the_key(n):
    first = np.asarray(shuffled(jax.random.key(0), jnp.arange(n), n))
    assert sorted(first) == list(range(n))
    if n > 10:
        assert (first != np.asarray(shuffled(jax.random.key(1), jnp.arange(n), n))).any()


def test_permute_has_distinct_values_for_a_billion():
    values = np.asarray(shuffled(jax.random.key(0), jnp.arange(10_000), 2**31 - 1))
    assert len(set(values)) == 10_000 and values.min() >= 0


def test_permute_visits_every_value_equally_often():
    keys = jax.random.split(jax.random.key(0), 4000)
    values = np.asarray(jax.vmap(lambda k: permute(k, jnp.arange(20), 20))(keys))
    counts = np.stack([np.bincount(values[:, i], minlength=20) for i in range(20)])
    chi_square = ((counts - 200) ** 2 / 200).sum() / (19 * 19)
    assert 0.7 < chi_square < 1.3
