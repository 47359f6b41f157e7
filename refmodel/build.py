"""A declaration's twin: ``build(component, d)`` for one on an input of width d, ``build(model)`` for a whole model."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import nn

from .. import model as whole
from ..blocks import attention as attentions
from ..blocks import embedding as embeddings
from ..blocks import linear_attention as linear_attentions
from ..blocks import mixer as mixers
from ..blocks import mla as latents
from ..blocks import mlp as mlps
from ..blocks import moe as mixtures
from ..blocks import norm as norms
from ..blocks import position as positions
from ..blocks import wiring as wirings
from . import attention, embedding, linear_attention, mixer, mla, mlp, model, moe, norm, position, wiring

CAP, CLIP = 30.0, 6.0
"""Where scores and logits are capped, and where q, k and v are clipped. A declaration says only whether they are, for that
is what costs."""

BASE, LOCAL_BASE = 10000.0, 1000.0
"""Of the rotary frequencies; those of local layers are others, for that is two more tables."""


class Given(NamedTuple):
    """Sizes that a component has from around it: the encoder's and the token table's width (its own unless given), and
    the length of the sequence, for what depends on it."""

    source: int | None = None
    table: int | None = None
    t: int = 1


@singledispatch
def build(component: Any, d: int = 0, given: Given = Given()) -> nn.Module:
    """The twin of *component*, weights drawn at random."""
    raise NotImplementedError(f"{type(component).__name__} has no twin")


def maybe(component: Any, d: int, given: Given = Given()) -> Any:
    """The twin of what may be absent."""
    return None if component is None else build(component, d, given)


def linear(width: int, made: int | None, *, bias: bool = False) -> Any:
    """A linear layer, unless it is absent."""
    return None if made is None else nn.Linear(width, made, bias=bias)


def table(rows: int, width: int) -> nn.Parameter:
    """A look-up table of random vectors."""
    return nn.Parameter(torch.randn(rows, width) * 0.02)


# -- norms and positions --------------------------------------------------------------------------------------------------


@build.register
def _(c: norms.LayerNorm, d: int, given: Given = Given()) -> nn.Module:
    return norm.LayerNorm(d, gain=c.gain, bias=c.bias)


@build.register
def _(c: norms.RMSNorm, d: int, given: Given = Given()) -> nn.Module:
    return (norm.OffsetRMSNorm if c.offset else norm.RMSNorm)(d, gain=c.gain)


@build.register
def _(c: norms.HeadsNorm, d: int, given: Given = Given()) -> nn.Module:
    return norm.HeadsNorm(build(c.norm, d))


def of_heads(c: Any, n: int, h: int) -> Any:
    """The twin of a norm of n heads, h wide each."""
    if isinstance(c, norms.LayerNorm) and c.heads:
        return norm.LayerNormOfEachHead(n, h, gain=c.gain, bias=c.bias)
    return maybe(c, n * h if isinstance(c, norms.HeadsNorm) else h)


@build.register
def _(c: positions.LearnedPositions, d: int, given: Given = Given()) -> nn.Module:
    return position.LearnedPositions(d, c.m, reserved=c.reserved)


@build.register
def _(c: positions.Sinusoidal, d: int, given: Given = Given()) -> nn.Module:
    return position.Sinusoidal()


@build.register
def _(c: positions.Rotary, d: int, given: Given = Given()) -> nn.Module:
    return position.Rotary(c.r, base=LOCAL_BASE if c.local else BASE)


@build.register
def _(c: positions.ALiBi, d: int, given: Given = Given()) -> nn.Module:
    return position.ALiBi(c.n)


# -- branches -------------------------------------------------------------------------------------------------------------


@build.register
def _(c: mlps.MLP, d: int, given: Given = Given()) -> nn.Module:
    return mlp.MLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.GatedMLP, d: int, given: Given = Given()) -> nn.Module:
    return mlp.GatedMLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.ClampedGatedMLP, d: int, given: Given = Given()) -> nn.Module:
    return mlp.ClampedGatedMLP(d, c.f, bias=c.bias)


@build.register
def _(c: attentions.Attention, d: int, given: Given = Given()) -> nn.Module:
    heads, groups = c.n * c.h, c.k * c.h
    k_bias = c.qkv_bias if c.k_bias is None else c.k_bias
    bias = c.position if isinstance(c.position, positions.RelativeBias) else None
    return attention.Attention(
        c.h,
        linear(d, heads if c.projected else None, bias=c.qkv_bias),
        linear(d, groups if c.projected and not c.qk_tied else None, bias=k_bias),
        linear(d, groups if c.projected and not c.kv_tied else None, bias=c.qkv_bias),
        linear(heads, d, bias=c.o_bias),
        gate=linear(d, heads if c.output_gate else None), w=c.w, chunk=c.chunk, causal=c.causal,
        position=relative(bias, causal=c.causal) if bias else maybe(c.position, d),
        q_norm=of_heads(c.qk_norm, c.n, c.h), k_norm=of_heads(c.qk_norm, c.k, c.h), norm_last=c.norm_last,
        clip=CLIP if c.clip else None, cap=CAP if c.softcap else None, sinks=c.n if c.sinks else None,
        cached_heads=c.n if c.cached_whole else None,
    )  # fmt: skip


def relative(c: positions.RelativeBias, *, causal: bool) -> position.RelativeBias:
    """A relative bias's twin; whether keys stand ahead of queries is the attention's to say."""
    return position.RelativeBias(c.m, c.n, causal=causal, each_layer=c.each_layer)


@build.register
def _(c: attentions.CrossAttention, d: int, given: Given = Given()) -> nn.Module:
    return attention.CrossAttention(
        d, c.n, c.k, c.h, q_bias=c.q_bias, k_bias=c.k_bias, v_bias=c.v_bias, o_bias=c.o_bias, source=given.source
    )


@build.register
def _(c: latents.MLA, d: int, given: Given = Given()) -> nn.Module:
    return mla.MLA(d, c.n, c.c, c.q, c.p, c.r, c.u, bias=c.bias, gain=c.norm.gain, absorbed=c.absorbed)


@build.register
def _(c: mixtures.MoE, d: int, given: Given = Given()) -> nn.Module:
    return moe.MoE(
        nn.Linear(d, c.e, bias=c.router_bias), [build(c.expert, d) for _ in range(c.e)], c.a,
        shared=maybe(c.shared, d), shared_gate=linear(d, 1 if c.shared_gate else None),
        score=c.score, renormalise=c.renormalise,
    )  # fmt: skip


@build.register
def _(c: linear_attentions.LinearAttention, d: int, given: Given = Given()) -> nn.Module:
    return linear_attention.LinearAttention(d, c.n, c.h, c.m)


@build.register
def _(c: mixers.TokenMixing, d: int, given: Given = Given()) -> nn.Module:
    return mixer.TokenMixing(given.t, c.f, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: mixers.SqueezeExcitation, d: int, given: Given = Given()) -> nn.Module:
    return mixer.SqueezeExcitation(d, c.f)


@build.register
def _(c: wirings.Residual, d: int, given: Given = Given()) -> wiring.Residual:
    return wiring.Residual(
        build(c.branch, d, given), before=maybe(c.before, d), after=maybe(c.after, d), outer=maybe(c.outer, d)
    )


@build.register
def _(c: wirings.Block, d: int, given: Given = Given()) -> nn.Module:
    return wiring.Block([build(branch, d, given) for branch in c.branches])


@build.register
def _(c: wirings.Parallel, d: int, given: Given = Given()) -> nn.Module:
    return wiring.Parallel([build(branch, d, given) for branch in c.branches], maybe(c.norm, d))


# -- inputs, stacks, heads, models ----------------------------------------------------------------------------------------


@build.register
def _(c: embeddings.Patches, d: int = 0, given: Given = Given()) -> embedding.Patches:
    return embedding.Patches(c.d, c.m, c.y, c.x, c.z)


@build.register
def _(c: embeddings.Frames, d: int = 0, given: Given = Given()) -> embedding.Frames:
    return embedding.Frames(c.d, c.m, c.x)


@build.register
def _(c: whole.Embedding, d: int = 0, given: Given = Given()) -> model.Embedding:
    return embed(c, table(c.v, c.d if c.i is None else c.i))


def embed(c: whole.Embedding, token: nn.Parameter) -> model.Embedding:
    """An embedding's twin around a token table."""
    inner = token.size(1) if c.all_narrow else c.d  # the width of the sum
    return model.Embedding(
        token, project=linear(token.size(1), None if c.i is None else c.d, bias=c.all_narrow),
        project_last=c.all_narrow, position=maybe(c.position, inner),
        types=None if c.types is None else table(c.types, inner), norm=maybe(c.norm, inner),
    )  # fmt: skip


