"""Random permutations that are evaluated one position at a time.

A round needs the next batch of a client's shuffled data, and a few distinct clients out of up to
millions. Sorting random numbers would cost as much as the largest client for every client, or as
much as all clients in every round. A keyed Feistel network over ``ceil(sqrt(n))^2 >= n`` values is
a bijection; following its cycle until the value is below ``n`` restricts it to ``range(n)``. The
expected cost is O(1) per position, without additional memory.
"""

import jax
import jax.numpy as jnp

_ROUNDS = 5


def _mix(x: jax.Array) -> jax.Array:
    """Mixes 32 bits so that every input bit affects every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _side(n: jax.Array) -> jax.Array:
    """Returns the smallest integer whose square is at least ``n``, despite float32 rounding."""
    side = jnp.sqrt(n.astype(jnp.float32)).astype(jnp.uint32)
    side = jnp.maximum(side, 2) - 1
    for _ in range(3):
        side = side + (side * side < n).astype(jnp.uint32)
    return side


def permute(
    key: jax.Array, positions: jax.Array, n: jax.Array | int, epoch: jax.Array | int = 0
) -> jax.Array:
    """Evaluates a random permutation of ``range(n)`` at some positions.

    Args:
        key: PRNG key; equal keys and epochs give equal permutations.
        positions: integers ``[...]`` in ``range(n)``; others are taken modulo ``n``.
        n: size of the permutation, at least 1 and below ``2**31``; may be traced.
        epoch: index of the permutation among those of the same key. It is mixed in by a hash,
            because one PRNG call per batch would be too expensive.

    Returns:
        int32 ``[...]``; distinct positions give distinct values.
    """
    n = jnp.asarray(n).astype(jnp.uint32)
    side = _side(n)
    round_keys = _round_keys(key, epoch)

    def network(x):
        left, right = x // side, x % side
        for r in range(_ROUNDS):
            left, right = right, (left + _mix(right ^ round_keys[r]) % side) % side
        return left * side + right

    # Every position takes one pass, and more until its value is below n.
    def step(carry):
        x, inside = carry
        x = jnp.where(inside, x, network(x))
        return x, x < n

    positions = positions.astype(jnp.uint32) % n
    outside = jnp.zeros(positions.shape, bool)
    with jax.named_scope("walk"):
        x, _ = jax.lax.while_loop(lambda c: ~jnp.all(c[1]), step, (positions, outside))
    return x.astype(jnp.int32)


def _round_keys(key: jax.Array, epoch: jax.Array | int) -> list[jax.Array]:
    """Returns the round keys of the network, mixed from the key's words without a PRNG call."""
    words = jax.random.key_data(key).astype(jnp.uint32)
    salt = _mix(jnp.asarray(epoch).astype(jnp.uint32) + jnp.uint32(0x9E3779B9))
    seed = salt
    for i in range(words.shape[-1]):
        seed = _mix(seed ^ words[i])
    return [_mix(seed + jnp.uint32((r + 1) * 0x85EBCA6B % 2**32)) for r in range(_ROUNDS)]
