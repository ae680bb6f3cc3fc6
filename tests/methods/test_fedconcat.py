"""FedConcat: clusters, their averages, and a head on all their features."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.config import check, smoke
from fedjax_skew.methods.fedconcat import cluster_clients, concatenated, fedconcat
from fedjax_skew.models.functional import head


@pytest.fixture
def start(make_init_context, make_params):
    """Three clusters of which the last has no client, each with its own model."""
    counts = np.array([[9, 1, 0, 0], [18, 2, 0, 0], [0, 0, 5, 5], [0, 0, 7, 7], [9, 1, 0, 0]])
    context = make_init_context(counts)
    state = fedconcat(num_clusters=3).init(context).server
    params = trees.stack([make_params(s) for s in (1, 2, 3)])
    return context, {**state, "params": params}


def test_clients_with_the_same_labels_share_a_cluster(start):
    cluster = np.asarray(start[1]["cluster"])
    assert cluster[0] == cluster[1] == cluster[4] != cluster[2] == cluster[3]


def test_more_clusters_than_clients_is_refused():
    with pytest.raises(ValueError, match=r"num_clusters=3 must be at most num_clients=2"):
        cluster_clients(np.ones((2, 4)), 3, 0)


def test_each_cluster_averages_its_own_clients(start, make_client, make_round, make_params):
    _, state = start
    method = fedconcat(num_clusters=3)
    first, second = (int(state["cluster"][k]) for k in (0, 2))
    uploads = []
    for k, samples, local in ((0, 30.0, 11), (1, 10.0, 12)):
        client = make_client(id=jnp.int32(k), num_samples=jnp.float32(samples), server=state)
        begin, _ = method.start(client)
        jax.tree.map(np.testing.assert_array_equal, begin, trees.index(state["params"], first))
        result = type("Result", (), dict(params=make_params(local), stats={}, start=begin))
        uploads.append(method.make_upload(client, result).summed)
    new = method.server(make_round(summed=optax.tree.add(*uploads), state=state)).state["params"]
    expected = trees.weighted_mean(
        jnp.array([0.75, 0.25]), trees.stack([make_params(11), make_params(12)])
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), trees.index(new, first), expected
    )
    jax.tree.map(
        np.testing.assert_array_equal,
        trees.index(new, second),
        trees.index(state["params"], second),
    )


@pytest.mark.parametrize("head_init", ["random", "concatenated"])
def test_the_head_sees_the_features_of_all_encoders(start, tiny_model, head_init):
    context, state = start
    next_phase = fedconcat(num_clusters=3, head_init=head_init).next_phase
    params, stats = next_phase.transition(context, context.params, context.stats, state)
    assert params["head"]["kernel"].shape == (3 * 5, 4) and list(params) == ["head"]
    x = jax.random.normal(jax.random.key(0), (7, 6))
    outputs, same = concatenated(tiny_model).apply(params, stats, x, train=True)
    each = [tiny_model.apply(trees.index(state["params"], g), {}, x)[0] for g in range(3)]
    np.testing.assert_allclose(
        outputs.features, np.concatenate([o.features for o in each], -1), atol=1e-6
    )
    assert same is stats
    if head_init == "concatenated":
        np.testing.assert_allclose(outputs.logits, sum(o.logits for o in each), atol=1e-5)
    else:
        np.testing.assert_allclose(outputs.logits, head(params, outputs.features), atol=1e-5)


def test_a_run_too_short_for_both_phases_is_refused_but_a_smoke_run_fits(tiny_config):
    config = tiny_config(method="fedconcat", rounds=50)
    with pytest.raises(ValueError, match="rounds=50 leaves nothing for the second phase"):
        check(config)
    assert check(smoke(config)).next_phase.rounds == 1


def test_a_run_freezes_the_encoders_and_takes_a_few_steps(simulate):
    done = simulate(
        "fedconcat",
        model="mlp",
        rounds=3,
        participation=0.5,
        hparams={"fedconcat": {"num_clusters": 2, "encoder_rounds": 2, "head_steps": 3}},
    )
    first, second = done.reports
    assert first.useful_steps.shape == (2,) and list(second.useful_steps) == [3 * 3]
    encoders = done.state.stats["encoders"]
    phase = done.problem.phases[1]
    assert phase.first == 2 and int(done.state.round) == 3
    trained = encoders["params"]["head"]["kernel"]
    assert trained.shape[:2] == (1, 2)
    assert (np.asarray(trained[0, 0]) != np.asarray(trained[0, 1])).any()
    assert np.isfinite(done.state.params["head"]["kernel"]).all()
