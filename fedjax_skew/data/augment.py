"""Augmentation of image batches inside a compiled step.

Every function is pure, preserves shape and dtype, and draws independently for each image. A batch
``[B, H, W, C]`` has the dtype of the dataset; normalisation is applied after augmentation.
"""

import jax
import jax.numpy as jnp
from jax import lax

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


def random_crop(x: Array, key: Array, padding: int = 4) -> Array:
    """Shifts every image by up to ``padding`` pixels in each direction, padding with zeros.

    Args:
        x: ``[B, H, W, C]``.
        key: a PRNG key.
        padding: largest shift.

    Returns:
        Images of the same shape, each a window of the padded image.
    """
    around = (padding, padding)
    padded = jnp.pad(x, ((0, 0), around, around, (0, 0)))
    corners = jax.random.randint(key, (x.shape[0], 2), 0, 2 * padding + 1)

    def crop(image: Array, corner: Array) -> Array:
        return lax.dynamic_slice(image, (corner[0], corner[1], 0), x.shape[1:])

    return jax.vmap(crop)(padded, corners)


def random_flip(x: Array, key: Array, *, sequential: bool = False) -> Array:
    """Mirrors every image left to right with probability 1/2.

    Args:
        x: ``[B, H, W, C]``.
        key: a PRNG key.
        sequential: whether to process one image after the other. On a CPU, XLA otherwise merges
            this with the operations that use the images, which then read pixels out of order.
    """

    def one(image: Array, flip: Array) -> Array:
        return jnp.where(flip, image[:, ::-1], image)

    flips = jax.random.bernoulli(key, shape=x.shape[:1])
    if sequential:
        return lax.map(lambda pair: one(*pair), (x, flips))
    return jax.vmap(one)(x, flips)


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
    x = random_flip(random_crop(x, crop_key), flip_key, sequential=sequential)
    if name == "autoaugment":
        x = autoaugment.cifar_policy(x, policy_key, sequential=sequential)
    return x
