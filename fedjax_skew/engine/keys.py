"""Named streams of random numbers: every draw is a function of (seed, stream, round).

The key of a seed is stored as raw data (uint32), so that checkpoints, transfers and ``vmap`` treat
it like any other array.
"""

import enum

import jax


class Stream(enum.IntEnum):
    """The purpose of a key; different streams are independent."""

    INIT = 0
    METHOD = 1
    COHORT = 2
    CLIENT = 3
    SERVER = 4
    EVALUATE = 5
    DROPOUT = 6


def seed_keys(seeds: jax.Array) -> jax.Array:
    """Returns the raw keys ``[S, 2]`` (uint32) of the seeds ``[S]``."""
    return jax.random.key_data(jax.vmap(jax.random.key)(seeds))


def stream_keys(keys: jax.Array, stream: Stream, round_: jax.Array | int = 0) -> jax.Array:
    """Returns the keys ``[S]`` of one stream in one round, from the raw keys of the seeds."""

    def fold(key):
        return jax.random.fold_in(jax.random.fold_in(key, int(stream)), round_)

    return jax.vmap(fold)(jax.random.wrap_key_data(keys))
