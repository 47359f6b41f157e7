"""Claims on heads, on what they share, and on caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

import sympy

from ..blocks.attention import Attention
from ..blocks.mla import MLA
from ..blocks.mlp import MLP
from ..blocks.norm import HeadsNorm, RMSNorm
from ..budget import widths
from ..catalogue import BLOCKS
from ..dims import Dim, symbol
from ..model import trace
from ..tensor import Step
from .fact import B, Between, D, F, Fact, H, K, N, S, T, elements, fact, form, model, pieces, ratio, weights_of, year


def multihead_free() -> list[Fact]:
    """Parameters and multiply-adds of n heads, and what grows with n."""
    lines = trace(BLOCKS["mha"].make(D, N), Step.forward(B, T), D).lines
    (softmax,) = (line for line in lines if line.path == "softmax")
    found = [
        fact("parameters of n heads, h = d/n", form("mha"), 4 * D**2, condition=True),
        fact("FLOPs of n heads over those of one", ratio(form("mha", "flops"), form("mha", "flops", N=1)), 1, condition=True),
        fact("elements of the softmax", softmax.written[0].numel),
    ]
    for name in ("qwen3-0.6b", "gemma-7b"):
        (heads, *_), width = pieces(model(name), Attention), model(name).embedding.d
        found.append(fact(f"n·h of {name}, d = {width}", heads.n * heads.h, width, of=N * H))
    return found


def head_width(d: Dim, n: Dim) -> Dim:
    """The width of one of n heads."""
    (heads,) = pieces(BLOCKS["mha"].make(d, n), Attention)
    return heads.h


def head_rank() -> list[Fact]:
    """The width of a head."""
    return [fact("width of one of n heads", head_width(D, N), D / N)]


def gqa_cache() -> list[Fact]:
    """Bytes in proportion to the key-value heads."""
    share = ratio(form("gqa", "kv"), form("gqa", "kv", K=N))
    return [
        fact("cache of k key-value heads (bf16)", form("gqa", "kv")),
        fact("share of that of n heads", share),
        fact("share with 32 heads in 4 groups", share.subs({K: 4, N: 32}), Fraction(1, 8), of=share),
    ]


def gqa_training() -> list[Fact]:
    """The keys' rows in models whose weights were trained so."""
    found = []
    for name in ("mistral-7b", "llama-3-8b", "qwen2-7b"):
        (heads, *_) = pieces(model(name), Attention)
        found.append(fact(f"rows of W_K in {name}, n·h = {heads.n * heads.h}", heads.k * heads.h, heads.n * heads.h, of=K * H))
    return found


def kv_generations() -> list[Fact]:
    """Cached elements a token and layer of each kind, and the years of their papers."""
    (latent, *_) = pieces(model("deepseek-v3"), MLA)
    held = trace(latent, Step.prefill(1, 1), 7168).cache(widths("int8"))["latent"]
    numbers, letters = (
        sum(line.forward for line in trace(part, Step.forward(1, 1), D).lines if line.kind == "attention")
        for part in (latent, BLOCKS["mla"].make(D, N, *map(symbol, "CQPRU")))
    )  # a pair costs as many multiply-adds as a key and a value have entries, over all heads
    span = Between(2017, 2023)
    return [
        fact("multi-head", elements(Attention(n=N, k=N, h=H))),
        fact("multi-query", elements("mqa")),
        fact("grouped-query", elements("gqa")),
        fact("latent", elements("mla")),
        fact("latent, DeepSeek-V3", held, of=elements("mla")),
        fact("the same expanded to keys and values of every head", numbers, of=sympy.factor(letters)),
        fact("year of grouped-query attention", year(Attention, "Grouped-query"), span),
        fact("year of latent attention", year(MLA), span),
    ]


def tied_queries() -> list[Fact]:
    """What W_Q = W_K saves, and of what."""
    saved, leaves = form("mha") - form("tied-qk"), trace(BLOCKS["mha"].make(D, N), Step.forward(B, T), D).components()
    both = sum(leaf.params for leaf in leaves if leaf.path in ("q", "k"))
    block = weights_of("pre-norm", F=4 * D)
    return [
        fact("saved", saved),
        fact("share of the attention", ratio(saved, form("mha")), Fraction(1, 2)),
        fact("share of Q and K", ratio(saved, both)),
        fact("share of a block with f = 4d", ratio(saved, block)),
    ]


