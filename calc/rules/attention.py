"""Attention: positions, caches, masks, and the kernel that writes the scores out."""

from __future__ import annotations

from typing import Literal

from ..dims import Dim, half, quotient, smaller
from ..errors import UndefinedError
from ..tensor import Cached, Tensor, seen
from .kernels import AttentionKernels, Scores


def visible_pairs(t: Dim, s: Dim, *, causal: bool, window: Dim | None = None, chunk: Dim | None = None) -> Dim:
    """Query-key pairs that the mask lets through, for t new positions of which the last sees s.

    Causal: F(s) − F(s − t) with F(x) = x(x + 1)/2; with a window of w keys, the query's own included,
    F(x) = x·m − m(m − 1)/2 with m = min(x, w). In chunks of c, F(x) = ⌊x/c⌋·c(c + 1)/2 + r(r + 1)/2 with r the rest.
    Bidirectional: t·s, or 2F(s) − s of all s positions with a window.
    """
    if not causal and window is None:
        return t * s

    def up_to(x: Dim) -> Dim:
        if chunk is not None:
            rest = x - quotient(x, chunk) * chunk
            return quotient(x, chunk) * half(chunk * (chunk + 1)) + half(rest * (rest + 1))
        m = x if window is None else smaller(x, window)
        return x * m - half(m * (m - 1))

    return up_to(s) - up_to(s - t) if causal else 2 * up_to(s) - s


