import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import native
from fedjax_skew.data import autoaugment as aa

Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
ImageOps = pytest.importorskip("PIL.ImageOps")


def _images(channels=3, size=32):
    """Returns noise, smooth gradients, a narrow range, a flat image and a nearly flat one."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (2, size, size, channels))
    ramp = np.add.outer(np.arange(size) * 5, np.arange(size) * 3)[None, ..., None]
    ramp = np.broadcast_to(ramp + 20 * np.arange(channels), (1, size, size, channels))
    narrow = rng.integers(90, 140, (1, size, size, channels))
    flat = np.full((1, size, size, channels), 77)
    dot = flat.copy()
    dot[0, 3, 4] = 200
    return np.concatenate([noise, ramp, narrow, flat, dot]).clip(0, 255).astype(np.uint8)


_apply = jax.jit(aa.apply)


def _ours(name, magnitude, images):
    shape = (1, len(images))
    op = jnp.full(shape, list(aa.RANGES).index(name))
    return np.asarray(_apply(images, op, jnp.full(shape, magnitude, jnp.float32)))


def _affine(image, matrix):
    """Pillow's warp about the centre."""
    (a, b, c), (d, e, f) = matrix
    x, y = image.width / 2, image.height / 2
    data = (a, b, x - a * x - b * y + c, d, e, y - d * x - e * y + f)
    return image.transform(
        image.size, Image.Transform.AFFINE, data, resample=Image.Resampling.BILINEAR
    )


PILLOW = {
    "shear_x": lambda i, m: _affine(i, ((1, m, 0), (0, 1, 0))),
    "shear_y": lambda i, m: _affine(i, ((1, 0, 0), (m, 1, 0))),
    "translate_x": lambda i, m: _affine(i, ((1, 0, m * i.width), (0, 1, 0))),
    "translate_y": lambda i, m: _affine(i, ((1, 0, 0), (0, 1, m * i.height))),
    "rotate": lambda i, m: i.rotate(m, resample=Image.Resampling.BILINEAR),
    "auto_contrast": lambda i, m: ImageOps.autocontrast(i),
    "invert": lambda i, m: ImageOps.invert(i),
    "equalize": lambda i, m: ImageOps.equalize(i),
    "solarize": lambda i, m: ImageOps.solarize(i, m),
    "posterize": lambda i, m: ImageOps.posterize(i, round(m)),
    "contrast": lambda i, m: ImageEnhance.Contrast(i).enhance(m),
    "brightness": lambda i, m: ImageEnhance.Brightness(i).enhance(m),
    "color": lambda i, m: ImageEnhance.Color(i).enhance(m),
    "sharpness": lambda i, m: ImageEnhance.Sharpness(i).enhance(m),
}


@pytest.mark.parametrize("name", PILLOW)
def test_operation_equals_pillow(name):
    images = _images()
    low, high = aa.RANGES[name]
    for part in (0.03, 0.37, 0.5, 0.81, 0.97):
        magnitude = low + part * (high - low)
        expected = np.stack(
            [np.asarray(PILLOW[name](Image.fromarray(x), magnitude)) for x in images]
        )
        difference = np.abs(_ours(name, magnitude, images).astype(int) - expected)
        assert difference.max() <= 1, (name, magnitude)


def test_operations_work_on_grey_images():
    images = _images(channels=1)
    for name in ("rotate", "equalize", "contrast", "sharpness", "auto_contrast"):
        magnitude = 0.6 if aa.RANGES[name][1] < 30 else 12.0
        expected = np.stack(
            [np.asarray(PILLOW[name](Image.fromarray(x[..., 0]), magnitude)) for x in images]
        )
        difference = np.abs(_ours(name, magnitude, images)[..., 0].astype(int) - expected)
        assert difference.max() <= 1, name
    np.testing.assert_array_equal(_ours("color", 0.3, images), images)


def test_identity_and_neutral_magnitudes_leave_images_alone():
    images = _images()
    np.testing.assert_array_equal(_ours("identity", 0.7, images), images)
    for name, magnitude in (("rotate", 0), ("shear_x", 0), ("brightness", 1), ("sharpness", 1)):
        np.testing.assert_array_equal(_ours(name, magnitude, images), images)


