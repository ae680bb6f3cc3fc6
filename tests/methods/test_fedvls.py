"""FedVLS: balanced softmax, distillation of vacant classes, suppression of wrong logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build


def fedvls(**hparams):
    return build("fedvls", {"fedvls": hparams})


@pytest.fixture
def context(make_context, make_client):
    """Two vacant classes; the labels of the batch are of present ones."""
    batch = make_context().batch
    labels = jnp.array([0, 1, 0, 0, 1, 0, 1, 3], jnp.int32)
    client = make_client(class_counts=jnp.array([12.0, 8.0, 0.0, 0.0]))
    return make_context(client, batch=batch._replace(labels=labels))


@pytest.mark.parametrize("form", ["paper", "code"])
def test_loss_and_term_add_up_to_the_whole_objective(context, form):
    method = fedvls(lam=0.4, logit_weight=0.02, form=form)
    logits, labels, counts = (
        context.outputs.logits,
        context.batch.labels,
        context.client.class_counts,
    )
    teacher = context.client.teacher(context.batch).logits
    calibrated = losses.balanced_softmax(
        logits, labels, counts, eps=1e-9 if form == "code" else None
    )
    distilled = losses.vacant_class_distillation(logits, teacher, counts)
    suppressed = losses.logit_suppression(
        logits, labels, counts, form=form, where=context.batch.where
    )
    expected = (calibrated + 0.4 * distilled)[:7].mean() + 0.02 * suppressed
    np.testing.assert_allclose(
        method.loss(context) + method.regularizer(context), expected, rtol=1e-5
    )


def test_switches_leave_terms_out(context):
    assert fedvls(lam=0.0, logit_weight=0.0).regularizer is None
    distilled, suppressed = fedvls(logit_weight=0.0), fedvls(lam=0.0)
    whole = fedvls().regularizer(context)
    np.testing.assert_allclose(
        distilled.regularizer(context) + suppressed.regularizer(context), whole, rtol=1e-6
    )
    blind = dataclasses.replace(context, client=dataclasses.replace(context.client, params=None))
    np.testing.assert_array_equal(suppressed.regularizer(blind), suppressed.regularizer(context))


def test_the_teacher_is_in_training_mode_in_the_code_only(context):
    def apply(params, stats, x, *, train=False, where=None):
        outputs, stats = context.client.model.apply(params, stats, x)
        shift = jnp.array([0.0, 0.0, 0.0, 5.0 if train else 0.0])
        return outputs._replace(logits=outputs.logits + shift), stats

    model = dataclasses.replace(context.client.model, apply=apply)
    other = dataclasses.replace(context, client=dataclasses.replace(context.client, model=model))
    published = fedvls(logit_weight=0.0)
    paper = fedvls(logit_weight=0.0, form="paper")
    np.testing.assert_array_equal(paper.regularizer(other), paper.regularizer(context))
    assert float(published.regularizer(other)) > 2 * float(published.regularizer(context))


def test_only_the_suppression_of_the_code_stops_pulling_low_logits(context):
    def pull(form):
        method = fedvls(lam=0.0, logit_weight=1.0, form=form)
        outputs = context.outputs

        def regularizer(shift):
            lowered = outputs._replace(logits=outputs.logits - shift)
            return method.regularizer(dataclasses.replace(context, outputs=lowered))

        return float(jax.grad(regularizer)(60.0))

    np.testing.assert_allclose(pull("paper"), -1.0, rtol=1e-5)
    np.testing.assert_allclose(pull("code"), 0.0, atol=1e-6)


def test_it_joins_server_and_local_rules_but_no_second_loss():
    assert build("fedvls+fedprox").regularizer is not None
    with pytest.raises(ValueError, match="fedlc and fedvls both define the loss"):
        build("fedlc+fedvls")