@build.register
def _(c: whole.Stack, d: int, given: Given = Given()) -> model.Stack:
    sets = {
        f"{c.name}.{layer.name}": [build(layer.block, d, given) for _ in range(layer.l if layer.j is None else layer.j)]
        for layer in c.layers
    }
    total = {f"{c.name}.{layer.name}": layer.l for layer in c.layers}
    seen, layers = dict.fromkeys(sets, 0), []
    for name in (name for name, count in c.runs() for _ in range(count)):
        layers.append(sets[name][seen[name] * len(sets[name]) // total[name]])  # neighbours share a set
        seen[name] += 1
    return model.Stack(c.name, layers, norm=maybe(c.norm, d), project=linear(d, c.i), biases=share_biases(layers))


def share_biases(layers: list[nn.Module]) -> list[position.RelativeBias]:
    """Let equal relative biases of a stack be one table; these tables."""
    tables: dict[tuple[int, int], position.RelativeBias] = {}
    for module in (module for layer in layers for module in layer.modules()):
        if isinstance(module, attention.Attention) and isinstance(module.position, position.RelativeBias):
            own = module.position
            module.position = own if own.each_layer else tables.setdefault((own.m, own.n), own)
    return list(tables.values())


@build.register
def _(c: whole.LMHead, d: int, given: Given = Given()) -> model.LMHead:
    return model.LMHead(d, c.v, tied=c.tied, bias=c.bias, cap=CAP if c.softcap else None)


@build.register
def _(c: whole.MaskedLMHead, d: int, given: Given = Given()) -> nn.Module:
    i = d if given.table is None else given.table
    return model.MaskedLMHead(d, i, mlp.FUNCTIONS[c.act.name], build(c.norm, i), build(c.output, i))


@build.register
def _(c: whole.Pooler, d: int, given: Given = Given()) -> nn.Module:
    return model.Pooler(d, d if c.i is None else c.i, c.v, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: whole.Classifier, d: int, given: Given = Given()) -> nn.Module:
    return model.Classifier(d, c.v, bias=c.bias, first=c.first)


@build.register
def _(c: whole.Model, d: int = 0, given: Given = Given()) -> model.Model:
    inputs, d = build(c.embedding), c.embedding.d
    token = getattr(inputs, "token", None)
    source = d if c.encoder_embedding is None else c.encoder_embedding.d
    given = Given(source, None if token is None else token.size(1), c.embedding.length or 1)
    stack, head = build(c.stack, d, given), maybe(c.head, d if c.stack.i is None else c.stack.i, given)
    if c.encoder is None:
        return model.Model(inputs, stack, head)
    outer = embed(c.embedding, inputs.token) if c.encoder_embedding is None else build(c.encoder_embedding)
    return model.Model(inputs, stack, head, outer, build(c.encoder, source))
