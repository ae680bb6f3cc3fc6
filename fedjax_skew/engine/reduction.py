"""The sums of a round over its clients, which are reduced chunk by chunk, and its report."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_skew.engine.local import ClientOutput, ClientReport
from fedjax_skew.methods.base import PyTree

_NAMED_CLIENTS = 8


class RoundReport(NamedTuple):
    """Statistics of one round, of shape ``[S]`` unless stated otherwise.

    Attributes:
        loss: mean local objective over the cohort, weighted by samples.
        update_norm: mean norm of the clients' updates.
        mean_update_norm: norm of the mean update.
        cosine: mean cosine between a client's update and the mean update.
        nonfinite: number of clients with a non-finite result.
        bad_clients: ``[S, 8]`` indices of the first of them, padded with -1.
        params_finite: whether the new global parameters are finite.
        useful_steps: ``[]`` number of local steps that clients needed.
        executed_steps: ``[]`` number of local steps that were computed, including padding.
        samples: ``[]`` number of training samples that were used.
        cohort: ``[S, M]`` clients that received the model; -1 if too few were available.
        update_norms: ``[S, M]`` norms of their updates; -1 for clients that dropped out.
    """

    loss: jax.Array
    update_norm: jax.Array
    mean_update_norm: jax.Array
    cosine: jax.Array
    nonfinite: jax.Array
    bad_clients: jax.Array
    params_finite: jax.Array
    useful_steps: jax.Array
    executed_steps: jax.Array
    samples: jax.Array
    cohort: jax.Array
    update_norms: jax.Array

    @property
    def asked(self) -> jax.Array:
        """The number of clients that received the model."""
        return (self.cohort >= 0).sum(-1)

    @property
    def answered(self) -> jax.Array:
        """The number of clients that sent an update."""
        return (self.update_norms != -1).sum(-1)


class Sums(NamedTuple):
    """Sums over clients ``[S, ...]``, weighted except for ``summed`` and ``unit``."""

    delta: PyTree
    stats: PyTree
    weight: jax.Array
    summed: PyTree
    unit: PyTree


def sum_chunk(out: ClientOutput, seeds: jax.Array, num_seeds: int) -> Sums:
    """Sums the clients ``[c]`` of a chunk by seed."""
    member = jax.nn.one_hot(seeds, num_seeds, dtype=jnp.float32, axis=0)

    def total(tree, weight):
        by_seed = member * weight

        def contract(a):
            return jnp.einsum("sc,c...->s...", by_seed, a.astype(jnp.float32), precision="highest")

        return jax.tree.map(contract, tree)

    ones = jnp.ones_like(out.weight)
    inverse = 1.0 / jnp.maximum(out.report.delta_norm, 1e-12)
    inverse = jnp.where(out.weight > 0, inverse, 0.0)
    return Sums(
        total(out.delta, out.weight),
        total(out.stats, out.weight),
        total(ones, out.weight),
        total(out.upload.summed, ones),
        total(out.delta, inverse),
    )


def round_report(
    cohort: jax.Array,
    clients: ClientReport,
    sums: Sums,
    params: PyTree,
    asked: jax.Array,
    steps: jax.Array,
    executed: jax.Array,
    samples: jax.Array,
) -> RoundReport:
    """Returns the report of a round from its clients' reports ``[S, M]``, sums and parameters."""
    answered = jnp.sum(steps > 0, -1)
    samples_of = jnp.where(steps > 0, clients.num_samples, 0.0)
    share = samples_of / jnp.maximum(jnp.sum(samples_of, -1, keepdims=True), 1.0)
    total = jnp.maximum(sums.weight, 1e-12)
    mean_norm = jax.vmap(optax.tree.norm)(sums.delta) / total
    along = jax.vmap(lambda u, d: optax.tree.vdot(u, d) / jnp.maximum(optax.tree.norm(d), 1e-12))(
        sums.unit, sums.delta
    )
    bad = ~clients.finite
    order = jnp.argsort(~bad, axis=-1, stable=True)
    names = jnp.where(
        jnp.take_along_axis(bad, order, -1), jnp.take_along_axis(cohort, order, -1), -1
    )
    width = max(_NAMED_CLIENTS - names.shape[-1], 0)
    names = jnp.pad(names, ((0, 0), (0, width)), constant_values=-1)[:, :_NAMED_CLIENTS]
    # A single array, because XLA would compile separate operations for every layer.
    flat = jnp.concatenate([p.reshape(p.shape[0], -1) for p in jax.tree.leaves(params)], 1)
    return RoundReport(
        loss=jnp.sum(clients.loss * share, -1),
        # Scaled after the mean, so that the factor is exactly 1 if no client drops out.
        update_norm=jnp.mean(jnp.where(steps > 0, clients.delta_norm, 0.0), -1)
        * (steps.shape[-1] / jnp.maximum(answered, 1)),
        mean_update_norm=mean_norm,
        cosine=along / jnp.maximum(jnp.sum(~bad & (steps > 0), -1), 1),
        nonfinite=jnp.sum(bad, -1),
        bad_clients=names,
        params_finite=jnp.all(jnp.isfinite(flat), -1),
        useful_steps=jnp.sum(steps),
        executed_steps=executed,
        samples=samples,
        cohort=jnp.where(asked, cohort, -1),
        update_norms=jnp.where(steps > 0, clients.delta_norm, -1.0),
    )
