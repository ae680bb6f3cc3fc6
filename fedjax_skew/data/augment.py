"""Augmentation of image batches inside a compiled step.

Every function is pure, preserves shape and dtype, and draws independently for each image. A batch
``[B, H, W, C]`` has the dtype of the dataset; normalisation is applied after augmentation.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_skew import native
from fedjax_skew.data import autoaugment
from fedjax_skew.errors import unknown

Array = jax.Array

_NAMES = {
    "none": "unchanged images",
    "crop_flip": "random crop after padding by 4 black pixels, random horizontal flip",
    "autoaugment": "crop_flip, then AutoAugment's policy for CIFAR-10",
}


def names() -> dict[str, str]:
    """Returns every augmentation with a one-line description."""
    return dict(_NAMES)


def crop_flip(
    x: Array, crop_key: Array, flip_key: Array, *, padding: int = 4, sequential: bool = False
) -> Array:
    """Shifts every image by up to ``padding`` pixels and mirrors it with probability 1/2.

    Args:
        x: ``[B, H, W, C]``.
        crop_key: a PRNG key for the shifts.
        flip_key: a PRNG key for which images are mirrored.
        padding: largest shift in each direction; pixels from outside of the image are zero.
        sequential: whether images are processed one after the other, which is faster on a CPU: by a
            compiled kernel for uint8 with one or three channels, otherwise by operations of XLA.

    Returns:
        Images of the same shape, each a window of the padded image.
    """
    corners = jax.random.randint(crop_key, (x.shape[0], 2), 0, 2 * padding + 1)
    flips = jax.random.bernoulli(flip_key, shape=x.shape[:1])
    if sequential and x.dtype == jnp.uint8 and x.shape[-1] in (1, 3) and native.available():
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        call = jax.ffi.ffi_call(native.target("crop_flip"), out, vmap_method="broadcast_all")
        return call(x, corners - padding, flips)
    around = (padding, padding)
    padded = jnp.pad(x, ((0, 0), around, around, (0, 0)))

    def crop(image: Array, corner: Array) -> Array:
        return lax.dynamic_slice(image, (corner[0], corner[1], 0), x.shape[1:])

    def flip(image: Array, mirrored: Array) -> Array:
        return jnp.where(mirrored, image[:, ::-1], image)

    cropped = jax.vmap(crop)(padded, corners)
    if sequential:
        # XLA otherwise merges this with the operations that use the images, which then read pixels
        # out of order.
        return lax.map(lambda pair: flip(*pair), (cropped, flips))
    return jax.vmap(flip)(cropped, flips)


def augment(name: str, x: Array, key: Array, *, sequential: bool = False) -> Array:
    """Augments a batch.

    Args:
        name: one of :func:`names`.
        x: ``[B, H, W, C]``; uint8 with one or three channels for ``"autoaugment"``, any dtype for
            ``"crop_flip"``, any array for ``"none"``.
        key: a PRNG key.
        sequential: whether images are processed one after the other, which is faster on a CPU.

    Returns:
        A batch of the same shape and dtype.
    """
    if name not in _NAMES:
        raise unknown("augment", name, _NAMES)
    if name == "none":
        return x
    if x.ndim != 4:
        raise ValueError(f"augment={name!r} needs images [B, H, W, C], not shape {x.shape}.")
    crop_key, flip_key, policy_key = jax.random.split(key, 3)
    if name == "autoaugment":
        autoaugment.check_images(x)
    x = crop_flip(x, crop_key, flip_key, sequential=sequential)
    if name == "autoaugment":
        x = autoaugment.cifar_policy(x, policy_key, sequential=sequential)
    return x
