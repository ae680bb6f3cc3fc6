"""``train_and_evaluate``: one run, from a configuration to a directory of results."""

import contextlib
import json
import pathlib
import signal
import time
import zlib
from typing import Any

import flax.linen as nn
import jax
import ml_collections
import numpy as np

from fedjax_skew.config import HOST_FIELDS, flatten, used_hparams
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.engine.mesh import process_max, raise_together
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.engine.round import State
from fedjax_skew.errors import import_extra
from fedjax_skew.methods import Method
from fedjax_skew.metrics import classification, skew
from fedjax_skew.report import summary
from fedjax_skew.runs import checkpoint, outputs, rundir
from fedjax_skew.simulation.problem import (
    Phase,
    Problem,
    build,
    fingerprint,
    initial_state,
    start_next_phase,
)
from fedjax_skew.simulation.programs import (
    Programs,
    compile_phase,
    device_arrays,
    scored_sets,
    some_clients,
)

CHECKPOINT_SECONDS = 60.0


class Diverged(RuntimeError):
    """A loss or parameter is not finite and the configuration says to stop."""


class Interrupted(RuntimeError):
    """The run was asked to stop; it was saved and can go on."""


def train_and_evaluate(
    config: ml_collections.ConfigDict,
    workdir: str | pathlib.Path,
    *,
    dataset: Dataset | None = None,
    method: Method | None = None,
    module: nn.Module | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs a configuration to its end, or goes on where ``workdir`` stopped.

    Args:
        config: see ``fedjax_skew.config.default_config``.
        workdir: directory of the run; see the README for its files.
        dataset: used in place of ``config.dataset``.
        method: used in place of ``config.method``, for one that is not registered.
        module: used in place of ``config.model``; see ``simulation.problem.build``.
        progress: show a progress bar.

    Returns:
        The content of ``summary.json``.

    Raises:
        ValueError: if the configuration, the data or the directory cannot be used.
        Diverged: if a result is not finite and ``on_nonfinite="stop"``.
        Interrupted: on SIGTERM or Ctrl-C, after saving.
    """
    workdir = pathlib.Path(workdir)
    with contextlib.ExitStack() as stack:
        with raise_together():
            problem = build(config, dataset=dataset, method=method, module=module)
        with raise_together():
            _check_processes(problem)
            if jax.process_index() == 0:
                stack.enter_context(rundir.owned(workdir))
                rundir.check_config(workdir, config.to_dict())
        finished = _finished(workdir, config)
        if finished:
            return finished
        return _Run(problem, workdir, progress).run()


def _check_processes(problem: Problem) -> None:
    """Raises if the processes of a run do not compute the same."""
    fields = flatten(problem.config).items()
    values = {name: value for name, value in fields if name not in HOST_FIELDS}
    text = json.dumps([rundir.clean(values), [p.hash for p in problem.partitions]], sort_keys=True)
    number = zlib.crc32(text.encode()) >> 1
    high, low = process_max(number, -number)
    if high != -low:
        raise ValueError("The processes have different configurations or different data.")


def _finished(workdir: pathlib.Path, config: ml_collections.ConfigDict) -> dict[str, Any] | None:
    path = workdir / "summary.json"
    if not path.exists():
        return None
    found = rundir.read_json(path)
    if found and found.get("status") == "finished" and found.get("rounds") == config.rounds:
        return {**found, "resumed_finished": True}
    return None


def _lighten(lines: list[dict[str, Any]]) -> None:
    """Drops the matrices of remembered lines; only the newest line's are read again."""
    for line in reversed(lines):
        if line.pop("confusion", None) is None:
            break
        line.pop("per_class_accuracy", None)


class _Run:
    """The loop around compiled rounds: evaluate, write, save."""

    def __init__(self, problem: Problem, workdir: pathlib.Path, progress: bool):
        self.problem, self.workdir, self.progress = problem, workdir, progress
        self.config = problem.config
        self.arrays = device_arrays(problem)
        self.groups = np.stack([self._groups(p.class_counts) for p in problem.partitions])
        self.compile_seconds = 0.0
        self.class_counts = np.asarray(problem.data.class_counts)
        self.stop_signal = 0
        self.initial_hash = ""
        self.warned = False

    def run(self) -> dict[str, Any]:
        state = initial_state(self.problem)
        self.initial_hash = fingerprint(state.params)
        state = self._restore(state)
        first = int(state.round)
        path = self.workdir / "metrics.jsonl"
        self.lines = rundir.read_lines(path, first, repair=jax.process_index() == 0)
        _lighten(self.lines[:-1])
        self.seconds = self.lines[-1]["seconds"] if self.lines else 0.0
        if jax.process_index() == 0:
            counts = self.problem.partitions[0].class_counts
            outputs.write_partition(self.workdir, counts, self.config.figures)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._signals())
            self.bar = stack.enter_context(
                import_extra("tqdm", "runs").tqdm(
                    total=self.config.rounds,
                    initial=first,
                    disable=not self.progress or jax.process_index() != 0,
                    desc=self.problem.phases[0].method.name,
                    unit="round",
                    dynamic_ncols=True,
                    leave=None,  # Below another bar, a finished one makes room.
                )
            )
            self.writer = lambda line: None
            if self.config.tensorboard and jax.process_index() == 0:
                self.writer = stack.enter_context(outputs.tensorboard(self.workdir, first))
            for phase in self.problem.phases:
                if int(state.round) < phase.last:
                    state = self._run_phase(phase, state)
                if int(state.round) == phase.last and phase is not self.problem.phases[-1]:
                    state = start_next_phase(self.problem, phase, state)
        return self._finish(state)

    def _run_phase(self, phase: Phase, state: State) -> State:
        began = time.time()
        self.bar.set_postfix_str("compiling")
        programs = compile_phase(self.problem, phase, state, self.arrays)
        self.compile_seconds += time.time() - began
        self.bar.set_postfix_str("")
        saved_at, saved_round = time.time(), int(state.round)
        while int(state.round) < phase.last:
            began, first = time.time(), int(state.round)
            every = self.config.eval_every
            until = min(first // every * every + every, phase.last)
            state, report = programs.rounds(state, until)
            done = int(state.round)
            self._check_finite(phase, report, first)
            if done % every == 0 or done == self.config.rounds:
                self._evaluate(phase, programs, state, report, began)
            self.bar.update(done - first)
            wait = self.config.checkpoint_every
            if wait:  # At its multiples, wherever a run stopped before.
                due = done // wait > saved_round // wait
            else:
                due = time.time() - saved_at > CHECKPOINT_SECONDS
            # Processes save together and stop together, whichever of them was asked to.
            due, stop = process_max(due, self.stop_signal)
            if due or stop or done == phase.last:
                self._save(state)
                saved_at, saved_round = time.time(), done
            if stop and done < self.config.rounds:
                raise Interrupted(
                    f"Stopped by {signal.Signals(stop).name} after round {done} of "
                    f"{self.config.rounds}; the same command goes on from there."
                )
        return state

    def _evaluate(
        self, phase: Phase, programs: Programs, state: State, report: RoundReport, began: float
    ) -> None:
        test, *others = programs.scores(state, int(state.round) == self.config.rounds)
        line: dict[str, Any] = {"round": int(state.round), "seconds": 0.0}
        line |= summary.score_columns(
            np.asarray(test.confusion), np.asarray(test.loss), self.groups
        )
        for name, other in zip(scored_sets(self.problem)[1:], others, strict=True):
            line[f"{name}_accuracy"] = classification.accuracy(np.asarray(other.confusion))
        if programs.clients:
            own = programs.clients(state).confusion
            counts = self.class_counts[:, some_clients(self.problem, "num_personal_eval_clients")]
            line |= summary.personal_columns(np.asarray(own), counts)
        if programs.local:
            found = programs.local(state)
            line |= summary.local_columns(
                np.asarray(found.before.confusion),
                np.asarray(found.after.confusion),
                np.asarray(found.deviating),
                self.class_counts[:, some_clients(self.problem, "num_local_eval_clients")],
            )
        line |= {
            "train_loss": report.loss[-1],
            "update_norm": report.update_norm[-1],
            "mean_update_norm": report.mean_update_norm[-1],
            "update_cosine": report.cosine[-1],
            "nonfinite_clients": report.nonfinite.sum(0),
            "client_lr": float(phase.spec.lr_schedule(int(state.round) - 1)),
            "useful_steps": int(report.useful_steps.sum(dtype=np.int64)),
            "executed_steps": int(report.executed_steps.sum(dtype=np.int64)),
            "samples": int(report.samples.sum(dtype=np.int64)),
        }
        self.seconds += time.time() - began
        line["seconds"] = round(self.seconds, 3)
        _lighten(self.lines)
        self.lines.append(rundir.clean(line))
        if jax.process_index() == 0:
            rundir.append_line(self.workdir / "metrics.jsonl", line)
        self.writer(self.lines[-1])
        self.bar.set_postfix_str(f"accuracy {100 * float(np.mean(line['accuracy'])):.2f} %")

    def _check_finite(self, phase: Phase, report: RoundReport, first: int) -> None:
        """Names the first non-finite round and its clients; raises ``Diverged`` if told to stop."""
        bad = (report.nonfinite.sum(-1) > 0) | ~report.params_finite.all(-1)
        policy = self.config.on_nonfinite
        if not bad.any() or (self.warned and policy != "stop"):
            return
        at = int(np.argmax(bad))
        seed = int(np.argmax((report.nonfinite[at] > 0) | ~report.params_finite[at]))
        clients = [int(c) for c in report.bad_clients[at, seed] if c >= 0]
        who = f"clients {clients}" if clients else "the server's update"
        message = (
            f"{phase.method.name} is not finite in round {first + at + 1} (seed "
            f"{self.problem.seeds[seed]}, {who}, client_lr "
            f"{float(phase.spec.lr_schedule(first + at)):g})"
        )
        if policy != "stop":
            self.warned = True
            self.bar.write(f"{message}; on_nonfinite={policy!r} goes on and counts such clients.")
            return
        message += "; lower client_lr, or set on_nonfinite to 'skip' or 'continue'."
        if jax.process_index() == 0:
            rundir.write_json(
                self.workdir / "summary.json", {"status": "diverged", "reason": message}
            )
        raise Diverged(message)

    def _finish(self, state: State) -> dict[str, Any]:
        config, problem = self.config, self.problem
        last = self.lines[-1]
        samples = sum(line["samples"] for line in self.lines)
        result = {
            "status": "finished",
            "method": problem.phases[0].method.name,
            "hparams": used_hparams(config),
            "dataset": problem.dataset.name,
            "model": config.model,
            "partition": config.partition,
            "partition_hash": [p.hash for p in problem.partitions],
            "skew": [skew.skew_statistics(p.class_counts) for p in problem.partitions],
            "seeds": list(problem.seeds),
            "rounds": config.rounds,
            "server_data": [
                kind
                for kind in ("labelled", "unlabelled")
                if any(getattr(p.method, f"needs_{kind}_data") for p in problem.phases)
            ],
            "accuracy": summary.curve_summary(self.lines, "accuracy"),
            "macro_f1": summary.curve_summary(self.lines, "macro_f1"),
        }
        optional = ("head", "middle", "tail", "validation", "train", "personal", "personal_local")
        for name in optional:
            if f"{name}_accuracy" in last:
                result[f"{name}_accuracy"] = summary.curve_summary(self.lines, f"{name}_accuracy")
        if "validation_accuracy" in last:
            result["accuracy"] |= summary.at_best_validation(self.lines)
        result |= {
            "per_class_accuracy": last["per_class_accuracy"],
            "confusion": last["confusion"],
            "nonfinite_clients": int(sum(sum(line["nonfinite_clients"]) for line in self.lines)),
            "initial_params_hash": self.initial_hash,
            "final_params_hash": fingerprint(state.params),
            "wall_seconds": self.seconds,
            "compile_seconds": round(self.compile_seconds, 3),
            "samples_per_second": samples / max(self.seconds, 1e-9),
            "useful_step_share": sum(line["useful_steps"] for line in self.lines)
            / max(sum(line["executed_steps"] for line in self.lines), 1),
            "versions": summary.versions(),
            "device": summary.device(),
        }
        if jax.process_index() == 0:
            rundir.write_json(self.workdir / "summary.json", result)
        return rundir.clean(result)

    def _restore(self, state: State) -> State:
        """The newest whole checkpoint, or the given initial state."""

        def like(round_):
            """A state of the phase that round belongs to, for its shapes."""
            made, current = state, self.problem.phases[0]
            while round_ > current.last or (
                round_ == current.last and current is not self.problem.phases[-1]
            ):
                if round_ == current.last:
                    return made
                made = start_next_phase(self.problem, current, made)
                current = self.problem.phases[self.problem.phases.index(current) + 1]
            return made

        found = checkpoint.restore(self.workdir / "checkpoints", like)
        return found[1] if found else state

    def _save(self, state: State) -> None:
        checkpoint.save(
            self.workdir / "checkpoints", int(state.round), state, self.config.keep_checkpoints
        )

    def _groups(self, class_counts: np.ndarray) -> np.ndarray:
        sizes = class_counts.sum(0)
        upper, lower = self.config.group_thresholds
        if upper == lower == 0:
            return classification.groups_by_thirds(sizes)
        return classification.groups_by_thresholds(sizes, upper, lower)

    @contextlib.contextmanager
    def _signals(self):
        """The first SIGTERM or Ctrl-C finishes the running rounds, a second one does not wait."""

        def ask(number, frame):
            if self.stop_signal:
                raise KeyboardInterrupt
            self.stop_signal = number
            self.bar.write(
                f"{signal.Signals(number).name}: finishing the running rounds, then saving."
            )

        try:
            old = {s: signal.signal(s, ask) for s in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # Only the main thread may set handlers; a library caller needs none.
            yield
            return
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
