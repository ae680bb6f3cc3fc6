import numpy as np

from fedjax_skew.data.federated import federate
from fedjax_skew.data.partition import partition


def test_partitions_of_similar_size_have_equal_shapes_and_keep_their_samples():
    labels = np.arange(1500) % 10
    x = np.zeros((1500, 4), np.float32)
    for used in (1100, 1500):
        made = partition("iid", labels[:used], num_clients=5, num_classes=10, seed=0)
        data = federate(x, labels, [made])
        assert data.order.shape == (1, 2048)
        assert data.offsets[0, -1] == used
        np.testing.assert_array_equal(data.order[0, :used], made.order)
