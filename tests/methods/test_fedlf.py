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
    for i, context in enumerate(views):
        context = dataclasses.replace(context, scratch=scratch, epoch_start=jnp.bool_(i == 0))
        scratch = method.update_scratch(context)
    return scratch


def test_centres_are_means_over_the_epoch_and_start_anew(make_context, make_params):
    method = fedlf()
    views = [make_context(params=make_params(seed)) for seed in (3, 4, 5)]
    old = {"sum": jnp.full((4, 5), 9.0), "count": jnp.full(4, 9.0)}
    first = method.update_scratch(dataclasses.replace(views[0], scratch=old))
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
def test_loss_and_term_are_the_whole_objective_with_current_centres(make_context, options):
    method = fedlf(lam=0.3, gamma=0.2, tau=1.5, **options)
    context = make_context()
    context = dataclasses.replace(context, scratch=method.scratch(context.client))
    seen = method.update_scratch(context)
    expected = losses.fedlf(
        context.outputs.logits,
        context.outputs.features,
        context.batch.labels,
        context.client.class_counts,
        seen["sum"] / np.maximum(seen["count"], 1)[:, None],
        jnp.array([True, True, True, False]),
        lam=0.3,
        gamma=0.2,
        max_margin=1.5,
        where=context.batch.where,
        **options,
    )
    np.testing.assert_allclose(
        method.loss(context) + method.regularizer(context), expected, rtol=1e-5
    )


def test_the_sum_over_the_batch_is_an_option(make_context):
    context = make_context()
    mean, total = fedlf(gamma=0.0), fedlf(gamma=0.0, sum_centers=True)
    context = dataclasses.replace(context, scratch=mean.scratch(context.client))
    np.testing.assert_allclose(total.regularizer(context), 7 * mean.regularizer(context), rtol=1e-6)


def test_centres_carry_no_gradient(make_context):
    method = fedlf(gamma=0.0)
    context = make_context()
    context = dataclasses.replace(context, scratch=method.scratch(context.client))

    def centres(features):
        outputs = context.outputs._replace(features=features)
        return method.update_scratch(dataclasses.replace(context, outputs=outputs))["sum"].sum()

    np.testing.assert_array_equal(jax.grad(centres)(context.outputs.features), 0.0)


def test_switches_leave_terms_and_state_out():
    alone = fedlf(lam=0.0, gamma=0.0)
    assert alone.regularizer is None and alone.scratch is None and alone.update_scratch is None
    assert fedlf(lam=0.0).scratch is None and fedlf(gamma=0.0).scratch is not None
    assert not alone.head_bias


def test_it_trains_without_a_bias_also_with_moon(simulate):
    done = simulate("fedlf+moon", hparams={"moon": {"mu": 0.01}}, rounds=2)
    assert set(done.state.params["head"]) == {"kernel"}
    assert done.reports[0].loss[1, 0] < done.reports[0].loss[0, 0]
