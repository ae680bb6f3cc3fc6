"""The model as pure functions."""

import jax.numpy as jnp
import numpy as np

from fedjax_skew.models.functional import head, normalizer


def test_images_are_normalised_by_channel():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    y = normalizer(mean, std)(jnp.asarray(x))
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, (x / 255.0 - mean) / std, rtol=1e-5, atol=1e-5)


def test_floats_are_only_cast():
    x = jnp.ones((2, 3), jnp.float32)
    np.testing.assert_array_equal(normalizer((), ())(x), x)
    assert normalizer((), (), jnp.bfloat16)(x).dtype == jnp.bfloat16


def test_the_head_works_with_and_without_bias():
    kernel, features = jnp.arange(6.0).reshape(2, 3), jnp.array([[1.0, 2.0]])
    np.testing.assert_array_equal(head({"head": {"kernel": kernel}}, features), [[6.0, 9.0, 12.0]])
    biased = {"head": {"kernel": kernel, "bias": jnp.ones(3)}}
    np.testing.assert_array_equal(head(biased, features), [[7.0, 10.0, 13.0]])
