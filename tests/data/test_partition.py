"""Every partition: no sample twice, nobody empty, exact counts, deterministic, clear refusals."""

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fedjax_skew.data import partition as partition_lib

SPECS = (
    "iid",
    "power_law",
    "power_law(power=2.5)",
    "quantity(alpha=1)",
    "quantity(alpha=3)",
    "shards(s=2)",
    "shards(s=1, spread=0)",
    "shards(s=3, spread=1)",
    "dirichlet(beta=0.001, min_size=1)",
    "dirichlet(beta=0.1, min_size=1)",
    "dirichlet(alpha=0.5, balance=false, min_size=2)",
    "dirichlet(1000)",
    "dirichlet(beta=0.1, min_size=1, rounding=published)",
    "grouped_dirichlet(alpha=0.5)",
    "grouped_dirichlet(beta=5, group_size=3)",
    "double(labels=1)",
    "double(labels=3, power=2)",
    "natural",
    "natural(merge=true)",
)
# These divide the whole pool, the others may leave samples out and say so.
COMPLETE = (
    *("iid", "power_law", "quantity", "shards", "dirichlet", "grouped_dirichlet"),
    "natural(merge=true)",
)


def make_labels(num_samples, num_classes, seed, skewed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(num_classes, 0.3 if skewed else 100.0))
    return rng.choice(num_classes, num_samples, p=shares).astype(np.int32)


def check_invariants(result, labels, num_clients, num_classes):
    ids = np.concatenate([result.order, result.labelled, result.unlabelled])
    assert len(np.unique(ids)) == len(ids), "a sample is held twice"
    assert ids.min() >= 0
    assert ids.max() < len(labels)
    assert result.offsets[0] == 0
    assert result.offsets[-1] == len(result.order)
    assert np.diff(result.offsets).min() >= 1, "a client is empty"
    assert result.offsets.shape == (num_clients + 1,)
    assert result.class_counts.shape == (num_clients, num_classes)
    owner = np.repeat(np.arange(num_clients), np.diff(result.offsets))
    counts = np.zeros((num_clients, num_classes), int)
    np.add.at(counts, (owner, labels[result.order]), 1)
    np.testing.assert_array_equal(counts, result.class_counts)
    keys = list(zip(owner, labels[result.order], result.order, strict=True))
    assert keys == sorted(keys)
    for array in (result.order, result.offsets, result.class_counts, result.labelled):
        assert array.dtype == np.int32


@settings(max_examples=200, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    num_samples=st.integers(1, 400),
    num_clients=st.integers(1, 40),
    num_classes=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    skewed=st.booleans(),
    labelled=st.sampled_from([0.0, 0.1]),
    unlabelled=st.sampled_from([0.0, 0.2]),
    tail=st.sampled_from(["", "longtail(if=5)+", "longtail(if=1.5, order=random)+"]),
)
def test_a_request_gives_a_correct_partition_or_one_clear_sentence(
    spec, num_samples, num_clients, num_classes, seed, skewed, labelled, unlabelled, tail
):
    labels = make_labels(num_samples, num_classes, seed, skewed)
    client_ids = np.random.default_rng(seed).integers(0, 50, num_samples)
    arguments = {
        "num_clients": num_clients,
        "num_classes": num_classes,
        "seed": seed,
        "client_ids": client_ids,
        "labelled": labelled,
        "unlabelled": unlabelled,
    }
    try:
        result = partition_lib.partition(tail + spec, labels, **arguments)
    except ValueError as error:
        assert "\n" not in str(error)
        assert len(str(error)) > 30
        event("refused")
        return
    event("divided")
    check_invariants(result, labels, num_clients, num_classes)
    if not tail and spec.startswith(COMPLETE) and spec != "natural":
        total = len(result.order) + len(result.labelled) + len(result.unlabelled)
        assert total == num_samples, "a sample is lost"
    again = partition_lib.partition(tail + spec, labels, **arguments)
    assert again.hash == result.hash


@settings(max_examples=200, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    num_clients=st.integers(1, 40),
    num_classes=st.integers(3, 12),
    extra=st.integers(0, 300),
    seed=st.integers(0, 10**6),
    unlabelled=st.sampled_from([0.0, 0.1]),
    tail=st.sampled_from(["", "longtail(if=5)+"]),
)
def test_a_possible_request_is_never_refused(
    spec, num_clients, num_classes, extra, seed, unlabelled, tail
):
    num_samples = 40 * num_clients + 30 * num_classes + extra
    labels = np.arange(num_samples) % num_classes
    result = partition_lib.partition(
        tail + spec,
        labels,
        num_clients=num_clients,
        num_classes=num_classes,
        seed=seed,
        client_ids=np.arange(num_samples) // 30,
        unlabelled=unlabelled,
    )
    check_invariants(result, labels, num_clients, num_classes)


