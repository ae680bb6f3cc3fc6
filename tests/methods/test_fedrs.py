"""FedRS: logits of missing classes are scaled down."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods import build


def scaled_cross_entropy(context, scale):
    logits = np.asarray(context.outputs.logits, np.float64) * scale
    log_q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_q[np.arange(8), np.asarray(context.batch.labels)][:7].mean()


@pytest.mark.parametrize(
    ("form", "scale"),
    [("paper", [1, 1, 1, 0.4]), ("code", [1, 0.4 + 0.6 * 8 / 12, 0.4 + 0.6 * 2 / 12, 0.4])],
)
def test_the_scale_is_the_papers_or_the_published_codes(make_context, form, scale):
    context = make_context()
    method = build("fedrs", {"fedrs": {"alpha": 0.4, "form": form}})
    np.testing.assert_allclose(
        method.loss(context), scaled_cross_entropy(context, np.array(scale)), rtol=1e-5
    )


def test_alpha_zero_keeps_the_missing_class_still(make_context):
    context = make_context()

    def loss(alpha, kernel):
        head = {**context.params["head"], "kernel": kernel}
        return build("fedrs", {"fedrs": {"alpha": alpha}}).loss(
            make_context(params={**context.params, "head": head})
        )

    kernel = context.params["head"]["kernel"]
    still = jax.grad(lambda k: loss(0.0, k))(kernel)
    pushed = jax.grad(lambda k: loss(1.0, k))(kernel)
    np.testing.assert_array_equal(still[:, 3], 0.0)
    assert float(jnp.abs(pushed[:, 3]).max()) > 1e-3


def test_the_head_has_no_bias_unless_asked_for():
    assert not build("fedrs").head_bias
    assert build("fedrs", {"fedrs": {"head_bias": True}}).head_bias
    assert not build("fedrs+fedprox").head_bias
