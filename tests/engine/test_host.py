"""Where samples and kept state wait changes nothing but memory."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.engine import host
from fedjax_skew.engine.client_state import (
    collect_clients,
    deal_clients,
    gather_clients,
    gather_host_clients,
    init_client_state,
    scatter_host_clients,
)
from fedjax_skew.engine.mesh import client_mesh
from fedjax_skew.methods.base import Method, MethodState, Upload, average
from fedjax_skew.runs.train import train_and_evaluate
from fedjax_skew.simulation.problem import build


def everything():
    """Uses all that may be elsewhere: own data, kept rows, the server's samples, own models."""

    def init(context):
        kept = {
            "sum": optax.tree.zeros_like(context.params),
            "times": jnp.int32(3),
            "met": jnp.bool_(False),
        }
        return MethodState(client=kept)

    def make_upload(client, result):
        change = optax.tree.sub(result.params, result.start)
        times = client.state["times"] + 1
        return Upload(
            {"sum": optax.tree.add(client.state["sum"], change), "times": times, "met": True}
        )

    def server(rnd):
        x, labels = rnd.labelled
        shift = 0.01 * (jnp.mean(x * labels[:, None]) + jnp.mean(rnd.unlabelled))
        new = average(rnd)
        return new._replace(params=jax.tree.map(lambda p: p + shift, new.params))

    def personal(client):
        seen = client.fold(lambda s, b: s + jnp.sum(jnp.where(b.where, b.x[:, 0], 0)), 0.0)
        shift = jnp.where(client.state["met"], 0.001 * seen * client.state["times"], 0.0)
        return jax.tree.map(lambda p: p + shift, client.params), client.stats

    return Method(
        "everything",
        regularizer=lambda context: (
            0.1 * optax.tree.vdot(context.params, context.client.state["sum"])
        ),
        init=init,
        make_upload=make_upload,
        server=server,
        personal=personal,
        needs_labelled_data=True,
        needs_unlabelled_data=True,
    )


def lines(workdir):
    """Numbers of a run without times and without what padding costs."""
    out = []
    for text in (workdir / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        del line["seconds"], line["executed_steps"]
        out.append(line)
    return out


def assert_same(a, b):
    a, b = lines(a), lines(b)
    assert [set(line) for line in a] == [set(line) for line in b]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), a, b)


@pytest.fixture(scope="module")
def run(tiny_config, blobs):
    def run(workdir, **changes):
        fields = {
            "rounds": 4,
            "num_seeds": 2,
            "participation": 0.5,
            "server_data__labelled": 0.1,
            "server_data__unlabelled": 0.1,
            "momentum": 0.5,
            "keep_momentum": True,
            "eval_every": 2,
            "num_personal_eval_clients": 2,
        }
        config = tiny_config(**{**fields, **changes})
        train_and_evaluate(config, workdir, dataset=blobs, method=everything(), progress=False)

    return run


@pytest.fixture(scope="module")
def expected(run, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("device")
    run(workdir)
    return workdir


HERE = {"state_placement": "host", "dataset__placement": "host"}
SPREAD = {"num_devices": 4}


def test_a_run_moves_from_the_host_to_four_devices(run, expected, tmp_path):
    run(tmp_path, rounds=2, **HERE)
    run(tmp_path, **SPREAD)
    assert_same(expected, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (SPREAD, HERE),
        ({**SPREAD, **HERE}, {**SPREAD, **HERE}),
        ({"state_placement": "host"}, {"dataset__placement": "host"}),
        ({**SPREAD, "dataset__placement": "host"}, {**SPREAD, "state_placement": "host"}),
    ],
)
def test_placements_may_change_on_resume(run, expected, tmp_path, first, then):
    run(tmp_path, rounds=2, **first)
    run(tmp_path, **then)
    assert_same(expected, tmp_path)


def test_methods_that_need_all_clients_at_once_are_refused(tiny_config, blobs, tmp_path):
    config = tiny_config(method="ccvr", dataset__placement="host")
    with pytest.raises(
        ValueError, match=r"'ccvr' evaluates with the data of all clients.*'device'"
    ):
        train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)


def test_a_cohort_has_the_samples_of_its_clients(tiny_config, blobs):
    data = build(tiny_config(num_seeds=2), dataset=blobs).data
    cohort = np.array([[4, 0], [1, 5]])
    width = host.width(data, 2)
    sizes = np.diff(data.offsets, axis=1)
    assert width == max(np.sort(row)[-2:].sum() for row in sizes)
    samples = host.gather(data, cohort, width)
    small = host.with_samples(host.tables(data, []), samples, jnp.asarray(cohort))
    for seed, clients in enumerate(cohort):
        for k in clients:
            first, size = int(small.start(seed, k)), int(small.size(seed, k))
            ids = np.asarray(small.order[seed, first : first + size])
            real = data.order[seed, data.offsets[seed, k] : data.offsets[seed, k + 1]]
            np.testing.assert_array_equal(small.x[ids], data.x[real])
            np.testing.assert_array_equal(small.labels[ids], data.labels[real])


@pytest.mark.parametrize("devices", [1, 4])
def test_rows_on_devices_equal_rows_on_the_host(devices):
    mesh = client_mesh(devices)
    template = {
        "a": np.arange(6.0, dtype=np.float32).reshape(2, 3),
        "b": np.array([True, False]),
        "empty": np.zeros((2, 0), np.float32),
    }
    here = init_client_state(template, 6, mesh, "host")
    there = init_client_state(template, 6, mesh, "device")
    cohort = np.array([[5, 0, 3], [1, 2, 4]])

    def change(rows):
        return {"a": rows["a"] * 2 - 7, "b": ~rows["b"], "empty": rows["empty"]}

    # Six clients in eight slots; 6 is padding.
    slots = jnp.array([3, 0, 6, 5, 1, 6, 4, 2]).reshape(devices, -1, 2)

    def on_devices(kept):
        who = jnp.asarray(cohort)
        dealt = deal_clients(mesh, kept, who, slots)
        after = collect_clients(mesh, kept, who, slots, change(dealt))
        return gather_clients(mesh, kept, who), dealt, after

    rows, dealt, there = jax.jit(on_devices)(there)
    expected = gather_host_clients(here, cohort)
    jax.tree.map(np.testing.assert_array_equal, expected, rows)
    for name, found in dealt.items():
        flat = expected[name].reshape(6, *expected[name].shape[2:])
        np.testing.assert_array_equal(found, flat[np.minimum(slots, 5)])
    scatter_host_clients(here, cohort, change(gather_host_clients(here, cohort)))
    jax.tree.map(lambda h, d: np.testing.assert_array_equal(h, d[:, :6]), here, there)
    if devices == 4:
        assert {s.data.shape[1] for s in there["a"].addressable_shards} == {2}
