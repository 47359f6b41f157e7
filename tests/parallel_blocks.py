"""Blocks, models and layouts that are compared on several ranks: all sizes different, those that are split divisible by 4."""

from __future__ import annotations

from functools import partial

from blockcalc.blocks.attention import Attention, CrossAttention
from blockcalc.blocks.linear_attention import LinearAttention
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.mlp import MLP, ClampedGatedMLP, GatedMLP, gelu, gelu_tanh, relu_squared
from blockcalc.blocks.moe import MoE
from blockcalc.blocks.norm import LayerNorm, LayerScale, RMSNorm
from blockcalc.blocks.position import ALiBi, LearnedPositions, RelativeBias, Rotary, Sinusoidal
from blockcalc.blocks.prediction import MultiTokenPrediction
from blockcalc.blocks.wiring import Block, Parallel, Residual
from blockcalc.heads import MaskedLMHead
from blockcalc.model import Embedding, Layer, LMHead, Model, Stack
from blockcalc.parallel.layout import Layout

rms, ln, offset = RMSNorm(), LayerNorm(), RMSNorm(offset=True)
multi, grouped, few = partial(Attention, n=8, k=8, h=6), partial(Attention, n=8, k=4, h=10), partial(Attention, n=8, k=2, h=6)
latent = partial(MLA, n=8, c=13, q=17, p=19, r=8, u=27)
turned = grouped(position=Rotary(r=10))
mixture = MoE(e=8, a=4, expert=GatedMLP(f=12), shared=GatedMLP(f=28), score="sigmoid")


def block(*branches, **norms):
    """Branches one after the other, all with the same norms."""
    names = ("attention", "mlp") if len(branches) == 2 else ("attention", "cross", "mlp")
    return Block(branches=tuple(Residual(name=name, branch=one, **norms) for name, one in zip(names, branches, strict=True)))


def side_by_side(norm=None, **norms):
    branches = ("attention", turned), ("mlp", MLP(f=28))
    return Parallel(branches=tuple(Residual(name=name, branch=one, **norms) for name, one in branches), norm=norm)


BLOCKS = {
    "MLP": MLP(f=28, act=gelu, bias=True),
    "MLP, squared": MLP(f=28, act=relu_squared),
    "gated": GatedMLP(f=28),
    "clamped": ClampedGatedMLP(f=28),
    "MHA": multi(qkv_bias=True, o_bias=True),
    "MHA, both directions": multi(causal=False),
    "GQA": turned,
    "GQA, k = 2": few(position=Rotary(r=4), qkv_bias=True),
    "MQA": Attention(n=8, k=1, h=6, k_bias=True),
    "window": grouped(w=5),
    "chunks": grouped(chunk=5),
    "norm of heads": grouped(qk_norm=RMSNorm(), position=Rotary(r=4)),
    "norm of heads behind the rotation": few(qk_norm=LayerNorm(), norm_last=True, position=Rotary(r=4)),
    "norm of each head": grouped(qk_norm=LayerNorm(heads=True)),
    "soft cap": grouped(softcap=True),
    "sinks": grouped(sinks=True),
    "output gate": grouped(output_gate=True),
    "clipped": grouped(clip=True, position=Rotary(r=6)),
    "ALiBi": grouped(position=ALiBi(n=8)),
    "relative bias": multi(position=RelativeBias(m=13, n=8)),
    "W_Q = W_K": multi(qk_tied=True),
    "W_K = W_V": grouped(kv_tied=True),
    "cross-attention": CrossAttention(n=8, k=8, h=6, q_bias=True, v_bias=True, o_bias=True),
    "cross-attention, k = 2": CrossAttention(n=8, k=2, h=6, k_bias=True),
    "linear attention": LinearAttention(n=8, h=6, m=19),
    "MLA": latent(),
    "MLA without a query latent": latent(q=None, bias=True),
    "MLA, other value heads": latent(u=23),
    "MoE": MoE(e=8, a=4, expert=GatedMLP(f=28), shared=GatedMLP(f=20)),
    "MoE, biased, chosen first": MoE(
        e=8, a=2, expert=MLP(f=28, bias=True), score="softmax_of_chosen", renormalise=False, router_bias=True
    ),
    "MoE, gated shared expert": MoE(
        e=8, a=4, expert=ClampedGatedMLP(f=28), shared=MLP(f=20), shared_gate=True, score="sigmoid"
    ),
    "pre-norm": block(turned, GatedMLP(f=28), before=rms),
    "post-norm": Residual(name="mlp", branch=MLP(f=28, bias=True), outer=ln),
    "sandwich": Residual(name="mlp", branch=GatedMLP(f=28), before=offset, after=offset),
    "layer scale": Residual(name="mlp", branch=MLP(f=28), before=ln, after=LayerScale()),
    "window both ways": grouped(causal=False, w=5),
    "parallel": side_by_side(ln),
}  # fmt: skip


def model(*layers, embedding=None, norm=rms, tied=True, head=None, **more):
    """A model of (block, how many) layers."""
    named = tuple(Layer(block=one, l=l, name=f"kind{i}") for i, (one, l) in enumerate(layers))
    return Model(
        name="model", embedding=embedding or Embedding(v=36, d=22), stack=Stack(name="decoder", layers=named, norm=norm),
        head=head or LMHead(v=36, tied=tied), **more,
    )  # fmt: skip


