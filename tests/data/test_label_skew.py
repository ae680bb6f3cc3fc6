"""Rules drawn class by class: exact shares, no client favoured, equal sizes inside groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew.data import label_skew, long_tail
from fedjax_skew.data.partition import partition


def tables(rounding, draws, num_clients=40, classes=10, beta=0.05, balance=True):
    rng = np.random.default_rng(0)
    sizes = np.full(classes, 500)
    return np.stack(
        [
            label_skew._dirichlet_table(sizes, num_clients, beta, balance, rounding, rng)
            for _ in range(draws)
        ]
    )


@pytest.mark.parametrize("balance", [False, True])
def test_expected_number_of_classes_does_not_depend_on_the_client_index(balance):
    drawn = tables("largest_remainder", 300, balance=balance)
    held = (drawn > 0).sum(axis=1)
    mean, spread = held.mean(axis=0), held.std() / np.sqrt(len(held))
    assert np.abs(mean - mean.mean()).max() < 5 * spread


def test_the_published_rounding_gives_the_last_client_the_remainders():
    held = (tables("published", 100) > 0).sum(axis=1).mean(axis=0)
    assert held[-1] > 1.5 * held[:-1].mean()


@pytest.mark.parametrize("rounding", ["largest_remainder", "published"])
def test_every_sample_of_a_class_is_given_away(rounding):
    assert (tables(rounding, 20).sum(axis=2) == 500).all()


@settings(max_examples=60, deadline=None)
@given(
    samples=st.integers(60, 500),
    num_clients=st.integers(1, 45),
    num_classes=st.integers(1, 8),
    group_size=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_grouped_sizes_differ_by_at_most_one_and_every_sample_is_used_once(
    samples, num_clients, num_classes, group_size, seed
):
    labels = np.random.default_rng(seed).integers(0, num_classes, samples)
    result = partition(
        f"grouped_dirichlet(beta=1, group_size={group_size})",
        labels,
        num_clients=num_clients,
        num_classes=num_classes,
        seed=seed,
    )
    sizes = np.diff(result.offsets)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(np.sort(result.order), np.arange(samples))


def test_grouped_dirichlet_is_dirichlet_inside_blocks_of_ten(monkeypatch):
    drawn = []
    draw = label_skew._draw_group

    def record(class_sizes, members, beta, rng):
        drawn.append((class_sizes, draw(class_sizes, members, beta, rng)))
        return drawn[-1][1]

    monkeypatch.setattr(label_skew, "_draw_group", record)
    labels = np.repeat(np.arange(10), long_tail.profile(np.full(10, 500), 10))
    result = partition("grouped_dirichlet(0.5)", labels, num_clients=25, num_classes=10, seed=1)
    blocks = [len(labels) * 10 // 25] * 2
    blocks.append(len(labels) - sum(blocks))
    joined = []
    for (class_sizes, table), size, members in zip(drawn, blocks, (10, 10, 5), strict=True):
        assert class_sizes.sum() == size
        np.testing.assert_array_equal(table.sum(axis=1), class_sizes)
        assert table.shape == (10, members)
        assert table.sum(axis=0).min() >= size // (2 * members), "at least half of the mean"
        held = np.cumsum(table, axis=0)
        assert (table[1:][held[:-1] >= size / members] == 0).all(), "the balance rule"
        joined += [np.repeat(np.arange(10), table[:, k]) for k in range(members)]
    # The lists, sorted by class and joined in client order, are cut into equal pieces.
    pieces = np.array_split(np.concatenate(joined), 25)
    expected = [np.bincount(piece, minlength=10) for piece in pieces]
    np.testing.assert_array_equal(result.class_counts, expected)


def test_blocks_are_random_samples_of_the_whole_set():
    labels = np.repeat(np.arange(10), 200)
    result = partition("grouped_dirichlet(0.5)", labels, num_clients=20, num_classes=10, seed=0)
    first = result.class_counts[:10].sum(axis=0)
    assert first.sum() == 1000
    assert np.abs(first - 100).max() < 35  # Five standard deviations of a hypergeometric draw.


def test_grouped_dirichlet_works_behind_a_long_tail_and_the_server_split():
    labels = np.repeat(np.arange(10), 500)
    result = partition(
        "longtail(if=100)+grouped_dirichlet(alpha=0.5)",
        labels,
        num_clients=20,
        num_classes=10,
        seed=0,
        labelled=0.02,
    )
    np.testing.assert_array_equal(
        result.class_counts.sum(axis=0), long_tail.profile(np.full(10, 490), 100)
    )
    assert np.ptp(np.diff(result.offsets)) <= 1
    assert not set(result.order) & set(result.labelled)


def test_an_unreachable_minimum_is_logged(caplog, monkeypatch):
    monkeypatch.setattr(label_skew, "_MAX_GROUP_DRAWS", 3)
    labels = np.repeat(np.arange(3), 100)
    result = partition("grouped_dirichlet(0.001)", labels, num_clients=10, num_classes=3, seed=0)
    assert "half of the mean" in caplog.text
    assert set(np.diff(result.offsets)) == {30}
