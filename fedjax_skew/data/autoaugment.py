"""AutoAugment's policy for CIFAR-10, vectorised (Cubuk et al., CVPR 2019).

Each image is assigned one of 25 sub-policies, which consist of two operations with a probability
and a level. The operations have Pillow's semantics and share three steps, which do not change an
image whose operation is of another kind:

1. one bilinear warp for shear, translation and rotation;
2. one table of 256 entries per image and channel, for all operations that map grey levels
   (auto-contrast, invert, equalise, solarise, posterise, contrast, brightness);
3. one blend with a grey or a smoothed image, for colour and sharpness.

There are two forms, whose results are equal up to the rounding of single pixels. By default, all
images of a batch go through all three steps, because ``vmap`` would run every branch for every
image. With ``sequential=True``, images are processed one after the other, each only by the step
that its operation needs, which is much faster on CPUs. A compiled kernel does so where there is a
compiler (see :mod:`fedjax_skew.native`), otherwise operations of XLA.

Levels follow the paper's table: a range is divided into ten equal parts, and level ``m`` draws
uniformly from the m-th part. Pixels from outside of the image are black. Shear and rotation are
relative to the centre.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import sequential_vmap

from fedjax_skew import native

Array = jax.Array

# The range of each operation's magnitude. Translations are fractions of the image's side.
RANGES: dict[str, tuple[float, float]] = {
    "identity": (0.0, 0.0),
    "shear_x": (-0.3, 0.3),
    "shear_y": (-0.3, 0.3),
    "translate_x": (-150 / 331, 150 / 331),
    "translate_y": (-150 / 331, 150 / 331),
    "rotate": (-30.0, 30.0),
    "auto_contrast": (0.0, 0.0),
    "invert": (0.0, 0.0),
    "equalize": (0.0, 0.0),
    "solarize": (0.0, 256.0),
    "posterize": (4.0, 8.0),
    "contrast": (0.1, 1.9),
    "brightness": (0.1, 1.9),
    "color": (0.1, 1.9),
    "sharpness": (0.1, 1.9),
}
_ID = {name: n for n, name in enumerate(RANGES)}
_WARPS = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_LEVELS = 10

# Two (operation, probability, level) triples per sub-policy.
CIFAR_POLICY = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("auto_contrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("auto_contrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("auto_contrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("auto_contrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("auto_contrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("auto_contrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("auto_contrast", 0.9, 1)),
)


def check_images(x: Array) -> None:
    """Raises a ``ValueError`` unless ``x`` is uint8 with one or three channels."""
    if x.dtype != jnp.uint8 or x.shape[-1] not in (1, 3):
        raise ValueError(
            f"augment='autoaugment' needs uint8 images with 1 or 3 channels, not {x.dtype} with "
            f"{x.shape[-1]} channels."
        )


def draw(key: Array, batch: int) -> tuple[Array, Array]:
    """Draws a sub-policy and the operations of it that are applied, for every image.

    Args:
        key: a PRNG key.
        batch: number of images.

    Returns:
        Operations and magnitudes for :func:`apply`, both ``[2, batch]``.
    """
    steps = [[(_ID[op], p, level) for op, p, level in pair] for pair in CIFAR_POLICY]
    table = jnp.asarray(np.asarray(steps, np.float32))
    low, width = jnp.asarray([(a, (b - a) / _LEVELS) for a, b in RANGES.values()]).T
    pick_key, apply_key, level_key = jax.random.split(key, 3)
    picked = table[jax.random.randint(pick_key, (batch,), 0, len(CIFAR_POLICY))]
    applied = jax.random.uniform(apply_key, (batch, 2)) < picked[..., 1]
    op = jnp.where(applied, picked[..., 0], 0).astype(jnp.int32)
    level = picked[..., 2] + jax.random.uniform(level_key, (batch, 2))
    return op.T, (low[op] + width[op] * level).T


def cifar_policy(x: Array, key: Array, *, sequential: bool = False) -> Array:
    """Applies a random sub-policy to every image.

    Args:
        x: uint8 ``[B, H, W, C]`` with one or three channels.
        key: a PRNG key.
        sequential: whether to process one image after the other, which suits CPUs.

    Returns:
        uint8 images of the same shape.
    """
    return apply(x, *draw(key, x.shape[0]), sequential=sequential)


def apply(x: Array, op: Array, magnitude: Array, *, sequential: bool = False) -> Array:
    """Applies operations to every image, one after the other.

    Args:
        x: uint8 ``[B, H, W, C]`` with one or three channels.
        op: integers ``[N, B]``, indices in :data:`RANGES`.
        magnitude: ``[N, B]``, in the units of :data:`RANGES`.
        sequential: whether to process one image after the other, which suits CPUs.

    Returns:
        uint8 images of the same shape.
    """
    if sequential and native.available():
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        call = jax.ffi.ffi_call(native.target("autoaugment"), out, vmap_method="broadcast_all")
        return call(x, op.T.astype(jnp.int32), magnitude.T.astype(jnp.float32))
    if sequential:
        return jax.vmap(_apply_to_one, in_axes=(0, 1, 1))(x, op, magnitude)
    kinds = [jax.vmap(step) for step in (_warp, _recolour, _blend)]

    # A loop over (operation, kind of step) compiles each kind once and stores the result of every
    # step. If steps were fused, their arithmetic would be repeated for each pixel that reads it.
    def step(x: Array, n: Array) -> tuple[Array, None]:
        return lax.switch(n % 3, kinds, x, op[n // 3], magnitude[n // 3]), None

    return lax.scan(step, x, jnp.arange(3 * op.shape[0]))[0]


@sequential_vmap  # Under vmap, a branch that depends on the image would run all branches.
def _apply_to_one(image: Array, op: Array, magnitude: Array) -> Array:
    """Applies operations ``[N]`` to ``[H, W, C]``, running only the step that each one needs."""
    recolour = functools.partial(_recolour, histogram=_scattered_histogram)
    steps = (lambda image, op, magnitude: image, _warp, recolour, _saturate, _sharpen)
    kinds = np.full(len(RANGES), 2)
    kinds[_ID["identity"]] = 0
    kinds[[_ID[name] for name in _WARPS]] = 1
    kinds[_ID["color"]] = 3
    kinds[_ID["sharpness"]] = 4

    def step(image: Array, operation: tuple[Array, Array]) -> tuple[Array, None]:
        return lax.switch(jnp.asarray(kinds)[operation[0]], steps, image, *operation), None

    return lax.scan(step, image, (op, magnitude))[0]


def _is(op: Array, name: str) -> Array:
    return op == _ID[name]


def _matrix(op: Array, magnitude: Array, height: int, width: int) -> Array:
    """Returns the affine map ``[2, 3]`` from output to input pixels, relative to the centre."""
    angle = jnp.where(_is(op, "rotate"), -magnitude * (math.pi / 180), 0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    pick = lambda name: jnp.where(_is(op, name), magnitude, 0)  # noqa: E731
    row_x = (cos, sin + pick("shear_x"), pick("translate_x") * width)
    row_y = (-sin + pick("shear_y"), cos, pick("translate_y") * height)
    return jnp.array([row_x, row_y])


def _warp(image: Array, op: Array, magnitude: Array) -> Array:
    """Resamples ``[H, W, C]`` with bilinear weights and zero padding, truncating like Pillow."""
    height, width, channels = image.shape
    matrix = _matrix(op, magnitude, height, width)
    y, x = jnp.meshgrid(
        jnp.arange(height) + 0.5 - height / 2, jnp.arange(width) + 0.5 - width / 2, indexing="ij"
    )
    from_x = matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] + width / 2
    from_y = matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2] + height / 2
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    left, top = jnp.floor(from_x - 0.5), jnp.floor(from_y - 0.5)
    right_part, bottom_part = from_x - 0.5 - left, from_y - 0.5 - top
    pixels = image.reshape(-1, channels)

    def at(row: Array, column: Array) -> Array:
        row = jnp.clip(row.astype(jnp.int32), 0, height - 1)
        column = jnp.clip(column.astype(jnp.int32), 0, width - 1)
        return pixels.at[row * width + column].get(mode="promise_in_bounds").astype(jnp.float32)

    def mix(a: Array, b: Array, part: Array) -> Array:
        return a + (b - a) * part[..., None]

    upper = mix(at(top, left), at(top, left + 1), right_part)
    lower = mix(at(top + 1, left), at(top + 1, left + 1), right_part)
    warped = jnp.where(inside[..., None], mix(upper, lower, bottom_part), 0)
    return warped.astype(jnp.uint8)


def _histogram(pixels: Array) -> Array:
    """Counts the grey levels ``[256, C]`` of integers ``[N, C]`` as a product of one-hot codes."""
    code = jnp.arange(16)[:, None, None]
    high = (pixels // 16 == code).astype(jnp.float32)
    low = (pixels % 16 == code).astype(jnp.float32)
    return jnp.einsum("hnc,lnc->hlc", high, low).reshape(256, -1)


def _scattered_histogram(pixels: Array) -> Array:
    """Counts the grey levels ``[256, C]`` of integers ``[N, C]`` one by one."""
    channels = pixels.shape[-1]
    counts = jnp.zeros(256 * channels, jnp.int32)
    place = pixels * channels + jnp.arange(channels)
    counts = counts.at[place.reshape(-1)].add(1, mode="promise_in_bounds")
    return counts.reshape(256, channels).astype(jnp.float32)


def _recolour(
    image: Array,
    op: Array,
    magnitude: Array,
    histogram: Callable[[Array], Array] = _histogram,
) -> Array:
    """Maps every grey level by the operation's table."""
    pixels = image.reshape(-1, image.shape[-1]).astype(jnp.int32)
    table = lax.cond(
        _is(op, "equalize"),
        lambda: _equalized(pixels, histogram),
        lambda: _tables(image.astype(jnp.float32), op, magnitude),
    )
    table = jnp.clip(table, 0, 255).astype(jnp.uint8)
    chosen = jnp.take_along_axis(table, pixels, axis=0, mode="promise_in_bounds")
    return chosen.reshape(image.shape)


