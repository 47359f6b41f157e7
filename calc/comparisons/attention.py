"""Kinds of attention side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from ..blocks.attention import Attention, CrossAttention
from ..blocks.linear_attention import LinearAttention
from ..blocks.mla import MLA
from ..budget import Widths, widths
from ..convention import flops
from ..dims import Dim, symbol
from ..tables.table import Table
from ..tensor import Kernels, Step
from .comparison import Alone, Asked, Comparison, Quantity, tabulate
from .forms import formulas

Letters = SimpleNamespace


def _mha(z: Letters, **more: Any) -> Attention:
    return Attention(n=z.n, k=z.n, h=z.h, **more)


def _mla(z: Letters, **more: Any) -> MLA:
    return MLA(n=z.n, c=z.c, q=z.q, p=z.p, r=z.r, u=z.u, **more)


KINDS: Mapping[str, Callable[[Letters], Any]] = MappingProxyType({
    "multi-head": _mha,
    "grouped-query": lambda z: Attention(n=z.n, k=z.k, h=z.h),
    "multi-query": lambda z: Attention(n=z.n, k=1, h=z.h),
    "multi-head, window": lambda z: _mha(z, w=z.w),
    "latent": _mla,
    "latent, absorbed": lambda z: _mla(z, absorbed=True),
    "linear": lambda z: LinearAttention(n=z.n, h=z.h, m=z.m),
    "W_Q = W_K": lambda z: _mha(z, qk_tied=True),
    "W_K = W_V": lambda z: _mha(z, kv_tied=True),
    "W_Q = W_K = W_V": lambda z: _mha(z, qk_tied=True, kv_tied=True),
    "cross": lambda z: CrossAttention(n=z.n, k=z.n, h=z.h),
})  # fmt: skip


class Setting(NamedTuple):
    """A row: a kind of attention, and the steps that it is asked in. Sizes are all numbers or all symbols."""

    attention: Alone
    b: Dim
    t: Dim
    s: Dim
    widths: Widths

    def kept(self, kernels: Kernels) -> Dim:
        """Bytes that autograd keeps."""
        return self.attention.budget(Step.train(self.b, self.t), kernels).activations(self.widths).bytes

    def cache(self, b: Dim, s: Dim) -> Dim:
        """Bytes that a cache of s positions holds."""
        return sum(self.attention.budget(Step.prefill(b, s)).cache(self.widths).values())


QUANTITIES = (
    Quantity("parameters", "count", lambda x: x.attention.budget(Step.forward(x.b, x.t)).parameters().total),
    Quantity("FLOPs", "flops", lambda x: flops(x.attention.budget(Step.forward(x.b, x.t))).forward),
    Quantity("FLOPs to decode", "flops", lambda x: flops(x.attention.budget(Step.decode(x.b, x.s))).forward),
    Quantity("cache of a token", "bytes", lambda x: x.cache(1, 1)),
    Quantity("cache", "bytes", lambda x: x.cache(x.b, x.s)),
    Quantity("kept, math", "bytes", lambda x: x.kept(Kernels(attention="math"))),
    Quantity("kept, flash", "bytes", lambda x: x.kept(Kernels(attention="flash"))),
    Quantity("kept, fused", "bytes", lambda x: x.kept(Kernels(attention="fused"))),
)  # fmt: skip


def _rows(z: Letters, b: Dim, t: Dim, s: Dim, dtype: str) -> Iterable[tuple[str, Setting]]:
    return ((name, Setting(Alone(make(z), z.d), b, t, s, widths(dtype))) for name, make in KINDS.items())


def draw(asked: Asked) -> tuple[Table, ...]:
    """Numbers at the sizes asked for, and formulas."""
    b, t, s, dtype = asked.batch, asked.seq, asked.context, asked.dtype or ""
    sizes = ", ".join(f"{letter} {size:,}" for letter, size in asked.sizes.items())
    notes = (
        f"{sizes}; batch {b}, seq {t:,}; decoding one token that sees {s:,}, with a cache of as many; {dtype}",
        "forward FLOPs under torch's convention: two a multiply-add, full squares; linear attention sees both ways and has"
        " no cache, cross-attention's holds the tokens of the source",
    )
    symbols = Letters(**{letter: symbol(letter.upper()) for letter in asked.sizes})
    on_symbols = _rows(symbols, symbol("B"), symbol("T"), symbol("S"), dtype)
    features = {"M": "random features of linear attention"}
    return (
        tabulate("attention at stated sizes", "attention", _rows(asked.letters, b, t, s, dtype), QUANTITIES, notes),
        formulas("attention in closed form", "attention", on_symbols, QUANTITIES, (f"bytes in {dtype}",), features),
    )


COMPARISON = Comparison(
    Asked(
        contexts=(8192,), batches=(1,), seq=8192, dtype="bf16",
        sizes={"d": 4096, "n": 32, "k": 8, "h": 128, "w": 4096, "c": 512, "q": 1536, "p": 128, "r": 64, "u": 128, "m": 256},
    ),
    draw,
)  # fmt: skip
