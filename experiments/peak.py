"""Measures the peak performance of this machine."""

import time

import jax
import jax.numpy as jnp


def matmul_peak(seconds: float = 0.5) -> float:
    """Returns the FLOP/s of large float32 matrix products, on one or on all devices."""
    size = 1024
    product = jax.jit(lambda a: a @ a)
    each = [jax.device_put(jnp.ones((size, size), jnp.float32), d) for d in jax.local_devices()]
    best = 0.0
    for arrays in (each[:1], each):
        jax.block_until_ready([product(a) for a in arrays])
        end = time.perf_counter() + seconds / 2
        while time.perf_counter() < end:
            began = time.perf_counter()
            jax.block_until_ready([product(a) for a in arrays])
            spent = time.perf_counter() - began
            best = max(best, 2 * len(arrays) * size**3 / spent)
    return best
