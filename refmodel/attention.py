"""Attention. Twins of ``blockcalc.blocks.attention``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import fused
from .context import Run
from .position import ALiBi, RelativeBias, RelativeKeys, Rotary


def hidden_pairs(
    end: int, t: int, s: int, *, causal: bool = True, window: int | None = None, chunk: int | None = None
) -> Tensor:
    """True (t s) where one of t queries must not see one of s keys, the last of both standing before position *end*.

    A window is as wide ahead as behind where the mask is not causal.
    """
    query, key = torch.arange(end - t, end)[:, None], torch.arange(end - s, end)  # t 1, s
    hidden = key > query if causal else key >= query + (s if window is None else window)  # t s
    if window is not None:
        hidden = hidden | (key <= query - window)
    return hidden if chunk is None else hidden | (key // chunk != query // chunk)


def math(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, near: Tensor | None, far: Tensor | None, *, mask: Tensor | None,
    scale: float, cap: float | None, sinks: Tensor | None, drop: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """softmax(q kᵀ/√h + bias) v written out. Vaswani et al. 2017, arXiv:1706.03762, equation 1.

    *near* and *far* (t s h) are added to the keys and to the values of each query; *sinks* (n) are scores of no key.
    """
    group = q.size(2) // k.size(2)
    if group > 1:
        k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)  # b s n h, b s n u
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # b n t h, b n s h, b n s u
    scores = q @ k.transpose(2, 3)  # b n t s
    if near is not None:
        scores = scores + torch.einsum("bnth,tsh->bnts", q, near)
    scores = scores * scale
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(*scores.shape[:3], 1)), dim=-1)  # b n t s+1
    weights = drop(scores.softmax(-1)[..., : k.size(2)])  # b n t s
    out = weights @ v  # b n t u
    if far is not None:
        out = out + torch.einsum("bnts,tsu->bntu", weights, far)
    return out.transpose(1, 2)  # b t n u


def flash(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, scale: float, causal: bool) -> Tensor:
    """The same in one kernel. Dao et al. 2022, arXiv:2205.14135, algorithm 1. *mask* is added to the scores."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # b n t h, b k s h, b k s u
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        mask = None if mask is None else mask.expand(1, 1, -1, -1) if mask.dim() == 2 else mask[None]  # 1 n t s
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=True)
    return out.transpose(1, 2)  # b t n u


