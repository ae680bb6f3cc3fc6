"""Bytes of a round, counted on its programs: what is kept local or frozen is not sent."""

import jax
import jax.numpy as jnp
import pytest

from fedjax_skew.engine.communication import traffic
from fedjax_skew.methods.base import Method, MethodState, Upload
from fedjax_skew.simulation.problem import build
from fedjax_skew.simulation.state import initial_state, start_next_phase

MLP = 4 * (6 * 200 + 200 + 200 * 200 + 200 + 200 * 3 + 3)
HEAD = 4 * (200 * 3 + 3)
CLASSES, FEATURES = 3, 200


@pytest.fixture
def count(tiny_config, blobs, images):
    """Traffic of the first phase of a method (a name or a ``Method``)."""

    def run(method, model="mlp", phase=0, **changes):
        named = {"method": method} if isinstance(method, str) else {}
        config = tiny_config(model=model, **named, **changes)
        given = None if isinstance(method, str) else method
        problem = build(config, dataset=blobs if model == "mlp" else images, method=given)
        state = initial_state(problem)
        for before in problem.phases[:phase]:
            state = start_next_phase(problem, before, state)
        last = phase == len(problem.phases) - 1
        return traffic(problem.phases[phase].spec, state, problem.data, last=last), state

    return run


def size(tree):
    """Bytes of a tree with a leading axis of one seed."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def all_but_head(client, step):
    mask = jax.tree.map(lambda _: True, client.params)
    return {**mask, "head": jax.tree.map(lambda _: False, mask["head"])}


@pytest.mark.parametrize("method", ["fedavg", "fedlc", "fedprox", "fedadam", "moon", "feddyn"])
def test_most_methods_send_the_model_both_ways(count, method):
    found, _ = count(method)
    assert (found.down, found.up) == (MLP, MLP)


def test_scaffold_sends_a_variate_with_the_model(count):
    assert count("scaffold")[0] == (2 * MLP, 2 * MLP, 0)
    assert count("fedlc+scaffold")[0] == (2 * MLP, 2 * MLP, 0)


def test_statistics_are_counted_row_by_row(count):
    found, _ = count("fedlc_lt", server_data__labelled=0.1)
    # Down: a client's own rows of mean and synthetic logits and of two masks. Up: two moments.
    assert found.down == MLP + 4 * (2 * CLASSES**2 + 2 * CLASSES)
    assert found.up == MLP + 4 * 2 * CLASSES**2


def test_running_statistics_are_sent_and_local_normalisation_is_not(count):
    found, state = count("fedavg", "resnet8_w16", batch_size=2)
    assert found.down == found.up == size((state.params, state.stats))
    own, _ = count("fedbn", "resnet8_w16", batch_size=2)
    norm = 2 * size(state.stats) // 2  # A scale and a shift per mean and variance.
    assert own.down == own.up == size(state.params) - norm
    local, _ = count("fedavg", "resnet8_w16", batch_size=2, batch_norm="local")
    assert local.down == local.up == size(state.params)


def test_a_head_that_stays_local_is_not_sent(count):
    def own(client):
        return {**client.params, "head": client.state}, client.stats

    method = Method(
        "own_head",
        init=lambda context: MethodState(None, context.params["head"]),
        start=own,
        make_upload=lambda client, result: Upload(result.params["head"]),
        personal=own,
    )
    assert count(method)[0] == (MLP - HEAD, MLP - HEAD, 0)


def test_a_frozen_head_is_known_to_all(count):
    method = Method("frozen_head", trainable=all_but_head)
    for momentum in (0.0, 0.9):
        found, _ = count(method, momentum=momentum, weight_decay=0.1)
        assert found == (MLP - HEAD, MLP - HEAD, HEAD)


def test_a_head_that_only_the_server_changes_is_only_received(count):
    def server(rnd):
        params = jax.tree.map(jnp.add, rnd.params, rnd.mean_delta)
        params["head"] = jax.tree.map(lambda p: p * 0.5, params["head"])
        return params, rnd.mean_stats, rnd.state

    found, _ = count(Method("server_head", trainable=all_but_head, server=server))
    assert found == (MLP, MLP - HEAD, 0)


def test_uploads_that_nobody_reads_are_not_sent(count):
    def make_upload(client, result):
        return Upload(stacked={"used": jnp.zeros(5) + client.lr, "idle": jnp.ones(7) * client.lr})

    def server(rnd):
        shift = jnp.sum(rnd.stacked["used"])
        params = jax.tree.map(lambda p, d: p + d + shift, rnd.params, rnd.mean_delta)
        return params, rnd.mean_stats, rnd.state

    found, _ = count(Method("five", make_upload=make_upload, server=server))
    assert found == (MLP, MLP + 4 * 5, 0)


def test_the_size_of_a_number_follows_its_type(count):
    method = Method(
        "half",
        make_upload=lambda client, result: Upload(
            stacked=result.params["head"]["bias"].astype(jnp.bfloat16)
        ),
        server=lambda rnd: (
            jax.tree.map(lambda p, d: p + d + rnd.stacked.sum(), rnd.params, rnd.mean_delta),
            rnd.mean_stats,
            rnd.state,
        ),
    )
    assert count(method)[0].up == MLP + 2 * CLASSES


def test_encoders_of_a_later_phase_are_sent_once(count):
    clusters = 2
    changes = {"hparams": {"fedconcat": {"num_clusters": clusters, "encoder_rounds": 2}}}
    first, _ = count("fedconcat", **changes)
    assert first.down == MLP
    assert MLP <= first.up <= MLP + 4 * clusters * 8
    second, _ = count("fedconcat", phase=1, **changes)
    head = 4 * (clusters * FEATURES * CLASSES + CLASSES)
    assert (second.down, second.up) == (head, head)
    assert second.once == clusters * (MLP - HEAD)
