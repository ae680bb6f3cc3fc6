"""FedLC's deviation bound against a plain loop that follows the printed equations."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.metrics import deviation

COUNTS = [12, 3, 0, 9, 1]
TAU = 0.8


@pytest.fixture
def client():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), COUNTS)
    logits = rng.normal(size=(labels.size, 5)) + 2 * np.eye(5)[labels]
    features = np.abs(rng.normal(size=(labels.size, 4)))
    return features, logits, labels


def softmax(logits):
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def plain_bound(features, logits, labels, tau=None, factor=np.exp):
    """Definition 3, or Theorem 3 when ``tau`` is given, one pair and one sample at a time."""
    n = COUNTS
    present = [c for c in range(5) if n[c]]
    mean = sum(n) / len(present)
    result = {}
    for j in [c for c in present if n[c] >= mean]:
        for r in [c for c in present if n[c] < mean]:
            h = {c: features[labels == c].mean(0) for c in (j, r)}
            p = np.zeros_like(logits)
            for row, f in enumerate(logits):
                used = range(5) if tau is None else present
                margin = [0 if tau is None else tau * n[i] ** -0.25 for i in used]
                p[row] = np.exp(f) / sum(
                    np.exp(f[i] - m) for i, m in zip(used, margin, strict=True)
                )
            below = p[labels == j, r].mean() * (h[r] @ h[j])
            if tau is None:
                total = (1 - p[labels == r, r].mean()) * (h[r] @ h[r]) / below
            else:
                total = sum(
                    factor(tau * (n[r] ** -0.25 - n[y] ** -0.25))
                    * p[labels == r, y].mean()
                    * (h[r] @ h[r])
                    / below
                    for y in present
                    if y != r
                )
            result[j, r] = total
    return result


def check(result, expected):
    assert {tuple(pair) for pair in np.argwhere(result.pairs)} == set(expected)
    for (j, r), value in expected.items():
        np.testing.assert_allclose(result.bound[j, r], value, rtol=1e-5)
        np.testing.assert_allclose(result.ratio[j, r], COUNTS[j] / COUNTS[r], rtol=1e-6)
    assert not np.asarray(result.bound)[~np.asarray(result.pairs)].any()


def test_definition_3_matches_the_plain_loop(client):
    features, logits, labels = client
    sums = deviation.class_sums(jnp.asarray(features), jnp.asarray(softmax(logits)), labels)
    check(jax.jit(deviation.deviation_bound)(sums), plain_bound(features, logits, labels))


@pytest.mark.parametrize("form", ["derived", "paper"])
def test_theorem_3_matches_the_plain_loop(client, form):
    features, logits, labels = client
    q = deviation.calibrated_probabilities(jnp.asarray(softmax(logits)), jnp.asarray(COUNTS), TAU)
    sums = deviation.class_sums(jnp.asarray(features), q, labels)
    result = deviation.calibrated_deviation_bound(sums, tau=TAU, form=form)
    factor = (lambda margin: margin) if form == "paper" else np.exp
    check(result, plain_bound(features, logits, labels, TAU, factor))


def test_theorem_3_is_definition_3_of_the_calibrated_softmax(client):
    features, logits, labels = client
    counts = np.array(COUNTS, float)
    present = counts > 0
    margin = np.where(present, TAU * np.maximum(counts, 1) ** -0.25, np.inf)
    shifted = deviation.class_sums(jnp.asarray(features), softmax(logits - margin), labels)
    q = deviation.calibrated_probabilities(jnp.asarray(softmax(logits)), jnp.asarray(COUNTS), TAU)
    sums = deviation.class_sums(jnp.asarray(features), q, labels)
    chex.assert_trees_all_close(
        deviation.calibrated_deviation_bound(sums, tau=TAU),
        deviation.deviation_bound(shifted),
        rtol=1e-5,
    )


def test_calibration_raises_the_bound_of_the_rarest_class(client):
    features, logits, labels = client
    plain = deviation.class_sums(jnp.asarray(features), jnp.asarray(softmax(logits)), labels)

    def bound(tau):
        q = deviation.calibrated_probabilities(jnp.asarray(softmax(logits)), plain.count, tau)
        sums = plain._replace(
            probabilities=deviation.class_sums(jnp.asarray(features), q, labels).probabilities
        )
        return deviation.calibrated_deviation_bound(sums, tau=tau).bound

    assert (bound(2.0)[jnp.array([0, 3]), 4] > bound(0.0)[jnp.array([0, 3]), 4]).all()


def test_batches_add_up_and_padding_is_ignored(client):
    features, logits, labels = client
    probabilities = softmax(logits)
    whole = deviation.class_sums(jnp.asarray(features), jnp.asarray(probabilities), labels)
    garbage = np.full((3, 4), np.nan)
    parts = deviation.merge(
        deviation.class_sums(features[:10], probabilities[:10], labels[:10]),
        deviation.class_sums(
            np.concatenate([features[10:], garbage]),
            np.concatenate([probabilities[10:], np.full((3, 5), np.nan)]),
            np.concatenate([labels[10:], [0, 1, 2]]),
            where=np.arange(labels.size - 10 + 3) < labels.size - 10,
        ),
    )
    chex.assert_trees_all_close(whole, parts, rtol=1e-5)


def test_clients_batch_with_vmap_and_statistics_count_pairs(client):
    features, logits, labels = client
    stacked = jax.vmap(deviation.class_sums)(
        jnp.stack([features, 2 * features]),
        jnp.stack([softmax(logits)] * 2),
        jnp.stack([labels] * 2),
    )
    result = jax.vmap(deviation.deviation_bound)(stacked)
    # D_jr does not change with the scale of the features.
    np.testing.assert_allclose(result.bound[0], result.bound[1], rtol=1e-4)
    statistics = jax.vmap(deviation.deviation_statistics)(result)
    np.testing.assert_array_equal(statistics["pairs"], [4, 4])
    bounds = np.asarray(result.bound[0])[np.asarray(result.pairs[0])]
    ratios = np.asarray(result.ratio[0])[np.asarray(result.pairs[0])]
    np.testing.assert_allclose(statistics["deviating"][0], np.mean(ratios > bounds))
    np.testing.assert_allclose(statistics["median_bound"][0], np.median(bounds), rtol=1e-6)


def test_client_with_one_class_has_no_pairs_and_no_error():
    features, probabilities = jnp.ones((4, 3)), jnp.full((4, 2), 0.5)
    sums = deviation.class_sums(features, probabilities, jnp.zeros(4, int))
    result = deviation.deviation_bound(sums)
    assert not result.pairs.any() and not result.bound.any()
    assert np.isnan(deviation.deviation_statistics(result)["deviating"])
