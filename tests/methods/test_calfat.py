"""CalFAT: cross-entropy shifted by local log counts, equal weights for clients."""

import numpy as np
import pytest

from fedjax_skew.methods import build
from fedjax_skew.methods.base import LocalResult, uniform


def test_the_loss_is_that_of_ten_times_the_logits_plus_log_counts(make_context):
    context = make_context()
    shift = np.log(np.array([12, 8, 2, 1]))
    logits = 10 * np.asarray(context.outputs.logits, np.float64) + shift
    log_q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -log_q[np.arange(8), np.asarray(context.batch.labels)][:7].mean()
    np.testing.assert_allclose(build("calfat").loss(context), expected, rtol=1e-5)


def test_clients_have_equal_weights_unless_samples_are_asked_for():
    assert build("calfat").weight is uniform
    assert build("calfat", {"calfat": {"uniform_weights": False}}).weight is None


def test_it_joins_a_method_with_the_same_weights_only(make_client):
    result = LocalResult(None, None, None, None, None)
    assert float(build("calfat+feddyn").weight(make_client(), result)) == 1.0
    with pytest.raises(ValueError, match="calfat and fedmr both define the aggregation weights"):
        build("calfat+fedmr")
