"""The exponential profile and the server's own samples."""

import numpy as np
import pytest

from fedjax_skew.data import long_tail, partition


@pytest.mark.parametrize(
    ("classes", "size", "imbalance", "head", "tail"),
    [(10, 5000, 100, 5000, 50), (10, 5000, 10, 5000, 500), (100, 500, 50, 500, 10)],
)
def test_cifar_profiles_have_the_published_head_and_tail(classes, size, imbalance, head, tail):
    sizes = long_tail.profile(np.full(classes, size), imbalance)
    assert sizes[0] == head
    assert sizes[-1] == tail
    assert (np.diff(sizes) <= 0).all()
    exact = size * imbalance ** (-np.arange(classes) / (classes - 1))
    np.testing.assert_array_equal(sizes, np.floor(exact + 1e-6))


@pytest.mark.parametrize(
    ("classes", "size", "imbalance", "upper", "lower", "groups"),
    [
        (10, 5000, 100, 1500, 200, (3, 4, 3)),
        (10, 5000, 50, 1500, 200, (3, 5, 2)),
        (10, 5000, 10, 1500, 600, (5, 4, 1)),
        (100, 500, 100, 200, 20, (20, 50, 30)),
        (100, 500, 50, 200, 20, (24, 58, 18)),
        (100, 500, 10, 300, 60, (22, 70, 8)),
    ],
)
def test_fedlf_groups_have_the_inferred_sizes(classes, size, imbalance, upper, lower, groups):
    sizes = long_tail.profile(np.full(classes, size), imbalance)
    found = ((sizes > upper).sum(), ((sizes <= upper) & (sizes >= lower)).sum())
    assert (*found, (sizes < lower).sum()) == groups


def test_unbalanced_data_keeps_the_exact_ratio():
    available = np.array([4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659])
    sizes = long_tail.profile(available, 100.0)
    assert (sizes <= available).all()
    assert sizes[0] == 4948
    assert abs(sizes[0] / sizes[-1] - 100) < 2


def test_the_scarcest_class_limits_the_head():
    sizes = long_tail.profile(np.array([100, 10, 100]), 4.0)
    np.testing.assert_array_equal(sizes, [20, 10, 5])


def test_random_order_only_moves_the_profile():
    labels = np.repeat(np.arange(10), 500)
    counts = [
        partition.partition(
            f"longtail(if=10,order={order})+iid", labels, num_clients=2, num_classes=10, seed=1
        ).class_counts.sum(axis=0)
        for order in ("index", "random")
    ]
    assert not np.array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(np.sort(counts[0]), np.sort(counts[1]))


def test_long_tail_is_cut_after_the_server_took_its_samples():
    labels = np.repeat(np.arange(10), 500)
    result = partition.partition(
        "longtail(if=10)+iid", labels, num_clients=2, num_classes=10, seed=1, labelled=0.1
    )
    assert set(np.bincount(labels[result.labelled])) == {50}
    np.testing.assert_array_equal(
        result.class_counts.sum(axis=0), long_tail.profile(np.full(10, 450), 10)
    )


def test_keep_per_class_takes_exact_random_samples():
    labels = np.array([2, 0, 1, 0, 2, 2, 0])
    kept = long_tail.keep_per_class(labels, np.array([2, 0, 1]), np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(labels[kept], minlength=3), [2, 0, 1])
    assert (np.diff(kept) > 0).all()


@pytest.mark.parametrize(
    ("counts", "imbalance", "message"),
    [
        ([10], 2, "at least 2 classes"),
        ([10, 0], 2, "class 1 has none"),
        ([10, 10], 100, "impossible"),
    ],
)
def test_impossible_tails_are_refused(counts, imbalance, message):
    with pytest.raises(ValueError, match=message):
        long_tail.profile(np.array(counts), imbalance)


def test_a_class_too_small_for_the_labelled_split_is_named():
    labels = np.array([0] * 95 + [1] * 5)
    with pytest.raises(ValueError, match="class 1 has only 5"):
        long_tail.server_splits(
            labels, num_classes=2, labelled=0.2, unlabelled=0, rng=np.random.default_rng(0)
        )
