"""The effective length of a round of SGD with momentum, in units of plain steps."""

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import RunInfo


def effective_steps(num_steps: jax.Array, momentum: float) -> jax.Array:
    r"""Computes the sum of the weights with which a round's gradients enter the update.

    .. math::
        K_\rho = \frac{1}{1 - \rho} \Big(K - \rho \frac{1 - \rho^K}{1 - \rho}\Big)

    Momentum starts at zero: the gradient of step k is applied once and then decays over the
    remaining steps. Without momentum, the result is the number of steps.

    Args:
        num_steps: K, an array of any shape.
        momentum: :math:`\rho` in ``[0, 1)``.
    """
    steps = jnp.asarray(num_steps, jnp.float32)
    if momentum == 0:
        return steps
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def require_fresh_momentum(method: str, info: RunInfo) -> None:
    """Raises unless clients run SGD with momentum that starts at zero every round."""
    if info.keep_momentum:
        raise ValueError(
            f"keep_momentum=True is incompatible with method={method!r}, whose step counts assume "
            "momentum that starts at zero every round; set it to False."
        )
    if not info.sgd:
        raise ValueError(
            f"method={method!r} counts the steps of SGD and is incompatible with a client "
            "optimiser that another method or the caller supplies; use one of the two."
        )
