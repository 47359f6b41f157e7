"""The twins of what a layer is made of: norms, positions, branches, and how they are wired."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..blocks import altup as altups
from ..blocks import attention as attentions
from ..blocks import embedding as embeddings
from ..blocks import linear_attention as linear_attentions
from ..blocks import mixer as mixers
from ..blocks import mla as latents
from ..blocks import mlp as mlps
from ..blocks import moe as mixtures
from ..blocks import norm as norms
from ..blocks import position as positions
from ..blocks import prediction as predictions
from ..blocks import short_convolution as convolutions
from ..blocks import state_space as state_spaces
from ..blocks import wiring as wirings
from . import (
    altup,
    attention,
    embedding,
    linear_attention,
    mixer,
    mla,
    mlp,
    moe,
    norm,
    position,
    prediction,
    short_convolution,
    state_space,
    wiring,
)
from .dispatch import ALONE, BASE, CAP, CLIP, LOCAL_BASE, SCALE, Given, build, linear, maybe

# -- norms and positions --------------------------------------------------------------------------------------------------


@build.register
def _(c: norms.LayerNorm, d: int, given: Given = ALONE) -> nn.Module:
    return norm.LayerNorm(d, gain=c.gain, bias=c.bias)


@build.register
def _(c: norms.RMSNorm, d: int, given: Given = ALONE) -> nn.Module:
    twin = (norm.OffsetRMSNorm if c.offset else norm.RMSNorm)(d, gain=c.gain)
    return norm.Scaled(twin, SCALE) if c.scaled else twin


@build.register
def _(c: norms.LayerScale, d: int, given: Given = ALONE) -> nn.Module:
    return norm.LayerScale(d)


@build.register
def _(c: norms.HeadsNorm, d: int, given: Given = ALONE) -> nn.Module:
    return norm.HeadsNorm(build(c.norm, d))


def of_heads(c: Any, n: int, h: int) -> Any:
    """The twin of a norm of n heads, h wide each."""
    if isinstance(c, norms.LayerNorm) and c.heads:
        return norm.LayerNormOfEachHead(n, h, gain=c.gain, bias=c.bias)
    return maybe(c, n * h if isinstance(c, norms.HeadsNorm) else h)


@build.register
def _(c: positions.LearnedPositions, d: int, given: Given = ALONE) -> nn.Module:
    return position.LearnedPositions(d, c.m, reserved=c.reserved)


@build.register
def _(c: positions.Sinusoidal, d: int, given: Given = ALONE) -> nn.Module:
    return position.Sinusoidal(d, c.m)


@build.register
def _(c: positions.Rotary, d: int, given: Given = ALONE) -> nn.Module:
    return position.Rotary(c.r, base=LOCAL_BASE if c.local else BASE)


@build.register
def _(c: positions.ALiBi, d: int, given: Given = ALONE) -> nn.Module:
    return position.ALiBi(c.n)


# -- branches -------------------------------------------------------------------------------------------------------------


@build.register
def _(c: mlps.MLP, d: int, given: Given = ALONE) -> nn.Module:
    return mlp.MLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.GatedMLP, d: int, given: Given = ALONE) -> nn.Module:
    return mlp.GatedMLP(d, c.f, mlp.FUNCTIONS[c.act.name], bias=c.bias)


@build.register
def _(c: mlps.SparseGatedMLP, d: int, given: Given = ALONE) -> nn.Module:
    return mlp.SparseGatedMLP(d, c.f, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: mlps.ClampedGatedMLP, d: int, given: Given = ALONE) -> nn.Module:
    return mlp.ClampedGatedMLP(d, c.f, bias=c.bias)


@build.register
def _(c: attentions.Attention, d: int, given: Given = ALONE) -> nn.Module:
    heads, groups = c.n * c.h, c.k * c.h
    k_bias = c.qkv_bias if c.k_bias is None else c.k_bias
    bias, borrows = c.position if isinstance(c.position, positions.RelativeBias) else None, c.kv == "borrowed"
    return attention.Attention(
        c.h,
        linear(d, heads if c.projected else None, bias=c.qkv_bias),
        linear(d, groups if c.projected and not (c.qk_tied or borrows) else None, bias=k_bias),
        linear(d, groups if c.projected and not (c.kv_tied or borrows) else None, bias=c.qkv_bias),
        linear(heads, d, bias=c.o_bias),
        gate=linear(d, heads if c.output_gate else None, bias=c.qkv_bias), w=c.w, chunk=c.chunk, causal=c.causal,
        cached=c.cached, position=relative(bias, causal=c.causal) if bias else maybe(c.position, c.h),
        q_norm=of_heads(c.qk_norm, c.n, c.h), k_norm=None if borrows else of_heads(c.qk_norm, c.k, c.h),
        v_norm=maybe(c.v_norm, c.h), norm_last=c.norm_last, lends=c.kv == "lent", borrows=borrows,
        clip=CLIP if c.clip else None, cap=CAP if c.softcap else None, sinks=c.n if c.sinks else None,
        value_embedding=maybe(c.value_embedding, groups, given._replace(k=c.k)), cached_heads=c.n if c.cached_whole else None,
    )  # fmt: skip


@build.register
def _(c: embeddings.ValueEmbedding, d: int, given: Given = ALONE) -> nn.Module:
    return embedding.ValueEmbedding(c.v, given.k, d // given.k, c.i)


@build.register
def _(c: embeddings.LayerEmbedding, d: int, given: Given = ALONE) -> nn.Module:
    return embedding.LayerEmbedding(d, c.v, c.l, c.i, build(c.norm, c.i))


@build.register
def _(c: embeddings.LayerInput, d: int, given: Given = ALONE) -> nn.Module:
    return embedding.LayerInput(d, c.i, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: positions.RelativeKeys, d: int, given: Given = ALONE) -> nn.Module:
    return position.RelativeKeys(c.m, d, values=c.values)


def relative(c: positions.RelativeBias, *, causal: bool) -> position.RelativeBias:
    """A relative bias's twin; whether keys stand ahead of queries is the attention's to say."""
    return position.RelativeBias(c.m, c.n, causal=causal, each_layer=c.each_layer)


@build.register
def _(c: attentions.CrossAttention, d: int, given: Given = ALONE) -> nn.Module:
    return attention.CrossAttention(
        d, c.n, c.k, c.h, q_bias=c.q_bias, k_bias=c.k_bias, v_bias=c.v_bias, o_bias=c.o_bias, source=given.source
    )


@build.register
def _(c: latents.MLA, d: int, given: Given = ALONE) -> nn.Module:
    return mla.MLA(d, c.n, c.c, c.q, c.p, c.r, c.u, bias=c.bias, gain=c.norm.gain, absorbed=c.absorbed)


@build.register
def _(c: mixtures.MoE, d: int, given: Given = ALONE) -> nn.Module:
    return moe.MoE(
        nn.Linear(d, c.e, bias=c.router_bias), [build(c.expert, d if c.i is None else c.i) for _ in range(c.e)], c.a,
        latent=None if c.i is None else (linear(d, c.i), linear(c.i, d)), shared=maybe(c.shared, d),
        shared_gate=linear(d, 1 if c.shared_gate else None),
        score=c.score, renormalise=c.renormalise, router_norm=maybe(c.router_norm, d), expert_norm=maybe(c.expert_norm, d),
        expert_scale=c.expert_scale, choice_bias=c.choice_bias,
    )  # fmt: skip


@build.register
def _(c: mixtures.DenseMoE, d: int, given: Given = ALONE) -> nn.Module:
    experts = [build(c.expert, d) for _ in range(c.e)]
    return moe.DenseMoE(nn.Linear(d, c.e, bias=False), experts, c.a, shared=maybe(c.shared, d))


@build.register
def _(c: linear_attentions.LinearAttention, d: int, given: Given = ALONE) -> nn.Module:
    return linear_attention.LinearAttention(d, c.n, c.h, c.m)


@build.register
def _(c: linear_attentions.GatedDeltaNet, d: int, given: Given = ALONE) -> nn.Module:
    return linear_attention.GatedDeltaNet(d, c.n, c.k, c.h, c.u, c.g, c.chunk, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: mixers.TokenMixing, d: int, given: Given = ALONE) -> nn.Module:
    return mixer.TokenMixing(given.t, c.f, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: mixers.SqueezeExcitation, d: int, given: Given = ALONE) -> nn.Module:
    return mixer.SqueezeExcitation(d, c.f)


@build.register
def _(c: mixers.Smear, d: int, given: Given = ALONE) -> nn.Module:
    return mixer.Smear(c.i)


@build.register
def _(c: convolutions.ShortConvolution, d: int, given: Given = ALONE) -> nn.Module:
    return short_convolution.ShortConvolution(d, c.g, bias=c.bias)


@build.register
def _(c: state_spaces.Mamba, d: int, given: Given = ALONE) -> nn.Module:
    norms = None if c.norm is None else (build(c.norm, c.i), build(c.norm, c.h), build(c.norm, c.h))
    return state_space.Mamba(
        d, c.f, c.h, c.i, c.g, mlp.FUNCTIONS[c.act.name], bias=c.bias, conv_bias=c.conv_bias, norms=norms
    )


@build.register
def _(c: state_spaces.Mamba2, d: int, given: Given = ALONE) -> nn.Module:
    return state_space.Mamba2(
        d, c.n, c.k, c.h, c.u, c.g, c.chunk, mlp.FUNCTIONS[c.act.name], bias=c.bias, o_bias=c.o_bias, conv_bias=c.conv_bias,
        norm=c.norm,
    )  # fmt: skip


@build.register
def _(c: wirings.Residual, d: int, given: Given = ALONE) -> wiring.Residual:
    return wiring.Residual(
        build(c.branch, d, given), before=maybe(c.before, d), after=maybe(c.after, d), outer=maybe(c.outer, d),
        alpha=SCALE if c.scaled else None,
    )  # fmt: skip


@build.register
def _(c: wirings.Laurel, d: int, given: Given = ALONE) -> nn.Module:
    return wiring.Laurel(d, c.c, build(c.branch, d, given), build(c.before, d), build(c.after, d), build(c.norm, d))


@build.register
def _(c: altups.Streams, d: int, given: Given = ALONE) -> nn.Module:
    return altup.Streams(d, c.j)


@build.register
def _(c: altups.Merged, d: int, given: Given = ALONE) -> nn.Module:
    return altup.Merged(d, given.j)


@build.register
def _(c: altups.AltUp, d: int, given: Given = ALONE) -> nn.Module:
    return altup.AltUp(d, c.j, build(c.block, d, given), maybe(c.branch, d, given))


@build.register
def _(c: wirings.Block, d: int, given: Given = ALONE) -> nn.Module:
    return wiring.Block([build(branch, d, given) for branch in c.branches])


@build.register
def _(c: wirings.Parallel, d: int, given: Given = ALONE) -> nn.Module:
    return wiring.Parallel([build(branch, d, given) for branch in c.branches], maybe(c.norm, d))


@build.register
def _(c: wirings.Sum, d: int, given: Given = ALONE) -> nn.Module:
    return wiring.Sum([build(branch, d, given) for branch in c.branches])


@build.register
def _(c: wirings.Blended, d: int, given: Given = ALONE) -> nn.Module:
    return wiring.Blended(build(c.block, d, given))


@build.register
def _(c: wirings.Backout, d: int, given: Given = ALONE) -> nn.Module:
    return wiring.Backout()


@build.register
def _(c: predictions.MultiTokenPrediction, d: int, given: Given = ALONE) -> nn.Module:
    return prediction.MultiTokenPrediction(d, build(c.block, d, given), build(c.norm, d), build(c.norm, d), maybe(c.last, d))
