"""Analyses the last checkpoint of a run, for figures that need more than its metrics.

Results are stored in the run directory, so a figure can be redrawn without computing them again.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.cells import Cell
from fedjax_skew import trees
from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine.evaluate import score_models
from fedjax_skew.engine.local_eval import local_models
from fedjax_skew.engine.round import RoundSpec, State, run_round
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Round, ServerResult, average
from fedjax_skew.metrics import classification, deviation
from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.simulation import problem
from fedjax_skew.simulation.pure import Simulation, make_simulation
from fedjax_skew.simulation.state import phase_state

Arrays = dict[str, np.ndarray]


def class_counts(cell: Cell) -> np.ndarray:
    """Returns the samples ``[K, C]`` by client and class of the first seed, without training."""
    counts = rundir.read_partition(cell.directory)
    if counts is None:
        dataset = problem.load_dataset(cell.config)
        counts = problem.divide(cell.config, dataset, cell.config.seed).class_counts
        cell.directory.mkdir(parents=True, exist_ok=True)
        rundir.write_partition(cell.directory, counts)
    return counts


def local_update(cell: Cell, method: str = "", local_epochs: int = 0) -> Arrays:
    """Trains all clients for one more round and scores the models before and after it.

    Args:
        cell: a finished run.
        method: the method of this round; the run's own if empty.
        local_epochs: local epochs of this round; the run's own if 0.

    Returns:
        ``class_counts [S, K, C]`` and confusion matrices on the test set: ``before [S, C, C]`` of
        the global model, ``after [S, K, C, C]`` of the local models and ``aggregated [S, C, C]`` of
        the next global model.
    """

    def compute() -> Arrays:
        simulation, state = _next_round(cell, method, local_epochs)
        made = simulation.problem
        spec = made.phases[-1].spec

        def scores(state, arrays):
            new, local = _one_round(spec, state, arrays.data)
            models = jax.tree.map(
                lambda old, new, local: jnp.concatenate([old[:, None], new[:, None], local], 1),
                (state.params, state.stats),
                (new.params, new.stats),
                local,
            )
            flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), models)
            found = score_models(spec, flat, arrays.tests[0]).confusion
            return found.reshape(len(made.seeds), -1, *found.shape[1:])

        found = jax.jit(scores)(state, simulation.arrays)
        return dict(
            class_counts=made.data.class_counts,
            before=found[:, 0],
            aggregated=found[:, 1],
            after=found[:, 2:],
        )

    return _kept(cell, f"local_update_{method or 'own'}_{local_epochs}", compute)


def features(
    cell: Cell,
    *,
    client: int = -1,
    method: str = "",
    local_epochs: int = 0,
    per_class: int,
) -> Arrays:
    """Returns features of test samples, equally many per class, for the first seed.

    Args:
        cell: a finished run.
        client: use this client's model after one more local update; -1 uses the global model.
        method: the method of that update; the run's own if empty.
        local_epochs: local epochs of that update; the run's own if 0.
        per_class: test samples per class, at most the size of the smallest class.

    Returns:
        ``features [N, D]`` and ``labels [N]``.
    """

    def compute() -> Arrays:
        simulation, state = _next_round(cell, method, local_epochs)
        made = simulation.problem
        phase = made.phases[-1]
        model: Any = (state.params, state.stats)
        if client >= 0:
            who = jnp.array([client], jnp.int32)
            rows = state._replace(clients=jax.tree.map(lambda a: a[:, who], state.clients))
            data = simulation.arrays.data
            trained = jax.jit(functools.partial(local_models, phase.spec))(rows, data, who)
            model = jax.tree.map(lambda a: a[:, 0], trained)
        labels = made.dataset.y_test
        ids = _balanced(labels, made.info.num_classes, per_class)
        forward = jax.jit(lambda model, x: phase.model.apply(*model, x)[0].features)
        found = forward(trees.index(model, 0), jnp.asarray(made.dataset.x_test[ids]))
        return dict(features=found, labels=labels[ids])

    words = f"features_{client}_{method or 'own'}_{local_epochs}_{per_class}"
    return _kept(cell, words, compute)


def retrained_blocks(
    cell: Cell, *, steps: int, learning_rate: float, batch_size: int
) -> dict[str, Arrays]:
    """Retrains each block of the last model, one at a time, on the server's labelled samples.

    Training uses plain SGD, and the running statistics of normalisation layers are fixed.

    Returns:
        For the unchanged model and then for each block: ``accuracy``, and the distances ``cosine``
        and ``euclidean`` between the average logits of each class and those of the unchanged model,
        averaged over classes. Each has shape ``[S]``.
    """

    def compute() -> Arrays:
        simulation, state = restored(cell)
        made = simulation.problem
        model, classes = made.phases[-1].model, made.info.num_classes
        x, labels = jnp.asarray(made.data.x), jnp.asarray(made.data.labels)
        test = jnp.asarray(made.dataset.x_test), jnp.asarray(made.dataset.y_test)

        def loss(params, stats, x, labels):
            return jnp.mean(cross_entropy(model.apply(params, stats, x)[0].logits, labels))

        @functools.partial(jax.jit, static_argnums=0)
        def train(layers, params, stats, x, labels, key):
            mask = _mask(params, layers)

            def step(i, params):
                at = jax.random.randint(jax.random.fold_in(key, i), (batch_size,), 0, len(labels))
                grads = jax.grad(loss)(params, stats, x[at], labels[at])
                return jax.tree.map(lambda p, g, m: p - learning_rate * m * g, params, grads, mask)

            return jax.lax.fori_loop(0, steps, step, params)

        @jax.jit
        def score(params, stats, x, labels):
            """Returns the accuracy and the average logits ``[C, C]`` of each class."""
            logits = jax.lax.map(
                lambda one: model.apply(params, stats, one[None])[0].logits[0], x, batch_size=500
            )
            member = jax.nn.one_hot(labels, classes)
            mean = member.T @ logits / jnp.maximum(member.sum(0), 1)[:, None]
            return jnp.mean(jnp.argmax(logits, -1) == labels), mean

        blocks = {"FedAvg": (), **_blocks(state.params)}
        found: dict[str, list[Any]] = {}
        for s in range(len(made.seeds)):
            params, stats = trees.index((state.params, state.stats), s)
            plain = score(params, stats, *test)[1]
            ids, key = made.data.labelled[s], jax.random.key(made.seeds[s])
            for name, layers in blocks.items():
                new = train(layers, params, stats, x[ids], labels[ids], key) if layers else params
                accuracy, mean = score(new, stats, *test)
                for column, value in (
                    ("accuracy", accuracy),
                    ("cosine", jnp.mean(optax.losses.cosine_distance(mean, plain, epsilon=1e-8))),
                    ("euclidean", jnp.mean(jnp.linalg.norm(mean - plain, axis=-1))),
                ):
                    found.setdefault(f"{name}/{column}", []).append(value)
        return {name: np.asarray(values) for name, values in found.items()}

    arrays = _kept(cell, f"blocks_{steps}_{learning_rate:g}_{batch_size}", compute)
    made: dict[str, Arrays] = {}
    for name, values in arrays.items():
        block, _, column = name.partition("/")
        made.setdefault(block, {})[column] = values
    return made


def deviation_bounds(cell: Cell, *, tau: float) -> Arrays:
    """Computes FedLC's deviation bound of the last global model on the data of every client.

    The softmax is taken over the classes that the client has, as Theorem 3 assumes.

    Returns:
        ``plain [S]`` (Definition 3) and ``calibrated [S]`` (Theorem 3): medians over all clients
        and all pairs of a majority and a minority class.
    """
    margins = {"plain": 0.0, "calibrated": tau}  # Without a margin, Theorem 3 is Definition 3.

    def compute() -> Arrays:
        simulation, state = restored(cell)
        made = simulation.problem
        model, data = made.phases[-1].model, made.data
        x, labels = jnp.asarray(data.x), np.asarray(data.labels)

        @jax.jit
        def forward(params, stats):
            def one(sample):
                outputs = model.apply(params, stats, sample[None])[0]
                return outputs.features[0], jax.nn.softmax(outputs.logits[0])

            return jax.lax.map(one, x, batch_size=500)

        found: dict[str, list[Any]] = {name: [] for name in margins}
        for s in range(len(made.seeds)):
            features, probabilities = map(
                np.asarray, forward(*trees.index((state.params, state.stats), s))
            )
            order, offsets = np.asarray(data.order[s]), np.asarray(data.offsets[s])
            pairs: dict[str, list[np.ndarray]] = {name: [] for name in margins}
            for k, counts in enumerate(np.asarray(data.class_counts[s])):
                ids = order[offsets[k] : offsets[k + 1]]
                for name, margin in margins.items():
                    calibrated = deviation.calibrated_probabilities(
                        probabilities[ids], counts, margin
                    )
                    sums = deviation.class_sums(features[ids], calibrated, labels[ids])
                    bound = deviation.calibrated_deviation_bound(sums, tau=margin)
                    pairs[name].append(np.asarray(bound.bound)[np.asarray(bound.pairs)])
            for name, bounds in pairs.items():
                found[name].append(np.median(np.concatenate(bounds)))
        return {name: np.asarray(numbers) for name, numbers in found.items()}

    return _kept(cell, f"deviation_{tau:g}", compute)


def restored(cell: Cell) -> tuple[Simulation, State]:
    """Returns the simulation of a finished run and the state after its last round."""
    config = cell.config.copy_and_resolve_references()
    config.num_devices = 1
    config.dataset.placement = config.state_placement = "device"
    simulation = make_simulation(config)
    folder = cell.directory / rundir.CHECKPOINTS
    found = checkpoint.restore(folder, lambda round_: simulation.init())
    if found is None or found.round != cell.config.rounds:
        raise ValueError(
            f"{cell.directory} has no checkpoint of round {cell.config.rounds}, which this figure "
            "needs; delete the directory and run the same command again."
        )
    return simulation, found.state


def _next_round(cell: Cell, method: str, local_epochs: int) -> tuple[Simulation, State]:
    """Returns the simulation and state of a next round in which all clients take part."""
    simulation, state = restored(cell)
    config = simulation.problem.config.copy_and_resolve_references()
    config.participation = 1.0
    config.method = method or config.method
    if local_epochs:
        config.local_epochs, config.local_steps = local_epochs, 0
    other = make_simulation(config, dataset=simulation.problem.dataset)
    if method and method != cell.config.method:
        phase = other.problem.phases[-1]
        fresh = phase_state(other.problem, phase, state.params, state.stats)
        state = fresh._replace(round=state.round)
    return other, state


def _one_round(spec: RoundSpec, state: State, data: FederatedData) -> tuple[State, Any]:
    """Returns the next state and the clients' models ``[S, K, ...]`` that it aggregates."""
    method = spec.local.method

    def server(rnd: Round) -> ServerResult:
        new = (method.server or average)(rnd)
        order = jnp.argsort(rnd.ids)
        local = jax.tree.map(lambda a: a[order], (rnd.client_params, rnd.client_stats))
        return ServerResult(new.params, new.stats, local)

    seen = dataclasses.replace(method, needs_client_models=True, server=server)
    local = dataclasses.replace(spec.local, method=seen)
    new, _ = run_round(dataclasses.replace(spec, local=local), state, data)
    return new, new.server


