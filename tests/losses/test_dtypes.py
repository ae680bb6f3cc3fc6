"""Every kernel widens half precision, and has the right gradient in float64."""

import jax.numpy as jnp
import numpy as np


def in_float64(p):
    return {k: v.astype(np.float64) if v.dtype.kind not in "bi" else v for k, v in p.items()}


def test_half_precision_input_is_computed_in_float32(
    plain_kernel, problem, value_and_gradient, double
):
    p = {
        key: np.asarray(value, jnp.bfloat16) if value.dtype == np.float32 else value
        for key, value in problem().items()
    }
    value, gradient = value_and_gradient(plain_kernel, p)
    with double():
        exact, exact_gradient = value_and_gradient(plain_kernel, in_float64(p))
    assert value.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-4)
    gradient = gradient.astype(np.float64)
    np.testing.assert_allclose(gradient, exact_gradient, rtol=0.01, atol=1e-2)


def test_gradient_equals_central_differences_in_float64(
    plain_kernel, problem, value_and_gradient, double
):
    name, _ = plain_kernel
    if name == "heads":
        return  # Its anchors are constants to the gradient: differences are in test_fedgr.py.
    p = in_float64(problem(seed=3))
    direction = np.random.default_rng(1).normal(size=p[name].shape)
    step = 1e-6
    with double():
        value, gradient = value_and_gradient(plain_kernel, p)
        ahead, _ = value_and_gradient(plain_kernel, {**p, name: p[name] + step * direction})
        behind, _ = value_and_gradient(plain_kernel, {**p, name: p[name] - step * direction})
    assert value.dtype == gradient.dtype == jnp.float64
    difference = (np.sum(ahead) - np.sum(behind)) / (2 * step)
    np.testing.assert_allclose(np.vdot(gradient, direction), difference, rtol=1e-6, atol=1e-7)
