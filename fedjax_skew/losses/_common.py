"""Checks and log-domain masking shared by the loss kernels.

Every mask is applied to logits before the softmax and never to probabilities after it, so that a
masked class has a probability of exactly zero and receives a gradient of exactly zero.
"""

import operator
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

# Prevents sums over features from using bfloat16 or TF32 on hardware where that is the default.
PRECISE = jax.lax.Precision.HIGHEST

# The equation as the paper prints it, or as the authors' code computes it.
Form = Literal["paper", "code"]


def promote_floats(**arrays: ArrayLike) -> list[jax.Array]:
    """Promotes named arrays to one floating dtype of at least 32 bits.

    Half-precision input is widened because log-sum-exp and means lose most of their precision in
    it. Float64 input stays float64.
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


def check_vectors(name: str, value: jax.Array) -> None:
    """Raises if ``value`` does not end in a non-empty axis."""
    if value.ndim < 1 or value.shape[-1] < 1:
        raise ValueError(f"{name} must end in a non-empty axis, got shape {value.shape}.")


def check_shape(name: str, value: jax.Array, shape: tuple[int, ...], why: str) -> None:
    """Raises if ``value`` does not have ``shape``; ``why`` explains where the shape comes from."""
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {shape} ({why}), got {value.shape}.")


def check_count(name: str, number: int, low: int, high: int | None = None) -> None:
    """Raises if ``number``, a static value, is not an integer in ``low..high``."""
    try:
        inside = low <= operator.index(number) and (high is None or number <= high)
    except TypeError:
        inside = False
    if not inside:
        allowed = f"at least {low}" if high is None else f"in {low}..{high}"
        raise ValueError(f"{name} must be an integer {allowed}, got {number!r}.")


def check_form(form: str, allowed: Any = Form) -> None:
    """Raises if ``form`` is not one of the values of the ``Literal`` type ``allowed``."""
    words = get_args(allowed)
    if form not in words:
        raise ValueError(f"form={form!r} is unknown; allowed: {', '.join(map(repr, words))}.")


def scalar(
    name: str,
    value: ArrayLike,
    dtype: jnp.dtype,
    *,
    low: float | None = None,
    above: float | None = None,
) -> jax.Array:
    """Checks a hyper-parameter and converts it so that it does not change the result's dtype.

    A Python number must be at least ``low`` or larger than ``above``. The value of an array is not
    checked, because the array may be traced.
    """
    if not isinstance(value, (int, float)):
        value = jnp.asarray(value)
        check_shape(name, value, (), "a scalar; map over several values with jax.vmap")
        return value.astype(dtype)
    if low is not None and not value >= low:
        raise ValueError(f"{name} must be at least {low}, got {value}.")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be above {above}, got {value}.")
    # A Python float is weakly typed, whereas a numpy float64 would widen the result.
    return float(value)  # type: ignore[return-value]


def check_labels(logits: jax.Array, labels: ArrayLike, name: str = "logits") -> jax.Array:
    """Checks ``labels [...]`` against ``logits [..., C]`` and returns them as an array."""
    labels = jnp.asarray(labels)
    check_vectors(name, logits)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must have an integer dtype, got {labels.dtype}.")
    check_shape("labels", labels, logits.shape[:-1], f"{name} without its last axis")
    return labels


def check_counts(class_counts: ArrayLike, logits: jax.Array) -> jax.Array:
    """Checks ``class_counts [C]`` against ``logits [..., C]`` and casts it to the logits' dtype."""
    class_counts = jnp.asarray(class_counts)
    if not jnp.issubdtype(class_counts.dtype, jnp.number):
        raise ValueError(f"class_counts must hold numbers, got {class_counts.dtype}.")
    check_vectors("logits", logits)
    check_shape("class_counts", class_counts, logits.shape[-1:], "one count per class")
    return class_counts.astype(logits.dtype)


