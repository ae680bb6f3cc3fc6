"""``simulate``: results without files, and everything that a caller may bring."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fedjax_skew.data.partition import Partition
from fedjax_skew.simulation.callbacks import Callback
from fedjax_skew.simulation.simulate import simulate as run


class Net(nn.Module):
    """A hidden layer and a head."""

    width: int = 4

    @nn.compact
    def __call__(self, x, *, train, where=None):
        x = nn.relu(nn.Dense(self.width, name="hidden")(x))
        return nn.Dense(3, name="head")(x), x


@pytest.fixture(scope="module")
def result(tiny_config, blobs):
    return run(tiny_config(num_seeds=2), dataset=blobs)


def test_the_result_holds_model_history_and_summary(result, blobs):
    assert [line["round"] for line in result.history] == [1, 2, 3]
    assert result.summary["status"] == "finished" and result.round == 3
    assert result.params["head"]["kernel"].shape == (2, 6, 3) and result.stats == {}
    for seed in (0, 1):
        guesses = result.predict(blobs.x_test, seed=seed).argmax(-1)
        accuracy = result.history[-1]["accuracy"][seed]
        np.testing.assert_allclose((guesses == blobs.y_test).mean(), accuracy, rtol=1e-6)
    assert "confusion" in result.history[-1] and "confusion" not in result.history[0]


def test_predict_names_wrong_samples(result, blobs):
    assert result.predict(blobs.x_test[:0]).shape == (0, 3)
    with pytest.raises(ValueError, match=r"x is float32 \[90, 5\].*\['N', 6\]"):
        result.predict(blobs.x_test[:, :5])
    with pytest.raises(ValueError, match=r"seed=2 must be an index from 0 to 1"):
        result.predict(blobs.x_test, seed=2)


def test_images_are_normalised_as_in_training(tiny_config, images):
    found = run(
        tiny_config(method="logit_adjust", hparams={"logit_adjust": {"form": "post_hoc"}}),
        dataset=images,
    )
    accuracy = (found.predict(images.x_test).argmax(-1) == images.y_test).mean()
    np.testing.assert_allclose(accuracy, found.history[-1]["accuracy"][0], rtol=1e-6)
    with pytest.raises(ValueError, match=r"integers in 0\.\.255"):
        found.predict(images.x_test / 255.0)


def test_a_partition_of_index_lists_is_used_as_it_is(tiny_config, blobs):
    lists = [range(0, 50), range(50, 60), [200, 100]]
    part = Partition.from_indices(lists, blobs.y_train)
    found = run(tiny_config(rounds=1), dataset=blobs, partition=part)
    assert found.summary["partition_hash"] == [part.hash]
    assert found.history[0]["samples"] == 62
    with pytest.raises(ValueError, match="1 partitions for num_seeds=2"):
        run(tiny_config(num_seeds=2), dataset=blobs, partition=[part])
    with pytest.raises(ValueError, match=r"server_data\.labelled=0\.1 .* partition has none"):
        run(tiny_config(server_data__labelled=0.1), dataset=blobs, partition=part)


def test_training_continues_from_given_parameters(tiny_config, blobs, result):
    again = run(tiny_config(num_seeds=2, client_lr=1e-6), dataset=blobs, params=result.params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3), again.params, result.params
    )
    one = jax.tree.map(lambda a: a[0], result.params)
    shared = run(tiny_config(num_seeds=2, rounds=1, client_lr=1e-6), dataset=blobs, params=one)
    for seed in (0, 1):
        kernel = shared.params["head"]["kernel"][seed]
        np.testing.assert_allclose(kernel, one["head"]["kernel"], atol=1e-3)
    wrong = {"head": {"kernel": jnp.zeros((5, 3)), "bias": jnp.zeros(3)}}
    with pytest.raises(ValueError, match=r"params\.head\.kernel has the shape \(5, 3\)"):
        run(tiny_config(), dataset=blobs, params=wrong)
    with pytest.raises(ValueError, match="params has the structure"):
        run(tiny_config(), dataset=blobs, params={"head": jnp.zeros(3)})


def test_a_given_optimizer_replaces_sgd(tiny_config, blobs):
    plain = run(tiny_config(client_lr=0.1, lr_schedule="exponential"), dataset=blobs)
    same = run(
        tiny_config(client_lr=0.5, lr_schedule="exponential"),
        dataset=blobs,
        optimizer=optax.sgd(0.1),
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), plain.params, same.params
    )
    adam = run(tiny_config(rounds=5, keep_momentum=True), dataset=blobs, optimizer=optax.adam(0.1))
    assert adam.history[-1]["accuracy"][0] > 0.8
    with pytest.raises(ValueError, match=r"momentum=0\.9 belongs to the configured SGD"):
        run(tiny_config(momentum=0.9), dataset=blobs, optimizer=optax.sgd(0.1))


def test_a_given_module_and_variables(tiny_config, blobs):
    net = Net(width=5)
    variables = net.init(jax.random.key(3), blobs.x_train[:1], train=False)
    found = run(tiny_config(rounds=1, client_lr=1e-6), dataset=blobs, module=net, params=variables)
    np.testing.assert_allclose(
        found.params["hidden"]["kernel"][0], variables["params"]["hidden"]["kernel"], atol=1e-3
    )


def test_an_nnx_module_through_the_bridge(tiny_config, blobs):
    class Normalized(nnx.Module):
        def __init__(self, width, *, rngs):
            self.hidden = nnx.Linear(6, width, rngs=rngs)
            self.norm = nnx.BatchNorm(width, rngs=rngs)
            self.head = nnx.Linear(width, 3, rngs=rngs)

        def __call__(self, x, *, train, where=None):
            x = nnx.relu(self.norm(self.hidden(x), use_running_average=not train))
            return self.head(x), x

    module = nnx.bridge.to_linen(Normalized, 8)
    found = run(tiny_config(rounds=2), dataset=blobs, module=module)
    assert found.stats["norm"]["mean"].shape == (1, 8)
    assert found.predict(blobs.x_test).shape == (90, 3)


def test_a_module_without_the_right_head_is_refused(tiny_config, blobs):
    class Headless(nn.Module):
        @nn.compact
        def __call__(self, x, *, train, where=None):
            return nn.Dense(3)(x), x

    with pytest.raises(ValueError, match=r"module=Headless .*'Dense_0'.* named 'head'"):
        run(tiny_config(), dataset=blobs, module=Headless())


def test_callbacks_see_every_line_and_the_end(tiny_config, blobs):
    seen = []

    class Log(Callback):
        def on_evaluation(self, line):
            seen.append(line["round"])

        def on_end(self, summary):
            seen.append(summary["status"])

        def close(self):
            seen.append("closed")

    run(tiny_config(rounds=2), dataset=blobs, callbacks=[Log()])
    assert seen == [1, 2, "finished", "closed"]
