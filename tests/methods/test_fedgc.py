"""FedGC: local classes only, class-wise rows, and the correction of the head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedgc import correction, fedgc

HELD = np.array([[1, 1, 0, 0], [0, 1, 1, 0]], bool)


def by_hand(rows, held):
    """The regulariser with loops; ``j`` is held by a client that does not hold ``i``."""
    total = 0.0
    for i in range(len(rows)):
        rivals = {j for client in held for j in np.flatnonzero(client) if not client[i]}
        if held[:, i].any() and rivals:
            own = np.exp(rows[i] @ rows[i])
            total -= np.log(own / (own + sum(np.exp(rows[j] @ rows[i]) for j in rivals)))
    return total


def test_softmax_covers_the_clients_classes(make_context):
    context = make_context()
    logits, labels = np.asarray(context.outputs.logits), np.asarray(context.batch.labels)
    local = logits[:7, :3]  # class 3 is vacant, row 7 is padding
    expected = np.mean(
        np.log(np.exp(local).sum(-1)) - local[np.arange(7), labels[:7]], dtype=np.float64
    )
    np.testing.assert_allclose(fedgc().loss(context), expected, rtol=1e-5)


def test_correction_by_hand():
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_allclose(correction(rows, HELD), by_hand(rows, HELD), rtol=1e-5)
    unit = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    found = correction(rows, HELD, cosine=True)
    np.testing.assert_allclose(found, by_hand(unit, HELD), rtol=1e-5)


@pytest.mark.parametrize("cosine", [False, True])
def test_correction_stays_finite(cosine):
    rows = 100 * jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    for table in (rows, rows.at[1].set(0.0)):
        for held in (HELD, np.ones_like(HELD), np.zeros_like(HELD)):
            value, gradient = jax.value_and_grad(correction)(table, held, cosine=cosine)
            assert np.isfinite(value) and np.isfinite(gradient).all()
            if held.all() or not held.any():
                assert value == 0 and not gradient.any()


def test_a_step_parts_classes_that_no_client_holds_together():
    rows = jnp.array([[1.0, 0.2], [0.3, 1.0], [1.0, 0.0], [0.0, 0.0]])
    gradient = jax.grad(correction)(rows, HELD)
    new = rows - 0.1 * gradient
    assert new[0] @ new[2] < rows[0] @ rows[2]
    np.testing.assert_array_equal(gradient[3], 0)


def server(method, make_client, make_round, make_params, counts, weights=(0.75, 0.25)):
    start, models = make_params(), [make_params(11), make_params(12)]
    params = {**start, "head": {"kernel": start["head"]["kernel"]}}
    uploads = [
        method.make_upload(
            make_client(class_counts=jnp.asarray(n, jnp.float32)),
            LocalResult(y, {}, start, None, None),
        )
        for n, y, w in zip(counts, models, weights, strict=True)
        if w
    ]
    rnd = make_round(
        params=params,
        mean_delta=jax.tree.map(jnp.zeros_like, params),
        class_counts=jnp.asarray(counts, jnp.float32),
        weights=jnp.asarray(weights),
        summed=sum(u.summed for u in uploads),
    )
    heads = [np.asarray(y["head"]["kernel"]) for y in models]
    return method.server(rnd).params, np.asarray(start["head"]["kernel"]), heads


def test_rows_are_averaged_over_their_holders(make_client, make_round, make_params):
    counts = [[6, 4, 0, 0], [0, 1, 3, 0]]
    params, old, heads = server(fedgc(lam=0), make_client, make_round, make_params, counts)
    kernel = params["head"]["kernel"]
    expected = [
        heads[0][:, 0],
        0.8 * heads[0][:, 1] + 0.2 * heads[1][:, 1],
        heads[1][:, 2],
        old[:, 3],
    ]
    np.testing.assert_allclose(kernel, np.stack(expected, 1), atol=1e-6)
    assert "bias" not in params["head"]


def test_server_takes_one_step_down_the_correction(make_client, make_round, make_params):
    counts = [[6, 4, 0, 0], [0, 1, 3, 0]]
    args = make_client, make_round, make_params, counts
    plain = server(fedgc(lam=0), *args)[0]["head"]["kernel"]
    found = server(fedgc(lam=2.0), *args)[0]["head"]["kernel"]
    gradient = jax.grad(correction)(plain.T, HELD).T
    np.testing.assert_allclose(found, plain - 2.0 * 0.1 * gradient, atol=1e-6)


def test_a_skipped_client_holds_nothing(make_client, make_round, make_params):
    counts = [[6, 4, 0, 0], [0, 1, 3, 0]]
    args = make_client, make_round, make_params, counts, (1.0, 0.0)
    params, old, heads = server(fedgc(), *args)
    kernel = np.asarray(params["head"]["kernel"])
    np.testing.assert_allclose(kernel[:, :2], heads[0][:, :2], atol=1e-6)
    np.testing.assert_allclose(kernel[:, 2:], old[:, 2:], atol=1e-6)
