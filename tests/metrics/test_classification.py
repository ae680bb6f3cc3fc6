"""Metrics from the confusion matrix against scikit-learn and hand-computed numbers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from fedjax_skew.metrics import classification as cl

CLASSES = st.lists(st.integers(0, 5), min_size=24, max_size=24)


@settings(max_examples=40, deadline=None)
@given(CLASSES, CLASSES, st.integers(1, 24))
def test_agrees_with_scikit_learn(labels, predicted, n):
    # One padded length for all examples, so that it compiles once.
    labels, predicted = np.array(labels), np.array(predicted)
    confusion = cl.confusion_matrix(labels, predicted, 6, np.arange(24) < n)
    labels, predicted = labels[:n], predicted[:n]
    np.testing.assert_array_equal(
        confusion, sk.confusion_matrix(labels, predicted, labels=np.arange(6))
    )
    np.testing.assert_allclose(
        cl.accuracy(confusion), sk.accuracy_score(labels, predicted), rtol=1e-6
    )
    np.testing.assert_allclose(
        cl.macro_f1(confusion),
        sk.f1_score(labels, predicted, average="macro", zero_division=0),
        rtol=1e-5,
        atol=1e-7,
    )
    recall = sk.recall_score(
        labels, predicted, labels=np.arange(6), average=None, zero_division=np.nan
    )
    np.testing.assert_allclose(cl.per_class_accuracy(confusion), recall, rtol=1e-6)


def test_macro_f1_counts_a_class_only_predicted_and_skips_one_never_seen():
    confusion = np.zeros((4, 4), int)
    confusion[0, 0], confusion[0, 1], confusion[3, 3] = 1, 1, 2
    # Class 0: 2/3, class 1: predicted only, class 2: unseen, class 3: 1.
    np.testing.assert_allclose(cl.macro_f1(confusion), (2 / 3 + 0 + 1) / 3, rtol=1e-6)


def test_padding_and_out_of_range_labels_do_not_count():
    labels = np.array([0, 1, 1, -1, 7])
    predicted = np.array([0, 0, 1, 1, 1])
    where = np.array([True, False, True, True, True])
    np.testing.assert_array_equal(
        cl.confusion_matrix(labels, predicted, 2, where), [[1, 0], [0, 1]]
    )


def test_works_under_jit_and_with_leading_axes():
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 5, (2, 3, 50))
    build = jax.jit(jax.vmap(lambda a, b: cl.confusion_matrix(a, b, 5)))
    stacked = build(labels, predicted)
    assert stacked.shape == (3, 5, 5)
    groups = cl.groups_by_thirds([5, 4, 3, 2, 1])

    @jax.jit
    def all_metrics(confusion):
        return (
            cl.accuracy(confusion),
            cl.macro_f1(confusion),
            cl.per_class_accuracy(confusion),
            cl.group_accuracy(confusion, groups),
        )

    together = all_metrics(stacked)
    alone = [all_metrics(one) for one in stacked]
    chex.assert_trees_all_close(together, jax.tree.map(lambda *x: jnp.stack(x), *alone))


def test_empty_value_is_the_callers_choice():
    nothing = np.zeros((2, 2), int)
    assert np.isnan(cl.accuracy(nothing))
    assert cl.accuracy(nothing, empty=0.0) == 0
    assert cl.macro_f1(nothing) == 0
    np.testing.assert_array_equal(cl.per_class_accuracy([[0, 0], [1, 3]], empty=-1.0), [-1, 0.75])


@pytest.mark.parametrize(
    "num_classes, largest, factor, thresholds, sizes",
    [
        (10, 5000, 100, (1500, 200), (3, 4, 3)),
        (10, 5000, 50, (1500, 200), (3, 5, 2)),
        (10, 5000, 10, (1500, 600), (5, 4, 1)),
        (100, 500, 100, (200, 20), (20, 50, 30)),
        (100, 500, 50, (200, 20), (24, 58, 18)),
        (100, 500, 10, (300, 60), (22, 70, 8)),
    ],
)
def test_fedlf_thresholds_give_the_group_sizes_behind_its_tables(
    num_classes, largest, factor, thresholds, sizes
):
    class_sizes = largest * factor ** (-np.arange(num_classes) / (num_classes - 1))
    groups = cl.groups_by_thresholds(class_sizes.astype(int), *thresholds)
    assert tuple(groups.sum(1)) == sizes
    assert (groups.sum(0) == 1).all()


def test_group_accuracy_of_balanced_test_set_is_the_mean_of_its_classes():
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(7), 20)
    confusion = cl.confusion_matrix(labels, rng.integers(0, 7, labels.size), 7)
    groups = cl.groups_by_thirds([9, 1, 9, 4, 5, 6, 2])
    np.testing.assert_array_equal(groups.sum(1), [3, 2, 2])
    np.testing.assert_array_equal(groups[0], [1, 0, 1, 0, 0, 1, 0])
    recall = np.asarray(cl.per_class_accuracy(confusion))
    expected = [recall[group].mean() for group in groups]
    np.testing.assert_allclose(cl.group_accuracy(confusion, groups), expected, rtol=1e-6)


def test_group_without_classes_has_no_accuracy():
    groups = cl.groups_by_thresholds([50, 60], upper=100, lower=10)
    values = np.asarray(cl.group_accuracy(np.eye(2, dtype=int), groups))
    np.testing.assert_array_equal(np.isnan(values), [True, False, True])


def test_swapped_thresholds_are_refused():
    with pytest.raises(ValueError, match="lower=200"):
        cl.groups_by_thresholds([1, 2], upper=20, lower=200)


def test_numpy_and_jax_matrices_give_the_same_float32_numbers():
    confusion = np.random.default_rng(0).integers(0, 50, (3, 10, 10)).astype(np.int32)
    confusion[0, 1] = 0
    groups = np.arange(10) % 3 == np.arange(3)[:, None]
    for fn in (cl.accuracy, cl.per_class_accuracy, lambda c: cl.group_accuracy(c, groups)):
        host, device = fn(confusion), fn(jnp.asarray(confusion))
        assert isinstance(host, np.ndarray) and host.dtype == np.float32
        np.testing.assert_array_equal(host, device)
    # The mean over classes may be summed in another order.
    f1 = cl.macro_f1(jnp.asarray(confusion))
    np.testing.assert_allclose(cl.macro_f1(confusion), f1, rtol=1e-6)
