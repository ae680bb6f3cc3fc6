"""FedVLS: balanced softmax, distillation of vacant classes, suppression of wrong logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build
from fedjax_skew.models.functional import Model


def fedvls(**hparams):
    return build("fedvls", {"fedvls": hparams})


@pytest.fixture
def view(make_view, make_client):
    """Two vacant classes; the labels of the batch are of present ones."""
    batch = make_view().batch
    labels = jnp.array([0, 1, 0, 0, 1, 0, 1, 3], jnp.int32)
    client = make_client(class_counts=jnp.array([12.0, 8.0, 0.0, 0.0]))
    return make_view(client, batch=batch._replace(labels=labels))


def kernel(view, **changes):
    return losses.fedvls(
        view.outputs.logits,
        view.client.teacher(view.batch).logits,
        view.batch.labels,
        view.client.class_counts,
        where=view.batch.where,
        **changes,
    )


@pytest.mark.parametrize("published_code", [False, True])
def test_loss_and_term_add_up_to_the_whole_objective(view, published_code):
    method = fedvls(lam=0.4, logit_weight=0.02, published_code=published_code)
    expected = kernel(view, lam=0.4, logit_weight=0.02, published_code=published_code)
    np.testing.assert_allclose(method.loss(view) + method.term(view), expected, rtol=1e-5)


def test_switches_leave_terms_out(view):
    assert fedvls(lam=0.0, logit_weight=0.0).term is None
    distilled, suppressed = fedvls(logit_weight=0.0), fedvls(lam=0.0)
    whole = fedvls().term(view)
    np.testing.assert_allclose(distilled.term(view) + suppressed.term(view), whole, rtol=1e-6)
    blind = dataclasses.replace(view, client=dataclasses.replace(view.client, params=None))
    np.testing.assert_array_equal(suppressed.term(blind), suppressed.term(view))


def test_the_teacher_trains_in_the_published_code_only(view):
    def apply(params, stats, x, *, train=False, where=None):
        outputs, stats = view.client.model.apply(params, stats, x)
        shift = jnp.array([0.0, 0.0, 0.0, 5.0 if train else 0.0])
        return outputs._replace(logits=outputs.logits + shift), stats

    model = Model(view.client.model.init, apply)
    other = dataclasses.replace(view, client=dataclasses.replace(view.client, model=model))
    published = fedvls(logit_weight=0.0)
    paper = fedvls(logit_weight=0.0, published_code=False)
    np.testing.assert_array_equal(paper.term(other), paper.term(view))
    assert float(published.term(other)) > 2 * float(published.term(view))


def test_only_the_published_suppression_stops_pulling_low_logits(view):
    def pull(published_code):
        method = fedvls(lam=0.0, logit_weight=1.0, published_code=published_code)
        outputs = view.outputs

        def term(shift):
            lowered = outputs._replace(logits=outputs.logits - shift)
            return method.term(dataclasses.replace(view, outputs=lowered))

        return float(jax.grad(term)(60.0))

    np.testing.assert_allclose(pull(False), -1.0, rtol=1e-5)
    np.testing.assert_allclose(pull(True), 0.0, atol=1e-6)


def test_it_joins_server_and_local_rules_but_no_second_loss():
    assert build("fedvls+fedprox").term is not None
    with pytest.raises(ValueError, match="fedlc and fedvls both define the loss"):
        build("fedlc+fedvls")
