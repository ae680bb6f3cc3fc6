"""A table with one row per client: its data, its participation and its accuracy."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.metrics import skew
from fedjax_skew.simulation.columns import accuracy_by_own_classes

MOST_ROWS = 100_000  # Largest number of clients times seeds for which a log is kept.

COLUMNS = {
    "seed": "random seed of the run",
    "client": "index of the client",
    "samples": "number of its training samples",
    "classes": "number of classes of which it has samples",
    "skew": "total-variation distance of its label distribution to that of all clients",
    "drawn": "number of rounds in which it received the model",
    "answered": "number of rounds in which it sent an update",
    "update_norm": "norm of its last update",
    "global_accuracy": "test accuracy of the global model, classes weighted by the client's shares",
    "own_accuracy": "the same for its own model, for num_personal_eval_clients of the clients",
}


class ClientLog(NamedTuple):
    """A record of every client of every seed, as numpy arrays ``[S, K]``."""

    drawn: np.ndarray
    answered: np.ndarray
    update_norm: np.ndarray

    def after(self, report: RoundReport) -> "ClientLog":
        """Returns the log after the rounds of a report ``[n, ...]``."""
        shape, (num_seeds, num_clients) = self.drawn.shape, self.drawn.shape
        cohort, norms = np.asarray(report.cohort), np.asarray(report.update_norms)
        places = cohort + num_clients * np.arange(num_seeds)[:, None]
        there = cohort >= 0
        sent = there & (norms != -1)

        def count(flags):
            return np.bincount(places[flags], minlength=self.drawn.size).reshape(shape)

        norm = self.update_norm.copy()
        norm.reshape(-1)[places[sent]] = norms[sent]  # The last of several rounds is kept.
        return ClientLog(self.drawn + count(there), self.answered + count(sent), norm)


def empty_log(num_seeds: int, num_clients: int) -> ClientLog | None:
    """Returns the log before the first round, or None if it had more than ``MOST_ROWS`` rows."""
    shape = (num_seeds, num_clients)
    if num_seeds * num_clients > MOST_ROWS:
        return None
    return ClientLog(np.zeros(shape, int), np.zeros(shape, int), np.full(shape, np.nan))


def log_from(values: Mapping[str, Any]) -> ClientLog:
    """Converts plain lists, in which None stands for nan, to a log."""
    norm = np.array(values["update_norm"], np.float64)
    return ClientLog(np.array(values["drawn"]), np.array(values["answered"]), norm)


def client_table(
    seeds: tuple[int, ...],
    class_counts: np.ndarray,
    log: ClientLog,
    confusion: np.ndarray,
    own: tuple[np.ndarray, np.ndarray] | None,
) -> dict[str, np.ndarray]:
    """Returns the columns ``[S * K]`` of the table, seed by seed.

    Args:
        seeds: random seeds of the run.
        class_counts: ``[S, K, C]``.
        log: the log of the clients.
        confusion: confusion matrices ``[S, C, C]`` of the global model.
        own: some clients ``[k]`` and the confusion matrices ``[S, k, C, C]`` of their own models,
            or None.
    """
    num_seeds, num_clients, _ = class_counts.shape
    own_accuracy = np.full((num_seeds, num_clients), np.nan)
    if own is not None:
        who, of_own = own
        own_accuracy[:, who] = accuracy_by_own_classes(of_own, class_counts[:, who])
    columns = {
        "seed": np.repeat(seeds, num_clients),
        "client": np.tile(np.arange(num_clients), num_seeds),
        "samples": class_counts.sum(-1),
        "classes": (class_counts > 0).sum(-1),
        "skew": np.stack([skew.total_variation(counts) for counts in class_counts]),
        **log._asdict(),
        "global_accuracy": accuracy_by_own_classes(confusion[:, None], class_counts),
        "own_accuracy": own_accuracy,
    }
    return {name: np.ravel(columns[name]) for name in COLUMNS}