@pytest.mark.parametrize("spec", [s for s in SPECS if not s.startswith("natural")])
def test_another_seed_gives_another_partition(spec):
    labels = make_labels(2000, 10, 0, skewed=False)
    results = [
        partition_lib.partition(spec, labels, num_clients=20, num_classes=10, seed=seed)
        for seed in (0, 1)
    ]
    assert results[0].hash != results[1].hash
    for result in results:
        check_invariants(result, labels, 20, 10)


def test_iid_sizes_and_class_counts_are_even():
    labels = np.tile(np.arange(10), 1000)
    result = partition_lib.partition("iid", labels, num_clients=7, num_classes=10, seed=0)
    sizes = np.diff(result.offsets)
    assert sizes.max() - sizes.min() <= 1
    assert result.class_counts.min() > 90


def test_quantity_gives_alpha_equal_label_sorted_sets():
    labels = np.repeat(np.arange(10), 100)
    result = partition_lib.partition(
        "quantity(alpha=2)", labels, num_clients=10, num_classes=10, seed=3
    )
    assert set(np.diff(result.offsets)) == {100}
    assert set(result.class_counts.ravel()) <= {0, 50, 100}
    assert (result.class_counts > 0).sum(axis=1).max() <= 2


def test_shards_hold_one_label_and_have_unequal_sizes():
    labels = np.repeat(np.arange(10), 500)
    result = partition_lib.partition("shards(s=2)", labels, num_clients=10, num_classes=10, seed=1)
    assert (result.class_counts > 0).sum(axis=1).max() <= 2
    sizes = np.diff(result.offsets)
    assert sizes.max() > 1.3 * sizes.min()


def test_fewer_shards_than_classes_still_divide_everything():
    labels = np.repeat(np.arange(10), 20)
    result = partition_lib.partition("shards(s=1)", labels, num_clients=3, num_classes=10, seed=1)
    check_invariants(result, labels, 3, 10)
    assert len(result.order) == 200


def test_dirichlet_small_beta_concentrates_and_large_beta_is_even():
    labels = np.repeat(np.arange(10), 500)

    def largest_share(beta):
        result = partition_lib.partition(
            f"dirichlet(beta={beta},balance=false,min_size=1)",
            labels,
            num_clients=10,
            num_classes=10,
            seed=0,
        )
        return (result.class_counts.max(axis=0) / 500).mean()

    assert largest_share(0.01) > 0.9
    assert largest_share(1000) < 0.13


def test_dirichlet_shares_have_the_dirichlet_mean_and_variance():
    # Var of one share of a symmetric Dirichlet(b) over K: (K - 1) / (K^2 (K b + 1)).
    from fedjax_skew.data import label_skew

    rng = np.random.default_rng(0)
    table = label_skew._dirichlet_table(
        np.full(4000, 10**6), 5, 0.3, False, "largest_remainder", rng
    )
    shares = table / 10**6
    np.testing.assert_allclose(shares.mean(axis=0), 0.2, atol=0.02)
    np.testing.assert_allclose(shares.var(axis=0), 4 / (25 * (5 * 0.3 + 1)), rtol=0.08)


def test_balance_rule_stops_clients_that_hold_their_fair_share():
    labels = np.repeat(np.arange(10), 500)

    def sizes(balance):
        spec = f"dirichlet(beta=0.05,balance={balance},min_size=1)"
        result = partition_lib.partition(spec, labels, num_clients=10, num_classes=10, seed=5)
        # A client may pass its fair share of 500 only with its last class.
        held = np.cumsum(result.class_counts, axis=1)
        passed = (held >= 500) & (np.roll(held, 1, axis=1) >= 500)
        passed[:, 0] = False
        return np.diff(result.offsets), result.class_counts[passed].sum()

    balanced, after = sizes("true")
    assert after == 0
    assert balanced.max() < sizes("false")[0].max()


def test_dirichlet_minimum_size_holds():
    labels = np.repeat(np.arange(10), 6000)
    result = partition_lib.partition(
        "dirichlet(beta=0.05, min_size=256)", labels, num_clients=10, num_classes=10, seed=0
    )
    assert np.diff(result.offsets).min() >= 256


