"""FedSOL. Lee et al., FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in
Federated Learning, CVPR 2024.

A step takes the gradient of the objective at ``w + e`` and applies it at ``w``. The perturbation is
``e = rho A r / |r|``, with one norm over all parameters, where ``r`` is the gradient of the
divergence from the global model's prediction at temperature 3. ``A`` is 1 (``variant="fixed"``), or
in every tensor ``|w - x|`` divided by its norm along the output units (``"adaptive"``, the
default). Only the pass at ``w`` updates running statistics.

At ``w = x``, the gradient of the divergence is 0 up to rounding errors of about 1e-8 in float32,
and the authors' code (``form="code"``) scales this noise to the full length ``rho`` in the first
step of every round. By default, ``e`` is 0 where ``|r|`` is below 1e-6; otherwise the two forms
agree. The adaptive variant has ``A = 0`` in that step in both forms.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, Positive, validated
from fedjax_skew.losses import distillation
from fedjax_skew.methods.base import Method, PyTree, StepResult, masked_mean

SMALLEST = 1e-6


@validated("hparams.fedsol")
def fedsol(
    *,
    rho: NonNegative = 1.0,
    temperature: Positive = 3.0,
    variant: Literal["adaptive", "fixed"] = "adaptive",
    form: Literal["paper", "code"] = "paper",
) -> Method:
    """Takes gradients at a point perturbed along the gradient of a proximal divergence.

    Args:
        rho: length of the perturbation; 0 is FedAvg.
        temperature: temperature of both softmaxes in the divergence.
        variant: ``"fixed"`` length, or a length that is ``"adaptive"`` to how far each parameter
            has moved.
        form: whether a gradient that consists of rounding errors gives no perturbation
            (``"paper"``) or one of full length (``"code"``).
    """

    def step(rho, temperature, s):
        batch, client = s.batches[0], s.client
        teacher = client.teacher(batch).logits

        def divergence(params):
            outputs, stats = client.model.apply(
                params, s.stats, batch.x, train=True, where=batch.where
            )
            value = distillation(outputs.logits, teacher, temperature=temperature)
            return masked_mean(value, batch.where), stats

        proximal, stats = jax.grad(divergence, has_aux=True)(s.params)
        move = perturb(s.freeze(proximal), rho, 0.0 if form == "code" else SMALLEST)
        if variant == "adaptive":
            move = jax.tree.map(lambda e, w, x: e * _share(w - x), move, s.params, client.params)
        gradient, aux = s.grad(optax.tree.add(s.params, move), batch)
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        return StepResult(params, opt_state, s.scratch, aux._replace(stats=stats))

    return Method("fedsol", step=Partial(step, rho, temperature))


def perturb(proximal: PyTree, rho: float, smallest: float) -> PyTree:
    """Returns ``rho r / |r|``, or 0 if ``|r|`` is below ``smallest``."""
    length = optax.tree.norm(proximal)
    scale = jnp.where(length >= smallest, rho / (length + 1e-12), 0.0)
    return optax.tree.scale(scale, proximal)


def _share(moved: jax.Array) -> jax.Array:
    """Divides magnitudes by their norm along the last axis, which is that of the output units."""
    moved = jnp.abs(moved)
    length = jnp.linalg.norm(moved, axis=-1, keepdims=True) if moved.ndim else moved
    return moved / jnp.maximum(length, 1e-12)
