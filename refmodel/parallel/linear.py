"""Matrices cut by what they make (columns) and what they sum over (rows). Shoeybi et al. 2019, arXiv:1909.08053, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from .ranks import Group
from .regions import enter, gathered, leave, scattered


class Columns(Function):
    """Linear maps of one x of which each rank has its part of the sequence: gathered forward, and again backward.

    Only the rank's part of x is kept: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, *matrices: Tensor | None) -> tuple[Tensor, ...]:
        """x (b t/tp d), then a weight and a bias for each map."""
        weights, biases = matrices[::2], matrices[1::2]
        ctx.group, ctx.biased = group, [bias is not None for bias in biases]
        ctx.save_for_backward(x, *weights)
        whole = gathered(x, group)  # b t d
        return tuple(F.linear(whole, weight, bias) for weight, bias in zip(weights, biases, strict=True))  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        whole = gathered(x, ctx.group).flatten(0, -2)  # b·t d
        flat = [grad.flatten(0, -2) for grad in grads]  # b·t made
        made: list[Tensor | None] = []
        for grad, biased in zip(flat, ctx.biased, strict=True):
            made += [grad.T @ whole, grad.sum(0) if biased else None]
        dx = sum(grad @ weight for grad, weight in zip(grads, weights, strict=True))  # b t d
        return scattered(dx, ctx.group), None, *made


class ColumnParallel(nn.Module):
    """A linear layer of which the rank has some of the outputs."""

    def __init__(self, local: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = local.weight, local.bias  # f/tp d, f/tp

    def owned(self) -> Iterator[nn.Parameter]:
        """All of it is the rank's part of something."""
        return self.parameters()


def columns(x: Tensor, group: Group, *linears: ColumnParallel | None) -> list[Tensor]:
    """What column-parallel linears (those that there are) make of one x, which enters once for all of them."""
    return maps(x, group, *(part for linear in linears if linear is not None for part in (linear.weight, linear.bias)))


def maps(x: Tensor, group: Group, *matrices: Tensor | None) -> list[Tensor]:
    """The same of weights and biases."""
    if group.sequence:
        return list(Columns.apply(x, group, *matrices))
    x = enter(x, group)
    return [F.linear(x, weight, bias) for weight, bias in zip(matrices[::2], matrices[1::2], strict=True)]  # type: ignore[arg-type]


class RowParallel(nn.Module):
    """A linear layer that sums over what ranks own. Its bias is whole, and added once, to the sum."""

    def __init__(self, local: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        self.weight, self.bias = local.weight, local.bias  # d f/tp, d

    def owned(self) -> Iterator[nn.Parameter]:
        """The rank's part of the matrix."""
        yield self.weight  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        """x (… f/tp) to (… d), the rank's positions."""
        out = leave(F.linear(x, self.weight), self.group)
        return out if self.bias is None else out + self.bias
