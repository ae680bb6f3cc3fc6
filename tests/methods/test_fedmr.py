"""FedMR: features of one class are decorrelated; clients are weighted by batches."""

import jax.numpy as jnp
import numpy as np

from fedjax_skew.methods import build


def test_the_term_is_the_mean_squared_correlation_within_classes(make_context):
    context = make_context()
    features = np.asarray(context.outputs.features, np.float64)[:7]
    labels = np.asarray(context.batch.labels)[:7]
    total, number = 0.0, 0
    for c in range(4):
        z = features[labels == c]
        if len(z) < 2:
            continue
        z = (z - z.mean(0)) / np.sqrt(1e-8 + z.var(0, ddof=1))
        gram = (z.T @ z) ** 2
        total += (gram.sum() - np.trace(gram)) / (5 * 4)
        number += len(z)
    found = build("fedmr", {"fedmr": {"mu": 0.2}}).regularizer(context)
    np.testing.assert_allclose(found, 0.2 * total / number, rtol=1e-4)


def test_weights_are_numbers_of_batches(make_client):
    client = make_client(num_samples=jnp.float32(17))
    assert float(build("fedmr").weight(client, None)) == 3.0
    assert build("fedmr", {"fedmr": {"batch_weights": False}}).weight is None