def test_images_of_one_batch_get_their_own_operation():
    images = _images()
    names = ["rotate", "equalize", "invert", "color", "identity", "sharpness"]
    magnitudes = [15.0, 0.0, 0.0, 1.7, 0.0, 0.3]
    op = jnp.array([[list(aa.RANGES).index(name) for name in names]])
    mixed = np.asarray(_apply(images, op, jnp.array([magnitudes])))
    for n, (name, magnitude) in enumerate(zip(names, magnitudes, strict=True)):
        np.testing.assert_array_equal(mixed[n], _ours(name, magnitude, images)[n])


def test_policy_has_the_papers_shape():
    assert len(aa.CIFAR_POLICY) == 25
    for pair in aa.CIFAR_POLICY:
        for name, probability, level in pair:
            assert name in PILLOW
            assert 0 <= probability <= 1
            assert 0 <= level < 10


def test_policy_applies_each_step_with_its_probability():
    op, _ = aa.draw(jax.random.key(0), 20_000)
    for slot in range(2):
        expected = np.zeros(len(aa.RANGES))
        for pair in aa.CIFAR_POLICY:
            name, probability, _ = pair[slot]
            expected[list(aa.RANGES).index(name)] += probability / 25
        expected[0] = 1 - expected.sum()
        shares = np.bincount(op[slot], minlength=len(aa.RANGES)) / 20_000
        np.testing.assert_allclose(shares, expected, atol=0.015)


def test_levels_are_tenths_of_the_paper_ranges():
    op, magnitude = map(np.asarray, aa.draw(jax.random.key(0), 20_000))
    for slot in range(2):
        for name, (low, high) in aa.RANGES.items():
            levels = {pair[slot][2] for pair in aa.CIFAR_POLICY if pair[slot][0] == name}
            values = magnitude[slot][op[slot] == list(aa.RANGES).index(name)]
            if low < high and len(values):
                seen = np.unique(np.floor((values - low) / (high - low) * 10 + 1e-4).clip(0, 9))
                assert set(seen) <= levels


def test_policy_is_two_operations_in_order():
    images, key = _images(), jax.random.key(3)
    op, magnitude = aa.draw(key, len(images))
    expected = images
    for n in range(2):
        expected = _apply(expected, op[n, None], magnitude[n, None])
    np.testing.assert_array_equal(jax.jit(aa.cifar_policy)(images, key), expected)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_forms_agree_on_every_operation_and_under_vmap(channels, compiled, monkeypatch):
    if compiled and not native.available():
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(native, "available", lambda: compiled)
    images = jnp.tile(jnp.asarray(_images(channels)), (len(aa.RANGES), 1, 1, 1))
    op = jnp.repeat(jnp.arange(len(aa.RANGES)), len(_images(channels)))
    low, high = jnp.asarray(list(aa.RANGES.values())).T
    magnitude = (low + 0.7 * (high - low))[op]
    sequential = jax.jit(functools.partial(aa.apply, sequential=True))
    once = sequential(images, op[None], magnitude[None])
    difference = np.abs(np.asarray(once).astype(int) - _apply(images, op[None], magnitude[None]))
    assert difference.max() <= 1 and difference.mean() < 1e-4  # Rounding may vary.
    twice = jnp.stack([op, op[::-1]]), jnp.stack([magnitude, magnitude[::-1]])
    found = sequential(images, *twice)
    second = sequential(once, op[None, ::-1], magnitude[None, ::-1])
    np.testing.assert_array_equal(found, second)
    clients = [jnp.stack([a, a]) for a in (images, *twice)]
    np.testing.assert_array_equal(jax.jit(jax.vmap(sequential))(*clients)[1], found)


@pytest.mark.skipif(not native.available(), reason="no C++ compiler")
@pytest.mark.parametrize("shape", [(5, 9), (1, 7), (2, 2)])
def test_kernel_handles_small_images_that_are_not_square(shape):
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, (len(aa.RANGES), *shape, 3)), jnp.uint8)
    low, high = np.asarray(list(aa.RANGES.values())).T
    op, magnitude = jnp.arange(len(aa.RANGES))[None], jnp.float32(low + 0.3 * (high - low))[None]
    found = jax.jit(functools.partial(aa.apply, sequential=True))(images, op, magnitude)
    difference = np.abs(np.asarray(found).astype(int) - _apply(images, op, magnitude))
    assert difference.max() <= 1
