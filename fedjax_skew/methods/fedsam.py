"""FedSAM and FedASAM. Caldarola et al., Improving Generalization in Federated Learning by Seeking
Flat Minima, ECCV 2022; FedSAM also Qu et al., Generalized Federated Learning via Sharpness Aware
Minimization, ICML 2022.

A step takes the gradient at ``w + e`` and applies it at ``w``. The perturbation ``e`` points along
the gradient at ``w`` on the same batch and has length ``rho``, with one norm over all parameters.
The adaptive variant measures lengths relative to the size of each weight. Weight decay and momentum
apply to the step at ``w`` and not to ``e``. Only the first pass, at ``w``, updates running
statistics.

``swa`` averages one global model every ``swa_cycle`` rounds during the last quarter of the rounds
and evaluates the average, which does not affect training. The published recipe also uses a cyclic
learning rate in these rounds, which can be set by the schedule.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew import trees
from fedjax_skew.checks import NonNegative, PositiveInt, validated
from fedjax_skew.methods.base import Method, MethodState, PyTree, StepResult, average


@validated("hparams.fedsam")
def fedsam(*, rho: NonNegative = 0.1, swa: bool = False, swa_cycle: PositiveInt = 10) -> Method:
    """Takes local steps of sharpness-aware minimisation.

    Args:
        rho: length of the perturbation.
        swa: whether to evaluate the average of late global models.
        swa_cycle: number of rounds between two models of that average.
    """
    perturb = Partial(lambda rho, params, gradient: perturbation(gradient, rho), rho)
    return _sharpness_aware("fedsam", perturb, swa, swa_cycle)


@validated("hparams.fedasam")
def fedasam(
    *,
    rho: NonNegative = 0.7,
    eta: NonNegative = 0.2,
    swa: bool = False,
    swa_cycle: PositiveInt = 10,
) -> Method:
    """Takes local steps of adaptive sharpness-aware minimisation.

    Args:
        rho: length of the perturbation, relative to the weights.
        eta: constant added to the magnitude of a weight.
        swa: whether to evaluate the average of late global models.
        swa_cycle: number of rounds between two models of that average.
    """
    return _sharpness_aware("fedasam", Partial(adaptive_perturbation, rho, eta), swa, swa_cycle)


def perturbation(gradient: PyTree, rho: float) -> PyTree:
    """Returns ``rho g / |g|``."""
    return optax.tree.scale(rho / (optax.tree.norm(gradient) + 1e-16), gradient)


def adaptive_perturbation(rho: float, eta: float, params: PyTree, gradient: PyTree) -> PyTree:
    """Returns ``rho t^2 g / |t g|`` with ``t = |w| + eta``, and ``t = 1`` for biases."""

    def size(path, p):
        return jnp.ones_like(p) if path[-1].key == "bias" else jnp.abs(p) + eta

    t = jax.tree_util.tree_map_with_path(size, params)
    scaled = jax.tree.map(jnp.multiply, t, gradient)
    return jax.tree.map(jnp.multiply, t, perturbation(scaled, rho))


def _sharpness_aware(name: str, perturb, swa: bool, swa_cycle: int) -> Method:

    def step(perturb, s):
        gradient, aux = s.grad(s.params, s.batches[0])
        uphill = optax.tree.add(s.params, perturb(s.params, gradient))
        gradient, _ = s.grad(uphill, s.batches[0])
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        return StepResult(params, opt_state, s.scratch, aux)

    method: dict[str, Any] = {"name": name, "step": Partial(step, perturb)}
    if not swa:
        return Method(**method)

    def init(context):
        zero = optax.tree.zeros_like((context.params, context.stats))
        return MethodState({"mean": zero, "count": jnp.float32(0)})

    def server(rnd):
        new = average(rnd)
        since = rnd.round + 1 - int(0.75 * rnd.info.rounds)
        due = (since > 0) & (since % swa_cycle == 0)
        count = rnd.state["count"] + due
        share = jnp.where(due, 1 / jnp.maximum(count, 1), 0.0)
        mean = jax.tree.map(
            lambda m, x: m + share * (x - m), rnd.state["mean"], (new.params, new.stats)
        )
        return new._replace(state={"mean": mean, "count": count})

    def eval_model(evaluation):
        current = evaluation.params, evaluation.stats
        return trees.select(evaluation.state["count"] > 0, evaluation.state["mean"], current)

    return Method(**method, init=init, server=server, eval_model=eval_model, uses_total_rounds=True)
