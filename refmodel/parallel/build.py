"""A declaration's twin on one rank: ``parallel(component, d, ranks)``, of the plain twin's parts at the rank's sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

from torch import nn

from ... import heads as outputs
from ... import model as whole
from ...blocks import attention as attentions
from ...blocks import linear_attention as linear_attentions
from ...blocks import mla as latents
from ...blocks import mlp as mlps
from ...blocks import moe as mixtures
from ...blocks import position as positions
from ...blocks import prediction as predictions
from ...blocks import wiring as wirings
from ...parallel import stages
from .. import model as plain
from .. import moe as plain_moe
from .. import prediction, wiring
from ..build import build, share_biases
from ..dispatch import SCALE, linear
from . import attention, mla, mlp, model, moe, pipeline, position
from .ranks import Ranks, of_one_head


@singledispatch
def parallel(component: Any, d: int, ranks: Ranks) -> Any:
    """The rank's part of the twin of *component* on an input d wide."""
    raise NotImplementedError(f"{type(component).__name__} has no twin on several ranks")


def maybe(component: Any, d: int, ranks: Ranks) -> Any:
    """That of what may be absent."""
    return None if component is None else parallel(component, d, ranks)


def norm(component: Any, d: int) -> Any:
    """A norm of what each rank has in full width."""
    return None if component is None else build(component, d)


# -- feed-forward ---------------------------------------------------------------------------------------------------------


