"""Reports of programs compiled for accelerators."""

import importlib.util

import pytest

from experiments import accelerators, compile_report, compiled, estimate, hlo
from fedjax_skew import models
from fedjax_skew.errors import MissingExtra


def test_collectives_are_counted():
    text = (
        "ENTRY %main () -> f32[] {\n"
        "  %a = f32[8] all-reduce(%b)\n  %c = f32[8] all-reduce-start(%d)\n"
        "  %e = f32[8] all-reduce-done(%c)\n  ROOT %g = f32[8] all-gather(%f)\n}\n"
    )
    assert compiled.collectives(hlo.parse(text)) == {"all-reduce": 2, "all-gather": 1}


def test_a_description_has_all_fields():
    text = accelerators.gpu_description("a100", accelerators.ACCELERATORS["a100"])
    assert "core_count: 108" in text
    assert "cuda_compute_capability { major: 8 }" in text


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is not None, reason="the compiler is there"
)
def test_a_missing_compiler_is_named():
    with pytest.raises(MissingExtra, match=r"target='a100' needs .*'fedjax_skew\[compile\]"):
        accelerators.devices("a100")


def test_a_report_needs_no_data(tiny_config, monkeypatch):
    size = estimate.Size(48, 16, (6, 6, 1), 3, 1)
    monkeypatch.setattr(estimate, "size", lambda config: size)
    config = tiny_config(dataset__name="cifar10", partition="iid", num_devices=2)
    found = compiled.report(config, "cpu", fit=True)
    assert (found.devices, found.clients_per_chunk, found.largest_chunk) == (2, 1, 3)
    assert found.fits and "all-reduce" in found.collectives
    # One step of three clients, without the gradient of the input; sums over clients are products.
    assert 1 <= 1e9 * found.round_gflop / (3 * 8 * 2 * 2 * 36 * 3) < 1.5
    assert found.samples_per_second == pytest.approx(48e3 / found.round_ms)
    assert compiled.words(found)["peak_gb"] == f"{found.peak_gb:.3g}"


def test_a_row_replaces_that_of_the_same_program(tmp_path):
    path = tmp_path / "a.csv"
    row = {"target": "a100", "model": "mlp", "peak_gb": "1"}
    compile_report.save(path, row)
    compile_report.save(path, row | {"model": "tfcnn"})
    compile_report.save(path, row | {"peak_gb": "2"})
    assert path.read_text() == "target,model,peak_gb\na100,tfcnn,1\na100,mlp,2\n"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs jax-cuda12-plugin"
)
@pytest.mark.parametrize("model", models.names())
def test_every_network_compiles_for_an_a100(tiny_config, model):
    name = "mnist" if model == "fedlc_mnist_cnn" else "cifar10"
    config = tiny_config(dataset__name=name, model=model, partition="iid")
    found = compiled.report(config, "a100")
    assert found.fits and found.step_launches and found.samples_per_second > 0
