"""The process groups that one rank belongs to, and which positions of the sequence it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor

from ...parallel.layout import Layout


@dataclass(frozen=True)
class Group:
    """One group of ranks. Inside a *sequence* parallel one, what no rank owns is split along the sequence."""

    process: dist.ProcessGroup | None = None  # None: the rank is alone
    size: int = 1
    rank: int = 0
    sequence: bool = False
    ulysses: bool = False  # context ranks that exchange positions for heads

    def rows(self, x: Tensor, dim: int) -> Tensor:
        """The rank's part of x along an axis: a view."""
        return x.chunk(self.size, dim)[self.rank] if self.sequence else x


ALONE = Group()


@dataclass(frozen=True)
class Ranks:
    """The groups of one rank, by the engine's names: *dp* are those who hold the same part of a weight, data and context
    ranks, *edp* the same part of an expert's. Tensor-parallel ranks are neighbours, then context, data, pipeline ranks follow.
    """

    tp: Group = ALONE
    cp: Group = ALONE
    pp: Group = ALONE
    ends: Group = ALONE  # the first and the last stage
    ep: Group = ALONE
    etp: Group = ALONE
    dp: Group = ALONE
    edp: Group = ALONE

    def positions(self, t: int) -> Tensor:
        """Which positions of the whole sequence the rank's t are: all, or one piece from the front and one from the back,
        so that every context rank sees as many pairs of a causal mask. Brandon et al. 2023, arXiv:2311.09431, section 3.2."""
        if self.cp.size == 1:
            return torch.arange(t)
        pieces = torch.arange(t * self.cp.size).chunk(2 * self.cp.size)
        return torch.cat((pieces[self.cp.rank], pieces[-1 - self.cp.rank]))


def groups(layout: Layout) -> Ranks:
    """Make the groups of *layout*, whose devices are all ranks of the default group. Every rank must call it."""
    tp, cp, pp, dp, ep, etp = (int(size) for size in (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep, layout.expert_tp))
    every = torch.arange(tp * cp * pp * dp)
    grid = every.view(pp, dp, cp, tp)
    bank = every.view(pp, -1, ep, etp)

    def group(rows: Tensor, *, sequence: bool = False) -> Group:
        """That of the rows (ranks, size) in which this rank stands."""
        if rows.size(1) == 1:
            return ALONE
        process, _ = dist.new_subgroups_by_enumeration(rows.tolist())
        return ALONE if process is None else Group(process, rows.size(1), dist.get_rank(process), sequence)

    pipelines = grid.movedim(0, -1).reshape(-1, pp)
    return Ranks(
        tp=group(grid.flatten(0, 2), sequence=layout.sequence),
        cp=replace(group(grid.movedim(2, -1).reshape(-1, cp)), ulysses=layout.ulysses),
        pp=group(pipelines),
        ends=group(pipelines[:, sorted({0, pp - 1})]),
        ep=group(bank.movedim(2, -1).reshape(-1, ep)),
        etp=group(bank.reshape(-1, etp), sequence=layout.sequence),
        dp=group(grid.flatten(1, 2).movedim(1, -1).reshape(-1, dp * cp)),
        edp=group(bank.movedim(1, -1).reshape(-1, bank.size(1))),
    )


@cache
def of_one_head(ranks: Ranks, k: int) -> Group:
    """The tensor-parallel ranks that have this rank's key-value head, of fewer heads than ranks. Every rank must call it."""
    size = ranks.tp.size // k
    if size <= 1:
        return ALONE
    process, _ = dist.new_subgroups(size)
    return Group(process, size, dist.get_rank(process))
