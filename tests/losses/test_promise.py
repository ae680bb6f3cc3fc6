"""What the package promises of every kernel, tested for all of them, with all of their options."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew import losses

COUNTS = {
    "some vacant": (5, 0, 9, 1, 0),
    "all vacant but one": (0, 0, 7, 0, 0),
    "none vacant": (3, 1, 4, 1, 5),
    "ones": (1, 1, 0, 1, 0),
    "millions": (10**6, 0, 10**6, 1, 0),
    "no data": (0, 0, 0, 0, 0),
}


def test_every_public_kernel_has_an_entry(arguments):
    assert sorted(arguments) == losses.__all__


def assert_finite(case, result, corner):
    value, gradient = result
    if case.name == "logit_wasserstein":  # Clients that share no class are infinitely far apart.
        value = np.where(np.isposinf(value), 0, value)
    assert np.isfinite(value).all(), corner
    for name, array in gradient.items():
        assert np.isfinite(array).all(), (corner, name)


def test_finite_for_every_count_vector_and_size_of_logits(case, problem, value_and_gradient):
    for corner, counts in COUNTS.items():
        assert_finite(case, value_and_gradient(case, problem(counts=counts)), corner)
    for scale in (0.0, 1e4):
        assert_finite(case, value_and_gradient(case, problem(scale=scale)), scale)


def test_finite_for_hard_batches(case, problem, value_and_gradient):
    p = problem()
    zeros, size = np.zeros_like(p["labels"]), len(p["labels"])
    batches = {
        "one class": {"labels": zeros},
        "labels of vacant classes": {"labels": zeros + 1},
        "labels out of range": {"labels": zeros - 1},
        "no row": {"where": np.zeros(size, bool)},
        "one row": {"where": np.arange(size) == 1},
        "equal rows": {key: np.repeat(p[key][:1], size, axis=0) for key in ("features", "logits")},
        "teacher equal to student": {
            "teacher": p["logits"],
            "near": p["features"],
            "far": p["features"],
        },
        "features on their centre": {"features": p["centers"][p["labels"]]},
        "extreme signs": {
            "logits": 1e4 * np.sign(p["logits"]),
            "teacher": -1e4 * np.sign(p["teacher"]),
        },
        "clients without classes": {"held": np.zeros_like(p["held"])},
        "clients without a shared class": {"held": np.eye(4, 5, dtype=bool)},
    }
    for corner, changes in batches.items():
        assert_finite(case, value_and_gradient(case, {**p, **changes}), corner)


def test_finite_with_two_classes_and_one_row(case, problem, value_and_gradient):
    for counts in ((4, 0), (1, 1)):
        p = problem(counts=counts, size=1, width=2)
        assert_finite(case, value_and_gradient(case, p), counts)


def test_rows_left_out_may_hold_anything_and_receive_no_gradient(case, problem, value_and_gradient):
    if not case.masked:
        return
    p = problem()
    out = ~p["where"]
    spoilt = {key: p[key].copy() for key in ("logits", "teacher", "features", "near", "far")}
    for array in spoilt.values():
        array[out] = np.nan
    spoilt["labels"] = np.where(out, -1, p["labels"]).astype(np.int32)
    value, gradient = value_and_gradient(case, p)
    spoilt_value, spoilt_gradient = value_and_gradient(case, {**p, **spoilt})
    np.testing.assert_array_equal(spoilt_value, value)
    for name in gradient:
        np.testing.assert_array_equal(spoilt_gradient[name], gradient[name])
        if name in spoilt:
            np.testing.assert_array_equal(gradient[name][out], 0)
    if value.ndim:
        every, _ = value_and_gradient(case, {**p, "where": np.ones_like(out)})
        np.testing.assert_allclose(value, np.where(out, 0, every), rtol=1e-6, atol=1e-7)


def test_constants_receive_no_gradient(case, problem, value_and_gradient):
    _, gradient = value_and_gradient(case, problem())
    for name in case.constants:
        np.testing.assert_array_equal(gradient[name], 0, name)


def test_vmap_of_a_checkpointed_gradient_equals_a_loop(plain_case, problem, value_and_gradient):
    """The clients differ in data and in hyper-parameters."""
    case = plain_case
    counts = [COUNTS[name] for name in ("some vacant", "all vacant but one", "none vacant")]
    problems = [problem(counts=n, seed=seed) for seed, n in enumerate(counts)]
    scalars = [{k: v * (1 + 0.2 * i) for k, v in case.scalars} for i in range(len(problems))]
    floats = [
        case.floats(p) | {k: np.float32(v) for k, v in s.items()}
        for p, s in zip(problems, scalars, strict=True)
    ]

    def total(floats, p):
        value = jax.checkpoint(case)(floats, p)
        return jnp.where(jnp.isfinite(value), value, 0).sum(), value

    def stack(trees):
        return {name: np.stack([tree[name] for tree in trees]) for name in trees[0]}

    together = jax.jit(jax.vmap(jax.value_and_grad(total, has_aux=True)))
    (_, values), gradients = together(stack(floats), stack(problems))
    for row, (p, s) in enumerate(zip(problems, scalars, strict=True)):
        value, gradient = value_and_gradient(case, p, **s)
        np.testing.assert_allclose(values[row], value, rtol=1e-5, atol=1e-5)
        for name in gradient:
            np.testing.assert_allclose(
                gradients[name][row], gradient[name], rtol=1e-4, atol=1e-5, err_msg=name
            )


def in_float64(p):
    return {k: v.astype(np.float64) if v.dtype.kind not in "bi" else v for k, v in p.items()}


def test_half_precision_input_is_computed_in_float32(
    plain_case, problem, value_and_gradient, double
):
    p = {
        key: np.asarray(value, jnp.bfloat16) if value.dtype == np.float32 else value
        for key, value in problem().items()
    }
    value, gradient = value_and_gradient(plain_case, p)
    with double():
        exact, exact_gradient = value_and_gradient(plain_case, in_float64(p))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-4)
    for name, array in gradient.items():
        assert array.dtype == (jnp.bfloat16 if name in p else jnp.float32)
        array = array.astype(np.float64)
        np.testing.assert_allclose(array, exact_gradient[name], rtol=0.01, atol=1e-2, err_msg=name)


def test_gradient_equals_central_differences_in_float64(
    plain_case, problem, value_and_gradient, double
):
    """With respect to everything that is not a constant, hyper-parameters included."""
    case = plain_case
    if case.name in ("gravitation", "class_importance_weights"):
        return  # The first holds its anchors fixed, the second has no gradient: see their tests.
    p = in_float64(problem(seed=3))
    rng = np.random.default_rng(1)
    step = 1e-6
    with double():
        floats = {k: v for k, v in case.floats(p).items() if k not in case.constants}
        directions = {k: rng.normal(size=v.shape) for k, v in floats.items()}
        value, gradient = value_and_gradient(case, p)

        run = jax.jit(case)

        def shifted(sign):
            moved = {k: v + sign * step * directions[k] for k, v in floats.items()}
            values = np.asarray(run(case.floats(p) | moved, p))
            return np.sum(values[np.isfinite(values)])

        difference = (shifted(1) - shifted(-1)) / (2 * step)
    assert value.dtype == jnp.float64
    slope = sum(np.vdot(gradient[k], directions[k]) for k in directions)
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7)