def _tables(image: Array, op: Array, magnitude: Array) -> Array:
    """Returns the new values ``[256, C]`` of the grey levels, which are unchanged by default."""
    levels = jnp.arange(256.0)[:, None]
    low, high = image.min((0, 1)), image.max((0, 1))
    stretched = jnp.floor((levels - low) * 255 / jnp.maximum(high - low, 1))
    cut = jnp.exp2(8 - jnp.round(magnitude))
    centre = jnp.floor(_grey(image).mean() + 0.5)
    changed = {
        "auto_contrast": jnp.where(high > low, stretched, levels),
        "invert": 255 - levels,
        "solarize": jnp.where(levels < magnitude, levels, 255 - levels),
        "posterize": jnp.floor(levels / cut) * cut,
        "contrast": _between(centre, levels, magnitude),
        "brightness": _between(0, levels, magnitude),
    }
    table = jnp.broadcast_to(levels, (256, image.shape[-1]))
    for name, values in changed.items():
        table = jnp.where(_is(op, name), values, table)
    return table


def _equalized(pixels: Array, histogram: Callable[[Array], Array]) -> Array:
    """Returns the values ``[256, C]`` that spread the grey levels of integers ``[N, C]``."""
    counts = histogram(pixels)
    last = jnp.take_along_axis(counts, pixels.max(0)[None], 0, mode="promise_in_bounds")
    step = jnp.floor((pixels.shape[0] - last) / 255)
    below = jnp.cumsum(counts, axis=0) - counts
    values = jnp.floor((jnp.floor(step / 2) + below) / jnp.maximum(step, 1))
    return jnp.where(step > 0, values, jnp.arange(256.0)[:, None])


