"""Attention in one kernel, which keeps no scores: as torch has it for the CPU, and as GPUs have it."""

from __future__ import annotations

from typing import NamedTuple

from ..dims import Dim, check_at_most
from ..errors import UndefinedError
from ..tensor import Tensor
from .elementwise import Elementwise


class Scores(NamedTuple):
    """How many scores of a query and a key there are, those that the mask lets through, and what is done to them."""

    pairs: Dim
    visible: Dim
    window: Dim | None  # the most keys that a query sees
    causal: bool
    mask: str  # the name of the mask's buffer
    bias: Tensor | None
    softcap: bool
    sinks: bool
    relative: bool
    absorbed: bool


WIDEST = 256
"""The widest heads that a published kernel with unexpanded keys runs backward: FlashAttention-2 and -3, hopper/flash_api.cpp;
cuDNN's SDPA on Hopper."""


class AttentionKernels(Elementwise):
    """Rules of the kernels ``flash`` and ``fused``."""

    def _flash(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, scores: Scores) -> None:
        """One kernel: keeps q, k, v unexpanded, the output and one fp32 log-sum-exp a row and head, and runs the scores
        again backward (5 products against 2). A window takes an additive mask, a constant bias one for each head."""
        _, t, n, h = q.sizes
        if why := self._without_flash(h, v.sizes[-1], scores):
            raise UndefinedError(f"flash attention: {why}")
        masks: tuple[Tensor, ...] = ()
        if scores.window is not None and scores.bias is None:
            masks = (self.buffer(scores.mask, ("t", "s"), (t, k["s"]), "activation"),)
        if scores.bias is not None:
            masks = (self.buffer(f"biased {scores.mask}", ("n", "t", "s"), (n, t, k["s"]), "activation"),)
        self._at_once("flash", q, k, v, out, scores, masks)

    def _without_flash(self, h: Dim, u: Dim, scores: Scores) -> str:
        """Why the CPU has no flash kernel, if so."""
        if scores.sinks or scores.relative:
            return f"{'attention sinks' if scores.sinks else 'relative keys'} have no flash kernel on the CPU"
        if h != u:
            return f"keys are {h} wide and values {u}; the CPU's kernel takes equal widths only"
        if scores.bias is not None and scores.bias not in self.buffers:
            return "a trainable position bias has no flash kernel on the CPU"
        if self._drops:
            return "dropout has no flash kernel on the CPU"
        return "soft-capped scores have no flash kernel on the CPU" if scores.softcap else ""

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, scores: Scores) -> None:
        """One kernel, as GPUs have it: keeps q, k, v unexpanded, the output, one fp32 log-sum-exp a row and head, a trained
        bias, and with dropout a seed (two int64); no mask. It runs the scores again backward (5 products against 2).

        Windows, soft caps, slopes, grouped keys, keys of 192 with values of 128: FlashAttention-2 and -3, Dao 2023,
        arXiv:2307.08691, and Shah et al. 2024, arXiv:2407.08608. Sinks, and the gradient of a full bias: Transformer Engine
        with cuDNN (softmax_type, post_scale_bias). Chunks are sequences of their own. Heads are padded to multiples of 8
        there, which is not counted.
        """
        if why := self._without_fused(q, scores):
            raise UndefinedError(f"fused attention: {why}")
        besides = () if scores.bias is None else (scores.bias,)
        weights = (self.weight(("n",), (q["n"],), "vector"),) if scores.sinks else ()
        seeds = (self.tensor(("seed",), (2,), "index", grad=False),) if self._drops else ()
        self._at_once("fused", q, k, v, out, scores, besides, seeds, weights)

    @property
    def _drops(self) -> bool:
        return self.kernels.dropout != "none" and self.step.training

    def _without_fused(self, q: Tensor, scores: Scores) -> str:
        """Why no published kernel computes it, if so."""
        h = q.sizes[-1]
        if scores.relative:
            return "relative keys, a vector a pair, are in no published kernel"
        if scores.softcap and self._drops:
            return "soft-capped scores with dropout are refused by FlashAttention-2, and in no other published kernel"
        if scores.absorbed and self.step.training:
            return "absorbed latents run forward alone (FlashMLA); training expands keys and values"
        wide = f"keys are {h} wide; FlashAttention and cuDNN run at most {WIDEST} backward"
        if self.step.training and type(h) is int and h > WIDEST:
            return wide
        if self.step.training:
            check_at_most(h, WIDEST, f"fused attention: {wide}")
        return ""

    def _at_once(
        self, name: str, q: Tensor, k: Tensor, v: Tensor, out: Tensor, scores: Scores, besides: tuple[Tensor, ...] = (),
        seeds: tuple[Tensor, ...] = (), weights: tuple[Tensor, ...] = (),
    ) -> None:  # fmt: skip
        """The line of either kernel, which reads and keeps what stands *besides* q, k and v."""
        b, t, n, h = q.sizes
        u = v.sizes[-1]
        rows = self.tensor(("b", "n", "t"), (b, n, t), "statistic")
        self.record(
            name, "attention", out, (q, k, v, *besides), weights, saved=(q, k, v, out, rows, *besides, *seeds),
            forward=b * n * (h + u), dinput=b * n * (3 * h + 2 * u) if out.grad else 0,
            pairs=scores.pairs, visible=scores.visible, heads=n, window=scores.window, causal=scores.causal,
        )  # fmt: skip
