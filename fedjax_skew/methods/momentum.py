"""How far local momentum carries: the length of a round of SGD in units of plain steps."""

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import RunInfo


def effective_steps(num_steps: jax.Array, momentum: float) -> jax.Array:
    r"""Sum of the weights with which the gradients of a round enter the update.

    .. math::
        K_\rho = \frac{1}{1 - \rho} \Big(K - \rho \frac{1 - \rho^K}{1 - \rho}\Big)

    Momentum starts at zero: the gradient of step k is applied once and then decays over the steps
    that are left. Without momentum this is the number of steps.

    Args:
        num_steps: K, any shape.
        momentum: :math:`\rho` in ``[0, 1)``.
    """
    steps = jnp.asarray(num_steps, jnp.float32)
    if momentum == 0:
        return steps
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def require_fresh_momentum(method: str, info: RunInfo) -> None:
    """Raises if clients keep their momentum, because ``effective_steps`` would then be wrong."""
    if info.keep_momentum:
        raise ValueError(
            f"keep_momentum=True does not go with method={method!r}, whose step counts hold for "
            "momentum that starts at zero every round; set it to False."
        )
