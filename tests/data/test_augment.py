from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.data import augment as aug


def _images(batch=6, size=12, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, size, size, channels), dtype=np.uint8)


def _crop_flip(x, seed=0, **options):
    crop_key, flip_key = jax.random.split(jax.random.key(seed))
    return np.asarray(jax.jit(partial(aug.crop_flip, **options))(x, crop_key, flip_key))


def test_crop_flip_is_a_window_of_the_padded_image_mirrored_or_not():
    x = _images(batch=100)
    padded = np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))
    seen = set()
    for image, source in zip(_crop_flip(x), padded, strict=True):
        places = [
            (i, j, flip)
            for i in range(9)
            for j in range(9)
            for flip in (1, -1)
            if np.array_equal(image[:, ::flip], source[i : i + 12, j : j + 12])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len({place[:2] for place in seen}) > 40
    assert 0.35 < np.mean([place[2] == 1 for place in seen]) < 0.65


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("size", [(12, 12), (9, 5), (3, 4), (2, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_one_image_after_the_other_gives_the_same(size, channels, dtype):
    x = np.random.default_rng(0).integers(0, 256, (40, *size, channels)).astype(dtype)
    in_sequence = _crop_flip(x, sequential=True)
    np.testing.assert_array_equal(in_sequence, _crop_flip(x))
    assert (in_sequence != x).any()
    stacked = jax.vmap(lambda x: _jitted_sequence(x))(jnp.asarray(x.reshape(2, 20, *x.shape[1:])))
    np.testing.assert_array_equal(stacked[1], _jitted_sequence(jnp.asarray(x[20:])))


@jax.jit
def _jitted_sequence(x):
    return aug.crop_flip(x, *jax.random.split(jax.random.key(3)), sequential=True)


def test_none_returns_anything_unchanged():
    x = jnp.ones((3, 60))
    assert aug.augment("none", x, jax.random.key(0)) is x


@pytest.mark.parametrize("name", ["crop_flip", "autoaugment"])
def test_augmentation_is_deterministic_and_draws_for_each_image(name):
    x = jnp.asarray(np.tile(_images(batch=1), (8, 1, 1, 1)))
    run = jax.jit(lambda x, key: aug.augment(name, x, key))
    y = np.asarray(run(x, jax.random.key(0)))
    assert y.dtype == np.uint8
    assert y.shape == x.shape
    np.testing.assert_array_equal(y, run(x, jax.random.key(0)))
    assert not np.array_equal(y, run(x, jax.random.key(1)))
    assert len(np.unique(y.reshape(8, -1), axis=0)) > 4


@pytest.mark.parametrize("name", ["crop_flip", "autoaugment"])
def test_vmap_over_clients_equals_a_loop(name):
    x = jnp.asarray(_images(batch=12).reshape(3, 4, 12, 12, 3))
    keys = jax.random.split(jax.random.key(0), 3)
    run = jax.jit(lambda x, key: aug.augment(name, x, key))
    together = jax.jit(jax.vmap(lambda x, key: aug.augment(name, x, key)))(x, keys)
    for n in range(3):
        np.testing.assert_array_equal(together[n], run(x[n], keys[n]))


def test_crop_flip_takes_floats():
    x = jnp.asarray(_images(), jnp.float32) / 255
    y = aug.augment("crop_flip", x, jax.random.key(0))
    assert y.dtype == jnp.float32
    assert y.shape == x.shape


def test_names_are_described_and_wrong_input_is_a_clear_error():
    assert set(aug.names()) == {"none", "crop_flip", "autoaugment"}
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="Did you mean 'crop_flip'"):
        aug.augment("cropflip", jnp.asarray(_images()), key)
    with pytest.raises(ValueError, match=r"needs images \[B, H, W, C\]"):
        aug.augment("crop_flip", jnp.ones((3, 60)), key)
    with pytest.raises(ValueError, match="needs uint8 images"):
        aug.augment("autoaugment", jnp.ones((3, 8, 8, 3)), key)