@parallel.register
def _(c: mlps.MLP, d: int, ranks: Ranks) -> nn.Module:
    return mlp.MLP(build(replace(c, f=c.f // ranks.tp.size), d), ranks.tp)


@parallel.register
def _(c: mlps.GatedMLP | mlps.ClampedGatedMLP, d: int, ranks: Ranks) -> nn.Module:
    return mlp.GatedMLP(build(replace(c, f=c.f // ranks.tp.size), d), ranks.tp)


@parallel.register
def _(c: mixtures.MoE, d: int, ranks: Ranks) -> nn.Module:
    local = replace(c.expert, f=c.expert.f // ranks.etp.size)
    bank = plain_moe.MoE(
        nn.Linear(d, c.e, bias=c.router_bias), [build(local, d) for _ in range(c.e // ranks.ep.size)], c.a,
        shared_gate=linear(d, 1 if c.shared_gate else None), score=c.score, renormalise=c.renormalise,
        choice_bias=c.choice_bias,
    )  # fmt: skip
    return moe.MoE(bank, maybe(c.shared, d, ranks), ranks)


# -- attention ------------------------------------------------------------------------------------------------------------


@parallel.register
def _(c: attentions.Attention, d: int, ranks: Ranks) -> nn.Module:
    tp = ranks.tp
    n, at = c.n // tp.size, c.position
    local = replace(
        c, n=n, k=max(1, c.k // tp.size), position=replace(at, n=n) if isinstance(at, positions.RelativeBias) else None
    )
    twin = build(local, d)
    if isinstance(at, positions.ALiBi):
        twin.position = build(at, c.h)
        twin.position.slopes = twin.position.slopes[tp.rank * n :][:n]
    elif at is not None and twin.position is None:
        twin.position = parallel(at, d, ranks)
    return attention.Attention(twin, ranks, of_one_head(ranks, c.k))


@parallel.register
def _(c: attentions.CrossAttention, d: int, ranks: Ranks) -> nn.Module:
    local = build(replace(c, n=c.n // ranks.tp.size, k=max(1, c.k // ranks.tp.size)), d)
    return attention.CrossAttention(local, ranks, of_one_head(ranks, c.k))


@parallel.register
def _(c: linear_attentions.LinearAttention, d: int, ranks: Ranks) -> nn.Module:
    return attention.LinearAttention(build(replace(c, n=c.n // ranks.tp.size), d), ranks)


@parallel.register
def _(c: latents.MLA, d: int, ranks: Ranks) -> nn.Module:
    local = build(replace(c, n=c.n // ranks.tp.size), d)
    local.rotary = parallel(positions.Rotary(r=c.r), d, ranks)
    return mla.MLA(local, ranks)


# -- positions ------------------------------------------------------------------------------------------------------------

PLACES = {
    positions.Rotary: position.Rotary,
    positions.LearnedPositions: position.LearnedPositions,
    positions.Sinusoidal: position.Sinusoidal,
}


@parallel.register(positions.Rotary)
@parallel.register(positions.LearnedPositions)
@parallel.register(positions.Sinusoidal)
def _(c: Any, d: int, ranks: Ranks) -> nn.Module:
    return placed(build(c, d), PLACES[type(c)], ranks)


def placed(twin: Any, kind: type, ranks: Ranks) -> Any:
    """A plain twin made one that knows the ranks: of a class below its own, as torch's ``fully_shard`` makes them."""
    twin.__class__ = kind
    twin.ranks = ranks
    return twin


# -- wiring ---------------------------------------------------------------------------------------------------------------


@parallel.register
def _(c: wirings.Residual, d: int, ranks: Ranks) -> wiring.Residual:
    norms = {name: norm(getattr(c, name), d) for name in ("before", "after", "outer")}
    return wiring.Residual(parallel(c.branch, d, ranks), alpha=SCALE if c.scaled else None, **norms)


@parallel.register
def _(c: wirings.Block, d: int, ranks: Ranks) -> nn.Module:
    return wiring.Block([parallel(branch, d, ranks) for branch in c.branches])


@parallel.register
def _(c: wirings.Parallel, d: int, ranks: Ranks) -> nn.Module:
    return wiring.Parallel([parallel(branch, d, ranks) for branch in c.branches], norm(c.norm, d))


# -- models ---------------------------------------------------------------------------------------------------------------


@parallel.register
def _(c: whole.Embedding, d: int, ranks: Ranks) -> nn.Module:
    twin = build(replace(c, v=c.v // ranks.tp.size, position=None))
    twin.position = maybe(c.position, c.d if c.i is None or not c.all_narrow else c.i, ranks)
    return placed(twin, model.Embedding, ranks)


@parallel.register
def _(c: whole.Stack, d: int, ranks: Ranks) -> nn.Module:
    if any(layer.j is not None for layer in c.layers):
        raise NotImplementedError("layers that share weights have no twin on several ranks")
    blocks = {f"{c.name}.{layer.name}": layer.block for layer in c.layers}
    layers = [parallel(blocks[name], d, ranks) for name, count in c.runs() for _ in range(count)]
    stack = plain.Stack(c.name, layers, norm=norm(c.norm, d), project=linear(d, c.i), biases=share_biases(layers))
    return placed(stack, model.Stack, ranks)


@parallel.register
def _(c: whole.LMHead, d: int, ranks: Ranks) -> nn.Module:
    return placed(build(replace(c, v=c.v // ranks.tp.size), d), model.LMHead, ranks)


@parallel.register
def _(c: outputs.MaskedLMHead, d: int, ranks: Ranks) -> nn.Module:
    twin = build(c, d)
    twin.output = parallel(c.output, d, ranks)
    return twin


@parallel.register
def _(c: whole.Model, d: int, ranks: Ranks) -> plain.Model:
    d, encoder = c.embedding.d, None if c.encoder is None else parallel(c.encoder, c.embedding.d, ranks)
    embedding = parallel(c.embedding, 0, ranks)
    outer = None if encoder is None else embedding  # the same table
    predictors = [parallel(predictor, d, ranks) for predictor in c.predictors]
    head = maybe(c.head, c.embedding.d if c.stack.i is None else c.stack.i, ranks)
    return plain.Model(embedding, parallel(c.stack, d, ranks), head, outer, encoder, predictors)


@parallel.register
def _(c: predictions.MultiTokenPrediction, d: int, ranks: Ranks) -> nn.Module:
    block = parallel(c.block, d, ranks)
    return prediction.MultiTokenPrediction(d, block, norm(c.norm, d), norm(c.norm, d), norm(c.last, d))


@parallel.register
def _(c: stages.Stage, d: int, ranks: Ranks) -> pipeline.Stage:
    head, d = c.model.head, c.model.embedding.d
    tied = isinstance(head, whole.LMHead) and head.tied
    table: Any = c.model.embedding
    if not c.first:  # of a tied table the last stage has its own
        table = replace(table, position=None, types=None, norm=None) if tied and c.last else None
    behind = parallel(head, d if c.model.stack.i is None else c.model.stack.i, ranks) if c.last else None
    return pipeline.Stage(maybe(table, 0, ranks), maybe(c.layers, d, ranks), behind, first=c.first, tied=tied)
