import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import models
from fedjax_skew.models.plain import Plain
from fedjax_skew.models.residual import MobileNetV2, ResNet

# name: (input, parameters with 10 classes, feature size). Counts as published where they are.
KNOWN = {
    "logistic": ((60,), 610, 60),
    "mlp": ((28, 28, 1), 199_210, 200),
    "fedavg_cnn": ((28, 28, 1), 1_663_370, 512),
    "simple_cnn": ((32, 32, 3), 62_006, 84),
    "tfcnn": ((32, 32, 3), 122_570, 64),
    "pfl_cnn": ((32, 32, 3), 1_626_442, 128),
    "fedlc_cnn": ((32, 32, 3), 319_242, 2048),
    "fedlc_mnist_cnn": ((28, 28, 1), 28_986, 1568),
    "vgg9": ((32, 32, 3), 3_491_530, 512),
    "resnet8_w16": ((32, 32, 3), 78_042, 64),
    "resnet8": ((32, 32, 3), 1_227_594, 256),
    "resnet18": ((32, 32, 3), 11_173_962, 512),
    "resnet32": ((32, 32, 3), 464_154, 64),
    "mobilenet_v2": ((32, 32, 3), 2_296_922, 1280),
}


def _shapes(name, shape, **options):
    model = models.build(name, options.pop("num_classes", 10), **options)
    x = jnp.zeros((2, *shape))
    return jax.eval_shape(
        lambda: model.init_with_output(jax.random.key(0), x, train=True, where=jnp.ones(2, bool))
    )


def _jit(function):
    # Compiling is what these tests would spend their time on.
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _small(kind, **options):
    """Returns a short network of the given kind, with five classes."""
    backbone = {
        "plain": lambda: Plain(convs=((4, True), (4, False)), dense=(6,), **options),
        "normalised": lambda: Plain(convs=((4, True),), norm="batch", **options),
        "residual": lambda: ResNet(widths=(4, 8), blocks=1, **options),
        "mobile": lambda: MobileNetV2(stages=((1, 4, 1, 1), (2, 6, 2, 2)), **options),
    }[kind]()
    return models.Classifier(backbone, 5, dtype=options.get("dtype", jnp.float32))


def _setup(kind, batch, **options):
    model = _small(kind, **options)
    x = jax.random.normal(jax.random.key(1), (batch, 8, 8, 3))
    return model, _jit(lambda k: model.init(k, x, train=False))(jax.random.key(0)), x


def _loss(model, variables, x, where=None):
    """Returns gradient, outputs and new statistics of a loss that sees logits and features."""

    def loss(params):
        outputs, new = model.apply(
            {**variables, "params": params}, x, train=True, where=where, mutable=["batch_stats"]
        )
        rows = jnp.sin(outputs.logits).sum(-1) + jnp.square(outputs.features).mean(-1)
        rows = rows if where is None else jnp.where(where, rows, 0)
        return rows.sum(), (outputs, new)

    grads, (outputs, new) = jax.grad(loss, has_aux=True)(variables["params"])
    return grads, outputs, new


def _close(actual, expected, tolerance=2e-4):
    def check(a, b):
        scale = max(1.0, float(jnp.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)

    jax.tree.map(check, actual, expected)


def test_every_model_is_listed_with_one_line():
    assert set(models.names()) == set(KNOWN)
    assert all(about and "\n" not in about for about in models.names().values())


@pytest.mark.parametrize("name", KNOWN)
def test_shapes_and_parameter_counts(name):
    shape, count, features = KNOWN[name]
    outputs, variables = _shapes(name, shape)
    assert outputs.logits.shape == (2, 10)
    assert outputs.features.shape == (2, features)
    assert outputs.logits.dtype == outputs.features.dtype == jnp.float32
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == count
    assert variables["params"]["head"]["kernel"].shape == (features, 10)
    assert variables["params"]["head"]["bias"].shape == (10,)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "resnet8", "vgg9"])
@pytest.mark.parametrize("size", [28, 64, 84])
def test_other_image_sizes_work(name, size):
    outputs, _ = _shapes(name, (size, size, 3), num_classes=12)
    assert outputs.logits.shape == (2, 12)


@pytest.mark.parametrize("name", ["mlp", "tfcnn", "resnet8_w16"])
def test_projection_sits_before_the_head(name):
    shape, _, features = KNOWN[name]
    outputs, variables = _shapes(name, shape, projection=7)
    params = variables["params"]
    assert outputs.features.shape == (2, 7)
    assert params["head"]["kernel"].shape == (7, 10)
    assert params["projection"]["dense0"]["kernel"].shape == (features, features)
    assert params["projection"]["dense1"]["kernel"].shape == (features, 7)


def test_head_reproduces_the_logits_from_the_features():
    model = models.build("mlp", 5)
    outputs, variables = model.init_with_output(jax.random.key(0), jnp.ones((3, 4, 4)), train=False)
    head = variables["params"]["head"]
    np.testing.assert_allclose(
        outputs.logits, outputs.features @ head["kernel"] + head["bias"], rtol=1e-4, atol=1e-5
    )