def encoder(one, l, norm=None):
    return Stack(name="encoder", layers=(Layer(block=one, l=l),), norm=norm)


def gemma(w):
    branch = few(w=w, softcap=True, position=Rotary(r=6), qk_norm=offset)
    return block(branch, GatedMLP(f=28, act=gelu_tanh), before=offset, after=offset)


def t5(causal):
    return multi(causal=causal, position=RelativeBias(m=23, n=8))


learned, whole = LearnedPositions(m=37), multi(causal=False, qkv_bias=True, o_bias=True)
gpt = block(multi(qkv_bias=True, o_bias=True), MLP(f=28, act=gelu_tanh, bias=True), before=ln)
crossed = block(multi(), CrossAttention(n=8, k=4, h=6, q_bias=True, o_bias=True), MLP(f=28, bias=True), outer=ln)

MODELS = {
    "Llama": model((block(turned, GatedMLP(f=28), before=rms), 4), tied=False),
    "GPT-2": model((gpt, 4), embedding=Embedding(v=36, d=22, position=learned), norm=ln),
    "GPT-J": model((side_by_side(ln), 3), norm=ln, head=LMHead(v=36, tied=False, bias=True)),
    "GPT-NeoX": model((side_by_side(before=ln), 3), norm=ln, tied=False),
    "Falcon": model((block(Attention(n=8, k=1, h=6, position=Rotary(r=4)), MLP(f=28), before=ln), 3)),
    "Gemma 2": model((gemma(5), 2), (gemma(None), 1), head=LMHead(v=36, tied=True, softcap=True)),
    "DeepSeek": model(
        (block(latent(), GatedMLP(f=28), before=rms), 1), (block(latent(), mixture, before=rms), 2), tied=False,
        predictors=(MultiTokenPrediction(block=block(latent(), mixture, before=rms), last=rms),),
    ),
    "Mixtral": model(
        (block(turned, MoE(e=8, a=2, expert=GatedMLP(f=12), score="softmax_of_chosen", renormalise=False), before=rms), 3),
        tied=False,
    ),
    "T5 encoder": model((block(t5(False), MLP(f=28), before=rms), 3)),
    "BERT": model(
        (block(whole, MLP(f=28, act=gelu, bias=True), outer=ln), 3), norm=None,
        embedding=Embedding(v=36, d=22, position=learned, types=2, norm=ln),
        head=MaskedLMHead(output=LMHead(v=36, tied=True, bias=True)),
    ),
    "sinusoids": model(
        (block(whole, MLP(f=28), outer=ln), 2), embedding=Embedding(v=36, d=22, position=Sinusoidal()), norm=None
    ),
    "stored sinusoids": model(
        (block(whole, MLP(f=28), outer=ln), 2), embedding=Embedding(v=36, d=22, position=Sinusoidal(m=37)), norm=None
    ),
    "OPT": model(
        (block(multi(), MLP(f=28), outer=ln), 2), norm=None, head=LMHead(v=36, tied=False, wide=True),
        embedding=Embedding(v=36, d=22, i=10, position=LearnedPositions(m=37, reserved=2)),
    ),
    "T5": model(
        (block(t5(True), CrossAttention(n=8, k=8, h=6), GatedMLP(f=28), before=rms), 2),
        encoder=encoder(block(t5(False), GatedMLP(f=28), before=rms), 2, norm=rms),
    ),
    "BART": model((crossed, 2), norm=None, encoder=encoder(block(whole, MLP(f=28, bias=True), outer=ln), 2)),
}  # fmt: skip

WITHOUT_FLASH = {
    "soft cap", "sinks", "relative bias", "MLA, other value heads", "Gemma 2", "T5 encoder", "T5",
}  # fmt: skip
"""What the CPU has no flash kernel for."""

WITHOUT_RING = WITHOUT_FLASH | {
    "window", "window both ways", "chunks", "ALiBi", "cross-attention", "cross-attention, k = 2", "linear attention", "BART",
}  # fmt: skip
"""What has no declared way to be split along the sequence."""

EXPERTS = {name for name, one in (BLOCKS | MODELS).items() if "MoE" in repr(one)}

LAYOUTS = {
    "tp 2": Layout(tp=2),
    "tp 2, sequence": Layout(tp=2, sequence=True),
    "cp 2": Layout(cp=2),
    "ep 2 of dp 2": Layout(dp=2, ep=2),
    "ep 2 of cp 2": Layout(cp=2, ep=2),
    "ep 2 of tp 2": Layout(tp=2, ep=2, etp=1, sequence=True),
    "whole experts, tp 2": Layout(tp=2, etp=1, sequence=True),
    "tp 4": Layout(tp=4),
    "tp 4, sequence": Layout(tp=4, sequence=True),
    "cp 4": Layout(cp=4),
    "tp 2, cp 2": Layout(tp=2, cp=2, sequence=True),
    "tp 2, dp 2": Layout(tp=2, dp=2),
    "ep 2, tp 2, dp 2": Layout(tp=2, dp=2, ep=2),
    "ep 2, etp 2 of tp 4": Layout(tp=4, ep=2, etp=2, sequence=True),
    "ep 4 of tp 2, dp 2": Layout(tp=2, dp=2, ep=4, etp=1, sequence=True),
    "ep 4 of dp 4": Layout(dp=4, ep=4),
}
