"""Programs of training and evaluation lower for accelerators, on one device and on eight."""

import collections
import math
import re

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from fedjax_skew import methods, models
from fedjax_skew.checks import rules
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.engine.evaluate import evaluate_clients
from fedjax_skew.simulation.arrays import abstract_arrays, device_arrays
from fedjax_skew.simulation.problem import build
from fedjax_skew.simulation.pure import make_simulation
from fedjax_skew.simulation.state import abstract_state, initial_state
from fedjax_skew.simulation.tracing import trace_evaluation, trace_rounds

# One method of each kind: plain, kept rows, client models, server training, a prediction of its
# own, another model, several batches a step.
KINDS = ("fedavg", "scaffold", "feddf", "fedlc_lt", "fedbe", "moon", "perfedavg")
NETWORKS = tuple(models.names())
TARGETS = ("cuda", "tpu")


def pictures(side: int, channels: int) -> Dataset:
    """A dataset of the smallest size that fits every network."""
    x = np.zeros((24, side, side, channels), np.uint8)
    labels = np.arange(24, dtype=np.int32) % 4
    return Dataset(
        "pictures", x, labels, x[:8], labels[:8], 4, None, (0.5,) * channels, (1.0,) * channels
    )


def texts(problem):
    """The programs of the first phase, each lowered once for all accelerators."""
    arrays = abstract_arrays(problem)
    state, phase = abstract_state(problem), problem.phases[0]
    evaluation = trace_evaluation(phase, state, arrays)
    traced = [trace_rounds(problem, phase, state, arrays), evaluation.model, evaluation.scores]
    if phase.method.personal:
        who, sets = np.arange(problem.info.num_clients), (arrays.tests[0], None)
        traced.append(jax.jit(evaluate_clients).trace(phase.spec, state, arrays.data, sets, who))
    return [t.lower(lowering_platforms=TARGETS).as_text() for t in traced if t]


def config_for(tiny_config, method="fedavg", **changes):
    return tiny_config(
        method=method, partition="iid", num_clients=8, batch_size=2, rounds=3,
        server_data__labelled=0.2, server_data__unlabelled=0.2, **changes,
    )  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_lowers_for_accelerators(tiny_config, network):
    config = config_for(tiny_config, model=network, clients_per_chunk=2)
    side = 28 if network == "fedlc_mnist_cnn" else 32
    problem = build(config, dataset=pictures(side, 1 if side == 28 else 3), target="cuda")
    assert all("stablehlo" in text for text in texts(problem))


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("method", KINDS)
def test_every_kind_of_method_lowers_for_accelerators(tiny_config, blobs, method, devices):
    config = config_for(tiny_config, method, num_devices=devices)
    for text in texts(build(config, dataset=blobs, target="cuda")):
        assert f"mhlo.num_partitions = {devices}" in text


def test_abstract_arguments_describe_the_real_ones(tiny_config, blobs):
    problem = build(config_for(tiny_config, "scaffold", num_devices=8), dataset=blobs)
    for real, abstract in (
        (device_arrays(problem), abstract_arrays(problem)),
        (initial_state(problem), abstract_state(problem)),
    ):
        found = [(a.shape, a.dtype, a.sharding) for a in jax.tree.leaves(real)]
        assert found == [(a.shape, a.dtype, a.sharding) for a in jax.tree.leaves(abstract)]


def test_the_target_decides_convolutions_and_chunks(tiny_config):
    config, data = config_for(tiny_config, model="fedavg_cnn"), pictures(32, 3)
    specs = {t: build(config, dataset=data, target=t).phases[0].spec for t in ("cpu", *TARGETS)}
    assert {t: spec.target.conv_impl for t, spec in specs.items()} == {
        "cpu": "native", "cuda": "grouped", "tpu": "grouped"
    }  # fmt: skip
    assert specs["cpu"].clients_per_chunk == 1
    assert specs["cuda"].clients_per_chunk == specs["tpu"].clients_per_chunk == 16


def test_an_unknown_target_is_named(tiny_config, blobs):
    with pytest.raises(ValueError, match="target='cud' is unknown"):
        build(config_for(tiny_config), dataset=blobs, target="cud")


@pytest.mark.parametrize("schedule", ["constant", "exponential", "cosine", "step"])
def test_learning_rates_share_one_program(tiny_config, blobs, schedule):
    made = [
        build(config_for(tiny_config, client_lr=lr, lr_schedule=schedule), dataset=blobs)
        for lr in (0.1, 0.03)
    ]
    assert texts(made[0]) == texts(made[1])
    rates = [float(problem.phases[0].spec.lr_schedule(0)) for problem in made]
    assert rates == pytest.approx([0.1, 0.03])


def test_numbers_of_the_optimiser_share_one_program(tiny_config, blobs):
    made = [
        build(config_for(tiny_config, **changes), dataset=blobs)
        for changes in (
            {"momentum": 0.9, "weight_decay": 1e-3, "clip_norm": 10.0},
            {"momentum": 0.5, "weight_decay": 1e-4, "clip_norm": 1.0},
        )
    ]
    assert texts(made[0]) == texts(made[1])


# Real numbers that are constants of programs because they are sizes or belong to an optimiser or a
# head; those of FedLoGe make a frame before the first round.
CONSTANT = {
    "balancefl": {"lr_scale"},
    "fedgela": {"temperature"},
    "fedlc_lt": {"neighbors"},
    "fedloge": {"sparsity", "frame_length"},
}


def real_numbers(method):
    """The real-valued hyper-parameters of a method in which its programs do not differ."""
    found = {name for name, rule in rules(methods.builder(method)).items() if rule.kind is float}
    return found - CONSTANT.get(method, set())


BOUND = {method: real_numbers(method) for method in methods.REGISTRY if real_numbers(method)}


