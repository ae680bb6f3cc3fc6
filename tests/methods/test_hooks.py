"""Parts of the interface that few methods use, tested by methods made for the purpose."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import models
from fedjax_skew.engine.local import _draw_balanced
from fedjax_skew.methods.base import Method, StepResult
from fedjax_skew.methods.ccvr import ccvr
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.scaffold import scaffold
from fedjax_skew.models.functional import from_module


def only(*names):
    """``trainable``: the given top-level entries of the parameters."""

    def mask(client, step):
        return {n: jax.tree.map(lambda _, n=n: n in names, p) for n, p in client.params.items()}

    return mask


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_frozen_parameters_survive_decay_and_momentum(take_step, make_params):
    method = Method("body", trainable=only("hidden"))
    first = take_step(method, momentum=0.9, weight_decay=0.1)
    second = take_step(method, momentum=0.9, weight_decay=0.1, after=first)
    assert_equal(second.params["head"], make_params()["head"])
    assert float(
        jnp.abs(second.params["hidden"]["kernel"] - first.params["hidden"]["kernel"]).max()
    )


def test_a_phase_leaves_no_momentum_behind(take_step, make_params):
    """The part that was frozen in the first step starts the second one as if it were the first."""
    method = Method(
        "alternate",
        trainable=lambda client, step: {
            "hidden": jax.tree.map(lambda _: step > 0, client.params["hidden"]),
            "head": jax.tree.map(lambda _: step == 0, client.params["head"]),
        },
    )
    options = {"momentum": 0.9, "weight_decay": 0.1}
    first = take_step(method, **options)
    assert_equal(first.params["hidden"], make_params()["hidden"])
    second = take_step(method, **options, after=first)
    assert_equal(second.params["head"], first.params["head"])
    fresh = take_step(Method("fedavg"), params=first.params, **options)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7),
        second.params["hidden"],
        fresh.params["hidden"],
    )


def test_masks_of_two_methods_intersect(make_client):
    both = compose([Method("a", trainable=only("hidden")), Method("b", trainable=only("head"))])
    assert not any(jax.tree.leaves(both.trainable(make_client(), jnp.int32(0))))


def test_a_local_rule_sees_its_step_and_statistics_and_differentiates_at_others(take_step):
    seen = {}

    def step(s):
        seen["step"], seen["stats"] = int(s.step), s.stats
        gradient, aux = s.grad(s.params, s.batches[0], stats={})
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        return StepResult(params, opt_state, s.scratch, aux)

    method = Method("looks", step=step)
    take_step(method, after=take_step(method))
    assert seen == {"step": 1, "stats": {}}


def test_balanced_draws_have_equal_classes_and_stay_inside_them():
    counts = jnp.array([90.0, 0.0, 8.0, 2.0])
    at = np.asarray(_draw_balanced(jax.random.key(0), counts, 6000))
    classes = np.searchsorted([90, 90, 98, 100], at, side="right")
    share = np.bincount(classes, minlength=4) / 6000
    np.testing.assert_allclose(share, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.02)
    assert set(at[classes == 3]) == {98, 99}


def test_a_method_brings_its_optimizer_and_batches(simulate):
    adam = Method(
        "adam", optimizer=optax.scale_by_adam(), keep_optimizer_state=True, balanced_batches=True
    )
    done = simulate(adam, rounds=2, momentum=0.9, client_lr=0.01, participation=0.5)
    steps = done.state.clients.optimizer[0].count
    taken = sum(report.useful_steps.sum() for report in done.reports)
    assert int(steps.sum()) == int(taken)


def test_scaffold_refuses_another_optimizer(simulate):
    adam = Method("adam", optimizer=optax.scale_by_adam())
    with pytest.raises(ValueError, match="scaffold.* counts the steps of SGD"):
        simulate(compose([scaffold(), adam]))


def test_a_replaced_head_is_incompatible_with_methods_that_need_a_linear_one():
    hook = Method("hook", model=lambda model: model)
    with pytest.raises(ValueError, match="hook replaces the model's head, but ccvr needs"):
        compose([hook, ccvr()])
    with pytest.raises(ValueError, match="a and hook both define the model's head"):
        compose([Method("a", model=lambda model: model), hook])


@pytest.mark.parametrize(
    ("name", "shape", "widths"),
    [
        ("simple_cnn", (28, 28, 1), [6, 16, 84, 120]),
        ("resnet8_w16", (8, 8, 3), [16, 16, 32, 64]),
        ("logistic", (6,), []),
    ],
)
def test_blocks_are_collected_on_request_only(name, shape, widths):
    module = models.build(name, 3)
    x = jnp.ones((2, *shape))
    for collect in (True, False):
        model = from_module(module, lambda x: x, blocks=collect)
        params, stats = jax.eval_shape(model.init, jax.random.key(0), x)
        outputs, new = jax.eval_shape(
            lambda p, s, m=model: m.apply(p, s, x, train=True), params, stats
        )
        assert jax.tree.structure(new) == jax.tree.structure(stats)
        assert sorted(b.shape[1] for b in outputs.blocks) == (widths if collect else [])


def test_features_need_no_head(tiny_model, make_params):
    params = make_params()
    x = jnp.ones((2, 6))
    body = {name: p for name, p in params.items() if name != "head"}
    features, _ = tiny_model.features(body, {}, x)
    np.testing.assert_array_equal(features, tiny_model.apply(params, {}, x)[0].features)
