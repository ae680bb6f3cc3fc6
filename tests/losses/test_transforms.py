"""Every kernel agrees with itself under jit, vmap, grad and checkpoint."""

import jax
import numpy as np

from fedjax_skew import losses

COUNTS = [(5, 0, 9, 1, 0), (0, 0, 3, 0, 0), (2, 2, 2, 2, 2)]


def test_every_public_kernel_is_in_the_table(covered):
    # The importance weights are constants of a loss: they have no gradient to test.
    assert covered | {"class_importance_weights"} == set(losses.__all__)


def test_vmap_of_a_checkpointed_gradient_equals_a_loop(plain_kernel, problem, value_and_gradient):
    name, function = plain_kernel
    problems = [problem(counts=counts, seed=seed) for seed, counts in enumerate(COUNTS)]
    stacked = {key: np.stack([p[key] for p in problems]) for key in problems[0]}

    def total(x, p):
        value = jax.checkpoint(function)(x, p)
        return value.sum(), value

    together = jax.jit(jax.vmap(jax.value_and_grad(total, has_aux=True)))
    (_, values), gradients = together(stacked[name], stacked)
    for row, p in enumerate(problems):
        value, gradient = value_and_gradient(plain_kernel, p)
        np.testing.assert_allclose(values[row], value, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gradients[row], gradient, rtol=1e-5, atol=1e-5)
