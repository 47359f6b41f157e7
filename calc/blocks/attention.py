"""Attention with any number of key-value heads, any head width, and any mask that a window or causality makes."""

from __future__ import annotations

from typing import Any, Literal

from ..declare import declaration
from ..dims import Dim, check_divides, check_sizes
from ..errors import InputError
from ..tape import Tape
from ..tensor import Tensor
from .norm import HeadsNorm, LayerNorm, RMSNorm
from .position import ALiBi, RelativeBias, RelativeKeys, Rotary


@declaration
class Attention:
    """softmax(QKᵀ/√h + bias)V W_O with n query heads in k groups.

    Multi-head (k = n): Vaswani et al. 2017, arXiv:1706.03762, section 3.2. Grouped-query: Ainslie et al. 2023,
    arXiv:2305.13245; multi-query (k = 1): Shazeer 2019, arXiv:1911.02150. Window: Beltagy et al. 2020,
    arXiv:2004.05150. QK-norm: Henry et al. 2020, arXiv:2010.04245. Soft cap: Gemma 2, arXiv:2408.00118, section 2.
    Sinks: a trained logit a head beside the scores; gpt-oss, arXiv:2508.10925, section 2. Keys and values of an earlier layer:
    Brandon et al. 2024, arXiv:2405.12981.
    Parameters 2dnh + 2dkh, 4d² when nh = kh = d.
    """

    n: Dim  # query heads
    k: Dim  # key-value heads
    h: Dim  # head width
    w: Dim | None = None  # window: the last w positions are seen, the query's own included; both ways the next as well
    causal: bool = True
    position: Rotary | RelativeBias | RelativeKeys | ALiBi | None = None
    qkv_bias: bool = False
    k_bias: bool | None = None  # that of the keys, qkv_bias unless given: Whisper has none
    o_bias: bool = False
    qk_norm: RMSNorm | LayerNorm | HeadsNorm | None = None  # over each head's width, or all heads at once
    v_norm: RMSNorm | None = None  # over each value's width: Gemma 3n, Gemma 4
    norm_last: bool = False  # queries and keys are normed behind their rotation
    clip: bool = False  # queries, keys and values are clamped: MPT, OLMo
    softcap: bool = False
    sinks: bool = False
    qk_tied: bool = False  # W_Q = W_K
    kv_tied: bool = False  # W_K = W_V; both are cached once, or with a v_norm, which makes them differ, twice
    kv: Literal["own", "lent", "borrowed"] = "own"  # lent to the later layers of the same window that borrow them
    projected: bool = True  # false: queries, keys and values are x itself, split into heads
    output_gate: bool = False  # the heads' output times the sigmoid of a projection of x
    chunk: Dim | None = None  # only the positions of the same block of so many are seen: Llama 4
    value_embedding: Any = None  # a component that adds to the values what it looks up for the tokens: nanochat
    cached: bool = True  # false: of a causal mask alone, where nothing is decoded: CLIP's texts
    cached_whole: bool = False  # transformers caches all positions of n heads, whatever w and k: GPT-Neo, Falcon

    def __post_init__(self) -> None:
        check_sizes("Attention", n=self.n, k=self.k, h=self.h, w=self.w, chunk=self.chunk)
        check_divides("Attention", "n", self.n, "k", self.k)
        if self.chunk is not None and not self.causal:
            raise InputError("Attention: a chunk is declared for causal attention only")
        if self.w is not None and self.chunk is not None:
            raise InputError("Attention: a window w and a chunk at once are not declared")
        if self.kv_tied and self.v_norm is None and (isinstance(self.position, Rotary) or self.qk_norm is not None):
            raise InputError("Attention: W_K = W_V is declared where nothing changes the keys and not the values")
        plain = self.causal and self.projected and self.chunk is None
        if self.kv != "own" and (not plain or self.clip or self.norm_last or self.cached_whole):
            raise InputError("Attention: keys and values of other layers are declared for plain causal attention")
        if self.kv == "borrowed" and (self.qk_tied or self.kv_tied or self.v_norm or self.value_embedding is not None):
            raise InputError("Attention: borrowed keys and values are neither tied nor normed, and nothing is added to them")
        if isinstance(self.position, ALiBi) and not self.causal:
            raise InputError("Attention: ALiBi is declared for causal attention only")
        if (self.qk_tied or not self.projected) and self.k != self.n:
            raise InputError(f"Attention: Q = K needs as many key heads as query heads, not k = {self.k} and n = {self.n}")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        if self.kv == "borrowed":
            q, k, v = self._query(tape, x), *tape.borrowed(self.w)
        else:
            q, k, v = self._prepared(tape, x)
            k, v = self._seen(tape, k, v)
        if self.kv == "lent":
            tape.lend(self.w, k, v)
        bias = self.position.trace(tape, k, q) if isinstance(self.position, (RelativeBias, ALiBi)) else None
        relative = self.position.trace(tape, k, q) if isinstance(self.position, RelativeKeys) else None
        out = tape.attention(
            q, k, v, causal=self.causal, window=self.w, chunk=self.chunk, bias=bias, softcap=self.softcap, sinks=self.sinks,
            relative=relative,
        )  # fmt: skip
        if self.output_gate:
            gate = tape.linear("gate", x, "b t d -> b t n u", n=self.n, u=self.h, bias=self.qkv_bias)
            out = tape.mul("gate_mul", out, tape.act("gate_sigmoid", gate, "output"))
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"], bias=self.o_bias)

    def _prepared(self, tape: Tape, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (b t n h), keys and values (b t k h), normed, clamped and rotated."""
        q, k, v = self._projections(tape, x)
        if self.value_embedding is not None:
            v = tape.call("value_embedding", self.value_embedding, x, v)
        if not self.norm_last:
            q, k = self._normed(tape, q, k)
        if self.v_norm is not None:
            v = tape.call("v_norm", self.v_norm, v)
        if self.clip:
            q, k, v = (tape.act(f"{name}_clip", part, "input") for name, part in (("q", q), ("k", k), ("v", v)))
        if isinstance(self.position, Rotary):
            q, k = tape.call("q", self.position, q), tape.call("k", self.position, k)
        if self.norm_last:
            q, k = self._normed(tape, q, k)
        return q, k, v

    def _query(self, tape: Tape, x: Tensor) -> Tensor:
        """The queries (b t n h) alone, normed and rotated."""
        q = tape.linear("q", x, "b t d -> b t n h", n=self.n, h=self.h, bias=self.qkv_bias)
        q = q if self.qk_norm is None else tape.call("q_norm", self.qk_norm, q)
        rotated: Tensor = tape.call("q", self.position, q) if isinstance(self.position, Rotary) else q
        return rotated

    def _seen(self, tape: Tape, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions that a query can see, those of a cache included."""
        if not (self.causal and self.cached):
            return tape.uncached(k), tape.uncached(v)
        expanded = self.n if self.cached_whole else None
        window = self.w if self.chunk is None else self.chunk
        one = v is k
        k = tape.cache("kv_cache" if one else "k_cache", k, window=window, expanded=expanded)
        return k, k if one else tape.cache("v_cache", v, window=window, expanded=expanded)

    def _projections(self, tape: Tape, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (b t n h), keys and values (b t k h)."""
        if not self.projected:
            if type(x["d"]) is int and x["d"] != self.n * self.h:
                raise InputError(f"Attention without projections: n·h = {self.n * self.h}, but x is {x['d']} wide")
            heads = (*x.sizes[:-1], self.n, self.h)
            q, k = (tape.view(x, ("b", "t", axis, "h"), heads) for axis in "nk")
            return q, k, k
        q = tape.linear("q", x, "b t d -> b t n h", n=self.n, h=self.h, bias=self.qkv_bias)
        if self.qk_tied:
            k = tape.view(q, ("b", "t", "k", "h"), q.sizes)
        else:
            biased = self.qkv_bias if self.k_bias is None else self.k_bias
            k = tape.linear("k", x, "b t d -> b t k h", k=self.k, h=self.h, bias=biased)
        if self.kv_tied:
            return q, k, k
        return q, k, tape.linear("v", x, "b t d -> b t k h", k=self.k, h=self.h, bias=self.qkv_bias)

    def _normed(self, tape: Tape, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.qk_norm is None:
            return q, k
        return tape.call("q_norm", self.qk_norm, q), tape.call("k_norm", self.qk_norm, k)


@declaration
class CrossAttention:
    """Queries from the decoder, keys and values from the encoder's output. Vaswani et al. 2017,
    arXiv:1706.03762, section 3.2.3.

    Keys and values are computed once a source and cached. Parameters 2dnh + 2d′kh for an encoder d′ wide.
    """

    n: Dim  # query heads
    k: Dim  # key-value heads
    h: Dim  # head width
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False

    def __post_init__(self) -> None:
        check_sizes("CrossAttention", n=self.n, k=self.k, h=self.h)
        check_divides("CrossAttention", "n", self.n, "k", self.k)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d), attending to the tape's memory (b m d)."""
        q = tape.linear("q", x, "b t d -> b t n h", n=self.n, h=self.h, bias=self.q_bias)
        k = tape.linear("k", tape.source(x), "b m d -> b m k h", k=self.k, h=self.h, bias=self.k_bias)
        v = tape.linear("v", tape.source(x), "b m d -> b m k h", k=self.k, h=self.h, bias=self.v_bias)
        k, v = tape.cache("k_cache", k, "cross"), tape.cache("v_cache", v, "cross")
        out = tape.attention(q, k, v, causal=False)
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"], bias=self.o_bias)
