"""FedGR: its two parts, and what is left without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.losses import gravitation, unbalanced_softmax
from fedjax_skew.methods import build
from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedgr import fedgr

pull = jax.jit(jax.grad(gravitation))


@pytest.mark.parametrize("form", ["paper", "code", "normalized", "sqrt"])
def test_without_gravitation_it_is_the_unbalanced_softmax_alone(make_context, form):
    method = fedgr(lam=0.0, form=form)
    assert method.server is None and method.make_upload is None
    context = make_context()
    values = unbalanced_softmax(
        context.outputs.logits, context.batch.labels, context.client.class_counts, form=form
    )
    np.testing.assert_allclose(method.loss(context), values[:7].mean(), rtol=1e-6)


def test_without_unbalanced_softmax_the_loss_is_left_to_others():
    method = fedgr(unbalanced=False)
    assert method.loss is None and method.server is not None
    assert build("fedlc+fedgr", {"fedgr": {"unbalanced": False}}).loss is not None


def server(make_client, make_round, make_params, weights, present, lam=0.5):
    method = fedgr(lam=lam)
    models = [make_params(s) for s in (11, 12, 13)]
    heads = jnp.stack(
        [
            method.make_upload(make_client(), LocalResult(y, {}, y, None, None)).stacked
            for y in models
        ]
    )
    weights = jnp.asarray(weights, jnp.float32)
    heads = jnp.where((weights > 0)[:, None, None], heads, 0)
    params = {"head": {"kernel": jnp.zeros_like(heads[0].T)}}
    rnd = make_round(
        params=params,
        mean_delta={"head": {"kernel": jnp.tensordot(weights, heads, 1).T}},
        weights=weights,
        class_counts=jnp.asarray(present, jnp.float32),
        stacked=heads,
    )
    return method.server(rnd).params["head"]["kernel"], heads


def test_server_moves_every_head_and_then_averages(make_client, make_round, make_params):
    present = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 9]])
    weights = np.array([0.5, 0.2, 0.3], np.float32)
    found, heads = server(make_client, make_round, make_params, weights, present)
    assert heads.shape == (3, 4, 5)
    moved = heads - 0.5 * 0.1 * pull(heads, present > 0)
    np.testing.assert_allclose(found, jnp.tensordot(weights, moved, 1).T, atol=1e-6)
    assert float(jnp.abs(found - jnp.tensordot(weights, heads, 1).T).max()) > 1e-3


def test_a_skipped_client_does_not_pull(make_client, make_round, make_params):
    present = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])
    weights = [0.75, 0.25, 0.0]
    found, heads = server(make_client, make_round, make_params, weights, present)
    two = heads[:2] - 0.05 * pull(heads[:2], present[:2] > 0)
    np.testing.assert_allclose(found, jnp.tensordot(jnp.array(weights[:2]), two, 1).T, atol=1e-6)


def test_gravitation_draws_equal_classes_together(make_client, make_round, make_params):
    """One class on two clients and another on a third: the shared rows approach each other."""
    heads = jnp.array([[[1.0, 0.0], [0, 0]], [[0.0, 1.0], [0, 0]], [[0, 0], [0.7, 0.7]]])
    present = np.array([[1, 0], [1, 0], [0, 1]])
    new = heads - 0.1 * pull(heads, present)
    assert new[0, 0] @ new[1, 0] > heads[0, 0] @ heads[1, 0]
    assert new[0, 0] @ new[2, 1] < heads[0, 0] @ heads[2, 1]


def test_an_unknown_form_gets_the_allowed_ones():
    with pytest.raises(ValueError, match=r"hparams\.fedgr\.form='papre' is unknown.*'paper'"):
        fedgr(form="papre")