def _blend(image: Array, op: Array, magnitude: Array) -> Array:
    """Blends an image with its grey or its smoothed version."""
    image = jnp.where(_is(op, "color"), _saturate(image, op, magnitude), image)
    return jnp.where(_is(op, "sharpness"), _sharpen(image, op, magnitude), image)


def _saturate(image: Array, op: Array, magnitude: Array) -> Array:
    """Blends an image with its grey version."""
    values = image.astype(jnp.float32)
    return _between(_grey(values)[..., None], values, magnitude).astype(jnp.uint8)


def _sharpen(image: Array, op: Array, magnitude: Array) -> Array:
    """Blends an image with its smoothed version."""
    values = image.astype(jnp.float32)
    return _between(_smooth(values), values, magnitude).astype(jnp.uint8)


def _between(a: Array | float, b: Array, part: Array) -> Array:
    return jnp.clip(jnp.floor(a + (b - a) * part), 0, 255)


def _grey(image: Array) -> Array:
    """Returns the luminance ``[H, W]``, rounded to integers."""
    if image.shape[-1] == 1:
        return image[..., 0]
    weights = jnp.asarray([19595, 38470, 7471], jnp.int32)
    return ((image.astype(jnp.int32) * weights).sum(-1) + 32768 >> 16).astype(jnp.float32)


def _smooth(image: Array) -> Array:
    """Returns the image smoothed by 3x3 weights (centre 5, others 1), except for its border."""
    rows = image[:-2] + image[1:-1] + image[2:]
    around = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    inner = jnp.floor((around + 4 * image[1:-1, 1:-1]) / 13 + 0.5)
    return image.at[1:-1, 1:-1].set(inner)
