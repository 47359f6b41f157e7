"""The blocks by name: each with example sizes, all different and prime where they can be, so that no two can be swapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .blocks.altup import AltUp, Merged, Streams
from .blocks.attention import Attention, CrossAttention
from .blocks.embedding import LayerEmbedding, LayerInput, ValueEmbedding
from .blocks.linear_attention import GatedDeltaNet, LinearAttention
from .blocks.mixer import Smear, SqueezeExcitation, TokenMixing
from .blocks.mla import MLA
from .blocks.mlp import MLP, GatedMLP, SparseGatedMLP, gelu, relu_squared, silu
from .blocks.moe import DenseMoE, MoE
from .blocks.norm import LayerNorm, LayerScale, RMSNorm
from .blocks.position import ALiBi, LearnedPositions, RelativeBias, RelativeKeys, Rotary
from .blocks.prediction import MultiTokenPrediction
from .blocks.short_convolution import ShortConvolution
from .blocks.state_space import Mamba, Mamba2
from .blocks.wiring import Blended, Block, Laurel, Parallel, Residual, Sum
from .dims import Dim, check_sizes, divide
from .errors import InputError
from .model import Component, Layer, Stack


class Entry(NamedTuple):
    """A block: what it is, what makes it of its letters (d is the input's width), and example sizes."""

    title: str
    make: Callable[..., Component]
    sizes: Mapping[str, int]

    def build(self, changes: Mapping[str, int]) -> tuple[Component, int]:
        """The block and its input width, at the example sizes but for *changes*."""
        unknown = [letter for letter in changes if letter not in self.sizes]
        if unknown:
            raise InputError(f"{unknown[0]}: this block has no such letter; it has {', '.join(self.sizes)}")
        for letter, size in changes.items():
            if size is None:
                raise InputError(f"{letter}: found null, expected a whole number from 1 to 2**40")
            check_sizes("this block", **{letter: size})
        sizes = {**self.sizes, **changes}
        return self.make(**sizes), sizes["d"]


def _head(d: Dim, n: Dim) -> Dim:
    return divide(d, n, "d", "n")


def _residual(attention: Any, mlp: Any, **norms: Any) -> Block:
    return Block(branches=(
        Residual(name="attention", branch=attention, **norms), Residual(name="mlp", branch=mlp, **norms),
    ))  # fmt: skip


def _branches(norm: Any, *branches: Any) -> Block:
    names = [type(branch).__name__.lower() for branch in branches]
    return Block(branches=tuple(
        Residual(name=f"{name}{names[:index].count(name) + 1}" if names.count(name) > 1 else name, branch=branch, before=norm)
        for index, (name, branch) in enumerate(zip(names, branches, strict=True))
    ))  # fmt: skip


def _mha(d: Dim, n: Dim, **more: Any) -> Attention:
    return Attention(n=n, k=n, h=_head(d, n), **more)


BLOCKS: Mapping[str, Entry] = MappingProxyType({
    "layernorm": Entry("LayerNorm with gain and bias", lambda d: LayerNorm(), {"d": 13}),
    "layer-scale": Entry("a trained number for each entry", lambda d: LayerScale(), {"d": 13}),
    "rmsnorm": Entry("RMSNorm with gain", lambda d: RMSNorm(), {"d": 13}),
    "learned-positions": Entry("a trained vector a position", lambda d, m: LearnedPositions(m=m), {"d": 13, "m": 37}),
    "mlp": Entry("plain feed-forward", lambda d, f: MLP(f=f, act=gelu), {"d": 13, "f": 29}),
    "gated-mlp": Entry("gated feed-forward (SwiGLU)", lambda d, f: GatedMLP(f=f, act=silu), {"d": 13, "f": 29}),
    "sparse-mlp": Entry(
        "gated feed-forward of the gates far above their mean", lambda d, f: SparseGatedMLP(f=f), {"d": 13, "f": 29}
    ),
    "moe": Entry(
        "mixture of gated experts", lambda d, f, e, a: MoE(e=e, a=a, expert=GatedMLP(f=f)), {"d": 13, "f": 29, "e": 7, "a": 2}
    ),
    "moe-shared": Entry(
        "mixture with a shared expert, scores by sigmoid",
        lambda d, f, e, a: MoE(e=e, a=a, expert=GatedMLP(f=f), shared=GatedMLP(f=f), score="sigmoid"),
        {"d": 13, "f": 29, "e": 7, "a": 3},
    ),
    "moe-corrected": Entry(
        "mixture whose choice has a bias of its own",
        lambda d, f, e, a: MoE(e=e, a=a, expert=GatedMLP(f=f), choice_bias=True), {"d": 13, "f": 29, "e": 7, "a": 2},
    ),
    "moe-dense": Entry(
        "mixture that runs every expert on every token (Llama 4)",
        lambda d, f, e, a: DenseMoE(e=e, a=a, expert=GatedMLP(f=f), shared=GatedMLP(f=f)), {"d": 13, "f": 29, "e": 7, "a": 2},
    ),
    "moe-normed": Entry(
        "a feed-forward and a mixture beside each other, each between norms (Gemma 4)",
        lambda d, f, e, a: Sum(branches=(
            Residual(name="dense", branch=GatedMLP(f=f), before=RMSNorm(), after=RMSNorm()),
            Residual(name="moe", after=RMSNorm(), branch=MoE(
                e=e, a=a, expert=GatedMLP(f=f), router_norm=RMSNorm(), expert_norm=RMSNorm(), expert_scale=True
            )),
        )),
        {"d": 13, "f": 29, "e": 7, "a": 2},
    ),
    "mha": Entry("multi-head attention, n·h = d", _mha, {"d": 77, "n": 7}),
    "mha-biased": Entry(
        "multi-head attention with biases, both ways", lambda d, n: _mha(d, n, causal=False, qkv_bias=True, o_bias=True),
        {"d": 77, "n": 7},
    ),
    "tied-qk": Entry("multi-head attention with W_Q = W_K", lambda d, n: _mha(d, n, qk_tied=True), {"d": 77, "n": 7}),
    "tied-kv": Entry("multi-head attention with W_K = W_V", lambda d, n: _mha(d, n, kv_tied=True), {"d": 77, "n": 7}),
    "tied-qkv": Entry(
        "multi-head attention with one projection for all three", lambda d, n: _mha(d, n, qk_tied=True, kv_tied=True),
        {"d": 77, "n": 7},
    ),
    "identity": Entry(
        "multi-head attention without projections but the output's", lambda d, n: _mha(d, n, projected=False), {"d": 77, "n": 7}
    ),
    "gqa": Entry(
        "grouped-query attention with rotary positions",
        lambda d, n, k, h: Attention(n=n, k=k, h=h, position=Rotary(r=h)), {"d": 13, "n": 15, "k": 3, "h": 22},
    ),
    "mqa": Entry("multi-query attention", lambda d, n, h: Attention(n=n, k=1, h=h), {"d": 13, "n": 7, "h": 11}),
    "window-both-ways": Entry(
        "multi-head attention in a window, both ways", lambda d, n, w: _mha(d, n, causal=False, w=w), {"d": 77, "n": 7, "w": 5},
    ),
    "window": Entry(
        "grouped-query attention in a sliding window", lambda d, n, k, h, w: Attention(n=n, k=k, h=h, w=w),
        {"d": 13, "n": 15, "k": 3, "h": 11, "w": 5},
    ),
    "qk-norm": Entry(
        "grouped-query attention with queries and keys normed", lambda d, n, k, h: Attention(n=n, k=k, h=h, qk_norm=RMSNorm()),
        {"d": 13, "n": 15, "k": 3, "h": 11},
    ),
    "relative-bias": Entry(
        "multi-head attention with T5's bias by distance",
        lambda d, n, h, m: Attention(n=n, k=n, h=h, position=RelativeBias(m=m, n=n)), {"d": 13, "n": 7, "h": 11, "m": 31},
    ),
    "relative-keys": Entry(
        "multi-head attention with vectors by distance on keys and values (Shaw et al. 2018)",
        lambda d, n, m: _mha(d, n, position=RelativeKeys(m=m)), {"d": 77, "n": 7, "m": 31},
    ),
    "softcap": Entry(
        "grouped-query attention with soft-capped scores", lambda d, n, k, h: Attention(n=n, k=k, h=h, softcap=True),
        {"d": 13, "n": 15, "k": 3, "h": 11},
    ),
    "sinks": Entry(
        "grouped-query attention with sinks (gpt-oss)", lambda d, n, k, h: Attention(n=n, k=k, h=h, sinks=True),
        {"d": 13, "n": 15, "k": 3, "h": 11},
    ),
    "alibi": Entry(
        "multi-head attention with ALiBi", lambda d, n: _mha(d, n, position=ALiBi(n=n)), {"d": 77, "n": 7}
    ),
    "bias-each-layer": Entry(
        "multi-head attention with a bias by distance of its own",
        lambda d, n, h, m: Attention(n=n, k=n, h=h, position=RelativeBias(m=m, n=n, each_layer=True)),
        {"d": 13, "n": 7, "h": 11, "m": 31},
    ),
    "partial-rotary": Entry(
        "grouped-query attention with r of h entries rotated",
        lambda d, n, k, h, r: Attention(n=n, k=k, h=h, position=Rotary(r=r)), {"d": 13, "n": 15, "k": 3, "h": 11, "r": 4},
    ),
    "chunked": Entry(
        "grouped-query attention inside chunks (Llama 4)", lambda d, n, k, h, w: Attention(n=n, k=k, h=h, chunk=w),
        {"d": 13, "n": 15, "k": 3, "h": 11, "w": 5},
    ),
    "output-gate": Entry(
        "grouped-query attention with a gated output", lambda d, n, k, h: Attention(n=n, k=k, h=h, output_gate=True),
        {"d": 13, "n": 15, "k": 3, "h": 11},
    ),
    "linear-attention": Entry(
        "kernel attention with random features (Performer)", lambda d, n, h, m: LinearAttention(n=n, h=h, m=m),
        {"d": 13, "n": 7, "h": 11, "m": 31},
    ),
    "gated-delta-net": Entry(
        "linear attention by the gated delta rule, behind short convolutions (Qwen3-Next)",
        lambda d, n, k, h, u, g, chunk: GatedDeltaNet(n=n, k=k, h=h, u=u, g=g, chunk=chunk),
        {"d": 13, "n": 15, "k": 3, "h": 11, "u": 17, "g": 4, "chunk": 5},
    ),
    "mamba-mixer": Entry(
        "selective state space, each channel with its state (Mamba)", lambda d, f, h, i, g: Mamba(f=f, h=h, i=i, g=g),
        {"d": 31, "f": 29, "h": 11, "i": 7, "g": 4},
    ),
    "mamba2-mixer": Entry(
        "state space in chunks, n heads in k groups (Mamba-2)",
        lambda d, n, k, h, u, g, chunk: Mamba2(n=n, k=k, h=h, u=u, g=g, chunk=chunk),
        {"d": 13, "n": 15, "k": 3, "h": 11, "u": 17, "g": 4, "chunk": 5},
    ),
    "short-convolution": Entry(
        "gated convolution over the last g positions (LFM2)", lambda d, g: ShortConvolution(g=g), {"d": 13, "g": 3}
    ),
    "token-mixing": Entry("feed-forward over the positions (MLP-Mixer)", lambda d, f: TokenMixing(f=f), {"d": 13, "f": 29}),
    "smear": Entry(
        "each position's vector and a gated share of the one before (nanochat)", lambda d, i: Smear(i=i), {"d": 31, "i": 7}
    ),
    "squeeze-excitation": Entry("a gate a channel, of the means", lambda d, f: SqueezeExcitation(f=f), {"d": 13, "f": 5}),
    "value-embedding": Entry(
        "grouped-query attention with a gated value a token besides (nanochat)",
        lambda d, n, k, h, v, i: Attention(n=n, k=k, h=h, value_embedding=ValueEmbedding(v=v, i=i)),
        {"d": 13, "n": 15, "k": 3, "h": 11, "v": 101, "i": 7},
    ),
    "normed-values": Entry(
        "grouped-query attention with W_K = W_V, keys normed and rotated, values normed (Gemma 4)",
        lambda d, n, k, h: Attention(
            n=n, k=k, h=h, position=Rotary(r=h), qk_norm=RMSNorm(), v_norm=RMSNorm(gain=False), kv_tied=True
        ),
        {"d": 13, "n": 15, "k": 3, "h": 22},
    ),
    "borrowed-keys": Entry(
        "block: two attentions in a window, the second with the keys and values of the first (Gemma 3n, Gemma 4)",
        lambda d, n, k, h, w: _branches(RMSNorm(), *(
            Attention(n=n, k=k, h=h, w=w, position=Rotary(r=h), qk_norm=RMSNorm(), kv=kv) for kv in ("lent", "borrowed")
        )),
        {"d": 13, "n": 15, "k": 3, "h": 22, "w": 5},
    ),
    "layer-embedding": Entry(
        "an input for each token and layer (Gemma 3n, Gemma 4)", lambda d, v, l, i: LayerEmbedding(v=v, l=l, i=i),
        {"d": 13, "v": 101, "l": 3, "i": 7},
    ),
    "layer-input": Entry(
        "gated by what the embedding made for the layer (Gemma 3n, Gemma 4)", lambda d, i: LayerInput(i=i), {"d": 13, "i": 7}
    ),
    "cross-attention": Entry(
        "attention to an encoder's output", lambda d, n, h: CrossAttention(n=n, k=n, h=h), {"d": 13, "n": 7, "h": 11}
    ),
    "mla": Entry(
        "multi-head latent attention", lambda d, n, c, q, p, r, u: MLA(n=n, c=c, q=q, p=p, r=r, u=u),
        {"d": 13, "n": 7, "c": 19, "q": 23, "p": 11, "r": 4, "u": 17},
    ),
    "mla-direct": Entry(
        "multi-head latent attention without a query latent", lambda d, n, c, p, r, u: MLA(n=n, c=c, q=None, p=p, r=r, u=u),
        {"d": 13, "n": 7, "c": 19, "p": 11, "r": 4, "u": 17},
    ),
    "mla-absorbed": Entry(
        "multi-head latent attention, keys and values never expanded",
        lambda d, n, c, q, p, r, u: MLA(n=n, c=c, q=q, p=p, r=r, u=u, absorbed=True),
        {"d": 13, "n": 7, "c": 19, "q": 23, "p": 11, "r": 4, "u": 17},
    ),
    "pre-norm": Entry(
        "block: norms before the branches (GPT-2 without biases)",
        lambda d, n, f: _residual(_mha(d, n), MLP(f=f, act=gelu), before=LayerNorm()), {"d": 77, "n": 7, "f": 29},
    ),
    "post-norm": Entry(
        "block: norms behind the sums (the original Transformer)",
        lambda d, n, f: _residual(_mha(d, n), MLP(f=f), outer=LayerNorm()), {"d": 77, "n": 7, "f": 29},
    ),
    "deepnet": Entry(
        "block: norms behind the sums, the residual times a constant (DeepNet)",
        lambda d, n, f: _residual(_mha(d, n), MLP(f=f), outer=LayerNorm(), scaled=True), {"d": 77, "n": 7, "f": 29},
    ),
    "sandwich": Entry(
        "block: norms before and behind the branches (Gemma 2)",
        lambda d, n, k, h, f: _residual(
            Attention(n=n, k=k, h=h, position=Rotary(r=h)), GatedMLP(f=f), before=RMSNorm(), after=RMSNorm()
        ),
        {"d": 13, "n": 15, "k": 3, "h": 22, "f": 29},
    ),
    "llama-block": Entry(
        "block: pre-norm RMSNorm, grouped-query attention, rotary positions, SwiGLU",
        lambda d, n, k, h, f: _residual(Attention(n=n, k=k, h=h, position=Rotary(r=h)), GatedMLP(f=f), before=RMSNorm()),
        {"d": 13, "n": 15, "k": 3, "h": 22, "f": 29},
    ),
    "laurel": Entry(
        "block: attention beside a low-rank residual (LAuReL)",
        lambda d, n, k, h, c: Block(branches=(Laurel(name="attention", branch=Attention(n=n, k=k, h=h), c=c),)),
        {"d": 13, "n": 15, "k": 3, "h": 11, "c": 5},
    ),
    "altup": Entry(
        "j streams beside the first, a feed-forward on one that corrects all, and their mean (AltUp)",
        lambda d, f, j: Stack(
            name="stack", layers=(Layer(block=AltUp(j=j, block=Residual(name="mlp", branch=MLP(f=f), before=RMSNorm())), l=1),),
            enter=Streams(j=j), exit=Merged(),
        ),
        {"d": 13, "f": 29, "j": 3},
    ),
    "two-attentions": Entry(
        "block: two attentions and a feed-forward",
        lambda d, n, f: _branches(LayerNorm(), _mha(d, n), _mha(d, n), MLP(f=f, act=gelu)), {"d": 77, "n": 7, "f": 29},
    ),
    "two-feed-forwards": Entry(
        "block: a feed-forward on either side of the attention (Macaron)",
        lambda d, n, f: _branches(LayerNorm(), MLP(f=f, act=gelu), _mha(d, n), MLP(f=f, act=gelu)),
        {"d": 77, "n": 7, "f": 29},
    ),
    "sandwich-order": Entry(
        "block: three attentions and three feed-forwards, s·sf·sf·f (Press et al. 2020, arXiv:1911.03864)",
        lambda d, n, f: _branches(
            LayerNorm(), _mha(d, n), _mha(d, n), MLP(f=f), _mha(d, n), MLP(f=f), MLP(f=f)
        ),
        {"d": 77, "n": 7, "f": 29},
    ),
    "mtp": Entry(
        "a module that predicts one token more, without the tables it shares (DeepSeek-V3)",
        lambda d, n, k, h, f: MultiTokenPrediction(
            block=_residual(Attention(n=n, k=k, h=h, position=Rotary(r=h)), GatedMLP(f=f), before=RMSNorm())
        ),
        {"d": 13, "n": 15, "k": 3, "h": 22, "f": 29},
    ),
    "nanochat-block": Entry(
        "block: the stream and what entered it, rotated queries and keys normed, value embedding, squared ReLU (nanochat)",
        lambda d, n, k, h, f, v, i: Blended(block=_residual(
            Attention(
                n=n, k=k, h=h, position=Rotary(r=h), qk_norm=RMSNorm(gain=False, scaled=True), norm_last=True,
                value_embedding=ValueEmbedding(v=v, i=i),
            ), MLP(f=f, act=relu_squared), before=RMSNorm(gain=False),
        )),
        {"d": 13, "n": 15, "k": 3, "h": 22, "f": 29, "v": 101, "i": 7},
    ),
    "mixer": Entry(
        "block: token mixing and a feed-forward (MLP-Mixer)",
        lambda d, m, f: _branches(LayerNorm(), TokenMixing(f=m), MLP(f=f, act=gelu, bias=True)), {"d": 13, "m": 17, "f": 29},
    ),
    "parallel": Entry(
        "block: attention and feed-forward side by side (GPT-J)",
        lambda d, n, f: Parallel(
            branches=(Residual(name="attention", branch=_mha(d, n)), Residual(name="mlp", branch=MLP(f=f, act=gelu))),
            norm=LayerNorm(),
        ),
        {"d": 77, "n": 7, "f": 29},
    ),
})  # fmt: skip
