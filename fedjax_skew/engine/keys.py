"""Named streams of randomness: every draw is a function of (seed, stream, round).

A seed's key is kept as its raw data (uint32), which checkpoints, transfers and ``vmap`` treat like
any other array.
"""

import enum

import jax


class Stream(enum.IntEnum):
    """What a key is used for; streams never share numbers."""

    INIT = 0
    METHOD = 1
    COHORT = 2
    CLIENT = 3
    SERVER = 4
    EVALUATE = 5
    DROPOUT = 6


def seed_keys(seeds: jax.Array) -> jax.Array:
    """Raw keys ``[S, 2]`` (uint32) of the seeds ``[S]``."""
    return jax.random.key_data(jax.vmap(jax.random.key)(seeds))


def stream_keys(keys: jax.Array, stream: Stream, round_: jax.Array | int = 0) -> jax.Array:
    """Keys ``[S]`` of one stream in one round, from the seeds' raw keys."""

    def fold(key):
        return jax.random.fold_in(jax.random.fold_in(key, int(stream)), round_)

    return jax.vmap(fold)(jax.random.wrap_key_data(keys))
