"""FedRCL: supervised contrast that is relaxed where a class collapses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.base import Batch
from fedjax_skew.methods.fedrcl import fedrcl
from fedjax_skew.models.functional import Outputs


def term(make_context, method, features, labels, blocks=()):
    features, labels = jnp.asarray(features, jnp.float32), jnp.asarray(labels)
    batch = Batch(jnp.zeros((len(labels), 6)), labels, jnp.ones(len(labels), bool))
    outputs = Outputs(jnp.zeros((len(labels), 4)), features, blocks)
    return method.regularizer(make_context(outputs=outputs, batch=batch))


def test_one_class_without_collapse_costs_nothing(make_context):
    assert term(make_context, fedrcl(), [[1.0, 0.0], [0.0, 1.0]], [2, 2]) == 0


@pytest.mark.parametrize(("cosine", "apart"), [(0.75, True), (0.65, False)])
def test_only_a_collapsed_class_is_pushed_apart(make_context, cosine, apart):
    pair = jnp.array([[1.0, 0.0], [cosine, (1 - cosine**2) ** 0.5]])
    gradient = jax.grad(lambda f: term(make_context, fedrcl(), f, [1, 1]))(pair)
    moved = pair - 0.1 * gradient
    moved = moved / jnp.linalg.norm(moved, axis=1, keepdims=True)
    assert bool(moved[0] @ moved[1] < cosine - 1e-6) is apart


def test_the_levels_are_averaged_and_replace_the_features(make_context):
    rng = np.random.default_rng(0)
    levels = tuple(jnp.asarray(rng.normal(size=(6, d)), jnp.float32) for d in (3, 4))
    labels = [0, 0, 1, 1, 2, 2]
    each = [term(make_context, fedrcl(), level, labels) for level in levels]
    both = term(make_context, fedrcl(), jnp.full((6, 2), jnp.nan), labels, levels)
    np.testing.assert_allclose(both, np.mean(each), rtol=1e-6)


def test_scale_does_not_matter(make_context):
    features = np.random.default_rng(1).normal(size=(6, 3))
    labels = [0, 0, 1, 1, 2, 3]
    values = [term(make_context, fedrcl(), s * features, labels) for s in (1.0, 9.0)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)
