"""Logit adjustment: a local or global prior in training, or a shift at test time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build
from fedjax_skew.methods.base import Evaluation
from fedjax_skew.simulation.pure import make_simulation


def adjusted(**hparams):
    return build("logit_adjust", {"logit_adjust": hparams})


def test_the_local_prior_is_the_clients(make_context):
    context = make_context()
    expected = losses.balanced_softmax(
        context.outputs.logits, context.batch.labels, context.client.class_counts, tau=0.5
    )
    np.testing.assert_allclose(adjusted(tau=0.5).loss(context), expected[:7].mean(), rtol=1e-6)


def test_the_global_prior_is_the_sum_of_all_counts(make_init_context, make_context, make_client):
    method = adjusted(form="global")
    state = method.init(make_init_context())
    np.testing.assert_array_equal(state.server, [40, 45, 50, 55])
    context = make_context(make_client(server=state.server))
    logits = np.asarray(context.outputs.logits, np.float64) + np.log(np.asarray(state.server) / 190)
    log_q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -log_q[np.arange(8), np.asarray(context.batch.labels)][:7].mean()
    np.testing.assert_allclose(method.loss(context), expected, rtol=1e-5)


def test_eps_keeps_vacant_classes(make_context):
    context = make_context()
    expected = losses.balanced_softmax(
        context.outputs.logits, context.batch.labels, context.client.class_counts, eps=1e-9
    )
    np.testing.assert_allclose(adjusted(eps=1e-9).loss(context), expected[:7].mean(), rtol=1e-6)


def test_the_post_hoc_form_trains_plainly_and_shifts_predictions(tiny_model, make_params, info):
    method = adjusted(form="post_hoc", tau=2.0)
    assert method.loss is None and method.regularizer is None
    counts = jnp.array([10.0, 30.0, 60.0, 0.0])
    params, x = make_params(), jnp.ones((2, 6))
    evaluation = Evaluation(info, tiny_model, params, {}, counts, None, None, None)
    outputs = method.predict(tiny_model, method.eval_model(evaluation), x)
    plain, _ = tiny_model.apply(params, {}, x)
    shift = np.array([2 * np.log(0.1), 2 * np.log(0.3), 2 * np.log(0.6), 0.0])
    np.testing.assert_allclose(outputs.logits, plain.logits - shift, rtol=1e-5)


def test_evaluation_uses_the_shift(tiny_config, blobs):
    tail = (blobs.y_train > 0) | (np.arange(240) < 30)
    tailed = dataclasses.replace(blobs, x_train=blobs.x_train[tail], y_train=blobs.y_train[tail])
    method = adjusted(form="post_hoc", tau=1000.0)
    simulation = make_simulation(tiny_config(), dataset=tailed, method=method)
    scores = jax.jit(simulation.evaluate)(simulation.init(), simulation.arrays)
    # So large a tau predicts the rarest class alone.
    assert int(scores.confusion[0, :, 0].sum()) == 90


def test_an_unknown_form_gets_a_suggestion():
    with pytest.raises(ValueError, match=r"hparams\.logit_adjust\.form='globl'.*'global'"):
        adjusted(form="globl")
