"""Attention over a sequence that is split: ranks exchange positions for heads, and back. Jacobs et al. 2023, arXiv:2309.14509,
section 3.1, on the pieces that a causal mask is evened out by."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from .ranks import Group
from .ring import Kernel


def exchanged(x: Tensor, group: Group) -> Tensor:
    """The i-th part of x (ranks …) of each rank, of the i-th rank; in the order of the ranks."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    dist.all_to_all_single(out, x.contiguous(), group=group.process)
    return out


def of_heads(x: Tensor, group: Group) -> Tensor:
    """The rank's heads of whole sequences (b n/cp t·cp h), from all heads of the rank's positions (b n t h)."""
    parts = exchanged(x.unflatten(1, (group.size, -1)).movedim(1, 0), group)  # ranks b n/cp t h
    front, back = parts.chunk(2, dim=3)  # the i-th piece from the front, and from the back
    return torch.cat((*front, *reversed(back.unbind())), dim=2)


def of_positions(x: Tensor, group: Group) -> Tensor:
    """The other way: (b n/cp t·cp h) to (b n t h)."""
    pieces = x.chunk(2 * group.size, dim=2)
    parts = [torch.cat((pieces[rank], pieces[-1 - rank]), dim=2) for rank in range(group.size)]
    return exchanged(torch.stack(parts), group).movedim(0, 1).flatten(1, 2)


class Ulysses(Function):
    """Attention in one kernel of q (b n t h), k (b k t h), v (b k t u), t of the rank: keeps these, the output and one number a
    row, all of the rank's heads and whole sequences. What it returns is of the rank's positions, and a tensor more."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, group: Group, causal: bool) -> Tensor:
        """The output (b n t u)."""
        q, k, v = (of_heads(x, group) for x in (q, k, v))
        out, rows = kernel.forth(q, k, v, causal)  # b n/cp t·cp u, b n/cp t·cp
        ctx.kernel, ctx.group, ctx.causal = kernel, group, causal
        ctx.save_for_backward(q, k, v, out, rows)
        return of_positions(out, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients go the same ways."""
        q, k, v, out, rows = ctx.saved_tensors
        parts = ctx.kernel.back(of_heads(grad, ctx.group), q, k, v, out, rows, ctx.causal)
        return None, *(of_positions(part, ctx.group) for part in parts), None, None


def ulysses(q: Tensor, k: Tensor, v: Tensor, *, kernel: Kernel, group: Group, causal: bool) -> Tensor:
    """softmax(q kᵀ/√h) v (b t n u) of the rank's positions of all heads, q (b t n h), k (b t k h), v (b t k u)."""
    return Ulysses.apply(kernel, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), group, causal).transpose(1, 2)
