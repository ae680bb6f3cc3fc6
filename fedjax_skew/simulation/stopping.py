"""Stopping a run: signals, what they wait for, and how many rounds one call may take."""

import concurrent.futures
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from fedjax_skew.simulation.waiting import Waiter

CALL_SECONDS = 2.0  # A call of several rounds should not take longer.
PATIENCE_SECONDS = 5.0  # A signal waits no longer for the end of a round.

PyTree = Any


class Diverged(RuntimeError):
    """A loss or parameter is not finite and the configuration says to stop."""


class Interrupted(RuntimeError):
    """The run was asked to stop; the message says what is saved."""


class Abandoned(Exception):
    """A signal came while something ran that can be repeated on resume."""


def rounds_per_call(micros: int) -> int:
    """Returns how many rounds of ``micros`` microseconds one call may take; one if unknown (0)."""
    return max(1, int(1e6 * CALL_SECONDS / micros)) if micros else 1


def microseconds_per_round(rounds: int, seconds: float) -> int:
    """Returns the measured time of a round, at least one microsecond."""
    return min(max(1, int(1e6 * seconds / max(rounds, 1))), 2**31 - 1)


class StopSignals(Waiter):
    """Handles SIGTERM and Ctrl-C while it is entered, and waits so that they are answered.

    The first signal asks the run to stop. A compilation or an evaluation is abandoned at once, and
    a round that takes more than ``PATIENCE_SECONDS`` longer is abandoned as well: a resumed run
    repeats it from the newest checkpoint. Nothing is abandoned that other processes take part in.
    A second signal raises ``KeyboardInterrupt`` at once.

    Args:
        say: prints a line.
        saved: describes what is saved, for the message of a second signal.
    """

    def __init__(self, say: Callable[[str], None], saved: Callable[[], str]):
        self.signal, self._signalled = 0, 0.0
        self._say, self._saved = say, saved
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        # Only the main thread may set handlers; a program with threads answers signals itself.
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
        """Compiles in a thread, because signals reach Python code only."""
        done: concurrent.futures.Future = concurrent.futures.Future()

        def work() -> None:
            try:
                done.set_result(lowered.compile())
            except BaseException as error:
                done.set_exception(error)

        # No daemon: an interpreter that ends while XLA compiles crashes, so it waits.
        threading.Thread(target=work).start()
        self._poll(done.done, 0.0)
        return done.result()

    def rounds(self, tree: PyTree) -> PyTree:
        """Waits to the end, or some seconds after a signal."""
        return self._ready(tree, PATIENCE_SECONDS)

    def evaluation(self, tree: PyTree) -> PyTree:
        """Waits to the end or to a signal."""
        return self._ready(tree, 0.0)

    def _ready(self, tree: PyTree, patience: float) -> PyTree:
        leaves: list[Any] = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array)]
        self._poll(lambda: all(leaf.is_ready() for leaf in leaves), patience)
        return tree

    def _poll(self, ready: Callable[[], bool], patience: float) -> None:
        """Waits, but for ``patience`` seconds at most after a signal to the only process."""
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
