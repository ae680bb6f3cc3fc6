r"""FedLC's deviation bound, which predicts when a local update harms a minority class.

Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022,
Definition 3 and Theorems 1 and 3. For one client, with ``h`` the input of the head and ``p`` the
softmax probabilities, both averaged over the client's samples of the class in brackets,

    D_jr = (1 - p_r^(r)) ||h^(r)||^2 / ( p_r^(j)  h^(r) . h^(j) ),    j majority, r minority.

The update of the head is likely to lower the score of class r on its own samples if ``n_j / n_r``
is much larger than ``D_jr > 0``. With FedLC's margins, the paper prints

    D_jr = sum_{y != r} Delta_(r,y) q_y^(r) ||h^(r)||^2 / ( q_r^(j)  h^(r) . h^(j) ),
    Delta_(r,y) = tau (n_r^-1/4 - n_y^-1/4),   q_y = e^{f_y} / sum_i e^{f_i - tau n_i^-1/4}.

For tau = 0, this is 0 instead of Definition 3. Repeating the derivation with the calibrated softmax
gives ``exp(Delta_(r,y))`` instead of ``Delta_(r,y)``, which is Definition 3 with the calibrated
softmax as ``p``: it equals Definition 3 for tau = 0 and grows for rare r, as the paper states. The
exponential is the default (``form="derived"``); ``form="paper"`` uses the printed margin. A vacant
class has no mean feature and an infinite margin: it is neither j nor r, and in the calibrated form
it is excluded from the sums, as it is excluded from FedLC's softmax.

Class sums are additive over batches, so that a client's data need not fit in one batch.
"""

from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from fedjax_skew.metrics import skew


class ClassSums(NamedTuple):
    """Sums over one client's samples by true class; ``merge`` adds those of several batches.

    Attributes:
        count: number of samples ``[C]``.
        features: sums of features ``[C, D]``.
        probabilities: sums of probability vectors ``[C, C]``, whose rows are true classes.
    """

    count: chex.Array
    features: chex.Array
    probabilities: chex.Array


class Deviation(NamedTuple):
    """The bound for every pair of classes, indexed ``[j, r]``.

    Attributes:
        bound: ``D_jr`` ``[C, C]``, 0 where ``pairs`` is false.
        ratio: ``n_j / n_r`` ``[C, C]``, 0 where ``pairs`` is false.
        pairs: bool ``[C, C]``, true for a majority j and a minority r (see ``skew.class_roles``).
    """

    bound: chex.Array
    ratio: chex.Array
    pairs: chex.Array


def class_sums(
    features: chex.Array,
    probabilities: chex.Array,
    labels: chex.Array,
    *,
    where: chex.Array | None = None,
) -> ClassSums:
    """Sums features and probabilities by true class.

    Args:
        features: inputs of the head ``[B, D]``.
        probabilities: softmax outputs ``[B, C]``.
        labels: true classes, integers ``[B]``.
        where: optional mask ``[B]``, false for padding.
    """
    chex.assert_rank([features, probabilities, labels], [2, 2, 1])
    chex.assert_equal_shape_prefix([features, probabilities, labels], 1)
    one_hot = jax.nn.one_hot(labels, probabilities.shape[1], dtype=jnp.float32)
    if where is not None:
        keep = jnp.asarray(where, bool)[:, None]
        one_hot = jnp.where(keep, one_hot, 0.0)
        # Padded rows may contain nan, which multiplication by 0 would not remove.
        features = jnp.where(keep, features, 0)
        probabilities = jnp.where(keep, probabilities, 0)
    return ClassSums(
        count=one_hot.sum(0),
        features=one_hot.T @ features.astype(jnp.float32),
        probabilities=one_hot.T @ probabilities.astype(jnp.float32),
    )


def merge(first: ClassSums, second: ClassSums) -> ClassSums:
    """Adds the sums of two disjoint sets of samples."""
    return jax.tree.map(jnp.add, first, second)


