"""The loop around compiled rounds, which advances, evaluates, saves and stops a run.

The loop is the same with and without a run directory; they differ only in the ``Recorder``. The
rounds between two evaluations are divided into short compiled calls, which does not affect results.
"""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_skew.engine.mesh import process_max
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.engine.round import State
from fedjax_skew.metrics import classification
from fedjax_skew.simulation import columns
from fedjax_skew.simulation.arrays import device_arrays, scored_sets
from fedjax_skew.simulation.callbacks import Callback
from fedjax_skew.simulation.clients import ClientLog, client_table, empty_log
from fedjax_skew.simulation.phases import Phase
from fedjax_skew.simulation.problem import Problem
from fedjax_skew.simulation.programs import Programs, compile_phase, some_clients
from fedjax_skew.simulation.progress import Progress
from fedjax_skew.simulation.state import (
    bytes_per_client,
    fingerprint,
    initial_state,
    start_next_phase,
)
from fedjax_skew.simulation.stopping import (
    PATIENCE_SECONDS,
    Abandoned,
    Diverged,
    Interrupted,
    microseconds_per_round,
    rounds_per_call,
    signal_name,
)
from fedjax_skew.simulation.summary import summarize
from fedjax_skew.simulation.waiting import Waiter

PyTree = Any
Line = dict[str, Any]
Table = dict[str, np.ndarray]


class Point(NamedTuple):
    """The position of a run between two compiled calls.

    Attributes:
        state: parameters and everything else that is carried from round to round.
        round: number of rounds done.
        pending: columns of the rounds since the last evaluation; see ``columns.round_columns``.
        seconds: time of training and evaluation so far.
        log: the log of all clients, or None.
    """

    state: State
    round: int
    pending: Line
    seconds: float
    log: ClientLog | None


class Recorder:
    """The storage of a run; this base class stores nothing.

    Attributes:
        saved: the round of the newest checkpoint, or None.
    """

    saved: int | None = None

    def restore(self, problem: Problem, state: State) -> tuple[Point, list[Line]]:
        """Returns the point from which to continue and the lines of metrics up to it."""
        return Point(state, 0, {}, 0.0, new_log(problem)), []

    def clients(self, table: Table) -> None:
        """Stores a table of all clients, before the line of the same evaluation."""

    def evaluated(self, line: Line) -> None:
        """Stores a new line of metrics."""

    def due(self, round_: int, slow: bool) -> bool:
        """Returns whether a checkpoint is due; in a slow run, a signal may abandon a round."""
        return False

    def next_due(self, round_: int) -> int:
        """Returns the next round that needs a checkpoint, or a number beyond the last round."""
        return 2**31 - 1

    def save(self, point: Point, model: PyTree) -> None:
        """Writes a checkpoint; ``model`` is the evaluated model, or None if it is the state's."""


class Finished(NamedTuple):
    """A run after its last round.

    Attributes:
        state: the last state.
        model: the models ``[S, ...]`` that the last evaluation scored.
        history: the lines of metrics; only the last one has a confusion matrix.
        summary: as in ``summary.json``.
        clients: the table of all clients at the last evaluation, or None.
    """

    state: State
    model: PyTree
    history: list[Line]
    summary: dict[str, Any]
    clients: Table | None


