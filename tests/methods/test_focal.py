"""Focal loss as a client objective."""

import numpy as np

from fedjax_skew import losses
from fedjax_skew.methods import build


def test_it_weights_cross_entropy_by_the_error(make_context):
    context = make_context()
    logits = np.asarray(context.outputs.logits, np.float64)
    q = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    q = q[np.arange(8), np.asarray(context.batch.labels)][:7]
    expected = (-0.25 * (1 - q) ** 2 * np.log(q)).mean()
    np.testing.assert_allclose(build("focal").loss(context), expected, rtol=1e-5)


def test_without_focus_it_is_cross_entropy(make_context):
    context = make_context()
    found = build("focal", {"focal": {"gamma": 0.0, "alpha": 1.0}}).loss(context)
    expected = losses.cross_entropy(context.outputs.logits, context.batch.labels)[:7].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
