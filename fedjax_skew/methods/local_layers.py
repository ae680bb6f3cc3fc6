"""Layers that stay with their client: FedBN's normalisation and the heads of FedPer and FedRep."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import Client, Evaluation, Method, MethodState, PyTree, Round, Upload


def head_mask(params: PyTree) -> PyTree:
    """Returns a mask that is True for the parameters of the classifier."""
    return {name: jax.tree.map(lambda _, n=name: n == "head", p) for name, p in params.items()}


def body_mask(params: PyTree) -> PyTree:
    """Returns a mask that is True for all parameters except those of the classifier."""
    return jax.tree.map(lambda is_head: not is_head, head_mask(params))


def keep_leaves(
    name: str,
    mask: Callable[[PyTree], PyTree],
    *,
    keep_stats: bool = False,
    start_from_mean: bool = False,
) -> Method:
    """Returns a method whose clients keep some of their parameters and average the others.

    Args:
        name: name of the method.
        mask: ``params -> mask`` with one bool per leaf, True for parameters that stay with the
            client.
        keep_stats: whether running statistics also stay with the client.
        start_from_mean: if True, a client that participates for the first time starts from the mean
            of the parameters that the last cohort kept, and the global model is evaluated with that
            mean. If False, it starts from the initial parameters.
    """

    def take(params):
        pairs = zip(jax.tree.leaves(params), jax.tree.leaves(mask(params)), strict=True)
        return [p for p, stays in pairs if stays]

    def put(params, own):
        leaves, structure = jax.tree.flatten(params)
        rest = iter(own)
        flags = jax.tree.leaves(mask(params))
        leaves = [next(rest) if stays else p for p, stays in zip(leaves, flags, strict=True)]
        return jax.tree.unflatten(structure, leaves)

    def keep(params, stats, seen):
        state = {"leaves": take(params)}
        if keep_stats:
            state["stats"] = stats
        if start_from_mean:
            state["seen"] = jnp.bool_(seen)
        return state

    def own_model(client: Client):
        own = client.state["leaves"]
        if start_from_mean:
            mean, seen = client.server, client.state["seen"]
            own = [jnp.where(seen, a, b) for a, b in zip(own, mean, strict=True)]
        return put(client.params, own), client.state["stats"] if keep_stats else client.stats

    def make_upload(client, result):
        stacked = take(result.params) if start_from_mean else None
        return Upload(keep(result.params, result.stats, True), stacked)

    def update_mean(rnd: Round):
        trained = jnp.sum(rnd.weights) > 0
        means = [jnp.tensordot(rnd.weights, leaf, 1) for leaf in rnd.stacked]
        return [jnp.where(trained, new, old) for new, old in zip(means, rnd.state, strict=True)]

    def eval_model(evaluation: Evaluation):
        return put(evaluation.params, evaluation.state), evaluation.stats

    return Method(
        name,
        init=lambda context: MethodState(
            take(context.params) if start_from_mean else None,
            keep(context.params, context.stats, False),
        ),
        start=own_model,
        make_upload=make_upload,
        update_server_state=update_mean if start_from_mean else None,
        eval_model=eval_model if start_from_mean else None,
        personal=own_model,
    )
