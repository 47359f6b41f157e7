"""A declaration's twin: ``build(component, d)`` for one on an input of width d, ``build(model)`` for a whole model."""

from __future__ import annotations

from functools import partial, singledispatch
from typing import Any

import torch
from torch import nn

from .. import model as whole
from ..blocks import attention as attentions
from ..blocks import mla as latents
from ..blocks import mlp as mlps
from ..blocks import moe as mixtures
from ..blocks import norm as norms
from ..blocks import position as positions
from ..blocks import wiring as wirings
from . import attention, mla, mlp, model, moe, norm, position, wiring

CAP = 30.0
"""Where scores and logits are capped. A declaration says only whether they are, for that is what costs."""


@singledispatch
def build(component: Any, d: int = 0, source: int | None = None) -> nn.Module:
    """The twin of *component*, weights drawn at random. *source* is the width of the encoder's output, d unless given."""
    raise NotImplementedError(f"{type(component).__name__} has no twin")


def maybe(component: Any, d: int, source: int | None = None) -> Any:
    """The twin of what may be absent."""
    return None if component is None else build(component, d, source)


@build.register
def _(c: norms.LayerNorm, d: int, source: int | None = None) -> nn.Module:
    return norm.LayerNorm(d, gain=c.gain, bias=c.bias)


@build.register
def _(c: norms.RMSNorm, d: int, source: int | None = None) -> nn.Module:
    return norm.RMSNorm(d, gain=c.gain)


@build.register
def _(c: positions.LearnedPositions, d: int, source: int | None = None) -> nn.Module:
    return position.LearnedPositions(d, c.m)


@build.register
def _(c: positions.Rotary, d: int, source: int | None = None) -> nn.Module:
    return position.Rotary(c.r)


@build.register
def _(c: mlps.MLP, d: int, source: int | None = None) -> nn.Module:
    return mlp.MLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.GatedMLP, d: int, source: int | None = None) -> nn.Module:
    return mlp.GatedMLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: attentions.Attention, d: int, source: int | None = None) -> nn.Module:
    bias = c.position if isinstance(c.position, positions.RelativeBias) else None
    return attention.Attention(
        d, c.n, c.k, c.h, w=c.w, causal=c.causal, qkv_bias=c.qkv_bias, o_bias=c.o_bias,
        position=position.RelativeBias(bias.m, bias.n, causal=c.causal) if bias else maybe(c.position, d),
        q_norm=maybe(c.qk_norm, c.h), k_norm=maybe(c.qk_norm, c.h), cap=CAP if c.softcap else None, tied=c.qk_tied,
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
        shared=maybe(c.shared, d), score=c.score, renormalise=c.renormalise,
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
    layers = [build(blocks[name], d, source) for name, count in c.runs() for _ in range(count)]
    return model.Stack(c.name, layers, norm=maybe(c.norm, d), biases=share_biases(layers))


def share_biases(layers: list[nn.Module]) -> list[position.RelativeBias]:
    """Let equal relative biases of a stack be one table; these tables."""
    tables: dict[tuple[int, int], position.RelativeBias] = {}
    for module in (module for layer in layers for module in layer.modules()):
        if isinstance(module, attention.Attention) and isinstance(module.position, position.RelativeBias):
            own = module.position
            module.position = tables.setdefault((own.m, own.n), own)
    return list(tables.values())


def embed(c: whole.Embedding, token: nn.Parameter) -> model.Embedding:
    """An embedding's twin around a token table."""
    return model.Embedding(token, position=maybe(c.position, c.d), types=c.types, norm=maybe(c.norm, c.d))


@build.register
def _(c: whole.LMHead, d: int, source: int | None = None) -> model.LMHead:
    return model.LMHead(d, c.v, tied=c.tied, bias=c.bias, cap=CAP if c.softcap else None)


@build.register
def _(c: whole.MaskedLMHead, d: int, source: int | None = None) -> nn.Module:
    return model.MaskedLMHead(d, mlp.FUNCTIONS[c.act.name], build(c.norm, d), build(c.output, d))


@build.register
def _(c: whole.Pooler, d: int, source: int | None = None) -> nn.Module:
    return model.Pooler(d, c.v)


@build.register
def _(c: whole.Classifier, d: int, source: int | None = None) -> nn.Module:
    return model.Classifier(d, c.v, bias=c.bias)


@build.register
def _(c: whole.Embedding, d: int = 0, source: int | None = None) -> model.Embedding:
    return embed(c, nn.Parameter(torch.randn(c.v, c.d) * 0.02))


@build.register
def _(c: whole.Model, d: int = 0, source: int | None = None) -> model.Model:
    d, embedding = c.embedding.d, build(c.embedding)
    if c.encoder is None:
        return model.Model(embedding, build(c.stack, d), maybe(c.head, d))
    outer = embed(c.embedding, embedding.token) if c.encoder_embedding is None else build(c.encoder_embedding)
    width = outer.token.size(1)
    return model.Model(embedding, build(c.stack, d, width), maybe(c.head, d), outer, build(c.encoder, width))
