"""What programs read and hand through, found in their jaxprs."""

import math

import jax
import jax.numpy as jnp
import pytest

from fedjax_skew.engine import dataflow
from fedjax_skew.engine.dataflow import ZERO, Same, WeightedSum

X = jnp.zeros((4, 3))


def reads(fn, *args, wanted=None):
    """Sizes of the parts that are read of every argument."""
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    parts = dataflow.reads(jaxpr, wanted or [True] * len(jaxpr.outvars))
    return [sorted(math.prod(shape) for shape, _ in part) for part in parts]


def results(fn, *args, known=None):
    closed = jax.make_jaxpr(fn)(*args)
    known = known or [Same(i) for i in range(len(args))]
    return dataflow.results(closed.jaxpr, known, closed.consts)


def test_an_input_is_read_if_a_wanted_output_depends_on_it():
    def fn(a, b, c):
        return jnp.sum(a * b), c + 1

    assert reads(fn, X, X, X) == [[12]] * 3
    assert reads(fn, X, X, X, wanted=[False, True]) == [[], [], [12]]


def test_of_a_table_only_the_indexed_row_is_read():
    assert reads(lambda table, i: table[i] * 2, X, 1)[0] == [3]
    assert reads(jax.jit(lambda table, i: table[i] + table.sum(), inline=False), X, 1)[0] == [3, 12]


def test_loops_carry_what_is_read_and_drop_what_is_not():
    def fn(n, a, b, c):
        def body(i, carry):
            x, y, z = carry
            return x + y, y * c, z + 1

        return jax.lax.fori_loop(0, n, body, (a, b, X))[0]

    assert reads(fn, 3, X, X, X) == [[1], [12], [12], [12]]

    def last(n, a, b, c):
        return jax.lax.fori_loop(0, n, lambda i, s: (s[0], s[1] + c), (a, b))[0]

    assert reads(last, 3, X, X, X)[1:] == [[12], [], []]


def test_scans_and_branches_are_looked_into():
    def scanned(a, b, rows):
        return jax.lax.scan(lambda s, row: ((s[0] + row, s[1]), None), (a, b), rows)[0][0]

    assert reads(scanned, X[0], X[0], X) == [[3], [], [12]]

    def branched(p, a, b):
        return jax.lax.cond(p, lambda: a + 1, lambda: a[0] + jnp.zeros_like(a))

    assert reads(branched, True, X, X)[1:] == [[3, 12], []]


def test_what_is_handed_through_a_loop_is_found():
    def fn(n, frozen, trained):
        def body(i, carry):
            frozen, trained, momentum = carry
            update = jnp.where(False, trained, 0.0)
            momentum = 0.9 * momentum + update
            active = i < 5
            new = frozen - 0.1 * momentum, trained - 0.1, momentum
            return jax.tree.map(lambda a, b: jnp.where(active, a, b), new, carry)

        frozen_after, trained_after, _ = jax.lax.fori_loop(
            0, n, body, (frozen, trained, jnp.zeros_like(frozen))
        )
        return frozen_after, frozen_after - frozen, trained_after - trained

    assert results(fn, 3, X, X) == [Same(1), ZERO, None]


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda a, b: a + 0.0, Same(0)),
        (lambda a, b: 0.0 * a + b, Same(1)),
        (lambda a, b: jnp.where(True, a, b), Same(0)),
        (lambda a, b: jnp.where(b > 0, a, a), Same(0)),
        (lambda a, b: jnp.where(b > 0, a, b), None),
        (lambda a, b: a[:1] - a[:1], None),
        (lambda a, b: jax.lax.cond(b[0, 0] > 0, lambda: a, lambda: a + 0.0), Same(0)),
        (lambda a, b: (a + a) - a, None),
        (lambda a, b: jnp.zeros(3) + a, Same(0)),
    ],
)
def test_values_are_known_only_where_they_are_certain(fn, value):
    assert results(fn, X, X) == [value]


def test_a_weighted_mean_of_equal_values_is_that_value():
    def mean(total, weight, old):
        new = total / jnp.maximum(weight, 1e-12)
        return jnp.where(weight > 0, new, old)

    known = [WeightedSum(Same(2)), None, Same(2)]
    assert results(mean, X, 1.0, X, known=known) == [Same(2)]


def test_a_product_is_sent_as_its_factors():
    def fn(mark, model, use):
        return jnp.where(use, jnp.multiply.outer(mark, model), 0.0), model + 1

    jaxpr = jax.make_jaxpr(fn)(jnp.zeros(5), X, True).jaxpr
    assert dataflow.sizes(jaxpr) == [4 * (5 + 12), 4 * 12]
