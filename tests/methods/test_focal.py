"""Focal loss as a client objective."""

import numpy as np

from fedjax_skew import losses
from fedjax_skew.methods import build


def test_it_weights_cross_entropy_by_the_error(make_view):
    view = make_view()
    logits = np.asarray(view.outputs.logits, np.float64)
    q = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    q = q[np.arange(8), np.asarray(view.batch.labels)][:7]
    expected = (-0.25 * (1 - q) ** 2 * np.log(q)).mean()
    np.testing.assert_allclose(build("focal").loss(view), expected, rtol=1e-5)


def test_without_focus_it_is_cross_entropy(make_view):
    view = make_view()
    found = build("focal", {"focal": {"gamma": 0.0, "alpha": 1.0}}).loss(view)
    expected = losses.cross_entropy(view.outputs.logits, view.batch.labels)[:7].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
