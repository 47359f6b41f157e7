"""Attention over a sequence that is split: keys and values go round a ring. Liu et al. 2023, arXiv:2310.01889, section 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from .. import fused
from ..attention import hidden_pairs
from ..context import Run
from .ranks import Group

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Kernel(NamedTuple):
    """Attention of q (b n t h), k (b k s h), v (b k s u), whether or not a key may stand *ahead*: the output and each row's
    log-sum-exp, and from the gradient, q, k, v and these the gradients of q, k and v."""

    forth: Callable[..., tuple[Tensor, Tensor]]
    back: Callable[..., tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, run: Run, h: int, cap: float | None = None) -> Kernel:
        """That of the run, for keys h wide."""
        if run.kernel == "fused":
            scores = fused.Scores(h**-0.5, cap)
            return cls(partial(_forth, scores), partial(_back, scores))
        assert run.kernel == "flash" and cap is None
        return cls(
            lambda q, k, v, ahead: _flash(q, k, v, 0.0, ahead),
            lambda *given: _flash_backward(*given[:-1], 0.0, given[-1]),
        )


def _causal(scores: fused.Scores, t: int, ahead: bool) -> fused.Scores:
    return scores._replace(hidden=lambda: hidden_pairs(t, t, t)) if ahead else scores


def _forth(scores: fused.Scores, q: Tensor, k: Tensor, v: Tensor, ahead: bool) -> tuple[Tensor, Tensor]:
    return fused.forth(_causal(scores, q.size(2), ahead), q, k, v)


def _back(
    scores: fused.Scores, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, rows: Tensor, ahead: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return fused.back(_causal(scores, q.size(2), ahead), grad, q, k, v, out, rows)[:3]


def passed(parts: tuple[Tensor, ...], group: Group) -> tuple[Tensor, ...]:
    """These to the next rank in the ring, those of the rank before."""
    after, before = (dist.get_global_rank(group.process, (group.rank + step) % group.size) for step in (1, -1))  # type: ignore[arg-type]
    given = torch.cat([part.flatten() for part in parts])
    taken = torch.empty_like(given)
    hops = dist.isend(given, after, group=group.process), dist.irecv(taken, before, group=group.process)
    for hop in hops:
        hop.wait()  # type: ignore[union-attr]
    sizes = [part.numel() for part in parts]
    return tuple(flat.view(part.shape) for flat, part in zip(taken.split(sizes), parts, strict=True))


def blocks(group: Group, t: int, causal: bool) -> Iterator[tuple[slice, slice, bool]]:
    """At each hop: the rank's queries and the visitors' keys that meet, and whether inside of that a key may stand ahead.

    A rank has the i-th piece of 2·cp from the front and the i-th from the back. Those of an earlier rank's keys that
    stand before all its queries are the first half; of a later rank's, all stand before its second half of queries.
    """
    every, first, second = slice(0, t), slice(0, t // 2), slice(t // 2, t)
    for hop in range(group.size):
        source = (group.rank - hop) % group.size
        if not causal or hop == 0:
            yield every, every, causal
        else:
            yield (every, first, False) if source < group.rank else (second, every, False)


class Ring(Function):
    """Attention in one kernel of q (b n t h), k (b k t h), v (b k t u), t of the rank: keeps these, the output and one number a
    row."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, group: Group, causal: bool) -> Tensor:
        """The output (b n t u), merged from that of each block by its log-sum-exp."""
        wide = torch.promote_types(q.dtype, torch.float32)
        b, n, t, _ = q.shape
        out = torch.zeros(b, t, n, v.size(-1), dtype=wide, device=q.device).transpose(1, 2)  # b n t u
        rows = torch.full((b, n, t), -torch.inf, dtype=wide, device=q.device)
        visiting: tuple[Tensor, ...] = k, v
        for hop, (here, there, ahead) in enumerate(blocks(group, q.size(2), causal)):
            if hop:
                visiting = passed(visiting, group)
            part, sums = kernel.forth(q[:, :, here], *(x[:, :, there] for x in visiting), ahead)  # b n t u, b n t
            both = torch.logaddexp(rows[:, :, here], sums)
            before, now = ((row - both).exp()[..., None] for row in (rows[:, :, here], sums))  # their shares
            out[:, :, here] = out[:, :, here] * before + part * now
            rows[:, :, here] = both
        out = out.to(q.dtype)
        ctx.kernel, ctx.group, ctx.causal = kernel, group, causal
        ctx.save_for_backward(q, k, v, out, rows)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of keys and values go along with them, in fp32, and one hop further: home."""
        q, k, v, out, rows = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(x, dtype=rows.dtype) for x in (q, k, v))
        visiting: tuple[Tensor, ...] = k, v
        for hop, (here, there, ahead) in enumerate(blocks(ctx.group, q.size(2), ctx.causal)):
            if hop:
                visiting = passed(visiting, ctx.group)
                dk, dv = passed((dk, dv), ctx.group)
            mine = (x[:, :, here].contiguous() for x in (grad, q))
            theirs = (x[:, :, there] for x in visiting)
            parts = ctx.kernel.back(*mine, *theirs, out[:, :, here], rows[:, :, here].contiguous(), ahead)
            for whole, part, piece in zip((dq, dk, dv), parts, (here, there, there), strict=True):
                whole[:, :, piece] += part
        dk, dv = passed((dk, dv), ctx.group)
        return None, dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


def ring(q: Tensor, k: Tensor, v: Tensor, *, kernel: Kernel, group: Group, causal: bool) -> Tensor:
    """softmax(q kᵀ/√h) v (b t n u) of the rank's queries (b t n h) and all ranks' keys (b t k h) and values (b t k u)."""
    return Ring.apply(kernel, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), group, causal).transpose(1, 2)
