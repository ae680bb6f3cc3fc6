import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.data import augment as aug


def _images(batch=6, size=12, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, size, size, channels), dtype=np.uint8)


def test_crop_is_a_window_of_the_padded_image():
    x = _images(batch=40)
    y = np.asarray(jax.jit(aug.random_crop)(x, jax.random.key(0)))
    padded = np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))
    seen = set()
    for image, source in zip(y, padded, strict=True):
        places = [
            (i, j)
            for i in range(9)
            for j in range(9)
            if np.array_equal(image, source[i : i + 12, j : j + 12])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 20


def test_flip_mirrors_about_half_of_the_images():
    x = _images(batch=200, size=4)
    y = np.asarray(jax.jit(aug.random_flip)(x, jax.random.key(0)))
    same = (y == x).all((1, 2, 3))
    mirrored = (y == x[:, :, ::-1]).all((1, 2, 3))
    assert (same | mirrored).all()
    assert 70 < mirrored.sum() < 130


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


def test_one_image_after_the_other_gives_the_same():
    x, key = _images(), jax.random.key(1)
    together = aug.augment("crop_flip", x, key)
    in_sequence = jax.jit(lambda x: aug.augment("crop_flip", x, key, sequential=True))(x)
    np.testing.assert_array_equal(in_sequence, together)
    assert (in_sequence != x).any()