@pytest.mark.parametrize("method", [*BOUND, "fedlc+fedprox", "balancefl+fedopt"])
def test_numbers_of_a_method_share_one_program(tiny_config, blobs, method):
    def made(value):
        config = config_for(tiny_config, method)
        for part in method.split("+"):
            config.hparams[part].update(dict.fromkeys(BOUND[part], value))
        return build(config, dataset=blobs)

    one, other = made(0.3), made(0.6)
    assert texts(one) == texts(other)
    leaves = set(jax.tree.leaves(one.phases[0].spec)) - {one.config.client_lr}
    assert leaves == {0.3}


def test_a_term_of_weight_zero_is_left_out_of_the_program(tiny_config, blobs):
    def products(lam):
        config = config_for(tiny_config, "fedvls")
        config.hparams.fedvls.lam = lam
        return texts(build(config, dataset=blobs))[0].count("stablehlo.dot_general")

    assert products(0.0) < products(0.1)  # No teacher.


KEPT = ("scaffold", "moon", "feddyn")  # Every client keeps something as large as its model.


@pytest.mark.parametrize("method", ["fedavg", *KEPT])
def test_no_device_ever_holds_the_rows_of_all_clients(tiny_config, blobs, method):
    devices, clients = 8, 48
    config = config_for(tiny_config, method, num_devices=devices)
    config.num_clients = clients
    problem = build(config, dataset=blobs)
    state, arrays = abstract_state(problem), abstract_arrays(problem)
    lowered = trace_rounds(problem, problem.phases[0], state, arrays).lower()
    found = collections.Counter(
        re.findall(r"stablehlo\.(all_\w+|reduce_scatter)", lowered.as_text())
    )
    # Sums of updates and executed steps; rows go to the devices that train them, and back.
    types = len({a.dtype for a in jax.tree.leaves(state.clients)})
    rows = {"reduce_scatter": types, "all_gather": types} if types else {}
    assert found == {"all_reduce": 2, **rows}
    kept = sum(a.size for a in jax.tree.leaves(state.clients)) // clients
    moved = re.findall(
        r"= (.*?) (?:all-\w+|reduce-scatter|collective-permute)\(", lowered.compile().as_text()
    )
    shapes = [
        sizes.split(",") for result in moved for sizes in re.findall(r"f32\[([\d,]+)\]", result)
    ]
    largest = max(math.prod(map(int, sizes)) for sizes in shapes)
    sums = 3 * sum(a.size for a in jax.tree.leaves(state.params)) + clients
    assert largest <= max(devices * kept, sums)
    assert bool(kept) == (method in KEPT) and (not kept or largest < clients * kept)


def test_evaluation_gathers_nothing(tiny_config, blobs):
    """Samples are divided over devices, models are on all of them, and only counts are summed."""
    problem = build(config_for(tiny_config, "scaffold", num_devices=8), dataset=blobs)
    state, arrays = abstract_state(problem), abstract_arrays(problem)
    lowered = trace_evaluation(problem.phases[0], state, arrays).scores.lower()
    text = lowered.compile().as_text()
    assert "all-reduce" in text
    assert not re.findall(r"(all-gather|all-to-all|collective-permute|reduce-scatter)\(", text)
    assert {a.sharding.spec for a in jax.tree.leaves(arrays.tests)} == {P("clients")}
    assert {a.sharding.spec for a in jax.tree.leaves((state.params, arrays.data))} == {P()}


def test_samples_drawn_ahead_are_those_of_each_step(tiny_config, blobs):
    config = config_for(
        tiny_config, model="mlp", clients_per_chunk=2, local_epochs=3, conv_impl="xla"
    )
    runs = [make_simulation(config, dataset=blobs, target=t) for t in ("cpu", "cuda")]
    assert [r.problem.phases[0].spec.local.steps_per_draw for r in runs] == [1, 32]
    params = [jax.jit(r.round)(r.init(), r.arrays)[0].params for r in runs]
    jax.tree.map(np.testing.assert_array_equal, *params)


@pytest.mark.parametrize("precision", ["default", "highest"])
def test_the_precision_reaches_every_product(tiny_config, precision):
    config = config_for(
        tiny_config, model="fedavg_cnn", clients_per_chunk=2, matmul_precision=precision
    )
    products = [
        line
        for text in texts(build(config, dataset=pictures(8, 3), target="cuda"))
        for line in text.splitlines()
        if "stablehlo.dot_general" in line or "stablehlo.convolution" in line
    ]
    exact = [line for line in products if "HIGHEST" in line]
    assert len(products) > 20
    if precision == "highest":
        assert exact == products
    else:  # Sums over clients are exact in any case.
        assert exact and not [line for line in exact if "convolution" in line]


@pytest.mark.parametrize(("target", "known"), [("cuda", True), ("rocm", True), ("tpu", False)])
@pytest.mark.parametrize("deterministic", [False, True])
def test_determinism_reaches_the_compiler(
    tiny_config, blobs, monkeypatch, target, known, deterministic
):
    given, jit = [], jax.jit

    def spy(*args, **kwargs):
        given.append(kwargs.get("compiler_options"))
        return jit(*args, **kwargs)

    problem = build(
        config_for(tiny_config, deterministic=deterministic), dataset=blobs, target=target
    )
    state, arrays = abstract_state(problem), abstract_arrays(problem)
    monkeypatch.setattr(jax, "jit", spy)
    trace_rounds(problem, problem.phases[0], state, arrays)
    trace_evaluation(problem.phases[0], state, arrays)
    expected = {"xla_gpu_deterministic_ops": True} if known and deterministic else {}
    # Programs have options, functions inside of them have none.
    assert [options for options in given if options is not None] == [expected] * 2
