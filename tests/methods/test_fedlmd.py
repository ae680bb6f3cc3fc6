"""FedLMD: minority classes follow the global model, or a uniform target without a teacher."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods import build


def masked_kl(target, student, labels, minority):
    total = 0.0
    for g, f, y in zip(target, student, labels, strict=True):
        keep = np.array([c for c in range(4) if c in minority and c != y])
        others = np.array([c for c in range(4) if c != y])
        q = np.exp(g[keep]) / np.exp(g[keep]).sum()
        log_p = f - np.log(np.exp(f[others]).sum())
        total += (q * (np.log(q) - log_p[keep])).sum()
    return total / len(labels)


@pytest.mark.parametrize("name", ["fedlmd", "fedlmd_tf"])
def test_the_target_covers_the_minority_classes_only(make_context, name):
    context = make_context()  # counts 12, 8, 2, 0: the mean is 5.5
    student = np.asarray(context.outputs.logits, np.float64)[:7]
    teacher = np.asarray(context.client.teacher(context.batch).logits, np.float64)[:7]
    target = np.zeros_like(teacher) if name == "fedlmd_tf" else teacher
    expected = masked_kl(target, student, np.asarray(context.batch.labels)[:7], {2, 3})
    found = build(name, {name: {"beta": 0.5}}).regularizer(context)
    np.testing.assert_allclose(found, 0.5 * expected, rtol=1e-4)


def test_equal_counts_give_fedntd(make_context, make_client):
    context = make_context(make_client(class_counts=jnp.full(4, 7.0)))
    np.testing.assert_allclose(
        build("fedlmd").regularizer(context), build("fedntd").regularizer(context), rtol=1e-5
    )


def test_a_sole_minority_class_gives_nothing_for_its_samples(make_context, make_client):
    context = make_context(make_client(class_counts=jnp.array([1.0, 9.0, 9.0, 9.0])))
    batch = context.batch._replace(labels=jnp.zeros(8, jnp.int32))
    context = make_context(context.client, batch=batch)
    assert float(build("fedlmd").regularizer(context)) == 0.0


def test_the_teacher_free_form_never_asks_the_global_model(make_context, make_client):
    context = make_context()
    blind = make_context(make_client(params=None))
    np.testing.assert_array_equal(
        build("fedlmd_tf").regularizer(context), build("fedlmd_tf").regularizer(blind)
    )
