"""FedDecorr: features of a batch are decorrelated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.feddecorr import feddecorr


def test_the_forms_differ_by_the_factor_of_the_authors_code(make_context):
    context = make_context()
    rows, width = 7, 5
    code = feddecorr(beta=1.0).regularizer(context)
    paper = feddecorr(beta=1.0, form="paper").regularizer(context)
    off_diagonal = paper - 1 / width  # The diagonal of a correlation matrix is 1.
    factor = (rows - 1) ** 2 / rows * width / (width - 1)
    np.testing.assert_allclose(code, factor * off_diagonal, rtol=1e-4)


def test_shifts_and_scales_of_features_do_not_matter(make_context):
    context = make_context()
    features = context.outputs.features * jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]) + 7
    moved = make_context(outputs=context.outputs._replace(features=features))
    term = feddecorr().regularizer
    np.testing.assert_allclose(term(context), term(moved), rtol=1e-4)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_a_single_row_has_no_gradient(make_context, form):
    context = make_context()
    batch = context.batch._replace(where=jnp.arange(8) < 1)

    def term(features):
        outputs = context.outputs._replace(features=features)
        return feddecorr(form=form).regularizer(make_context(outputs=outputs, batch=batch))

    np.testing.assert_array_equal(jax.grad(term)(context.outputs.features), 0.0)


def test_without_weight_it_is_fedavg():
    assert feddecorr(beta=0.0).regularizer is None
