"""Waiting for programs by blocking; ``stopping`` polls instead, in order to handle signals."""

from typing import Any

import jax

PyTree = Any


class Waiter:
    """A waiter that blocks until a compilation or a computation has finished.

    Attributes:
        signal: the number of the signal that requested the run to stop, or 0.
    """

    signal = 0

    def compile(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        """Compiles a lowered program."""
        return lowered.compile()

    def rounds(self, tree: PyTree) -> PyTree:
        """Returns the results of rounds when they are available."""
        return jax.block_until_ready(tree)

    def evaluation(self, tree: PyTree) -> PyTree:
        """Returns the results of an evaluation when they are available."""
        return jax.block_until_ready(tree)


BLOCK = Waiter()