def _balanced(labels: np.ndarray, num_classes: int, per_class: int) -> np.ndarray:
    """Returns the indices of the first ``per_class`` samples per class, equally many for all."""
    sizes = np.bincount(labels, minlength=num_classes)
    size = min(per_class, int(np.min(sizes[sizes > 0])))
    return np.concatenate([np.flatnonzero(labels == c)[:size] for c in np.flatnonzero(sizes)])


def _blocks(params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Returns the layers of each stage of the backbone, the stem in the first, and of the head."""
    layers = sorted(params["backbone"])
    stages = sorted({m[0] for name in layers if (m := re.match(r"[a-z]+\d+", name))})
    blocks = {
        f"block {i + 1}": tuple(
            name for name in layers if name.startswith(stage) or (i == 0 and name == "stem")
        )
        for i, stage in enumerate(stages)
    }
    return {**blocks, "classifier": ("head",)}


def _mask(params: Any, layers: tuple[str, ...]) -> Any:
    """Returns one for the parameters of the named layers and zero for all others."""

    def inside(path: tuple[Any, ...], leaf: Any) -> float:
        return float(any(getattr(key, "key", "") in layers for key in path[:2]))

    return jax.tree_util.tree_map_with_path(inside, params)


def recall(confusion: Any) -> np.ndarray:
    """Returns the accuracy per class ``[..., C]`` in percent; 0 for classes without samples."""
    return 100 * np.nan_to_num(np.asarray(classification.per_class_accuracy(confusion)))


def _kept(cell: Cell, name: str, compute: Callable[[], Arrays]) -> Arrays:
    """Returns the arrays stored under a name in the run directory, computing them if needed."""
    path = cell.directory / f"{name}.npz"
    if not path.exists():
        arrays = {key: np.asarray(value) for key, value in compute().items()}
        temporary = pathlib.Path(f"{path}.tmp.npz")
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
        temporary.replace(path)
    with np.load(path) as stored:
        return dict(stored)
