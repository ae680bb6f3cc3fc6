"""Fed-GraB: controllers balance positive and negative gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew.methods.fedgrab import bypassed, fedgrab, gain


def fresh(make_init_context):
    return fedgrab().init(make_init_context()).client


def test_the_first_step_is_the_plain_binary_cross_entropy(make_init_context, make_context):
    context = make_context(scratch=fresh(make_init_context))
    logits = np.asarray(context.outputs.logits, np.float64)[:7]
    target = np.eye(4)[np.asarray(context.batch.labels)[:7]]
    expected = (np.logaddexp(0, logits) - target * logits).sum(1).mean()
    np.testing.assert_allclose(fedgrab().loss(context), expected, rtol=1e-5)


def test_the_controller_follows_its_equation(make_init_context, make_context):
    """Two steps on one batch, by numpy in float64."""
    context = make_context(scratch=fresh(make_init_context))
    logits = np.asarray(context.outputs.logits, np.float64)[:7]
    target = np.eye(4)[np.asarray(context.batch.labels)[:7]]

    def q(v):
        return (10 / 9) / (1 / 9 + np.exp(-v / 2))

    pos, neg, u, e1, e2 = (np.zeros(4) for _ in range(5))
    state = context.scratch
    for _ in range(2):
        weight = np.where(target > 0, q(u), q(-u))
        size = np.abs(1 / (1 + np.exp(-logits)) - target) * weight / 7
        pos, neg = pos + (size * target).sum(0), neg + (size * (1 - target)).sum(0)
        e = neg - pos
        u = u + 10 * (e - e1) + 0.01 * e + 0.1 * (e - 2 * e1 + e2)
        e1, e2 = e, e1
        state = fedgrab().update_scratch(dataclasses.replace(context, scratch=state))
    np.testing.assert_allclose(state["output"], u, rtol=1e-4)
    np.testing.assert_allclose(state["older_error"], e2, rtol=1e-5)


def test_the_gain_is_one_at_zero_and_between_zero_and_ten():
    np.testing.assert_allclose(gain(jnp.array([0.0, 200.0, -200.0])), [1, 10, 0], atol=1e-6)


def test_a_class_with_more_negatives_gets_positive_weight(make_init_context, make_context):
    context = make_context(scratch=fresh(make_init_context))  # class 3 has no positives
    state = fedgrab().update_scratch(context)
    output = state["output"][3]
    assert float(gain(output)) > 1 > float(gain(-output))


def test_controllers_stay_with_their_client(simulate):
    one = simulate("fedgrab", rounds=1, participation=0.5)
    two = simulate("fedgrab", rounds=2, participation=0.5)
    seen = [np.asarray(d.state.clients.method["negative"][0]).sum(1) for d in (one, two)]
    assert (seen[0] > 0).sum() == 3
    assert (seen[1] >= seen[0]).all() and (seen[1] > seen[0]).sum() == 3
    assert np.isfinite(np.asarray(jax.tree.leaves(two.state.params)[0])).all()


def test_the_script_bypasses_the_first_class_always_and_later_ones_less_often():
    drawn = jax.vmap(lambda key: bypassed(key, 10))(jax.random.split(jax.random.key(0), 2000))
    share = np.asarray(drawn).mean(0)
    np.testing.assert_allclose(share[0], 1.0)
    np.testing.assert_allclose(share[1], 0.1 ** (1 / 9), atol=0.03)
    assert (np.diff(share) < 0.03).all() and share[-1] < 0.5


def test_the_script_neither_weights_nor_counts_a_bypassed_class(make_init_context, make_context):
    state = {**fresh(make_init_context), "output": jnp.full(4, 3.0)}
    context = make_context(scratch=state)
    new = fedgrab(form="code").update_scratch(context)
    skipped = np.asarray(bypassed(context.key, 4))
    assert skipped[0]
    np.testing.assert_array_equal(new["negative"][skipped], 0.0)
    np.testing.assert_array_equal(np.asarray(new["negative"] > 0), ~skipped)


def test_the_script_never_trains_the_head(take_step, make_init_context, make_client):
    client = make_client(state=fresh(make_init_context))
    done = take_step(fedgrab(form="code"), client, momentum=0.9, weight_decay=0.1)
    jax.tree.map(np.testing.assert_array_equal, done.params["head"], client.params["head"])
