"""Attention over a sequence that is split: keys and values go round a ring. Liu et al. 2023, arXiv:2310.01889, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from .ranks import Group

kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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
    """Flash attention of q (b n t h) and k, v (b k t h), t of the rank: keeps these, the output and one number a row."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: Group, causal: bool) -> Tensor:
        """The output (b n t h), merged from that of each block by its log-sum-exp."""
        wide = torch.promote_types(q.dtype, torch.float32)
        out, rows = torch.zeros_like(q, dtype=wide), torch.full(q.shape[:3], -torch.inf, dtype=wide, device=q.device)
        visiting = k, v
        for hop, (here, there, ahead) in enumerate(blocks(group, q.size(2), causal)):
            if hop:
                visiting = passed(visiting, group)
            part, sums = kernel(q[:, :, here], *(x[:, :, there] for x in visiting), 0.0, ahead)  # b n t h, b n t
            both = torch.logaddexp(rows[:, :, here], sums)
            out[:, :, here] = out[:, :, here] * (rows[:, :, here] - both).exp()[..., None] + part * (sums - both).exp()[..., None]
            rows[:, :, here] = both
        out = out.to(q.dtype)
        ctx.group, ctx.causal = group, causal
        ctx.save_for_backward(q, k, v, out, rows)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """The gradients of keys and values go along with them, in fp32, and one hop further: home."""
        q, k, v, out, rows = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(x, dtype=rows.dtype) for x in (q, k, v))
        visiting = k, v
        for hop, (here, there, ahead) in enumerate(blocks(ctx.group, q.size(2), ctx.causal)):
            if hop:
                visiting, (dk, dv) = passed(visiting, ctx.group), passed((dk, dv), ctx.group)
            mine = (x[:, :, here].contiguous() for x in (grad, q))
            theirs = (x[:, :, there] for x in visiting)
            parts = kernel_backward(*mine, *theirs, out[:, :, here], rows[:, :, here].contiguous(), 0.0, ahead)
            for whole, part, piece in zip((dq, dk, dv), parts, (here, there, there), strict=True):
                whole[:, :, piece] += part
        dk, dv = passed((dk, dv), ctx.group)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


def ring(q: Tensor, k: Tensor, v: Tensor, *, group: Group, causal: bool) -> Tensor:
    """softmax(q kᵀ/√h) v (b t n h) of the rank's queries (b t n h) and all ranks' keys and values (b t k h)."""
    return Ring.apply(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), group, causal).transpose(1, 2)
