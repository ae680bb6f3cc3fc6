"""Distance to prototypes against a plain formula."""

import numpy as np
import pytest

from fedjax_skew import losses


def distance(features, labels, prototypes, present, form="code"):
    result = []
    for h, y in zip(features, labels, strict=True):
        square = (h - prototypes[y]) ** 2 if present[y] else np.zeros(1)
        result.append(square.mean() if form == "code" else square.sum())
    return np.array(result)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_equals_its_formula(agrees, problem, form):
    p = problem()
    for labels in (p["labels"], np.arange(6) % 5):
        args = p["features"], labels, p["centers"], p["present"]
        agrees(losses.prototype_distance, distance, *args, form=form)


def test_rows_of_absent_prototypes_are_not_read(problem):
    p = problem()
    spoilt = np.where(p["present"][:, None], p["centers"], np.nan)
    labels = np.arange(6) % 5
    value = losses.prototype_distance(p["features"], labels, spoilt, p["present"])
    np.testing.assert_array_equal(np.asarray(value)[~p["present"][labels]], 0)
    assert np.isfinite(value).all()


def test_code_is_the_mean_of_the_papers_sum(problem):
    p = problem()
    args = p["features"], p["labels"], p["centers"], p["present"]
    paper = losses.prototype_distance(*args, form="paper")
    np.testing.assert_allclose(paper, 3 * losses.prototype_distance(*args), rtol=1e-6)
