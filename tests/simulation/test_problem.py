"""From a configuration to data and functions."""

import jax
import numpy as np
import pytest

from fedjax_skew.config import check
from fedjax_skew.simulation.problem import build


def test_the_labelled_samples_may_be_the_unlabelled_ones(tiny_config, blobs):
    config = tiny_config(server_data__labelled=0.2, server_data__unlabelled_dataset="labelled")
    data = build(config, dataset=blobs).data
    assert data.labelled.shape[1] == 48
    np.testing.assert_array_equal(data.unlabelled, data.labelled)
    config.server_data.unlabelled_dataset = ""
    np.testing.assert_array_equal(build(config, dataset=blobs).data.order, data.order)


def test_there_must_be_labelled_samples_to_use(tiny_config):
    config = tiny_config(server_data__unlabelled_dataset="labelled")
    with pytest.raises(ValueError, match=r"server_data\.labelled=0\.0"):
        check(config)


def test_a_method_may_keep_empty_arrays(simulate):
    result = simulate("fedbn", rounds=1)  # logistic regression has no normalisation layer
    assert np.isfinite(result.reports[0].loss).all()


@pytest.mark.parametrize(
    "changes", [{}, {"drop_last": True}, {"local_epochs": 0, "local_steps": 3}]
)
def test_a_batch_is_padded_to_the_largest_client_at_most(simulate, changes):
    huge = simulate("fedavg", rounds=2, batch_size=100_000, **changes)
    largest = int(np.diff(huge.problem.data.offsets).max())
    info = huge.problem.info
    assert info.batch_size == 100_000 and info.batch_rows == largest
    fitting = simulate("fedavg", rounds=2, batch_size=largest, **changes)
    np.testing.assert_array_equal(huge.reports[0].useful_steps, fitting.reports[0].useful_steps)
    np.testing.assert_array_equal(huge.reports[0].samples, fitting.reports[0].samples)
    jax.tree.map(np.testing.assert_array_equal, huge.state.params, fitting.state.params)
