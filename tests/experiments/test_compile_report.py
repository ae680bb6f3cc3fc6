"""Reports of programs compiled for accelerators."""

import importlib.util

import pytest

from experiments import compile_report


def test_collectives_and_convolutions_are_counted():
    text = (
        "%a = f32[8] all-reduce(%b)\n%c = f32[8] all-reduce-start(%d)\n%e = f32[8] all-gather(%f)\n"
        '%g = f32[8] custom-call(%h), custom_call_target="__cudnn$convBackwardFilter"\n'
    )
    assert compile_report.operations(text) == {
        "all-reduce": 2,
        "all-gather": 1,
        "convBackwardFilter": 1,
    }


def test_a_description_has_all_fields():
    text = compile_report.gpu_description("a100", compile_report.ACCELERATORS["a100"])
    assert "core_count: 108" in text
    assert "cuda_compute_capability { major: 8 }" in text


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs jax-cuda12-plugin"
)
def test_rounds_compile_for_an_a100(tiny_config):
    found = compile_report.report(tiny_config(partition="iid"), "a100")
    assert found["fits"]
