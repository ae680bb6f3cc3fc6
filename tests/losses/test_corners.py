"""Every kernel is finite, with a finite gradient, where a naive formula is not."""

import numpy as np

CORNERS = {
    "plain": {},
    "all classes vacant but one": {"counts": (0, 0, 7, 0, 0)},
    "no vacant class": {"counts": (3, 1, 4, 1, 5)},
    "counts of one": {"counts": (1, 1, 0, 1, 0)},
    "counts of a million": {"counts": (10**6, 0, 10**6, 1, 0)},
    "no data at all": {"counts": (0, 0, 0, 0, 0)},
    "logits of ten thousand": {"scale": 1e4},
    "everything zero": {"scale": 0.0},
}


def assert_finite(result, corner):
    for array in result:
        assert np.isfinite(array).all(), corner


def test_finite_at_hard_counts_and_logits(kernel, problem, value_and_gradient):
    for corner, options in CORNERS.items():
        assert_finite(value_and_gradient(kernel, problem(**options)), corner)


def test_finite_for_hard_batches(kernel, problem, value_and_gradient):
    p = problem()
    zeros, size = np.zeros_like(p["labels"]), len(p["labels"])
    batches = {
        "one class": {"labels": zeros},
        "labels of vacant classes": {"labels": zeros + 1},
        "labels out of range": {"labels": zeros - 1},
        "no row counts": {"where": np.zeros(size, bool)},
        "one row counts": {"where": np.arange(size) == 1},
        "teacher equal to student": {
            "teacher": p["logits"],
            "near": p["features"],
            "far": p["features"],
        },
        "features on their centre": {"features": p["centers"][p["labels"]]},
        "extreme signs": {
            "logits": 1e4 * np.sign(p["logits"]),
            "teacher": -1e4 * np.sign(p["teacher"]),
        },
        "clients without classes": {"held": np.zeros_like(p["held"])},
        "clients without a shared class": {"held": np.eye(4, 5, dtype=bool)},
    }
    for corner, changes in batches.items():
        assert_finite(value_and_gradient(kernel, {**p, **changes}), corner)


def test_finite_with_two_classes_and_one_row(kernel, problem, value_and_gradient):
    for counts in ((4, 0), (1, 1)):
        assert_finite(value_and_gradient(kernel, problem(counts=counts, size=1, width=2)), counts)


def test_rows_left_out_change_nothing_and_receive_no_gradient(kernel, problem, value_and_gradient):
    name, _ = kernel
    p = problem()
    value, gradient = value_and_gradient(kernel, p)
    if value.ndim or name not in ("logits", "features"):
        return
    spoilt = {key: p[key].copy() for key in ("logits", "teacher", "features")}
    for array in spoilt.values():
        array[~p["where"]] = np.nan
    spoilt["labels"] = np.where(p["where"], p["labels"], -1).astype(np.int32)
    spoilt_value, spoilt_gradient = value_and_gradient(kernel, {**p, **spoilt})
    np.testing.assert_array_equal(spoilt_value, value)
    np.testing.assert_array_equal(spoilt_gradient, gradient)
    np.testing.assert_array_equal(np.asarray(gradient)[~p["where"]], 0)