def check_present(present: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """Checks a mask of the classes present, or their counts, and returns it as booleans."""
    present = jnp.asarray(present)
    check_shape("present", present, shape, "one entry per class")
    return present > 0


def row_mask(where: ArrayLike | None, shape: tuple[int, ...]) -> jax.Array:
    """Checks the row mask ``where [...] | None`` and returns it as booleans."""
    if where is None:
        return jnp.ones(shape, bool)
    where = jnp.asarray(where)
    check_shape("where", where, shape, "one entry per row")
    return where.astype(bool)


def zero_rows(values: jax.Array, where: jax.Array) -> jax.Array:
    """Sets the rows of ``values [..., D]`` or ``[...]`` that ``where [...]`` masks to 0."""
    return jnp.where(where.reshape(where.shape + (1,) * (values.ndim - where.ndim)), values, 0)


def one_hot(labels: jax.Array, num_classes: int) -> jax.Array:
    """Returns booleans ``[..., C]``, true at the label; a label out of range matches no class."""
    return labels[..., None] == jnp.arange(num_classes)


def log_softmax(logits: jax.Array, keep: jax.Array | None = None) -> jax.Array:
    """Computes the log-softmax over the last axis among the entries in ``keep``.

    The other entries are set to 0. This value is finite, so that its product with a probability of
    zero and the gradient of that product stay finite.
    """
    if keep is None:
        return jax.nn.log_softmax(logits, axis=-1)
    # The softmax over an empty set is undefined: use all entries, and zero the result below.
    safe = keep | ~keep.any(axis=-1, keepdims=True)
    log_q = jax.nn.log_softmax(jnp.where(safe, logits, -jnp.inf), axis=-1)
    return jnp.where(keep, log_q, 0)


def logsumexp(values: jax.Array, keep: jax.Array) -> jax.Array:
    """Computes the log-sum-exp over the last axis among the entries in ``keep``; 0 without any."""
    some = keep.any(axis=-1)
    safe = keep | ~some[..., None]
    total = jax.nn.logsumexp(jnp.where(safe, values, -jnp.inf), axis=-1)
    return jnp.where(some, total, 0.0)


def negative_log_likelihood(
    logits: jax.Array, labels: jax.Array, keep: jax.Array | None = None
) -> jax.Array:
    """Computes the cross-entropy ``[...]`` among the classes in ``keep`` and the label's own class.

    A label out of range can only belong to padding; its loss is 0.
    """
    true = one_hot(labels, logits.shape[-1])
    keep = None if keep is None else keep | true
    return jnp.where(true, -log_softmax(logits, keep), 0).sum(axis=-1)


def kl_divergence(
    target: jax.Array,
    logits: jax.Array,
    target_keep: jax.Array | None = None,
    keep: jax.Array | None = None,
) -> jax.Array:
    """Computes KL(softmax(target) || softmax(logits)) over the last axis.

    The softmax of ``target`` runs over the entries in ``target_keep`` and that of ``logits`` over
    those in ``keep``. ``target_keep`` must be a subset of ``keep``; where it is empty, the
    divergence is 0.
    """
    log_q = log_softmax(target, target_keep)
    q = jnp.exp(log_q)
    if target_keep is not None:
        q = jnp.where(target_keep, q, 0)
    return (q * (log_q - log_softmax(logits, keep))).sum(axis=-1)


def divide_by_total(counts: jax.Array, class_counts: jax.Array) -> jax.Array:
    """Divides ``counts [C]`` by the sum of ``class_counts [C]``, or by 1 if that sum is 0."""
    total = class_counts.sum()
    return counts / jnp.where(total > 0, total, 1)


def masked_mean(values: jax.Array, keep: jax.Array) -> jax.Array:
    """Computes the mean of ``values`` over the entries in ``keep``; 0 if there are none."""
    number = keep.sum(dtype=values.dtype)
    return jnp.where(keep, values, 0).sum() / jnp.maximum(number, 1)


def safe_sqrt(values: jax.Array) -> jax.Array:
    """Computes the square root with a gradient at 0 that is 0 rather than infinite."""
    positive = values > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, values, 1)), 0)


def unit(vectors: jax.Array) -> jax.Array:
    """Scales vectors to length 1; a vector shorter than 1e-8 becomes 0 and has no gradient."""
    square = jnp.square(vectors).sum(axis=-1, keepdims=True)
    long = square > 1e-16
    return jnp.where(long, vectors * jax.lax.rsqrt(jnp.where(long, square, 1)), 0)


def count_scale(class_counts: jax.Array, alpha: jax.Array) -> jax.Array:
    """Returns a scale ``[C]`` from ``alpha`` for a vacant class to 1 for the largest class."""
    largest = class_counts.max()
    return alpha + (1 - alpha) * class_counts / jnp.where(largest > 0, largest, 1)
