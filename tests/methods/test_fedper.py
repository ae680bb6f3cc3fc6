"""FedPer: heads stay with their clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedper import fedper


@pytest.mark.parametrize("form", ["paper", "code"])
def test_an_own_head_depends_on_other_clients_through_the_body_only(
    form, make_client, make_init_context, make_params
):
    method = fedper(form=form)
    state = method.init(make_init_context())
    own, other = make_params(1), make_params(2)
    client = make_client(state=state.client, server=state.server)
    kept = method.make_upload(client, LocalResult(own, {}, own, None, None)).state
    client = make_client(params=other, state=kept, server=jax.tree.leaves(make_params(3)["head"]))
    params, _ = method.start(client)
    jax.tree.map(np.testing.assert_array_equal, params["head"], own["head"])
    jax.tree.map(np.testing.assert_array_equal, params["hidden"], other["hidden"])


def test_in_the_code_a_client_that_never_took_part_uses_the_mean_head(
    make_client, make_init_context, make_round, make_params
):
    method = fedper(form="code")
    state = method.init(make_init_context())
    heads = [make_params(1)["head"], make_params(2)["head"]]
    stacked = jax.tree.map(lambda a, b: jnp.stack([a, b]), *(jax.tree.leaves(h) for h in heads))
    weights = jnp.array([0.75, 0.25])
    mean = method.update_server_state(
        make_round(state=state.server, stacked=stacked, weights=weights)
    )
    params, _ = method.personal(make_client(state=state.client, server=mean))
    expected = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, *heads)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), params["head"], expected)


def test_with_one_client_it_is_fedavg(simulate):
    options = dict(num_clients=1, partition="iid", momentum=0.9, rounds=2)
    one, plain = simulate("fedper", **options), simulate("fedavg", **options)
    kept = one.state.clients.method["leaves"][1][0, 0]
    for kernel in (kept, one.state.params["head"]["kernel"][0]):
        np.testing.assert_allclose(kernel, plain.state.params["head"]["kernel"][0], atol=1e-6)
