"""FedRoD: a generic head by balanced softmax, and own heads on top of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.fedrod import fedrod
from fedjax_skew.models.functional import head


def test_the_global_trajectory_is_that_of_the_balanced_softmax(simulate):
    options = dict(rounds=2, participation=0.5)
    both = simulate("fedrod", **options)
    copied = simulate("fedrod", hparams={"fedrod": {"init": "copy"}}, **options)
    generic = simulate("logit_adjust", **options)
    jax.tree.map(np.testing.assert_array_equal, both.state.params, copied.state.params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        both.state.params,
        generic.state.params,
    )
    own = np.asarray(both.state.clients.method["kernel"][0])
    trained = np.abs(own).max((1, 2)) > 0
    assert trained.any() and not trained.all()


def test_the_own_head_takes_a_gradient_step_of_both_logits(make_client, make_context, make_params):
    method = fedrod()
    own = make_params(7)["head"]
    context = make_context(make_client(state=own), scratch=own)
    outputs, batch = context.outputs, context.batch

    def loss(own):
        logits = outputs.logits + head({"head": own}, outputs.features)
        loss = -jax.nn.log_softmax(logits)[jnp.arange(8), batch.labels]
        return context.mean(loss)

    expected = jax.tree.map(lambda v, g: v - context.client.lr * g, own, jax.grad(loss)(own))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7),
        method.update_scratch(context),
        expected,
    )


@pytest.mark.parametrize(("init", "times"), [("zero", 1), ("copy", 2)])
def test_personal_logits_are_the_sum_of_both_heads(make_client, make_init_context, init, times):
    method = fedrod(init=init)
    client = make_client(state=method.init(make_init_context()).client)
    params, stats = method.personal(client)
    x = jnp.ones((2, 6))
    logits = client.model.apply(params, stats, x)[0].logits
    generic = client.model.apply(client.params, {}, x)[0].logits
    np.testing.assert_allclose(logits, times * generic, rtol=1e-6)
