"""A declaration's twin: ``build(component, d)`` for one on an input of width d, ``build(model)`` for a whole model."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch
from torch import nn

from .. import model as whole
from ..blocks import attention as attentions
from ..blocks import embedding as embeddings
from ..blocks import mla as latents
from ..blocks import mlp as mlps
from ..blocks import moe as mixtures
from ..blocks import norm as norms
from ..blocks import position as positions
from ..blocks import wiring as wirings
from . import attention, embedding, mla, mlp, model, moe, norm, position, wiring

CAP, CLIP = 30.0, 6.0
"""Where scores and logits are capped, and where q, k and v are clipped. A declaration says only whether they are, for that
is what costs."""

BASE, LOCAL_BASE = 10000.0, 1000.0
"""Of the rotary frequencies; those of local layers are others, for that is two more tables."""


@singledispatch
def build(component: Any, d: int = 0, source: int | None = None) -> nn.Module:
    """The twin of *component*, weights drawn at random. *source* is the width of the encoder's output, d unless given."""
    raise NotImplementedError(f"{type(component).__name__} has no twin")


def maybe(component: Any, d: int, source: int | None = None) -> Any:
    """The twin of what may be absent."""
    return None if component is None else build(component, d, source)


def normed(c: Any, n: int, h: int) -> Any:
    """The twin of a norm of n heads, h wide each."""
    if isinstance(c, norms.LayerNorm) and c.heads:
        return norm.LayerNormOfEachHead(n, h, gain=c.gain, bias=c.bias)
    return maybe(c, n * h if isinstance(c, norms.HeadsNorm) else h)


@build.register
def _(c: norms.LayerNorm, d: int, source: int | None = None) -> nn.Module:
    return norm.LayerNorm(d, gain=c.gain, bias=c.bias)


@build.register
def _(c: norms.RMSNorm, d: int, source: int | None = None) -> nn.Module:
    return (norm.OffsetRMSNorm if c.offset else norm.RMSNorm)(d, gain=c.gain)


@build.register
def _(c: norms.HeadsNorm, d: int, source: int | None = None) -> nn.Module:
    return norm.HeadsNorm(build(c.norm, d))


@build.register
def _(c: positions.LearnedPositions, d: int, source: int | None = None) -> nn.Module:
    return position.LearnedPositions(d, c.m, reserved=c.reserved)


@build.register
def _(c: positions.Rotary, d: int, source: int | None = None) -> nn.Module:
    return position.Rotary(c.r, base=LOCAL_BASE if c.local else BASE)


@build.register
def _(c: positions.ALiBi, d: int, source: int | None = None) -> nn.Module:
    return position.ALiBi(c.n)


@build.register
def _(c: mlps.MLP, d: int, source: int | None = None) -> nn.Module:
    return mlp.MLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.GatedMLP, d: int, source: int | None = None) -> nn.Module:
    return mlp.GatedMLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.ClampedGatedMLP, d: int, source: int | None = None) -> nn.Module:
    return mlp.ClampedGatedMLP(d, c.f, bias=c.bias)


@build.register
def _(c: attentions.Attention, d: int, source: int | None = None) -> nn.Module:
    bias = c.position if isinstance(c.position, positions.RelativeBias) else None
    return attention.Attention(
        d, c.n, c.k, c.h, w=c.w, causal=c.causal,
        position=position.RelativeBias(bias.m, bias.n, causal=c.causal) if bias else maybe(c.position, d),
        q_bias=c.qkv_bias, k_bias=c.qkv_bias if c.k_bias is None else c.k_bias, v_bias=c.qkv_bias, o_bias=c.o_bias,
        q_norm=normed(c.qk_norm, c.n, c.h), k_norm=normed(c.qk_norm, c.k, c.h), norm_last=c.norm_last,
        clip=CLIP if c.clip else None, cap=CAP if c.softcap else None, sinks=c.sinks, tied=c.qk_tied,
        cached_whole=c.cached_whole,
    )  # fmt: skip


@build.register
def _(c: attentions.CrossAttention, d: int, source: int | None = None) -> nn.Module:
    return attention.CrossAttention(
        d, c.n, c.k, c.h, q_bias=c.q_bias, k_bias=c.k_bias, v_bias=c.v_bias, o_bias=c.o_bias, source=source
    )


@build.register
def _(c: latents.MLA, d: int, source: int | None = None) -> nn.Module:
    return mla.MLA(d, c.n, c.c, c.q, c.p, c.r, c.u, bias=c.bias, gain=c.norm.gain)