def shared_heads() -> list[Fact]:
    """Parameters and cache that one head of keys, of values or of queries saves."""
    many, one = (
        {leaf.path: leaf.params for leaf in trace(Attention(n=n, k=n, h=H), Step.forward(B, T), D).components()} for n in (N, 1)
    )
    saved = {name: many[name] - one[name] for name in "qkv"}
    plain = Attention(n=N, k=N, h=H)
    return [
        fact("parameters that shared keys save", saved["k"]),
        fact("parameters that shared values save", saved["v"]),
        fact("parameters that shared queries would save", saved["q"]),
        fact("cache that shared keys and values save (bf16)", form(plain, "kv") - form("mqa", "kv")),
        fact("FLOPs that shared keys and values save", form(plain, "flops") - form("mqa", "flops")),
    ]


def tied_values() -> list[Fact]:
    """What W_K = W_V saves."""
    return [
        fact("parameters saved", form("mha") - form("tied-kv")),
        fact("share of the cache, keys as they are projected", ratio(form("tied-kv", "kv"), form("mha", "kv"))),
    ]


def two_attentions() -> list[Fact]:
    """What a second attention or a second feed-forward adds to a block with f = 4d."""
    block, attentions, mlps = (weights_of(name, F=4 * D) for name in ("pre-norm", "two-attentions", "two-feed-forwards"))
    work = ratio(form("two-attentions", "flops", F=4 * D), form("pre-norm", "flops", F=4 * D))
    return [
        fact("parameters of the block", block),
        fact("with two attentions", attentions),
        fact("their ratio", ratio(attentions, block), 2),
        fact("ratio of the FLOPs", work),
        fact("the same at d = 768, t = 1024", work.subs({D: 768, T: 1024}), 2, of=work),
        fact("ratio of the parameters with two feed-forwards", ratio(mlps, block), 2),
    ]


def growing_cache() -> list[Fact]:
    """Bytes of a cache that grows, while it is copied, and of one that is allocated once."""
    now, i = form("gqa", "kv"), symbol("I")
    return [
        fact("held at s tokens", now),
        fact("alive while the next token is appended", now + now.subs({S: S + 1}, simultaneous=True)),
        fact("written in s steps that each write it anew", sympy.summation(now.subs(S, i), (i, 1, S))),
    ]


def pruned_heads() -> list[Fact]:
    """What a head of multi-head attention weighs."""
    head, work = (ratio(form(Attention(n=N, k=N, h=H), quantity), N) for quantity in ("params", "flops"))
    return [
        fact("parameters of each head", head),
        fact("FLOPs of each head", work),
        fact("parameters of 38 heads of a Transformer base", 38 * head.subs({D: 512, H: 64}), of=38 * head),
    ]


def normed_queries() -> list[Fact]:
    """Parameters of a norm of queries and keys."""
    plain = Attention(n=N, k=K, h=H)
    kinds = (
        ("without gains", RMSNorm(gain=False)),
        ("a gain for the head's width", RMSNorm()),
        ("over all heads", HeadsNorm()),
    )
    normed = {name: form(Attention(n=N, k=K, h=H, qk_norm=norm)) for name, norm in kinds}
    return [fact(f"parameters, {name}", found - form(plain)) for name, found in normed.items()]


def model_width() -> list[Fact]:
    """The three matrices of a block 768 wide beside its feed-forward."""
    block = BLOCKS["pre-norm"].make(768, 12, 3072)
    leaves = {leaf.path: leaf.params for leaf in trace(block, Step.forward(1, 6), 768).components()}
    qkv = sum(leaves[f"attention.{name}"] for name in "qkv")
    mlp = sum(params for path, params in leaves.items() if path.startswith("mlp."))
    return [
        fact("width of one of 12 heads", head_width(768, 12), 64, of=D / N),
        fact("feed-forward", mlp, of=form("mlp")),
        fact("W_Q, W_K and W_V", qkv, of=3 * D**2),
        fact("with W_O", qkv + leaves["attention.o"], of=form("mha")),
        fact("the feed-forward outweighs the three", mlp > qkv, True),
        fact("hidden width of GPT-2's", pieces(model("gpt2"), MLP)[0].f, 4 * 768, of=F),
    ]


FACTS: Mapping[str, Callable[[], list[Fact]]] = MappingProxyType({
    "multihead-free": multihead_free, "low-rank-head": head_rank, "gqa-cache": gqa_cache, "gqa-training": gqa_training,
    "kv-mqa-gqa-mla": kv_generations, "qk-half": tied_queries, "cross-share": shared_heads, "kv-tied": tied_values,
    "two-attn": two_attentions, "dynamic-cache": growing_cache, "head-pruning": pruned_heads, "qk-norm": normed_queries,
    "block-768": model_width,
})  # fmt: skip