def attend(
    q: Tensor, k: Tensor, v: Tensor, run: Run, *,
    causal: bool, window: int | None = None, chunk: int | None = None, bias: Tensor | None = None,
    near: Tensor | None = None, far: Tensor | None = None, scale: float | None = None, cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """softmax(q kᵀ/√h + bias) v for q (b t n h), k (b s k h), v (b s k u) by the kernel of the run; (b t n u)."""
    t, s, end = q.size(1), k.size(1), run.start + q.size(1)
    scale, key = q.size(-1) ** -0.5 if scale is None else scale, (end, t, s, causal, window, chunk)
    masked = causal or window is not None

    def hidden() -> Tensor:
        return hidden_pairs(end, t, s, causal=causal, window=window, chunk=chunk)  # t s

    def added() -> Tensor:
        mask = torch.zeros(t, s, dtype=q.dtype)  # t s
        mask = mask.masked_fill(hidden(), float("-inf")) if masked else mask
        return mask if bias is None else mask + bias  # n t s

    if run.kernel == "math":
        mask = run.buffer(("mask", *key), hidden) if masked else None
        written_out = partial(math, mask=mask, scale=scale, cap=cap, sinks=sinks, drop=run.drop)
        return run.again("selective", written_out, q, k, v, bias, near, far)
    if run.kernel == "fused":
        if near is not None:
            raise NotImplementedError("no fused kernel takes a vector a pair")
        scores = fused.Scores(scale, cap, hidden if masked else None, 0.0 if run.dropout == "none" else run.DROPPED)
        return run.again("selective", partial(fused.Attention.apply, scores), q, k, v, bias, sinks)
    if cap is not None or sinks is not None or near is not None or run.dropout != "none":
        raise NotImplementedError("no flash kernel on the CPU takes a soft cap, sinks, a vector a pair or dropout")
    plain = bias is None and (not masked or (t == s and window is None and chunk is None))
    mask = None if plain else run.buffer(("added", *key, None if bias is None else bias.shape), added)
    return run.again("selective", partial(flash, mask=mask, scale=scale, causal=causal and plain), q, k, v)


Position: TypeAlias = Rotary | RelativeBias | RelativeKeys | ALiBi | None


class Attention(nn.Module):
    """softmax(QKᵀ/√h + bias)V W_O. Vaswani et al. 2017, section 3.2; grouped: Ainslie et al. 2023, arXiv:2305.13245.

    A projection that is None is the one before it: keys are queries, values keys; queries without one are x itself.
    """

    def __init__(
        self, h: int, q: nn.Linear | None, k: nn.Linear | None, v: nn.Linear | None, o: nn.Linear, *,
        gate: nn.Linear | None = None, w: int | None = None, chunk: int | None = None, causal: bool = True,
        position: Position = None, q_norm: nn.Module | None = None, k_norm: nn.Module | None = None,
        v_norm: nn.Module | None = None, norm_last: bool = False, clip: float | None = None, cap: float | None = None,
        sinks: int | None = None, value_embedding: nn.Module | None = None, cached: bool = True,
        cached_heads: int | None = None, lends: bool = False, borrows: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.h, self.w, self.chunk, self.causal, self.cached, self.cached_heads = h, w, chunk, causal, cached, cached_heads
        self.clip, self.cap, self.norm_last, self.position = clip, cap, norm_last, position
        self.q, self.k, self.v, self.o = q, k, v, o  # d n·h, d k·h, d k·h, n·h d
        self.gate = gate  # d n·h
        self.q_norm, self.k_norm, self.v_norm = q_norm, k_norm, v_norm
        self.lends, self.borrows = ((w,) if does else () for does in (lends, borrows))
        self.value_embedding = value_embedding
        self.sinks = None if sinks is None else nn.Parameter(torch.zeros(sinks))  # n

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        if self.borrows:
            q, (k, v) = self.query(x, run), run.lent[self.borrows[0]]  # b t n h, b s k h, b s k h
        else:
            q, k, v = self.prepared(x, run)  # b t n h, b t k h, b t k h
            k, v = self.seen(k, v, run) if self.causal and self.cached else (k, v)  # b s k h
        for window in self.lends:
            run.lent[window] = k, v
        near, far = self.position(q.size(1), k.size(1)) if isinstance(self.position, RelativeKeys) else (None, None)  # t s h
        out = attend(
            q, k, v, run, causal=self.causal, window=self.w, chunk=self.chunk, bias=self.bias(q, k, run), near=near, far=far,
            cap=self.cap, sinks=self.sinks,
        ).flatten(2)  # b t n·h  # fmt: skip
        if self.gate is not None:
            out = out * torch.sigmoid(self.gate(x))
        out = self.o(out)  # b t d
        return out

    def prepared(self, x: Tensor, run: Run) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (b t n h), keys and values (b t k h), normed, clamped and rotated."""
        q, k, v = self.projections(x)
        if self.value_embedding is not None:
            v = self.value_embedding(x, v, run)
        if not self.norm_last:
            q, k = self.normed(q, k)
        if self.v_norm is not None:
            v = self.v_norm(v)
        if self.clip is not None:
            q, k, v = (part.clamp(-self.clip, self.clip) for part in (q, k, v))
        if isinstance(self.position, Rotary):
            q, k = self.position(q, run), self.position(k, run)
        if self.norm_last:
            q, k = self.normed(q, k)
        return q, k, v

    def query(self, x: Tensor, run: Run) -> Tensor:
        """The queries (b t n h) alone, beside keys and values of an earlier layer. Brandon et al. 2024, arXiv:2405.12981."""
        assert self.q is not None
        q: Tensor = self.q(x).unflatten(-1, (-1, self.h))
        q = q if self.q_norm is None else self.q_norm(q)
        return self.position(q, run) if isinstance(self.position, Rotary) else q

    def projections(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (b t n h), keys and values (b t k h)."""
        q = (x if self.q is None else self.q(x)).unflatten(-1, (-1, self.h))
        k = q if self.k is None else self.k(x).unflatten(-1, (-1, self.h))
        v = k if self.v is None else self.v(x).unflatten(-1, (-1, self.h))
        return q, k, v

    def seen(self, k: Tensor, v: Tensor, run: Run) -> tuple[Tensor, Tensor]:
        """Keys and values (b s k h) of all positions at hand, cached once where they are one."""
        new = (k,) if k is v else (k, v)
        held = run.remember(self, "full", *new, window=self.w or self.chunk, heads=self.cached_heads)
        return held[0], held[-1]

    def normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of norm one, where there is such a norm. Henry et al. 2020, arXiv:2010.04245."""
        return (q, k) if self.q_norm is None or self.k_norm is None else (self.q_norm(q), self.k_norm(k))

    def bias(self, q: Tensor, k: Tensor, run: Run) -> Tensor | None:
        """What position adds to the scores, (n t s) or (n 1 s), or their slopes (n)."""
        if isinstance(self.position, RelativeBias):
            return self.position(q.size(1), k.size(1), run)
        return self.position(k.size(1), k, run) if isinstance(self.position, ALiBi) else None


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder's output. Vaswani et al. 2017, section 3.2.3."""

    reads = ("memory",)

    def __init__(
        self, d: int, n: int, k: int, h: int, *, q_bias: bool = False, k_bias: bool = False, v_bias: bool = False,
        o_bias: bool = False, source: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.h, source = h, d if source is None else source
        self.q = nn.Linear(d, n * h, bias=q_bias)
        self.k = nn.Linear(source, k * h, bias=k_bias)
        self.v = nn.Linear(source, k * h, bias=v_bias)
        self.o = nn.Linear(n * h, d, bias=o_bias)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), attending to the run's memory (b m d). A cache holds keys and values once a source."""
        q = self.q(x).unflatten(-1, (-1, self.h))  # b t n h
        if run.caches is not None and self in run.caches.held:
            k, v = run.caches.held[self]  # b m k h
        else:
            k = self.k(run.memory).unflatten(-1, (-1, self.h))  # b m k h
            v = self.v(run.memory).unflatten(-1, (-1, self.h))  # b m k h
            k, v = run.remember(self, "cross", k, v)
        out = attend(q, k, v, run, causal=False)  # b t n h
        out = self.o(out.flatten(2))  # b t d
        return out
