"""FedNTD: the global model teaches all classes but the true one."""

import jax
import numpy as np

from fedjax_skew.methods import build


def not_true_kl(teacher, student, labels, temperature):
    total = 0.0
    for g, f, y in zip(teacher, student, labels, strict=True):
        q, p = (np.exp(np.delete(v, y) / temperature) for v in (g, f))
        q, p = q / q.sum(), p / p.sum()
        total += (q * np.log(q / p)).sum()
    return temperature**2 * total / len(labels)


def test_the_term_is_the_divergence_over_the_other_classes(make_context):
    context = make_context()
    teacher = np.asarray(context.client.teacher(context.batch).logits, np.float64)[:7]
    student = np.asarray(context.outputs.logits, np.float64)[:7]
    found = build("fedntd", {"fedntd": {"beta": 0.7, "temperature": 2.0}}).regularizer(context)
    expected = 0.7 * not_true_kl(teacher, student, np.asarray(context.batch.labels)[:7], 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_at_the_global_model_the_term_has_no_value_and_no_pull(make_context, make_client):
    params = make_client().params
    regularizer = lambda p: build("fedntd").regularizer(make_context(params=p))  # noqa: E731
    value, gradient = jax.value_and_grad(regularizer)(params)
    np.testing.assert_allclose(value, 0.0, atol=1e-6)
    jax.tree.map(lambda g: np.testing.assert_allclose(g, 0.0, atol=1e-6), gradient)


def test_beta_zero_is_fedavg():
    assert build("fedntd", {"fedntd": {"beta": 0.0}}).regularizer is None
