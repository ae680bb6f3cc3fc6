"""Checks and log-domain masking shared by the loss kernels.

Every mask acts on logits before the softmax and never on probabilities after it, so that a
class left out has probability exactly zero and passes back a gradient of exactly zero.
"""

import operator

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

# Sums over features must not drop to bfloat16 or TF32 where the hardware would do so by default.
PRECISE = jax.lax.Precision.HIGHEST


def floats(**arrays: ArrayLike) -> list[jax.Array]:
    """Brings named arrays to one floating dtype of at least 32 bits.

    Half-precision input is widened because log-sum-exp and means lose most of their digits in it;
    float64 stays float64.
    """
    values = {name: jnp.asarray(value) for name, value in arrays.items()}
    for name, value in values.items():
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(f"{name} must have a floating dtype, got {value.dtype}.")
    dtype = jnp.result_type(jnp.float32, *(value.dtype for value in values.values()))
    return [value.astype(dtype) for value in values.values()]


def check_rank(name: str, value: jax.Array, rank: int) -> None:
    """Raises if ``value`` does not have ``rank`` axes."""
    if value.ndim != rank:
        raise ValueError(f"{name} must have rank {rank}, got shape {value.shape}.")


def check_shape(name: str, value: jax.Array, shape: tuple[int, ...], why: str) -> None:
    """Raises if ``value`` does not have ``shape``; ``why`` says where the shape comes from."""
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {shape} ({why}), got {value.shape}.")


def check_positive(**numbers: object) -> None:
    """Raises if a Python number is not above zero; traced values cannot be checked."""
    for name, number in numbers.items():
        if isinstance(number, (int, float)) and not number > 0:
            raise ValueError(f"{name} must be above 0, got {number}.")


def check_count(name: str, number: int, low: int, high: int | None = None) -> None:
    """Raises if a static number is no integer in ``low..high``."""
    try:
        inside = low <= operator.index(number) and (high is None or number <= high)
    except TypeError:
        inside = False
    if not inside:
        allowed = f"at least {low}" if high is None else f"in {low}..{high}"
        raise ValueError(f"{name} must be an integer {allowed}, got {number!r}.")


def batch(logits: jax.Array, labels: ArrayLike, name: str = "logits") -> jax.Array:
    """Checks ``labels [...]`` against ``logits [..., C]`` and returns them as an array."""
    labels = jnp.asarray(labels)
    if logits.ndim < 1 or logits.shape[-1] < 1:
        raise ValueError(f"{name} must end in a non-empty axis, got shape {logits.shape}.")
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must have an integer dtype, got {labels.dtype}.")
    check_shape("labels", labels, logits.shape[:-1], f"{name} without its last axis")
    return labels


def counts_like(class_counts: ArrayLike, logits: jax.Array) -> jax.Array:
    """Checks ``class_counts [C]`` against ``logits [..., C]`` and gives it the logits' dtype."""
    class_counts = jnp.asarray(class_counts)
    if not jnp.issubdtype(class_counts.dtype, jnp.number):
        raise ValueError(f"class_counts must hold numbers, got {class_counts.dtype}.")
    if logits.ndim < 1:
        raise ValueError(f"logits must end in the class axis, got shape {logits.shape}.")
    check_shape("class_counts", class_counts, logits.shape[-1:], "one count for each class")
    return class_counts.astype(logits.dtype)


def rows(where: ArrayLike | None, size: int) -> jax.Array:
    """Checks the row mask ``where [B] | None`` and returns it as booleans."""
    if where is None:
        return jnp.ones((size,), bool)
    where = jnp.asarray(where)
    check_shape("where", where, (size,), "one entry for each row of the batch")
    return where.astype(bool)


def members(name: str, value: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """Checks a presence mask and returns it as booleans; counts serve as well."""
    value = jnp.asarray(value)
    check_shape(name, value, shape, "one entry for each class")
    return value > 0


def one_hot(labels: jax.Array, num_classes: int) -> jax.Array:
    """Boolean ``[..., C]``, true at the label; a label out of range matches no class."""
    return labels[..., None] == jnp.arange(num_classes)


def log_softmax(logits: jax.Array, keep: jax.Array | None = None) -> jax.Array:
    """Log-softmax over the last axis among the entries in ``keep``; the others read 0.

    The filler 0 is finite, so that a product with a zero probability and its gradient stay finite.
    """
    if keep is None:
        return jax.nn.log_softmax(logits, axis=-1)
    # Over an empty set the softmax is undefined: take the full one, then blank the result.
    safe = keep | ~keep.any(axis=-1, keepdims=True)
    log_q = jax.nn.log_softmax(jnp.where(safe, logits, -jnp.inf), axis=-1)
    return jnp.where(keep, log_q, 0)


def logsumexp(values: jax.Array, keep: jax.Array, empty: float = 0.0) -> jax.Array:
    """Log-sum-exp over the last axis among the entries in ``keep``; ``empty`` if there are none."""
    some = keep.any(axis=-1)
    safe = keep | ~some[..., None]
    total = jax.nn.logsumexp(jnp.where(safe, values, -jnp.inf), axis=-1)
    return jnp.where(some, total, empty)


def negative_log_likelihood(
    logits: jax.Array, labels: jax.Array, keep: jax.Array | None = None
) -> jax.Array:
    """Cross-entropy ``[...]`` among the classes in ``keep``; 0 if the label is not one of them."""
    true = one_hot(labels, logits.shape[-1])
    return jnp.where(true, -log_softmax(logits, keep), 0).sum(axis=-1)


def kl_divergence(
    target: jax.Array,
    logits: jax.Array,
    target_keep: jax.Array | None = None,
    keep: jax.Array | None = None,
) -> jax.Array:
    """KL(softmax(target) || softmax(logits)) over the last axis, each among its own entries.

    ``target_keep`` must lie inside ``keep``; where it is empty the divergence is 0.
    """
    log_q = log_softmax(target, target_keep)
    q = jnp.exp(log_q)
    if target_keep is not None:
        q = jnp.where(target_keep, q, 0)
    return (q * (log_q - log_softmax(logits, keep))).sum(axis=-1)


def prior(class_counts: jax.Array) -> jax.Array:
    """Class frequencies ``[C]``; all zero for a client without data."""
    total = class_counts.sum()
    return class_counts / jnp.where(total > 0, total, 1)


def masked_mean(values: jax.Array, keep: jax.Array) -> jax.Array:
    """Mean of ``values`` over the entries in ``keep``; 0 if there are none."""
    number = keep.sum(dtype=values.dtype)
    return jnp.where(keep, values, 0).sum() / jnp.maximum(number, 1)


def safe_sqrt(values: jax.Array) -> jax.Array:
    """Square root whose gradient at 0 is 0 and not infinite."""
    positive = values > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, values, 1)), 0)


def unit(vectors: jax.Array) -> jax.Array:
    """Scales the last axis to length 1; a vector shorter than 1e-8 becomes 0, without gradient."""
    square = jnp.square(vectors).sum(axis=-1, keepdims=True)
    long = square > 1e-16
    return jnp.where(long, vectors * jax.lax.rsqrt(jnp.where(long, square, 1)), 0)


def count_scale(class_counts: jax.Array, alpha: float) -> jax.Array:
    """Scale ``[C]`` that runs from ``alpha`` for a vacant class to 1 for the largest."""
    largest = class_counts.max()
    return alpha + (1 - alpha) * class_counts / jnp.where(largest > 0, largest, 1)
