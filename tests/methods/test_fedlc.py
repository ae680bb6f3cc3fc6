"""FedLC: logits lowered by a margin for rare classes."""

import numpy as np
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build

COUNTS = np.array([12.0, 8.0, 2.0, 0.0])


def cross_entropy(logits, labels):
    log_q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_q[np.arange(8), labels][:7].mean()


def test_vacant_classes_drop_out_by_default(make_context):
    context = make_context()
    logits, labels = (
        np.asarray(context.outputs.logits, np.float64),
        np.asarray(context.batch.labels),
    )
    present = logits[:, :3] - COUNTS[:3] ** -0.25
    expected = cross_entropy(present, np.minimum(labels, 2))
    np.testing.assert_allclose(build("fedlc").loss(context), expected, rtol=1e-5)


def test_a_smallest_count_keeps_them(make_context):
    context = make_context()
    logits, labels = (
        np.asarray(context.outputs.logits, np.float64),
        np.asarray(context.batch.labels),
    )
    expected = cross_entropy(logits - 0.1 * np.maximum(COUNTS, 1e-4) ** -0.25, labels)
    method = build("fedlc", {"fedlc": {"tau": 0.1, "min_count": 1e-4}})
    np.testing.assert_allclose(method.loss(context), expected, rtol=1e-5)


def test_the_printed_denominator_is_an_option(make_context):
    context = make_context()
    found = build("fedlc", {"fedlc": {"form": "paper"}}).loss(context)
    expected = losses.fedlc(
        context.outputs.logits, context.batch.labels, context.client.class_counts, form="paper"
    )
    np.testing.assert_allclose(found, expected[:7].mean(), rtol=1e-6)


def test_a_negative_tau_is_refused():
    with pytest.raises(ValueError, match=r"hparams\.fedlc\.tau=-1"):
        build("fedlc", {"fedlc": {"tau": -1}})