def test_double_gives_every_client_exactly_its_labels_and_divides_everything():
    labels = np.repeat(np.arange(10), 5000)
    for number in (2, 3):
        result = partition_lib.partition(
            f"double(labels={number})", labels, num_clients=100, num_classes=10, seed=0
        )
        assert set((result.class_counts > 0).sum(axis=1)) == {number}
        assert len(result.order) == len(labels)
        for c in range(10):
            sizes = np.sort(result.class_counts[:, c])[::-1]
            holders = np.count_nonzero(sizes)
            assert sizes[0] > 0.7 * holders * sizes[holders - 1], "sizes follow rank^-1"


@pytest.mark.parametrize(("clients", "number"), [(4, 3), (5, 2), (10, 1), (13, 7)])
def test_double_covers_every_class_when_possible(clients, number):
    labels = np.repeat(np.arange(10), 50)
    for seed in range(20):
        result = partition_lib.partition(
            f"double(labels={number})", labels, num_clients=clients, num_classes=10, seed=seed
        )
        assert (result.class_counts.sum(axis=0) == 50).all()


def test_double_leaves_out_classes_nobody_can_hold_and_says_so(caplog):
    labels = np.repeat(np.arange(10), 50)
    result = partition_lib.partition(
        "double(labels=2)", labels, num_clients=3, num_classes=10, seed=0
    )
    assert len(result.order) == 300
    assert "cannot hold all classes" in caplog.text


def test_power_law_sizes_follow_the_power():
    labels = np.zeros(10_000, int)
    result = partition_lib.partition(
        "power_law(power=1)", labels, num_clients=10, num_classes=1, seed=0
    )
    sizes = np.sort(np.diff(result.offsets))[::-1]
    np.testing.assert_allclose(sizes / sizes[0], 1 / np.arange(1, 11), atol=0.01)


def test_natural_keeps_whole_clients():
    client_ids = np.array([5, 5, 9, 2, 2, 2])
    labels = np.array([0, 1, 1, 0, 0, 1])
    result = partition_lib.partition(
        "natural", labels, num_clients=3, num_classes=2, seed=0, client_ids=client_ids
    )
    np.testing.assert_array_equal(result.order, [3, 4, 5, 0, 1, 2])
    np.testing.assert_array_equal(result.offsets, [0, 3, 5, 6])
    fewer = partition_lib.partition(
        "natural", labels, num_clients=2, num_classes=2, seed=0, client_ids=client_ids
    )
    kept = set(client_ids[fewer.order])
    assert len(kept) == 2
    assert len(fewer.order) == np.isin(client_ids, list(kept)).sum()
    merged = partition_lib.partition(
        "natural(merge=true)", labels, num_clients=2, num_classes=2, seed=0, client_ids=client_ids
    )
    assert len(merged.order) == 6


def test_counts_file_is_followed_exactly(tmp_path):
    file = tmp_path / "counts, of (a) run.csv"
    file.write_text("# rows are classes\n3, 0, 1\n0 2 2\n")
    labels = np.array([0] * 5 + [1] * 4)
    result = partition_lib.partition(
        f'counts(path="{file}")', labels, num_clients=3, num_classes=2, seed=0
    )
    np.testing.assert_array_equal(result.class_counts, [[3, 0], [0, 2], [1, 2]])
    check_invariants(result, labels, 3, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3,0\n0,9\n", "asks for 9 samples of class 1"),
        ("3,0\n2,0\n", "no sample to client 1"),
        ("3,0\n", "1 rows"),
        ("3,-1\n1,1\n", "not negative"),
        ("3,x\n1,1\n", "whole numbers"),
    ],
)
def test_a_wrong_counts_file_is_refused(tmp_path, content, message):
    file = tmp_path / "counts.csv"
    file.write_text(content)
    labels = np.array([0] * 5 + [1] * 4)
    with pytest.raises(ValueError, match=message):
        partition_lib.partition(f"counts({file})", labels, num_clients=2, num_classes=2, seed=0)


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        ("iid", {"num_clients": 1001}, "num_clients=1001 is more than the 1000"),
        ("iid", {"num_clients": 0}, "num_clients=0"),
        ("iid", {"num_clients": 2.5}, "num_clients=2.5"),
        ("iid", {"seed": -1}, "seed=-1"),
        ("iid", {"labelled": 1.5}, "labelled=1.5"),
        ("iid", {"labelled": 0.6, "unlabelled": 0.5}, "leave nothing"),
        ("iid", {"labelled": 0.001}, "one sample per class"),
        ("iid(3)", {}, "takes at most 0"),
        ("double(labels=11)", {}, "labels=11 of double is more than the 10"),
        ("quantity(alpha=200)", {}, "alpha=200"),
        ("shards(s=200)", {}, "s=200"),
        ("dirichlet(beta=0.1, min_size=101)", {}, "min_size can be at most 100"),
        ("dirichlet", {}, "needs beta"),
        ("dirichlet(beta=0)", {}, "beta=0"),
        ("dirichlet(beta=nan)", {}, "beta=nan"),
        ("dirichlet(beta=0.1, alpha=0.2)", {}, "beta twice"),
        ("dirichlet(bta=0.1)", {}, "Did you mean 'beta'"),
        ("dirichlet(beta=0.1", {}, "bracket"),
        ("dirichlet(beta=0.1, balance=maybe)", {}, "True or False"),
        ("dirchlet(beta=0.1)", {}, "Did you mean 'dirichlet'"),
        ("longtail(if=0.5)+iid", {}, "if=0.5"),
        ("longtail(if=1000)+iid", {}, "if=1000 of longtail is impossible"),
        ("longtail(if=10)", {}, "longtail"),
        ("iid+longtail(if=10)", {}, "not of the form"),
        ("longtail(if=10)+iid+iid", {}, "not of the form"),
        ("natural", {}, "natural clients"),
        ("counts(path=/nowhere/x.csv)", {}, "cannot be read"),
        ("", {}, "must be a text"),
        (None, {}, "must be a text"),
    ],
)
def test_impossible_requests_are_one_clear_sentence(spec, changes, message):
    labels = np.tile(np.arange(10), 100)
    arguments = {"num_clients": 10, "num_classes": 10, "seed": 0, **changes}
    with pytest.raises(ValueError, match=message) as caught:
        partition_lib.partition(spec, labels, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [[0, -1], [0, 10], [0.5, 1.0], [[0, 1]], []])
