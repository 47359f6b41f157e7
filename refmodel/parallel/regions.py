"""Where a tensor enters what ranks own, and leaves it: a communication forward, and its opposite backward.

Without sequence parallelism (f and g of Shoeybi et al. 2019, arXiv:1909.08053, figure 3) one of the two is nothing; with it
(Korthikanti et al. 2022, arXiv:2205.05198, figures 5 and 6) the sequence is gathered and scattered. Positions are the last
axis but one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from .ranks import Group

POSITIONS = -2
"""The axis of the sequence, of (b t d) and of an expert's rows (e rows d)."""


def total(x: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' x."""
    out = x.clone()
    dist.all_reduce(out, group=group.process)
    return out


def gathered(x: Tensor, group: Group) -> Tensor:
    """All ranks' x, one behind the other along the sequence."""
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(group.size)]
    dist.all_gather(parts, x.contiguous(), group=group.process)
    return torch.cat(parts, POSITIONS)


def scattered(x: Tensor, group: Group) -> Tensor:
    """The rank's part along the sequence of the sum of all ranks' x."""
    parts = [part.contiguous() for part in x.chunk(group.size, POSITIONS)]
    out = torch.empty_like(parts[0])
    dist.reduce_scatter(out, parts, group=group.process)
    return out


class Enter(Function):
    """Forward nothing, backward the sum: *f* of Shoeybi et al. 2019. With sequence parallelism the gather of g below."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return gathered(x, group) if group.sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return (scattered if ctx.group.sequence else total)(grad, ctx.group), None


class Leave(Function):
    """Forward the sum, backward nothing: *g* of Shoeybi et al. 2019. With sequence parallelism scatter and gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return (scattered if group.sequence else total)(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return gathered(grad, ctx.group) if ctx.group.sequence else grad, None


class Exchange(Function):
    """As many rows of x from each rank to each other, and back. Lepikhin et al. 2020, arXiv:2006.16668, section 3.2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return exchanged(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return exchanged(grad, ctx.group), None


def exchanged(x: Tensor, group: Group) -> Tensor:
    """The i-th part of x (rows first) of each rank, of the i-th rank; in the order of the ranks."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    dist.all_to_all_single(out, x.contiguous(), group=group.process)
    return out


def enter(x: Tensor, group: Group) -> Tensor:
    """x as those who own parts of what is made of it need it."""
    return x if group.size == 1 else Enter.apply(x, group)


def leave(x: Tensor, group: Group) -> Tensor:
    """The sum of what the ranks made of the parts that they own."""
    return x if group.size == 1 else Leave.apply(x, group)


def exchange(x: Tensor, group: Group) -> Tensor:
    """Rows of x (ranks first) to and from the others."""
    return x if group.size == 1 else Exchange.apply(x, group)