class Trainer:
    """A loop that runs a problem to its last round.

    Args:
        problem: the problem to run.
        recorder: stores the run.
        waiter: waits for programs.
        progress: shows the progress of the run.
        callbacks: see ``Callback``.
    """

    def __init__(
        self,
        problem: Problem,
        recorder: Recorder,
        waiter: Waiter,
        progress: Progress,
        callbacks: Iterable[Callback] = (),
    ):
        self.problem, self.recorder, self.waiter = problem, recorder, waiter
        self.progress, self.callbacks = progress, tuple(callbacks)
        thresholds = problem.config.group_thresholds
        self.groups = np.stack(
            [columns.class_groups(p.class_counts, thresholds) for p in problem.partitions]
        )
        self.history: list[Line] = []
        self.model: PyTree = None
        self.table: Table | None = None
        self.warned = False

    def run(self, point: Point, history: list[Line], initial: str) -> Finished:
        """Continues from a point; ``initial`` is the hash of the initial parameters."""
        self.history = history
        self._call("on_start", tuple(history))
        try:
            return self._run(point, initial)
        finally:
            self._call("close")

    def _run(self, point: Point, initial: str) -> Finished:
        problem = self.problem
        arrays = device_arrays(problem)
        compile_seconds = 0.0
        for phase in problem.phases:
            if point.round > phase.last:
                continue
            if point.round < phase.last or self._evaluation_is_due(point):
                self.progress.status("compiling")
                began = time.time()
                try:
                    programs = compile_phase(problem, phase, point.state, arrays, self.waiter)
                except Abandoned:
                    raise self._interrupted(point.round) from None
                compile_seconds += time.time() - began
                self.progress.status("")
                point = self._run_phase(phase, programs, point)
            # After the last round of a phase, a checkpoint still holds the state of that phase.
            if phase is not problem.phases[-1]:
                point = point._replace(state=start_next_phase(problem, phase, point.state))
        final = fingerprint(point.state.params)
        summary = summarize(problem, self.history, initial=initial, final=final)
        summary["compile_seconds"] = round(compile_seconds, 3)
        summary["client_state_bytes"] = bytes_per_client(point.state.clients)
        self._call("on_end", summary)
        return Finished(point.state, self.model, self.history, summary, self.table)

    def _run_phase(self, phase: Phase, programs: Programs, point: Point) -> Point:
        micros = 0
        while True:
            abandoned = False
            if self._evaluation_is_due(point):
                try:
                    point = self._evaluate(phase, programs, point)
                except Abandoned:
                    abandoned = True
            # All processes save together, stop together and use the same length of the next call.
            slow = micros > 1e6 * PATIENCE_SECONDS
            due = int(self.recorder.due(point.round, slow) or point.round == phase.last)
            due, stop, micros = process_max(due, self.waiter.signal, micros)
            if due or stop:
                try:
                    self._save(phase, programs, point)
                except Abandoned:
                    raise self._interrupted(point.round) from None
            if stop and (abandoned or point.round < self.problem.config.rounds):
                raise self._interrupted(point.round)
            if point.round == phase.last:
                return point
            until = min(
                point.round + rounds_per_call(micros),
                self._next_evaluation(point.round),
                self.recorder.next_due(point.round),
                phase.last,
            )
            before = point
            try:
                point = self._advance(phase, programs, point, until)
            except Abandoned:
                raise self._interrupted(point.round) from None
            micros = microseconds_per_round(
                point.round - before.round, point.seconds - before.seconds
            )

    def _advance(self, phase: Phase, programs: Programs, point: Point, until: int) -> Point:
        """Runs rounds up to ``until`` in one call."""
        began, first = time.time(), point.round
        state, report = programs.rounds(point.state, until)
        self._check_finite(phase, report, first)
        received = 0
        if first == phase.first and first:  # Clients already have the start of the first phase.
            received = self.problem.info.num_clients * programs.traffic.once
        pending = columns.round_columns(report, point.pending, programs.traffic, received)
        log = point.log.after(report) if point.log else None
        point = Point(state, int(state.round), pending, point.seconds + time.time() - began, log)
        self.progress.advance(point.round - first)
        return point

    def _evaluate(self, phase: Phase, programs: Programs, point: Point) -> Point:
        began = time.time()
        config, state = self.problem.config, point.state
        model = programs.model(state, point.round == config.rounds)
        test, *others = programs.scores(model)
        line: Line = {"round": point.round, "seconds": 0.0}
        line |= columns.score_columns(
            np.asarray(test.confusion), np.asarray(test.loss), self.groups
        )
        for name, other in zip(scored_sets(self.problem)[1:], others, strict=True):
            line[f"{name}_accuracy"] = classification.accuracy(np.asarray(other.confusion))
        class_counts = self.problem.data.class_counts
        who = some_clients(self.problem, "num_personal_eval_clients")
        if len(who):
            line |= columns.global_columns(np.asarray(test.confusion), class_counts[:, who])
        if programs.holdout:
            own = np.asarray(programs.holdout(model).confusion)
            line |= columns.holdout_columns("global_holdout", own)
        own_models = None
        if programs.clients:
            personal = jax.tree.map(np.asarray, programs.clients(state))
            own_models = who, personal.test.confusion
            line |= columns.personal_columns(personal.test.confusion, class_counts[:, who])
            if personal.holdout:
                own = personal.holdout.confusion
                line |= columns.holdout_columns("personal_holdout", own)
        if programs.local:
            found = jax.tree.map(np.asarray, programs.local(state))
            who = some_clients(self.problem, "num_local_eval_clients")
            line |= columns.local_columns(
                found.before.confusion,
                found.after.confusion,
                found.deviating,
                class_counts[:, who],
            )
        line |= point.pending
        line |= columns.total_columns(point.pending, self.history[-1] if self.history else {})
        line["client_lr"] = float(phase.spec.lr_schedule(point.round - 1))
        seconds = point.seconds + time.time() - began
        line = columns.plain({**line, "seconds": round(seconds, 3)})
        if self.history:
            self.history[-1].pop("confusion", None)  # Only the newest one is used later.
        self.history.append(line)
        self.model = model
        last = point.round == config.rounds
        if point.log and {"never": False, "end": last, "evaluation": True}[config.clients_csv]:
            self.table = client_table(
                self.problem.seeds, class_counts, point.log, np.asarray(test.confusion), own_models
            )
            self.recorder.clients(self.table)
        self.recorder.evaluated(line)
        self._call("on_evaluation", line)
        self.progress.status(f"accuracy {100 * float(np.mean(line['accuracy'])):.2f} %")
        return point._replace(pending={}, seconds=seconds)

    def _evaluation_is_due(self, point: Point) -> bool:
        round_, config = point.round, self.problem.config
        evaluated = self.history[-1]["round"] if self.history else 0
        return round_ > evaluated and (round_ % config.eval_every == 0 or round_ == config.rounds)

    def _next_evaluation(self, round_: int) -> int:
        every = self.problem.config.eval_every
        return round_ // every * every + every

    def _check_finite(self, phase: Phase, report: RoundReport, first: int) -> None:
        """Reports the first non-finite round and its clients, or raises ``Diverged``."""
        bad = (report.nonfinite.sum(-1) > 0) | ~report.params_finite.all(-1)
        policy = self.problem.config.on_nonfinite
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
        if policy == "stop":
            raise Diverged(
                f"{message}; lower client_lr, or set on_nonfinite to 'skip' or 'continue'."
            )
        self.warned = True
        self.progress.write(
            f"{message}; on_nonfinite={policy!r} continues and counts such clients."
        )

    def _save(self, phase: Phase, programs: Programs, point: Point) -> None:
        model = None
        if phase.method.eval_model is not None:
            model = programs.model(point.state, point.round == self.problem.config.rounds)
        self.recorder.save(point, model)

    def _interrupted(self, round_: int) -> Interrupted:
        rounds, saved = self.problem.config.rounds, self.recorder.saved
        words = f"Stopped by {signal_name(self.waiter.signal)} after round {round_} of {rounds}"
        if saved is None:
            return Interrupted(f"{words}; nothing was saved, the same command starts again.")
        return Interrupted(f"{words}; round {saved} is saved, the same command resumes from there.")

    def _call(self, hook: str, *args: Any) -> None:
        if jax.process_index() == 0:
            for callback in self.callbacks:
                getattr(callback, hook)(*args)


def new_log(problem: Problem) -> ClientLog | None:
    """Returns the log of the clients before the first round."""
    return empty_log(len(problem.seeds), problem.info.num_clients)


def start(problem: Problem, recorder: Recorder) -> tuple[Point, list[Line], str]:
    """Returns the arguments of ``Trainer.run``."""
    state = initial_state(problem)
    initial = fingerprint(state.params)
    return *recorder.restore(problem, state), initial
