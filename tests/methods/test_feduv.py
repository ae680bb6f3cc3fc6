"""FedUV: variance of predictions and uniformity of features."""

import jax.numpy as jnp
import numpy as np

from fedjax_skew.methods.base import Batch
from fedjax_skew.methods.feduv import feduv
from fedjax_skew.models.functional import Outputs


def test_a_certain_batch_with_one_sample_of_each_class_has_no_variance_term(make_context):
    outputs = Outputs(100 * jnp.eye(4), jnp.eye(4))
    batch = Batch(jnp.zeros((4, 6)), jnp.arange(4), jnp.ones(4, bool))
    context = make_context(outputs=outputs, batch=batch)
    np.testing.assert_allclose(feduv(mu=0.0).regularizer(context), 0.0, atol=1e-6)
    # All pairs are equally far apart, so that each is exp(-1).
    np.testing.assert_allclose(feduv(lam=0.0).regularizer(context), 0.5 * np.exp(-1), rtol=1e-5)


def test_scaling_the_features_does_not_matter(make_context):
    context = make_context()
    scaled = context.outputs._replace(features=10 * context.outputs.features)
    term = feduv(lam=0.0).regularizer
    np.testing.assert_allclose(term(context), term(make_context(outputs=scaled)), rtol=1e-5)


def test_terms_add_up(make_context):
    context = make_context()
    parts = [feduv(lam=2.0, mu=0.0), feduv(lam=0.0, mu=3.0)]
    total = sum(p.regularizer(context) for p in parts)
    np.testing.assert_allclose(feduv(lam=2.0, mu=3.0).regularizer(context), total, rtol=1e-6)
    assert feduv(lam=0.0, mu=0.0).regularizer is None