@build.register
def _(c: mixtures.MoE, d: int, source: int | None = None) -> nn.Module:
    return moe.MoE(
        nn.Linear(d, c.e, bias=c.router_bias), [build(c.expert, d) for _ in range(c.e)], c.a,
        shared=maybe(c.shared, d), shared_gate=nn.Linear(d, 1, bias=False) if c.shared_gate else None,
        score=c.score, renormalise=c.renormalise,
    )  # fmt: skip


@build.register
def _(c: wirings.Residual, d: int, source: int | None = None) -> wiring.Residual:
    return wiring.Residual(
        build(c.branch, d, source), before=maybe(c.before, d), after=maybe(c.after, d), outer=maybe(c.outer, d)
    )


@build.register
def _(c: wirings.Block, d: int, source: int | None = None) -> nn.Module:
    return wiring.Block([build(branch, d, source) for branch in c.branches])


@build.register
def _(c: wirings.Parallel, d: int, source: int | None = None) -> nn.Module:
    return wiring.Parallel([build(branch, d, source) for branch in c.branches], maybe(c.norm, d))


@build.register
def _(c: whole.Stack, d: int, source: int | None = None) -> model.Stack:
    blocks = {f"{c.name}.{layer.name}": layer.block for layer in c.layers}
    once = {f"{c.name}.{layer.name}": build(layer.block, d, source) for layer in c.layers if layer.shared}
    layers = [once.get(name) or build(blocks[name], d, source) for name, count in c.runs() for _ in range(count)]
    project = None if c.i is None else nn.Linear(d, c.i, bias=False)
    return model.Stack(c.name, layers, norm=maybe(c.norm, d), project=project, biases=share_biases(layers))


def share_biases(layers: list[nn.Module]) -> list[position.RelativeBias]:
    """Let equal relative biases of a stack be one table; these tables."""
    tables: dict[tuple[int, int], position.RelativeBias] = {}
    for module in (module for layer in layers for module in layer.modules()):
        if isinstance(module, attention.Attention) and isinstance(module.position, position.RelativeBias):
            own = module.position
            module.position = tables.setdefault((own.m, own.n), own)
    return list(tables.values())


@build.register
def _(c: whole.LMHead, d: int, source: int | None = None) -> model.LMHead:
    return model.LMHead(d, c.v, tied=c.tied, bias=c.bias, cap=CAP if c.softcap else None)


@build.register
def _(c: whole.MaskedLMHead, d: int, source: int | None = None) -> nn.Module:
    i = d if source is None else source  # the token table's width
    return model.MaskedLMHead(d, i, mlp.FUNCTIONS[c.act.name], build(c.norm, i), build(c.output, i))


@build.register
def _(c: whole.Pooler, d: int, source: int | None = None) -> nn.Module:
    return model.Pooler(d, d if c.i is None else c.i, c.v, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: whole.Classifier, d: int, source: int | None = None) -> nn.Module:
    return model.Classifier(d, c.v, bias=c.bias, first=c.first)


@build.register
def _(c: embeddings.Patches, d: int = 0, source: int | None = None) -> embedding.Patches:
    return embedding.Patches(c.d, c.m, c.y, c.x, c.z)


@build.register
def _(c: embeddings.Frames, d: int = 0, source: int | None = None) -> embedding.Frames:
    return embedding.Frames(c.d, c.m, c.x)


@build.register
def _(c: whole.Embedding, d: int = 0, source: int | None = None) -> model.Embedding:
    return embed(c, table(c.v, c.d if c.i is None else c.i))


def table(rows: int, width: int) -> nn.Parameter:
    """A look-up table of random vectors."""
    return nn.Parameter(torch.randn(rows, width) * 0.02)


def embed(c: whole.Embedding, token: nn.Parameter) -> model.Embedding:
    """An embedding's twin around a token table."""
    inner = token.size(1) if c.all_narrow else c.d  # the width of the sum
    return model.Embedding(
        token, project=None if c.i is None else nn.Linear(c.i, c.d, bias=c.all_narrow), project_last=c.all_narrow,
        position=maybe(c.position, inner), types=None if c.types is None else table(c.types, inner),
        norm=maybe(c.norm, inner),
    )  # fmt: skip


@build.register
def _(c: whole.Model, d: int = 0, source: int | None = None) -> model.Model:
    inputs, d = build(c.embedding), c.embedding.d
    token = getattr(inputs, "token", None)
    head = maybe(c.head, d if c.stack.i is None else c.stack.i, None if token is None else token.size(1))
    if c.encoder is None:
        return model.Model(inputs, build(c.stack, d), head)
    width = d if c.encoder_embedding is None else c.encoder_embedding.d
    outer = embed(c.embedding, inputs.token) if c.encoder_embedding is None else build(c.encoder_embedding)
    return model.Model(inputs, build(c.stack, d, width), head, outer, build(c.encoder, width))
