"""The synthetic dataset Synthetic(lambda, mu) of LEAF and FedProx.

Client i draws ``u_i ~ N(0, lambda)``, ``W_i ~ N(u_i, 1)`` in R^(60x10), ``b_i ~ N(u_i, 1)``, ``B_i
~ N(0, mu)``, ``v_i ~ N(B_i, 1)`` in R^60, samples ``x ~ N(v_i, Sigma)`` with ``Sigma_jj = j^-1.2``,
and labels ``y = argmax(W_i^T x + b_i)``. Sizes are ``floor(exp(N(4, 2^2))) + 50``, which is a
heavy-tailed distribution. lambda determines how much the local models differ, and mu how much the
local inputs differ. The first nine tenths of every client's samples are training data, and the
others are test data.

The second argument of N is a variance. FedProx's published generator uses lambda and mu as standard
deviations (``form=code``), which makes a difference for values other than 0 and 1. FedProx's
Synthetic-IID (``iid=true``) has the same W and b for all clients and ``v_i = B_i``.

References:
    Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
    Caldas et al., LEAF: A Benchmark for Federated Settings, 2018.
"""

from typing import Annotated, Literal

import numpy as np

from fedjax_skew.checks import number, whole
from fedjax_skew.data import spec
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.data.spec import also

_FEATURES = 60
_CLASSES = 10


def load(name: str = "synthetic", *, num_clients: int = 100, seed: int = 0) -> Dataset:
    """Draws the dataset.

    Args:
        name: ``synthetic``, which is equivalent to ``synthetic(1,1)``, or
            ``synthetic(lambda, mu, ...)``.
        num_clients: number of clients.
        seed: random seed; equal seeds give equal arrays.

    Returns:
        float32 samples ``[N, 60]`` with the natural client of every training sample.
    """
    call = spec.parse(name, "dataset.name")
    if call.name != "synthetic":
        raise ValueError(
            f"dataset.name={name!r} is unknown; write synthetic or synthetic(lambda, mu)."
        )
    whole(1, 1_000_000).check("num_clients", num_clients)
    whole(0, 2**63 - 1).check("seed", seed)
    return draw(name, num_clients, seed, **spec.bind(call, draw, "dataset.name"))


def draw(
    name: str,
    num_clients: int,
    seed: int,
    *,
    lambda_: Annotated[float, number(0, 1e6), also("lam", "alpha")] = 1.0,
    mu: Annotated[float, number(0, 1e6), also("beta")] = 1.0,
    iid: bool = False,
    form: Literal["paper", "code"] = "paper",
) -> Dataset:
    """Draws the dataset with the given parameters, which the module describes."""
    rng = np.random.default_rng([int(seed), 0x5E7])
    lambda_, mu = (value if form == "code" else np.sqrt(value) for value in (lambda_, mu))
    sizes = np.floor(rng.lognormal(4.0, 2.0, num_clients)).astype(np.int64) + 50
    model_means = rng.normal(0.0, lambda_, num_clients)
    input_means = rng.normal(0.0, mu, num_clients)
    deviations = np.arange(1, _FEATURES + 1) ** -0.6
    shared = (rng.normal(size=(_FEATURES, _CLASSES)), rng.normal(size=_CLASSES)) if iid else None

    train: list[tuple[np.ndarray, np.ndarray]] = []
    test: list[tuple[np.ndarray, np.ndarray]] = []
    for size, u, center in zip(sizes, model_means, input_means, strict=True):
        if shared is None:
            weights = rng.normal(u, 1.0, (_FEATURES, _CLASSES))
            bias = rng.normal(u, 1.0, _CLASSES)
            mean = rng.normal(center, 1.0, _FEATURES)
        else:
            (weights, bias), mean = shared, np.full(_FEATURES, center)
        x = mean + deviations * rng.standard_normal((size, _FEATURES))
        y = np.argmax(x @ weights + bias, axis=1).astype(np.int32)
        x, cut = x.astype(np.float32), int(0.9 * size)
        train.append((x[:cut], y[:cut]))
        test.append((x[cut:], y[cut:]))
    lengths = [len(y) for _, y in train]
    return Dataset(
        name=name,
        x_train=np.concatenate([x for x, _ in train]),
        y_train=np.concatenate([y for _, y in train]),
        x_test=np.concatenate([x for x, _ in test]),
        y_test=np.concatenate([y for _, y in test]),
        num_classes=_CLASSES,
        client_ids=np.repeat(np.arange(num_clients, dtype=np.int32), lengths),
    )
