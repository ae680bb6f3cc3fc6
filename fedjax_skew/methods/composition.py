"""Composition of methods: ``a+b`` is one method whose parts come from both."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.methods.base import (
    LocalResult,
    LossContext,
    Method,
    MethodState,
    Round,
    ServerResult,
    Upload,
)

# Parts that only one method may define, with their names in error messages.
_SINGLE = {
    "loss": "the loss",
    "step": "the local step",
    "optimizer": "the client optimiser",
    "start": "the start of local training",
    "weight": "the aggregation weights",
    "server": "the server rule",
    "eval_model": "the evaluated model",
    "predict": "the evaluated model's prediction",
    "personal": "the personal model",
    "model": "the model's head",
}


def compose(parts: Sequence[Method]) -> Method:
    """Merges methods; state, scratch and uploads become dicts keyed by method name.

    Raises:
        ValueError: if a method is named twice, if two methods define a part that only one may
            define, if a method trains in phases, or if one method replaces the linear head that
            another needs.
    """
    if len(parts) == 1:
        return parts[0]
    parts = tuple(parts)
    name = "+".join(p.name for p in parts)
    if len({p.name for p in parts}) < len(parts):
        raise ValueError(f"method={name!r} names a method twice; name each method once.")
    for part in parts:
        if part.next_phase is not None:
            raise ValueError(
                f"method={name!r}: {part.name} trains in phases and cannot be combined; "
                f"use method={part.name!r} alone."
            )
    single = {field: _only(parts, field, name) for field in _SINGLE}
    for part in parts:
        if single["model"] and part.needs_linear_head:
            raise ValueError(
                f"method={name!r}: {single['model'].name} replaces the model's head, but "
                f"{part.name} needs a linear one; use one of the two."
            )
    fields = [field for field in vars(_Hooks) if not field.startswith("_")]
    used = [field for field in fields if any(getattr(p, field) for p in parts)]
    made: dict[str, Any] = {field: Partial(_hook(field), parts) for field in used}
    for field in ("predict", "optimizer", "model"):
        made[field] = getattr(single[field], field, None)
    return Method(
        name=name,
        num_batches=single["step"].num_batches if single["step"] else 1,
        keep_optimizer_state=any(p.keep_optimizer_state for p in parts),
        balanced_batches=any(p.balanced_batches for p in parts),
        needs_linear_head=any(p.needs_linear_head for p in parts),
        needs_blocks=any(p.needs_blocks for p in parts),
        needs_client_models=any(p.needs_client_models for p in parts),
        needs_labelled_data=any(p.needs_labelled_data for p in parts),
        needs_unlabelled_data=any(p.needs_unlabelled_data for p in parts),
        head_bias=all(p.head_bias for p in parts),
        projection=max(p.projection for p in parts),
        local_steps=max(p.local_steps for p in parts),
        uses_total_rounds=any(p.uses_total_rounds for p in parts),
        **made,
    )


def _hook(field: str) -> Callable[..., Any]:
    """Returns ``(parts, *args) -> result`` of one hook of a composition.

    The parts are an argument because they may contain numbers that are inputs of the program.
    """
    return lambda parts, *args: getattr(_Hooks(parts), field)(*args)


class _Hooks:
    """The hooks of a composition; those in ``_SINGLE`` come from the only part that has them."""

    def __init__(self, parts: Sequence[Method]):
        self._parts = parts

    def _with(self, field: str) -> list[Method]:
        return [part for part in self._parts if getattr(part, field) is not None]

    def init(self, context):
        states = {p.name: p.init(context) for p in self._with("init")}
        return MethodState(
            {n: s.server for n, s in states.items()}, {n: s.client for n, s in states.items()}
        )

    def loss(self, context):
        p = self._with("loss")[0]
        return p.loss(_context(context, p.name))

    def regularizer(self, context):
        return sum(p.regularizer(_context(context, p.name)) for p in self._with("regularizer"))

    def scratch(self, client):
        return {p.name: p.scratch(_client(client, p.name)) for p in self._with("scratch")}

    def update_scratch(self, context):
        parts = self._with("update_scratch")
        new = {p.name: p.update_scratch(_context(context, p.name)) for p in parts}
        return {**context.scratch, **new}

    def correct_gradient(self, gradient, params, client):
        for p in self._with("correct_gradient"):
            gradient = p.correct_gradient(gradient, params, _client(client, p.name))
        return gradient

    def trainable(self, client, step):
        masks = [p.trainable(_client(client, p.name), step) for p in self._with("trainable")]
        return jax.tree.map(lambda *flags: functools.reduce(jnp.logical_and, flags), *masks)

    def step(self, s):
        p = self._with("step")[0]
        own = dataclasses.replace(
            s, client=_client(s.client, p.name), scratch=_own(s.scratch, p.name)
        )
        result = p.step(own)
        # The auxiliary results hold the scratch of all methods; the rule changes only its own.
        scratch = result.aux.scratch
        if p.scratch is not None:
            scratch = {**scratch, p.name: result.scratch}
        return result._replace(scratch=scratch)

    def start(self, client):
        p = self._with("start")[0]
        return p.start(_client(client, p.name))

    def before_training(self, client):
        parts = self._with("before_training")
        return {p.name: p.before_training(_client(client, p.name)) for p in parts}

    def make_upload(self, client, result):
        uploads = {
            p.name: p.make_upload(_client(client, p.name), _result(result, p.name))
            for p in self._with("make_upload")
        }
        kept = {
            n: k if n not in uploads or uploads[n].state is None else uploads[n].state
            for n, k in (client.state or {}).items()
        }
        return Upload(
            kept,
            {n: u.stacked for n, u in uploads.items()},
            {n: u.summed for n, u in uploads.items()},
        )

    def weight(self, client, result):
        p = self._with("weight")[0]
        return p.weight(_client(client, p.name), _result(result, p.name))

    def update_server_state(self, rnd):
        parts = self._with("update_server_state")
        new = {p.name: p.update_server_state(_round(rnd, p.name)) for p in parts}
        return {**(rnd.state or {}), **new}

    def server(self, rnd):
        p = self._with("server")[0]
        result = p.server(_round(rnd, p.name))
        state = rnd.state if p.init is None else {**rnd.state, p.name: result.state}
        return ServerResult(result.params, result.stats, state)

    def eval_model(self, evaluation):
        p = self._with("eval_model")[0]
        return p.eval_model(dataclasses.replace(evaluation, state=_own(evaluation.state, p.name)))

    def personal(self, client):
        p = self._with("personal")[0]
        return p.personal(_client(client, p.name))


def _only(parts: Sequence[Method], field: str, name: str) -> Method | None:
    owners = [p for p in parts if getattr(p, field) is not None]
    # Methods with the same weights are compatible.
    agree = field == "weight" and len({p.weight for p in owners}) == 1
    if len(owners) > 1 and not agree:
        raise ValueError(
            f"method={name!r}: {owners[0].name} and {owners[1].name} both define "
            f"{_SINGLE[field]}; combine methods that differ in other parts."
        )
    return owners[0] if owners else None


def _own(tree, name: str):
    return tree.get(name) if isinstance(tree, dict) else None


def _client(client, name: str):
    return dataclasses.replace(
        client, state=_own(client.state, name), server=_own(client.server, name)
    )


def _context(context: LossContext, name: str) -> LossContext:
    return dataclasses.replace(
        context, client=_client(context.client, name), scratch=_own(context.scratch, name)
    )


def _result(result: LocalResult, name: str) -> LocalResult:
    return result._replace(
        scratch=_own(result.scratch, name), before_training=_own(result.before_training, name)
    )


def _round(rnd: Round, name: str) -> Round:
    return dataclasses.replace(
        rnd,
        stacked=_own(rnd.stacked, name),
        summed=_own(rnd.summed, name),
        state=_own(rnd.state, name),
    )
