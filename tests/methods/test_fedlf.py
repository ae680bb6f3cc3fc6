"""FedLF: adaptive logits, class centres, decorrelated features."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build


def fedlf(**hparams):
    return build("fedlf", {"fedlf": hparams})


def with_data(context, batches):
    """The context's client, whose data are the given batches."""

    def fold(fn, init, key=None, augment=False):
        for batch in batches:
            init = fn(init, batch)
        return init

    client = dataclasses.replace(context.client, fold=fold)
    return dataclasses.replace(context, client=client)


def epoch(method, contexts):
    """The scratch after the contexts, the first of which starts an epoch."""
    scratch = method.scratch(contexts[0].client)
    for i, context in enumerate(contexts):
        context = dataclasses.replace(context, scratch=scratch, epoch_start=jnp.bool_(i == 0))
        scratch = method.update_scratch(context)
    return scratch


def test_centres_of_the_code_are_those_of_the_received_model_in_training_mode(make_context):
    context = make_context()
    original, seen = context.client.model, []

    def apply(params, stats, x, *, train=False, where=None):
        seen.append(train)
        return original.apply(params, stats, x)

    model = dataclasses.replace(original, apply=apply)
    context = dataclasses.replace(context, client=dataclasses.replace(context.client, model=model))
    second = context.batch._replace(x=context.batch.x + 1)
    method = fedlf()
    assert method.update_scratch is None
    scratch = method.scratch(with_data(context, [context.batch, second]).client)
    assert seen and all(seen)
    labels = np.tile(np.asarray(context.batch.labels)[:7], 2)
    x = jnp.concatenate([context.batch.x[:7], second.x[:7]])
    features = np.asarray(original.apply(context.client.params, {}, x)[0].features)
    for c in range(3):
        mean = features[labels == c].astype(np.float64).mean(0)
        np.testing.assert_allclose(scratch["sum"][c] / scratch["count"][c], mean, rtol=1e-5)
    np.testing.assert_array_equal(scratch["count"], [6, 6, 2, 0])


def test_centres_of_the_paper_are_means_over_the_epoch_and_start_anew(make_context, make_params):
    method = fedlf(form="paper")
    contexts = [make_context(params=make_params(seed)) for seed in (3, 4, 5)]
    old = {"sum": jnp.full((4, 5), 9.0), "count": jnp.full(4, 9.0)}
    first = method.update_scratch(dataclasses.replace(contexts[0], scratch=old))
    scratch = epoch(method, contexts)
    features = np.concatenate([np.asarray(v.outputs.features, np.float64)[:7] for v in contexts])
    labels = np.concatenate([np.asarray(v.batch.labels)[:7] for v in contexts])
    for c in range(3):
        mean = features[labels == c].mean(0)
        np.testing.assert_allclose(scratch["sum"][c] / scratch["count"][c], mean, rtol=1e-5)
    np.testing.assert_array_equal(scratch["count"], [9, 9, 3, 0])
    np.testing.assert_array_equal(first["count"], [3, 3, 1, 0])


@pytest.mark.parametrize("form", ["paper", "code"])
def test_loss_and_term_are_the_whole_objective(make_context, form):
    method = fedlf(lam=0.3, gamma=0.2, tau=1.5, form=form)
    context = make_context()
    context = with_data(context, [context.batch])
    context = dataclasses.replace(context, scratch=method.scratch(context.client))
    sums = method.update_scratch(context) if form == "paper" else context.scratch
    logits, features, labels = (
        context.outputs.logits,
        context.outputs.features,
        context.batch.labels,
    )
    adapted = losses.adaptive_logit(logits, labels, context.client.class_counts)[:7].mean()
    centers = sums["sum"] / np.maximum(sums["count"], 1)[:, None]
    present = jnp.array([True, True, True, False])
    pulled = losses.class_center(features, labels, centers, present, max_margin=1.5, form=form)
    pulled = pulled[:7].sum() if form == "paper" else pulled[:7].mean()
    decorrelated = losses.feature_decorrelation(features, form=form, where=context.batch.where)
    expected = adapted + 0.3 * pulled + 0.2 * decorrelated
    np.testing.assert_allclose(
        method.loss(context) + method.regularizer(context), expected, rtol=1e-5
    )


def test_centres_of_the_paper_carry_no_gradient(make_context):
    method = fedlf(gamma=0.0, form="paper")
    context = make_context()
    context = dataclasses.replace(context, scratch=method.scratch(context.client))

    def centres(features):
        outputs = context.outputs._replace(features=features)
        return method.update_scratch(dataclasses.replace(context, outputs=outputs))["sum"].sum()

    np.testing.assert_array_equal(jax.grad(centres)(context.outputs.features), 0.0)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_switches_leave_terms_and_state_out(form):
    alone = fedlf(lam=0.0, gamma=0.0, form=form)
    assert alone.regularizer is None and alone.scratch is None and alone.update_scratch is None
    assert fedlf(lam=0.0, form=form).scratch is None
    assert fedlf(gamma=0.0, form=form).scratch is not None
    assert not alone.head_bias


@pytest.mark.parametrize("form", ["paper", "code"])
def test_it_trains_without_a_bias_also_with_moon(simulate, form):
    hparams = {"moon": {"mu": 0.01}, "fedlf": {"form": form, "lam": 1e-3, "gamma": 1e-3}}
    done = simulate("fedlf+moon", hparams=hparams, rounds=2)
    assert set(done.state.params["head"]) == {"kernel"}
    assert done.reports[0].loss[1, 0] < done.reports[0].loss[0, 0]
