"""Stopping a run: the handling of signals, and the number of rounds per compiled call."""

import concurrent.futures
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from fedjax_skew.simulation.waiting import Waiter

CALL_SECONDS = 2.0  # Target duration of a call with several rounds.
PATIENCE_SECONDS = 5.0  # Longest time after a signal before the current round is abandoned.

PyTree = Any


class Diverged(RuntimeError):
    """A loss or parameter is not finite, and the configuration requests to stop."""


class Interrupted(RuntimeError):
    """The run was stopped by a signal; the message states what is saved."""


class Abandoned(Exception):
    """A signal interrupted work that a resumed run can repeat."""


def rounds_per_call(micros: int) -> int:
    """Returns the number of rounds per call if one takes ``micros`` microseconds (0: unknown)."""
    return max(1, int(1e6 * CALL_SECONDS / micros)) if micros else 1


def microseconds_per_round(rounds: int, seconds: float) -> int:
    """Returns the mean time of a round in microseconds, at least 1."""
    return min(max(1, int(1e6 * seconds / max(rounds, 1))), 2**31 - 1)


class StopSignals(Waiter):
    """A context manager that handles SIGTERM and Ctrl-C, and waits for programs by polling.

    The first signal requests the run to stop. A compilation or an evaluation is abandoned
    immediately, and a round is abandoned if it takes more than another ``PATIENCE_SECONDS``; a
    resumed run repeats it from the newest checkpoint. In a run with several processes, nothing is
    abandoned. A second signal raises ``KeyboardInterrupt`` immediately.

    Args:
        say: prints a line.
        saved: returns a description of what is saved, for the message of a second signal.
    """

    def __init__(self, say: Callable[[str], None], saved: Callable[[], str]):
        self.signal, self._signalled = 0, 0.0
        self._say, self._saved = say, saved
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        # Only the main thread may set handlers; in other threads, signals are left to the caller.
        if threading.current_thread() is threading.main_thread():
            numbers = (signal.SIGTERM, signal.SIGINT)
            self._old = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        if self.signal:
            raise KeyboardInterrupt(f"Stopped at once by {signal_name(number)}; {self._saved()}")
        self.signal, self._signalled = number, time.monotonic()
        self._say(
            f"{signal_name(number)}: stopping after the running round, or in "
            f"{PATIENCE_SECONDS:g} s; repeat it to stop at once."
        )

    def compile(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        """Compiles in a thread, because Python handles signals only between bytecodes."""
        done: concurrent.futures.Future = concurrent.futures.Future()

        def work() -> None:
            try:
                done.set_result(lowered.compile())
            except BaseException as error:
                done.set_exception(error)

        # Not a daemon, because the interpreter would crash if it exited while XLA compiles.
        threading.Thread(target=work).start()
        self._poll(done.done, 0.0)
        return done.result()

    def rounds(self, tree: PyTree) -> PyTree:
        """Waits until the results are available, or until some seconds after a signal."""
        return self._ready(tree, PATIENCE_SECONDS)

    def evaluation(self, tree: PyTree) -> PyTree:
        """Waits until the results are available, or until a signal."""
        return self._ready(tree, 0.0)

    def _ready(self, tree: PyTree, patience: float) -> PyTree:
        leaves: list[Any] = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array)]
        self._poll(lambda: all(leaf.is_ready() for leaf in leaves), patience)
        return tree

    def _poll(self, ready: Callable[[], bool], patience: float) -> None:
        """Polls until ``ready``, but a single process at most ``patience`` s after a signal."""
        began = time.monotonic()
        while not ready():
            now = time.monotonic()
            alone = jax.process_count() == 1
            if self.signal and alone and now - self._signalled >= patience:
                raise Abandoned
            time.sleep(min(max((now - began) / 20, 5e-5), 0.02))


def signal_name(number: int) -> str:
    """Returns the name of a signal."""
    return signal.Signals(number).name