def test_head_bias_can_be_dropped():
    _, variables = _shapes("mlp", (28, 28, 1), head_bias=False)
    assert set(variables["params"]["head"]) == {"kernel"}


@pytest.mark.parametrize("kind", ["plain", "residual"])
def test_stacked_models_equal_a_loop_over_models(kind):
    model, _, x = _setup(kind, 4, conv_impl="patches")
    keys = jax.random.split(jax.random.key(2), 2)
    stacked = _jit(jax.vmap(lambda k: model.init(k, x, train=False)))(keys)
    inputs = jax.random.normal(jax.random.key(3), (2, *x.shape))
    where = jnp.array([[True, True, True, False], [True, True, True, True]])
    step = lambda v, x, w: _loss(model, v, x, w)  # noqa: E731
    together = _jit(jax.vmap(step))(stacked, inputs, where)
    single = _jit(step)
    for n in range(2):
        alone = single(jax.tree.map(lambda leaf, n=n: leaf[n], stacked), inputs[n], where[n])
        _close(jax.tree.map(lambda leaf, n=n: leaf[n], together), alone)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("plain", {}),
        ("normalised", {}),
        ("residual", {}),
        ("residual", {"norm": "group"}),
        ("mobile", {}),
    ],
)
def test_padded_rows_change_nothing(kind, options):
    model, variables, x = _setup(kind, 6, **options)
    where = jnp.array([True, True, False, True, False, True])
    padded = jnp.where(where[:, None, None, None], x, 50.0)
    grads, outputs, new = _jit(lambda x, w: _loss(model, variables, x, w))(padded, where)
    grads0, outputs0, new0 = _jit(lambda x: _loss(model, variables, x))(x[where])
    _close(grads, grads0)
    _close(new, new0)
    _close(jax.tree.map(lambda a: a[where], outputs), outputs0)


def test_a_batch_without_valid_rows_gives_zero_finite_gradients():
    model, variables, x = _setup("residual", 3)
    grads, _, new = _jit(lambda w: _loss(model, variables, x, w))(jnp.zeros(3, bool))
    _close(grads, jax.tree.map(jnp.zeros_like, grads), 0)
    _close(new["batch_stats"], variables["batch_stats"], 0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("plain", {}), ("residual", {}), ("residual", {"pad_shortcut": True}), ("mobile", {})],
)
def test_implementations_and_remat_agree(kind, options):
    reference, variables, x = _setup(kind, 4, conv_impl="xla", **options)
    others = [_small(kind, conv_impl="patches", remat=remat, **options) for remat in (False, True)]
    expected, *results = _jit(lambda v: [_loss(m, v, x) for m in (reference, *others)])(variables)
    for actual in results:
        _close(actual, expected)


@pytest.mark.parametrize("kind", ["plain", "residual"])
def test_bfloat16_arithmetic_is_close_and_keeps_float32_outside(kind):
    model, variables, x = _setup(kind, 4, dtype=jnp.bfloat16)
    models_ = (model, _small(kind))
    outputs, exact = _jit(lambda v: [m.apply(v, x, train=False) for m in models_])(variables)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype(jnp.float32)}
    assert outputs.logits.dtype == outputs.features.dtype == jnp.float32
    assert not np.array_equal(outputs.logits, exact.logits)
    np.testing.assert_allclose(outputs.logits, exact.logits, atol=0.05)


def test_remat_keeps_the_parameter_names():
    for name in ("tfcnn", "resnet8_w16", "mobilenet_v2"):
        plain, remat = (_shapes(name, (32, 32, 3), remat=flag)[1] for flag in (False, True))
        assert jax.tree.structure(plain) == jax.tree.structure(remat)


@pytest.mark.parametrize(
    ("norm", "collections"),
    [("batch", {"params", "batch_stats"}), ("group", {"params"}), ("none", {"params"})],
)
def test_norm_option_and_norm_mask(norm, collections):
    _, variables = _shapes("resnet8_w16", (32, 32, 3), norm=norm)
    assert set(variables) == collections
    mask = models.norm_mask(variables["params"])
    chosen = sum(
        leaf.size
        for leaf, flag in zip(
            jax.tree.leaves(variables["params"]), jax.tree.leaves(mask), strict=True
        )
        if flag
    )
    # Stem, three blocks of two layers, two shortcuts; scale and bias for each channel.
    channels = 16 + 2 * (16 + 32 + 64) + 32 + 64
    assert chosen == (0 if norm == "none" else 2 * channels)


def test_networks_without_normalisation_ignore_the_option():
    _, variables = _shapes("tfcnn", (28, 28, 1), norm="batch")
    assert set(variables) == {"params"}
    assert not any(jax.tree.leaves(models.norm_mask(variables["params"])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(name="resnet9"), "model='resnet9' is unknown.*Did you mean 'resnet"),
        (dict(norm="layer"), "norm='layer' is unknown"),
        (dict(conv_impl="fft"), "conv_impl='fft' is unknown"),
        (dict(num_classes=0), "num_classes=0"),
        (dict(projection=-1), "projection=-1"),
    ],
)
def test_wrong_arguments_are_clear_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        models.build(**{"name": "mlp", "num_classes": 10, **arguments})
