"""A round's sums and report against plain numpy, in chunks and at once."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew.engine.local import ClientOutput, ClientReport, ClientState
from fedjax_skew.engine.reduction import round_report, sum_chunk
from fedjax_skew.methods.base import Upload

SEEDS = np.array([0, 1, 0, 0, 1, 1])  # two seeds with three clients each
SAMPLES = np.array([4.0, 2.0, 1.0, 3.0, 5.0, 2.0])


def outputs():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(6, 7))
    delta = {"a": jnp.asarray(vectors[:, :4], jnp.float32), "b": jnp.asarray(vectors[:, 4:])}
    finite = jnp.array([True, True, True, False, True, True])
    norms = jnp.asarray(np.linalg.norm(vectors, axis=1), jnp.float32)
    samples = jnp.asarray(SAMPLES, jnp.float32)
    report = ClientReport(jnp.arange(6.0), norms, finite, samples, jnp.full(6, 3))
    kept = ClientState(None, None)
    return vectors, ClientOutput(delta, None, {}, samples, kept, Upload(), report)


def by_seed(values):
    return np.stack([np.asarray(values)[s == SEEDS] for s in (0, 1)])


def test_norms_cosines_and_names_match_numpy():
    vectors, out = outputs()
    sums = sum_chunk(out, jnp.asarray(SEEDS), 2)
    reports = jax.tree.map(lambda a: jnp.asarray(by_seed(a)), out.report)
    cohort = jnp.array([[10, 11, 12], [20, 21, 22]])
    params = {"a": jnp.array([[1.0], [jnp.nan]])}
    steps = reports.num_steps
    report = round_report(cohort, reports, sums, params, steps > 0, steps, 18, 17)

    split, weights = by_seed(vectors), by_seed(SAMPLES)
    weights = weights / weights.sum(1, keepdims=True)
    mean = np.einsum("sc,scd->sd", weights, split)
    norms = np.linalg.norm(split, axis=2)
    cosines = np.einsum("scd,sd->sc", split, mean) / norms
    cosines /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(report.update_norm, norms.mean(1), rtol=1e-5)
    np.testing.assert_allclose(report.mean_update_norm, np.linalg.norm(mean, axis=1), rtol=1e-5)
    np.testing.assert_allclose(report.cosine[1], cosines[1].mean(), rtol=1e-5)
    np.testing.assert_allclose(report.loss, (weights * by_seed(np.arange(6.0))).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(report.nonfinite, [1, 0])
    np.testing.assert_array_equal(report.bad_clients[0], [12] + 7 * [-1])
    np.testing.assert_array_equal(report.params_finite, [True, False])
    assert int(report.useful_steps) == 18


def test_sums_of_chunks_add_up():
    _, out = outputs()
    whole = sum_chunk(out, jnp.asarray(SEEDS), 2)
    parts = [
        sum_chunk(jax.tree.map(lambda a: a[part], out), jnp.asarray(SEEDS[part]), 2)  # noqa: B023
        for part in (slice(0, 2), slice(2, 6))
    ]
    both = jax.tree.map(jnp.add, *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), whole, both)
