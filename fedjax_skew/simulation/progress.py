"""The progress bar of a run."""

from typing import Any

import jax

from fedjax_skew.errors import import_extra


class Progress:
    """A progress bar over rounds; if ``shown`` is False, only messages are printed."""

    def __init__(self, name: str, rounds: int, first: int, *, shown: bool):
        self._bar: Any = None
        if shown and jax.process_index() == 0:
            self._bar = import_extra("tqdm", "runs").tqdm(
                total=rounds,
                initial=first,
                desc=name,
                unit="round",
                dynamic_ncols=True,
                leave=None,  # A finished bar is removed if it is nested in another one.
            )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, rounds: int) -> None:
        """Advances the bar by a number of rounds."""
        if self._bar is not None:
            self._bar.update(rounds)

    def status(self, text: str) -> None:
        """Shows a short text after the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text)

    def write(self, text: str) -> None:
        """Prints a line above the bar."""
        if self._bar is not None:
            self._bar.write(text)
        elif jax.process_index() == 0:
            print(text, flush=True)
