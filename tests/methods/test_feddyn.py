"""FedDyn: the penalties of all clients cancel at the optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods import build
from fedjax_skew.methods.base import Evaluation, LocalResult


def feddyn(**hparams):
    return build("feddyn", {"feddyn": hparams})


def close(found, expected, **tolerance):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **(tolerance or {"atol": 1e-6})),
        found,
        expected,
    )


def test_the_penalty_pulls_by_distance_and_past_updates(make_context, make_client, make_params):
    h, server = make_params(8), {"mean_samples": jnp.float32(44)}
    client = make_client(state={"h": h}, server=server)
    params = make_context().params
    regularizer = lambda method: lambda p: method.regularizer(make_context(client, params=p))  # noqa: E731
    direction = optax.tree.add(optax.tree.sub(params, client.params), h)
    # 22 samples against a mean of 44: alpha doubles.
    close(jax.grad(regularizer(feddyn(alpha=0.1)))(params), optax.tree.scale(0.2, direction))
    plain = feddyn(alpha=0.1, adapt_alpha=False)
    close(jax.grad(regularizer(plain))(params), optax.tree.scale(0.1, direction))


def test_the_server_adds_the_mean_of_h_over_all_clients(make_init_context, make_round, make_params):
    method = feddyn(evaluate="cohort")
    state = {**method.init(make_init_context()).server, "h": make_params(9)}
    rnd = make_round(state=state)
    result = method.server(rnd)
    h = optax.tree.add_scale(state["h"], 2 / 5, rnd.mean_delta)
    cohort = optax.tree.add(rnd.params, rnd.mean_delta)
    close(result.state["h"], h)
    close(result.params, optax.tree.add(cohort, h))
    close(result.state["reported"], cohort)


def test_a_skipped_client_does_not_count(make_init_context, make_round):
    method = feddyn()
    rnd = make_round(state=method.init(make_init_context()).server, weights=jnp.array([1.0, 0.0]))
    close(method.server(rnd).state["h"], optax.tree.scale(0.2, rnd.mean_delta))


def test_the_reported_model_is_a_choice(make_init_context, info, tiny_model, make_params):
    assert feddyn(evaluate="server").eval_model is None
    state = {"reported": make_params(4)}
    evaluation = Evaluation(info, tiny_model, make_params(), {}, state, None, None, None)
    assert feddyn().eval_model(evaluation)[0] is state["reported"]
    with pytest.raises(ValueError, match="'cohort'"):
        feddyn(evaluate="cohorts")


def test_server_state_is_the_mean_of_the_clients(simulate):
    done = simulate("feddyn", hparams={"feddyn": {"evaluate": "all"}}, participation=0.5)
    server, kept = done.state.server, done.state.clients.method
    close(server["h"], jax.tree.map(lambda a: a.mean(1), kept["h"]))
    close(server["reported"], jax.tree.map(lambda a: a.mean(1), kept["latest"]))
    assert float(optax.tree.norm(server["h"])) > 1e-3


def test_it_finds_the_optimum_of_two_quadratics(
    make_client, make_context, make_round, make_init_context
):
    """Clients with curvatures 1 and 4 and 10 and 30 samples; FedAvg's fixed point is elsewhere."""
    method = feddyn(alpha=0.5, evaluate="server")
    curvature, target = np.array([1.0, 4.0]), np.array([0.0, 1.0])
    samples = np.array([10.0, 30.0])
    context, rnd = make_context(), make_round()
    info = rnd.info.__class__(**{**vars(rnd.info), "num_clients": 2})
    h = {"w": jnp.float32(0)}

    @jax.jit
    def one_round(x, server, kept):
        ys, new = [], []
        for i in range(2):
            client = make_client(
                params=x, state=kept[i], server=server, num_samples=jnp.float32(samples[i])
            )

            def objective(y, client=client, i=i):
                at = context.__class__(**{**vars(context), "client": client, "params": y})
                return 0.5 * curvature[i] * (y["w"] - target[i]) ** 2 + method.regularizer(at)

            step = lambda _, y, f=objective: optax.tree.add_scale(y, -0.1, jax.grad(f)(y))  # noqa: E731
            y = jax.lax.fori_loop(0, 200, step, x)
            ys.append(y["w"])
            new.append(method.make_upload(client, LocalResult(y, {}, x, None, None)).state)
        delta = {"w": jnp.mean(jnp.stack(ys)) - x["w"]}
        changes = {"info": info, "params": x, "mean_delta": delta, "state": server}
        result = method.server(rnd.__class__(**{**vars(rnd), **changes}))
        return result.params, result.state, new

    x, server, kept = {"w": jnp.float32(0)}, {"h": h["w"], "mean_samples": jnp.float32(20)}, None
    server["h"], kept = h, [{"h": h}, {"h": h}]
    for _ in range(100):
        x, server, kept = one_round(x, server, kept)
    optimum = (samples * curvature * target).sum() / (samples * curvature).sum()
    np.testing.assert_allclose(x["w"], optimum, atol=1e-4)
