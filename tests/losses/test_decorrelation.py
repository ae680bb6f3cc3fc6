"""FedLF's, FedDecorr's and FedMR's decorrelation against plain formulas."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses


def over_batch(features, where=None, form="code"):
    x = features if where is None else features[where]
    size, width = x.shape
    if form == "paper":
        x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-4)
        return np.sum((x.T @ x / size) ** 2)
    x = (x - x.mean(axis=0)) / np.sqrt(1e-8 + x.var(axis=0, ddof=1))
    return np.mean((x.T @ x)[~np.eye(width, dtype=bool)] ** 2) / size


def dimensional(features, where=None, form="code"):
    value = over_batch(features, where, form)
    return value / features.shape[1] ** 2 if form == "paper" else value


def within_classes(features, labels, num_classes, where=None):
    keep = np.ones(len(labels), bool) if where is None else where
    width, total, number = features.shape[1], 0.0, 0
    for c in range(num_classes):
        rows = features[keep & (labels == c)]
        if len(rows) < 2:
            continue
        rows = (rows - rows.mean(axis=0)) / np.sqrt(1e-8 + rows.var(axis=0, ddof=1))
        gram = rows.T @ rows
        total += np.mean(gram[~np.eye(width, dtype=bool)] ** 2)
        number += len(rows)
    return total / number if number else 0.0


@settings(max_examples=10, deadline=None, derandomize=True)
@given(shape=st.sampled_from([(6, 3), (3, 6)]), seed=st.integers(0, 99))
def test_over_the_batch_equals_its_formula_for_wide_and_tall_batches(agrees, problem, shape, seed):
    p = problem(size=shape[0], width=shape[1], seed=seed, scale=3.0)
    for form in ("paper", "code"):
        agrees(losses.feature_decorrelation, over_batch, p["features"], form=form)
        agrees(losses.dimensional_decorrelation, dimensional, p["features"], form=form)
        if shape[0] > 3:
            options = {"form": form, "where": p["where"]}
            agrees(losses.feature_decorrelation, over_batch, p["features"], **options)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), shape=st.sampled_from([(9, 2), (9, 16)]))
def test_within_classes_equals_its_formula(agrees, problem, seed, shape):
    p = problem(seed=seed, size=shape[0], width=shape[1], scale=2.0)
    args = p["features"], p["labels"]
    agrees(losses.intra_class_decorrelation, within_classes, *args, num_classes=5)
    agrees(losses.intra_class_decorrelation, within_classes, *args, num_classes=5, where=p["where"])


def test_uncorrelated_columns_leave_the_diagonal_of_the_printed_sum_only():
    features = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    value = losses.feature_decorrelation(features, form="paper")
    np.testing.assert_allclose(value, 2, rtol=1e-6)
    np.testing.assert_allclose(losses.feature_decorrelation(features), 0, atol=1e-6)
    mean = losses.dimensional_decorrelation(features, form="paper")
    np.testing.assert_allclose(mean, 0.5, rtol=1e-6)


def test_code_is_the_rescaled_off_diagonal_of_the_printed_mean(problem):
    size, width = 16, 5
    features = problem(size=size, width=width)["features"]
    paper = losses.dimensional_decorrelation(features, form="paper")
    ratio = (size - 1) ** 2 / size * width / (width - 1)
    expected = ratio * (paper - 1 / width)
    np.testing.assert_allclose(losses.dimensional_decorrelation(features), expected, rtol=1e-4)


def test_one_class_is_the_decorrelation_over_the_batch(problem):
    p = problem(size=8)
    zeros = np.zeros(8, np.int32)
    value = losses.intra_class_decorrelation(p["features"], zeros, num_classes=1)
    np.testing.assert_allclose(losses.feature_decorrelation(p["features"]), value, rtol=1e-5)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_scale_and_shift_of_columns_do_not_matter(problem, form):
    p = problem()
    value = losses.feature_decorrelation(p["features"], form=form)
    moved = p["features"] * np.array([2.0, 30.0, 0.5]) + 3
    np.testing.assert_allclose(losses.feature_decorrelation(moved, form=form), value, rtol=1e-4)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_one_row_or_one_feature_has_no_gradient(problem, form):
    p = problem()
    one = np.arange(6) == 2
    loss = lambda h, rows: losses.feature_decorrelation(h, form=form, where=rows)  # noqa: E731
    value, gradient = jax.value_and_grad(loss)(p["features"], one)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(gradient, 0)
    gradient = jax.grad(loss)(p["features"][:, :1], None)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_constant_columns_add_nothing(problem, form):
    p = problem()
    both = np.concatenate([p["features"], np.full((6, 2), 0.1, np.float32)], axis=1)
    value = losses.feature_decorrelation(p["features"], form=form)
    share = 1 if form == "paper" else 3 * 2 / (5 * 4)  # The mean is over more pairs.
    found, gradient = jax.value_and_grad(losses.feature_decorrelation)(both, form=form)
    np.testing.assert_allclose(found, value * share, rtol=1e-3)
    assert np.abs(gradient).max() < 100


def test_within_classes_without_a_pair_or_with_one_feature_is_zero(problem):
    p = problem()
    alone = np.arange(6) % 5
    value = losses.intra_class_decorrelation(
        p["features"], alone, num_classes=5, where=np.arange(6) < 5
    )
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(
        losses.intra_class_decorrelation(p["features"][:, :1], alone, num_classes=5), 0
    )


def test_within_classes_ignores_scale_shift_and_names_of_classes(problem):
    p = problem(size=8)
    value = losses.intra_class_decorrelation(p["features"], p["labels"], num_classes=5)
    moved = p["features"] * np.array([2.0, 30.0, 0.5]) + 3 * p["labels"][:, None]
    again = losses.intra_class_decorrelation(moved, (p["labels"] + 1) % 5, num_classes=5)
    np.testing.assert_allclose(again, value, rtol=1e-3)
