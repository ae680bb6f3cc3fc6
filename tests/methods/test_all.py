"""What holds for every method: finite, resumable, independent of the number of devices, also when
clients drop out.

Tiny sizes everywhere, because almost all of the time is compilation.
"""

import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from fedjax_skew import methods
from fedjax_skew.data import datasets
from fedjax_skew.models.norm import Norm
from fedjax_skew.runs import checkpoint
from fedjax_skew.simulation.pure import make_simulation

# Server-side loops are shortened; what they do is tested beside each method.
SHORT = {
    # Adam turns the rounding of gradients that are zero into full steps.
    "balancefl": {"lr_scale": 0.01, "num_draws": 8},
    "ccvr": {"samples_per_class": 8, "epochs": 1},
    "creff": {
        "images_per_class": 4,
        "match_steps": 2,
        "classifier_epochs": 1,
        "sample_size": 4,
        "repeats": 1,
    },
    "fedbe": {"num_models": 2, "epochs": 1, "batch_size": 8, "swa_start": 1, "swa_every": 1},
    "fedconcat": {"num_clusters": 2, "encoder_rounds": 2},
    "feddf": {"steps": 3, "batch_size": 8},
    "fedgen": {"generator_steps": 2, "hidden": 8, "noise_dim": 4, "batch_size": 4},
    "fedetf": {"finetune_cycles": 1},
    "fedloge": {"frame_steps": 2},
    "fednh": {"keep_models": True},
    "fedic": {"finetune_steps": 2, "calibrate_steps": 2, "distill_steps": 2},
    "fedlc_lt": {"steps": 2, "batch_size": 8},
}
ROUNDS = 3


class Tiny(nn.Module):
    """The smallest model with BatchNorm."""

    @nn.compact
    def __call__(self, x, *, train, where=None):
        x = nn.Dense(8)(x.reshape(x.shape[0], -1))
        x = nn.relu(Norm("batch", name="norm")(x, train=train, where=where))
        return nn.Dense(4, name="head")(x), x


@pytest.fixture(scope="module")
def synthetic():
    return datasets.load("synthetic(1,1)", num_clients=6)


def run(simulation, through=None):
    """The state after all rounds; ``through`` is applied to the state after the first one."""
    state = simulation.init()
    for number, phase in enumerate(simulation.problem.phases):
        if number:
            state = simulation.next_phase(state, phase=number - 1)
        one = jax.jit(functools.partial(simulation.round, phase=number))
        for _ in range(phase.first, phase.last):
            state, report = one(state, simulation.arrays)
            assert np.asarray(report.params_finite).all()
            if through and int(state.round) == 1:
                state = through(state)
    return state


def final_loss(simulation, state):
    """The loss of the final model on the test set."""
    last = len(simulation.problem.phases) - 1
    score = jax.jit(functools.partial(simulation.evaluate, phase=last))
    return score(state, simulation.arrays).loss


def assert_close(a, b, tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        scale = 1.0 + np.abs(x).max(initial=0.0)
        np.testing.assert_allclose(x / scale, y / scale, atol=tolerance)


@pytest.mark.parametrize(
    "problem_name", ["images", pytest.param("synthetic", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", sorted(methods.REGISTRY))
def test_every_method(name, problem_name, tiny_config, images, synthetic, tmp_path):
    on_images = problem_name == "images"
    dataset = images if on_images else synthetic
    method = methods.build(name)
    changes = {
        "method": name,
        "rounds": ROUNDS,
        "participation": 0.5,
        "num_seeds": 2,
        "local_epochs": 0,
        "local_steps": 2,
        "client_lr": 0.02,
        "dropout": 0.3,
        "stragglers": 0.3,
        "hparams": {name: SHORT.get(name, {})},
        "partition": "dirichlet(beta=0.5,min_size=4)" if on_images else "natural",
        # Synthetic's rarest class has one sample.
        "server_data__labelled": (0.05 if on_images else 0.005)
        if method.needs_labelled_data
        else 0.0,
        "server_data__unlabelled": 0.1 if method.needs_unlabelled_data else 0.0,
    }
    make = functools.partial(make_simulation, dataset=dataset, module=Tiny() if on_images else None)

    def through_a_checkpoint(state):
        checkpoint.save(tmp_path, 1, state, keep=1)
        return checkpoint.restore(tmp_path, lambda round_: state).state

    simulation = make(tiny_config(**changes))
    whole = run(simulation, through_a_checkpoint)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(whole.params))
    assert np.isfinite(final_loss(simulation, whole)).all()
    spread = run(make(tiny_config(**changes, num_devices=4)))
    assert_close(whole.params, spread.params, 2e-3)
