"""FedLF: adaptive logits, running class centres, decorrelated features."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build


def fedlf(**hparams):
    return build("fedlf", {"fedlf": hparams})


def epoch(method, views):
    """The scratch after the views, the first of which starts an epoch."""
    scratch = method.scratch(views[0].client)
    for i, view in enumerate(views):
        view = dataclasses.replace(view, scratch=scratch, epoch_start=jnp.bool_(i == 0))
        scratch = method.observe(view)
    return scratch


def test_centres_are_means_over_the_epoch_and_start_anew(make_view, make_params):
    method = fedlf()
    views = [make_view(params=make_params(seed)) for seed in (3, 4, 5)]
    old = {"sum": jnp.full((4, 5), 9.0), "count": jnp.full(4, 9.0)}
    first = method.observe(dataclasses.replace(views[0], scratch=old))
    scratch = epoch(method, views)
    features = np.concatenate([np.asarray(v.outputs.features, np.float64)[:7] for v in views])
    labels = np.concatenate([np.asarray(v.batch.labels)[:7] for v in views])
    for c in range(3):
        mean = features[labels == c].mean(0)
        np.testing.assert_allclose(scratch["sum"][c] / scratch["count"][c], mean, rtol=1e-5)
    np.testing.assert_array_equal(scratch["count"], [9, 9, 3, 0])
    np.testing.assert_array_equal(first["count"], [3, 3, 1, 0])


@pytest.mark.parametrize(
    "options", [{"normalize": True}, {"literal_margin": True, "normalize": False}]
)
def test_loss_and_term_are_the_whole_objective_with_current_centres(make_view, options):
    method = fedlf(lam=0.3, gamma=0.2, tau=1.5, **options)
    view = make_view()
    view = dataclasses.replace(view, scratch=method.scratch(view.client))
    seen = method.observe(view)
    expected = losses.fedlf(
        view.outputs.logits,
        view.outputs.features,
        view.batch.labels,
        view.client.class_counts,
        seen["sum"] / np.maximum(seen["count"], 1)[:, None],
        jnp.array([True, True, True, False]),
        lam=0.3,
        gamma=0.2,
        max_margin=1.5,
        where=view.batch.where,
        **options,
    )
    np.testing.assert_allclose(method.loss(view) + method.term(view), expected, rtol=1e-5)


def test_the_sum_over_the_batch_is_an_option(make_view):
    view = make_view()
    mean, total = fedlf(gamma=0.0), fedlf(gamma=0.0, sum_centers=True)
    view = dataclasses.replace(view, scratch=mean.scratch(view.client))
    np.testing.assert_allclose(total.term(view), 7 * mean.term(view), rtol=1e-6)


def test_centres_carry_no_gradient(make_view):
    method = fedlf(gamma=0.0)
    view = make_view()
    view = dataclasses.replace(view, scratch=method.scratch(view.client))

    def centres(features):
        outputs = view.outputs._replace(features=features)
        return method.observe(dataclasses.replace(view, outputs=outputs))["sum"].sum()

    np.testing.assert_array_equal(jax.grad(centres)(view.outputs.features), 0.0)


def test_switches_leave_terms_and_state_out():
    alone = fedlf(lam=0.0, gamma=0.0)
    assert alone.term is None and alone.scratch is None and alone.observe is None
    assert fedlf(lam=0.0).scratch is None and fedlf(gamma=0.0).scratch is not None
    assert not alone.head_bias


def test_it_trains_without_a_bias_also_with_moon(simulate):
    done = simulate("fedlf+moon", hparams={"moon": {"mu": 0.01}}, rounds=2)
    assert set(done.state.params["head"]) == {"kernel"}
    assert done.reports[0].loss[1, 0] < done.reports[0].loss[0, 0]