class AttentionRules(AttentionKernels):
    """Rules of what stands between the projections of attention."""

    def rotate(self, name: str, x: Tensor, r: Dim, *, local: bool = False) -> Tensor:
        """Rotary embedding of the first r of a head's entries: keeps the cosine and sine tables, not its input.

        *local* layers have tables of their own besides those of the others.
        """
        axes, sizes, table = ("t", "r"), (x["t"], half(r)), "local" if local else "rotary"
        cos = self.buffer(f"{table} cos", axes, sizes, "activation")
        sin = self.buffer(f"{table} sin", axes, sizes, "activation")
        out = self.like(x)
        self.record(name, "rotate", out, (x, cos, sin), saved=(cos, sin))
        return out

    def slopes(self, n: Dim, s: Dim) -> Tensor:
        """ALiBi's bias of n heads and s keys, slope·key (n s), a buffer. The fused kernel makes it of the slopes (n), fp32."""
        if self.kernels.attention == "fused":
            return self.buffer("alibi slopes", ("n",), (n,), "statistic")
        return self.buffer("alibi", ("n", "s"), (n, s), "activation")

    def cache(
        self, name: str, x: Tensor, kind: Literal["full", "latent", "cross"] = "full", window: Dim | None = None,
        expanded: Dim | None = None,
    ) -> Tensor:  # fmt: skip
        """x's new positions (its axis t, or m of the encoder) behind those a cache holds: the positions a query can see.

        A window layer has at most w − 1 earlier ones at hand. A step without a cache sees x itself; what decoding on from
        it would hold stands on the line all the same. *expanded* heads, at all positions, are what transformers' own code
        caches, and attends to, where that is more than is needed.
        """
        step, axes = self.step, seen(x.axes)
        place = axes.index("s")
        before, behind = x.sizes[:place], x.sizes[place + 1 :]
        held = step.source if kind == "cross" else step.s
        kept = Tensor(axes, (*before, held, *behind), "key_value", self._copies)
        entry = Cached(kept, kind if window is None else "window", window, expanded)
        if step.cache:
            if window is not None and expanded is None:
                held = step.t + smaller(step.s - step.t, window - 1)
            out = self.tensor(axes, (*before, held, *behind), "key_value")
            self.record(name, "cache", out, (x,), cached=(entry,))
        else:
            out = self.view(x, axes, x.sizes)
            self.record(name, "cache", (), cached=(entry,))
        return out

    def uncached(self, x: Tensor) -> Tensor:
        """x's positions (its axis t, or m of the encoder) as those that a query can see: all of them, at once."""
        if "t" in x.axes:
            self.check_whole()
        return self.view(x, seen(x.axes), x.sizes)

    def check_whole(self) -> None:
        """Refuse a step that runs some of the positions and not all, for what mixes them in both directions."""
        if self.step.t not in (0, self.step.s):
            what = "mixing positions in both directions"
            raise UndefinedError(f"{what} needs all of them at once: nothing to decode from a cache")

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool,
        window: Dim | None = None,
        chunk: Dim | None = None,
        bias: Tensor | None = None,
        softcap: bool = False,
        sinks: bool = False,
        relative: tuple[Tensor, Tensor | None] | None = None,
        absorbed: bool = False,
    ) -> Tensor:
        """softmax(q kᵀ + bias) v for q (b t n h), k (b s k h), v (b s k u): for each of the pairs n·h multiply-adds of scores
        and n·u of values. Returns (b t n u).

        Math keeps q, k and v expanded to n heads, the softmax and a boolean mask; a soft cap keeps its tanh besides.
        *relative* are vectors (t s h) of each pair, added to its key, and perhaps others, added to its value.
        *absorbed*: the keys hold the values too.
        """
        b, t, n, h = q.sizes
        s, u = k["s"], v.sizes[-1]
        pairs = t * s
        masked = causal or window is not None
        visible = visible_pairs(t, self.step.s, causal=causal, window=window, chunk=chunk) if masked else pairs
        out = self.tensor(("b", "t", "n", "u"), (b, t, n, u), grad=q.grad or k.grad or v.grad)
        if chunk is not None:
            window = chunk
        mask_name = f"mask {window}" if causal else f"mask {window} both ways"
        if window is not None and not causal:
            window = 2 * window - 1
        if self.kernels.attention != "math":
            kernel = self._flash if self.kernels.attention == "flash" else self._fused
            with self.checkpoint("selective"):
                how = Scores(pairs, visible, window, causal, mask_name, bias, softcap, sinks, relative is not None, absorbed)
                kernel(q, k, v, out, how)
            return out
        with self.checkpoint("selective"):
            scores = self.tensor(("b", "n", "t", "s"), (b, n, t, s), grad=q.grad or k.grad)
            self.record(
                "scores", "attention", scores, (q, k),
                saved=self._factors(self._own(q, n), self._own(k, n)),
                forward=b * n * h, dinput=(q.grad + k.grad) * b * n * h,
                pairs=pairs, visible=visible, heads=n, window=window, causal=causal,
            )  # fmt: skip
            if relative is not None:
                scores = self._relative("relative_scores", scores, q, self._own(q, n), relative[0], pairs, visible)
            if softcap:
                scores = self.act("softcap", scores, "output")
            if bias is not None:
                scores = self.add("bias", scores, bias)
            if masked:
                mask = self.buffer(mask_name, ("t", "s"), (t, s), "mask")
                self.record("mask", "mask", scores, (scores, mask), saved=(mask,))
            weights = self.dropout("dropout", self._softmax(scores, sinks))
            self.record(
                "mix", "attention", out, (weights, v),
                saved=self._factors(weights, self._own(v, n)),
                forward=b * n * u, dinput=(weights.grad + v.grad) * b * n * u,
                pairs=pairs, visible=visible, heads=n, window=window, causal=causal,
            )  # fmt: skip
            if relative is not None and relative[1] is not None:
                return self._relative("relative_mix", out, weights, weights, relative[1], pairs, visible)
        return out

    def _relative(
        self, name: str, x: Tensor, a: Tensor, kept: Tensor, rows: Tensor, pairs: Dim, visible: Dim
    ) -> Tensor:
        """x plus a, queries or the softmax, times the pairs' vectors rows (t s h): keeps both, of queries one more copy."""
        b, n = x["b"], x["n"]
        work = b * n * rows.sizes[-1]
        self.record(
            name, "product", extra := self.like(x), (a, rows), saved=self._factors(kept, rows), forward=work,
            dinput=(a.grad + rows.grad) * work, pairs=pairs, visible=visible,
        )  # fmt: skip
        return self.add(f"{name}_add", x, extra)

    def _softmax(self, scores: Tensor, sinks: bool) -> Tensor:
        """Keeps its output. With *sinks* a trained logit a head is one column more, which is kept and then left out."""
        if not sinks:
            return self.act("softmax", scores, "output")
        b, n, t, s = scores.sizes
        wide = self.tensor(scores.axes, (b, n, t, s + 1))
        self.record("sinks", "concat", wide, (scores,), (self.weight(("n",), (n,), "vector"),))
        return self.view(self.act("softmax", wide, "output"), scores.axes, scores.sizes)

    def _own(self, x: Tensor, n: Dim) -> Tensor:
        """Queries, keys or values (b t n h) as the math kernel keeps them: its own copies, expanded to n heads.

        (Of one sequence, one head or one position the copies are views; what is tied would then be kept once.)
        """
        b, s, _, h = x.sizes
        return self.tensor((x.axes[0], x.axes[1], "n", x.axes[3]), (b, s, n, h), x.role, x.grad)