def calibrated_probabilities(
    probabilities: chex.Array, class_counts: chex.Array, tau: float
) -> chex.Array:
    """Computes ``q`` of Theorem 3 from ordinary softmax probabilities.

    Dividing the numerator and the denominator by ``sum_i e^{f_i}`` gives
    ``q_y = p_y / sum_i p_i e^{-tau n_i^-1/4}``, where vacant classes are excluded from the
    denominator. The results do not sum to one, because the printed numerator has no margin.

    Args:
        probabilities: softmax outputs ``[..., C]``.
        class_counts: the client's counts ``[C]``.
        tau: FedLC's margin scale.
    """
    weights = jnp.where(class_counts > 0, jnp.exp(-tau * _fourth_root(class_counts)), 0.0)
    normaliser = (probabilities * weights).sum(-1, keepdims=True)
    return probabilities / jnp.maximum(normaliser, jnp.finfo(probabilities.dtype).tiny)


def deviation_bound(sums: ClassSums) -> Deviation:
    """Computes Definition 3 for every (majority, minority) pair of one client.

    Args:
        sums: class sums with ordinary softmax probabilities.
    """
    _, probabilities = _means(sums)
    own = jnp.diagonal(probabilities)
    return _assemble(sums, 1.0 - own)


def calibrated_deviation_bound(
    sums: ClassSums, *, tau: float, form: Literal["derived", "paper"] = "derived"
) -> Deviation:
    """Computes the bound of Theorem 3 for every (majority, minority) pair of one client.

    Args:
        sums: class sums with ``calibrated_probabilities``.
        tau: FedLC's margin scale, as used for the probabilities.
        form: whether to multiply by the exponential of the margin, which follows from the
            derivation (``"derived"``), or by the margin itself, as printed (``"paper"``).
    """
    _, probabilities = _means(sums)
    root = _fourth_root(sums.count)
    margin = tau * (root[:, None] - root[None, :])  # [r, y]
    factor = margin if form == "paper" else jnp.exp(margin)
    others = (sums.count > 0)[None, :] & ~jnp.eye(sums.count.shape[0], dtype=bool)
    return _assemble(sums, jnp.where(others, factor * probabilities, 0.0).sum(1))


def deviation_statistics(deviation: Deviation, *, factor: float = 1.0) -> dict[str, chex.Array]:
    """Summarises the pairs of one client.

    Args:
        deviation: the bound of all pairs.
        factor: the multiple of ``D_jr`` that the ratio ``n_j / n_r`` must exceed; Theorem 1 says
            "much larger" without a number.

    Returns:
        Scalars: ``pairs`` (their number), ``deviating`` (the share of pairs with ``n_j / n_r >
        factor * D_jr > 0``) and ``median_bound``; the last two are nan if there are no pairs.
    """
    pairs = deviation.pairs
    count = pairs.sum()
    risky = pairs & (deviation.bound > 0) & (deviation.ratio > factor * deviation.bound)
    return {
        "pairs": count,
        "deviating": jnp.where(count > 0, risky.sum() / jnp.maximum(count, 1), jnp.nan),
        "median_bound": jnp.nanmedian(jnp.where(pairs, deviation.bound, jnp.nan)),
    }


def _assemble(sums: ClassSums, missing_mass: chex.Array) -> Deviation:
    """Returns the bound of all pairs; ``missing_mass [C]`` is the factor of ``||h^(r)||^2``."""
    features, probabilities = _means(sums)
    gram = features @ features.T
    majority, minority, _ = skew.class_roles(sums.count)
    pairs = majority[:, None] & minority[None, :]
    numerator = missing_mass * jnp.diagonal(gram)
    denominator = jnp.where(pairs, probabilities * gram, 1.0)
    count = jnp.maximum(sums.count, 1.0)
    return Deviation(
        bound=jnp.where(pairs, numerator[None, :] / denominator, 0.0),
        ratio=jnp.where(pairs, count[:, None] / count[None, :], 0.0),
        pairs=pairs,
    )


def _means(sums: ClassSums) -> tuple[chex.Array, chex.Array]:
    count = jnp.maximum(sums.count, 1.0)[:, None]
    return sums.features / count, sums.probabilities / count


def _fourth_root(class_counts: chex.Array) -> chex.Array:
    """Returns ``n^-1/4``; the value for vacant classes is finite and never used."""
    return jnp.maximum(jnp.asarray(class_counts, jnp.float32), 1.0) ** -0.25
