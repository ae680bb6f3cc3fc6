"""Synthetic(lambda, mu): shapes, sizes, determinism and the meaning of its two numbers."""

import numpy as np
import pytest

from fedjax_skew.data import datasets, partition


def test_shapes_sizes_and_types():
    dataset = datasets.load("synthetic(1,1)", num_clients=30)
    assert dataset.x_train.dtype == np.float32
    assert dataset.x_train.shape[1:] == (60,)
    assert dataset.num_classes == 10
    sizes = np.bincount(dataset.client_ids)
    assert len(sizes) == 30
    assert sizes.min() >= 45
    assert sizes.max() > 10 * sizes.min()
    total = len(dataset.x_train) + len(dataset.x_test)
    assert 0.89 < len(dataset.x_train) / total < 0.9


def test_default_is_one_hundred_clients_of_synthetic_1_1():
    short, long = datasets.load("synthetic"), datasets.load("synthetic(1, 1)", num_clients=100)
    np.testing.assert_array_equal(short.x_train, long.x_train)
    assert short.client_ids.max() == 99


def test_the_seed_decides_everything():
    first, again = (datasets.load("synthetic", num_clients=5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.x_train, again.x_train)
    np.testing.assert_array_equal(first.y_test, again.y_test)
    other = datasets.load("synthetic", num_clients=5, seed=4)
    assert first.x_train.shape != other.x_train.shape or (first.x_train != other.x_train).any()


def client_means(dataset):
    ids = dataset.client_ids
    return np.stack([dataset.x_train[ids == k].mean(axis=0) for k in range(ids.max() + 1)])


def test_mu_spreads_the_inputs_of_clients():
    def spread(name):
        return client_means(datasets.load(name, num_clients=60)).mean(axis=1).std()

    assert spread("synthetic(0,0)") < 0.3 < spread("synthetic(0,1)")


def test_covariance_falls_with_the_feature():
    dataset = datasets.load("synthetic(0,0)", num_clients=20)
    inside = dataset.x_train - client_means(dataset)[dataset.client_ids]
    expected = np.arange(1, 61) ** -1.2
    np.testing.assert_allclose(inside.var(axis=0), expected, rtol=0.1)


def test_iid_has_one_model_for_all():
    dataset = datasets.load("synthetic(0, 0, iid=true)", num_clients=40)
    # One linear rule explains nearly all labels, which it cannot when every client has its own.
    x = np.c_[dataset.x_train, np.ones(len(dataset.x_train))]
    targets = np.eye(10)[dataset.y_train]
    weights = np.linalg.lstsq(x, targets, rcond=None)[0]
    fit = (np.argmax(x @ weights, axis=1) == dataset.y_train).mean()
    assert fit > 0.7


def test_published_code_differs_only_between_zero_and_one():
    for values, same in (("1, 1", True), ("0.5, 0.5", False)):
        paper, code = (
            datasets.load(f"synthetic({values}, form={form})", num_clients=5).x_train
            for form in ("paper", "code")
        )
        assert np.array_equal(paper, code) == same


def test_natural_partition_follows_the_clients():
    dataset = datasets.load("synthetic", num_clients=12)
    result = partition.partition(
        "natural",
        dataset.y_train,
        num_clients=12,
        num_classes=10,
        seed=0,
        client_ids=dataset.client_ids,
    )
    np.testing.assert_array_equal(np.diff(result.offsets), np.bincount(dataset.client_ids))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("synthetic(1,x)", {}, "mu='x'"),
        ("synthetic(-1,0)", {}, "lambda=-1"),
        ("synthetic(1,2,true,code,3)", {}, "at most 4"),
        ("synthetics", {}, "unknown"),
        ("synthetic", {"num_clients": 0}, "num_clients=0"),
        ("synthetic", {"num_clients": 1.5}, "num_clients=1.5"),
        ("synthetic", {"seed": -1}, "seed=-1"),
        ("synthetic", {"num_client": 3}, "num_client=3 does not apply"),
        ("synthetic", {"path": "x.npz"}, r"dataset\.path"),
    ],
)
def test_wrong_requests_are_one_sentence(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        datasets.load(name, **options)
    assert "\n" not in str(caught.value)
