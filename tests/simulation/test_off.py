"""What is switched off costs nothing: it is no part of any program, and nothing runs for it."""

import jax.numpy as jnp
import pytest

import fedjax_skew
from fedjax_skew.config import EXECUTION_FIELDS
from fedjax_skew.engine import round as engine
from fedjax_skew.simulation import programs, trainer
from fedjax_skew.simulation.arrays import abstract_arrays, scored_sets
from fedjax_skew.simulation.problem import build
from fedjax_skew.simulation.state import abstract_state
from fedjax_skew.simulation.tracing import trace_evaluation, trace_rounds

OTHER_VALUES = {
    "checkpoint_every": 7,
    "keep_checkpoints": 5,
    "save_partition": True,
    "clients_csv": "evaluation",
    "loggers": "csv",
    "figures": True,
}


def texts(config, dataset):
    """The programs of training and of evaluation, before XLA optimises them."""
    problem = build(config, dataset=dataset)
    state, arrays, phase = abstract_state(problem), abstract_arrays(problem), problem.phases[0]
    evaluation = trace_evaluation(phase, state, arrays)
    traced = [trace_rounds(problem, phase, state, arrays), evaluation.model, evaluation.scores]
    return [t.lower().as_text() for t in traced if t]


@pytest.fixture
def config(tiny_config):
    return tiny_config(participation=0.5, rounds=2)


@pytest.fixture(scope="module")
def off(tiny_config, blobs):
    return texts(tiny_config(participation=0.5, rounds=2), blobs)


def test_a_round_without_availability_is_one_that_never_heard_of_it(
    config, blobs, off, monkeypatch
):
    def all_steps(spec, state, data, cohort, num_samples):
        steps = spec.local.num_steps(num_samples)
        return jnp.ones_like(steps, bool), steps

    monkeypatch.setattr(engine, "_steps", all_steps)
    monkeypatch.setattr(engine, "weights_of_round", None)
    monkeypatch.setattr(
        engine,
        "draw_cohort",
        lambda spec, keys, log_weights, round_: engine.sample_cohort(
            engine.stream_keys(keys, engine.Stream.COHORT, round_), 6, 3, None
        ),
    )
    assert texts(config, blobs) == off


def test_files_and_loggers_are_no_part_of_a_program(config, blobs, off):
    assert set(OTHER_VALUES) < EXECUTION_FIELDS
    assert all(config[field] != value for field, value in OTHER_VALUES.items())
    config.update(OTHER_VALUES)
    assert texts(config, blobs) == off


@pytest.mark.parametrize(
    ("field", "value", "program"),
    [("dropout", 0.2, 0), ("stragglers", 0.2, 0), ("eval_train_set", True, 1)],
)
def test_what_is_switched_on_is_part_of_one_program_only(field, value, program, config, blobs, off):
    config[field] = value
    on = texts(config, blobs)
    assert [a != b for a, b in zip(on, off, strict=True)] == [place == program for place in (0, 1)]
    assert len(on[program]) > len(off[program])


def test_nothing_is_scored_or_tabulated_that_nobody_asked_for(config, blobs, tmp_path, monkeypatch):
    compiled = []

    def compile_phase(*args):
        compiled.append(programs.compile_phase(*args))
        return compiled[0]

    monkeypatch.setattr(trainer, "compile_phase", compile_phase)
    monkeypatch.setattr(trainer, "client_table", None)
    config.clients_csv = "never"
    fedjax_skew.train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert (compiled[0].holdout, compiled[0].clients, compiled[0].local) == (None, None, None)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("config.json", "identity.json", "metrics.jsonl", "summary.json", "partition.csv"),
        *("checkpoints", ".lock"),
    }
    assert scored_sets(build(config, dataset=blobs)) == ("test",)