def test_wrong_labels_are_refused(bad):
    with pytest.raises(ValueError, match="label"):
        partition_lib.partition("iid", np.array(bad), num_clients=1, num_classes=10, seed=0)


def test_server_samples_do_not_depend_on_the_partition():
    labels = np.tile(np.arange(10), 200)
    results = [
        partition_lib.partition(
            spec, labels, num_clients=5, num_classes=10, seed=4, labelled=0.05, unlabelled=0.1
        )
        for spec in ("iid", "longtail(if=20)+dirichlet(beta=0.5)")
    ]
    np.testing.assert_array_equal(results[0].labelled, results[1].labelled)
    np.testing.assert_array_equal(results[0].unlabelled, results[1].unlabelled)
    assert set(np.bincount(labels[results[0].labelled])) == {10}
    assert len(results[0].unlabelled) == 200


def test_listing_names_every_rule():
    listing = partition_lib.names()
    text = " ".join(listing)
    for name in (
        "iid",
        "quantity",
        "dirichlet",
        "shards",
        "double",
        "natural",
        "file",
        "power_law",
    ):
        assert name in text
    assert "counts(path)" in listing
    assert any(name.startswith("longtail(if, order=index)+") for name in listing)
    assert all(listing.values())


def test_many_clients_are_divided_without_a_loop_over_them():
    labels = np.random.default_rng(0).integers(0, 10, 500_000)
    for spec in ("iid", "dirichlet(beta=0.1,min_size=1)", "shards(s=2)", "double(labels=2)"):
        result = partition_lib.partition(spec, labels, num_clients=50_000, num_classes=10, seed=0)
        assert np.diff(result.offsets).min() >= 1
        assert len(result.order) == len(labels)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("iid", "42954e8a491c2a3b"),
        ("power_law(power=2)", "2668679a34b0ff65"),
        ("quantity(alpha=2)", "8c4547278a33e38f"),
        ("shards(s=2)", "d3e7c5165ba89f10"),
        ("dirichlet(beta=0.1)", "a34abe83dc41e6be"),
        ("dirichlet(beta=0.1, rounding=published)", "35d4f7b6c32e0c06"),
        ("longtail(if=20)+dirichlet(beta=0.5, balance=false)", "850bb33cb83e9b74"),
        ("grouped_dirichlet(beta=0.5)", "023a0a415497b34b"),
        ("double(labels=3)", "b8e8d7ae35cc67e4"),
        ("natural(merge=true)", "7c74c71e578163f5"),
    ],
)
def test_partitions_stay_as_they_are(spec, expected):
    result = partition_lib.partition(
        spec,
        np.arange(2000) % 10,
        num_clients=12,
        num_classes=10,
        seed=3,
        client_ids=np.arange(2000) // 40,
        labelled=0.02,
        unlabelled=0.05,
    )
    assert result.hash[:16] == expected
