"""Waiting for programs. A run that answers signals polls (``stopping``); all others block."""

from typing import Any

import jax

PyTree = Any


class Waiter:
    """Waits for the end of a compilation or of a computation by blocking.

    Attributes:
        signal: the signal that asked the run to stop, or 0.
    """

    signal = 0

    def compile(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        """Compiles a lowered program."""
        return lowered.compile()

    def rounds(self, tree: PyTree) -> PyTree:
        """Returns the results of rounds when they are there."""
        return jax.block_until_ready(tree)

    def evaluation(self, tree: PyTree) -> PyTree:
        """Returns the results of an evaluation when they are there."""
        return jax.block_until_ready(tree)


BLOCK = Waiter()
