"""A model cut into stages, run by torch's own schedules, and what a rank keeps of it at once.

Narayanan et al. 2021, arXiv:2104.04473, section 2.2: one forward, one backward, and the same of interleaved stages.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

from .. import model
from ..context import Run
from ..measure import place_of
from .model import cross_entropy
from .ranks import Group, Ranks
from .weights import add_up


class Stage(nn.Module):
    """Consecutive layers, behind the embedding if they are the first, before the head if they are the last.

    A tied table is held by both ends. All microbatches share its *constants*, rotary tables and masks.
    """

    def __init__(
        self, embedding: model.Embedding | None, stack: model.Stack | None, head: nn.Module | None,
        table: nn.Parameter | None, *, tied: bool, run: Callable[..., Run] = Run,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding, self.stack, self.head, self.table = embedding, stack, head, table
        self.constants: dict[Hashable, Tensor] = {}
        self.tied, self.run = tied, run

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (b t) or what the stage before made (b t d), to that, or to logits (b t v)."""
        run = self.run(buffers=self.constants)
        for part in (self.embedding, self.stack):
            x = x if part is None else part(x, run)
        table = self.embedding.token if self.table is None and self.embedding is not None else self.table
        return x if self.head is None else self.head(x, table)


def schedule(
    parts: Sequence[Stage], ranks: Ranks, microbatches: int, stages: int
) -> PipelineScheduleSingle | PipelineScheduleMulti:
    """torch's schedule of this rank's pieces: piece i of the model belongs to rank i mod pp."""
    group, device = ranks.pp.process, torch.device("cpu")
    pieces = [
        PipelineStage(part, ranks.pp.rank + i * ranks.pp.size, stages, device, group=group) for i, part in enumerate(parts)
    ]
    loss = partial(mean_loss, group=ranks.tp)
    if len(pieces) == 1:
        return Schedule1F1B(pieces[0], microbatches, loss_fn=loss, scale_grads=False)
    return ScheduleInterleaved1F1B(pieces, microbatches, loss_fn=loss, scale_grads=False)  # type: ignore[arg-type]


def mean_loss(logits: Tensor, targets: Tensor, *, group: Group) -> Tensor:
    """The loss of one microbatch, logits (b t v) at targets (b t)."""
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), group)


def sum_ends(parts: Sequence[Stage], ranks: Ranks) -> None:
    """Add up the gradients of a tied table that the first and the last stage hold."""
    tables = [part.table if part.embedding is None else part.embedding.token for part in parts if part.tied]
    for table in tables:
        if table is not None:
            add_up(table.grad, ranks.ends)


class Kept:
    """Bytes of storages that autograd holds, now and at most, over as many forward passes as are under way at once."""

    def __init__(self, skip: Iterable[Tensor]) -> None:
        self.skip = {place_of(x) for x in skip}
        self.held: dict[int, list[int]] = {}  # how often, and bytes
        self.now = self.most = 0

    def pack(self, x: Tensor) -> Any:
        """What autograd holds in place of x: gone when autograd lets go."""
        place, size = place_of(x), x.untyped_storage().nbytes()
        handle = Handle(x)
        if place not in self.skip:
            entry = self.held.setdefault(place, [0, size])
            self.now += size if entry[0] == 0 else 0
            entry[0] += 1
            self.most = max(self.most, self.now)
            weakref.finalize(handle, self.drop, place)
        return handle

    def drop(self, place: int) -> None:
        """One of those who hold a storage is gone."""
        entry = self.held[place]
        entry[0] -= 1
        if entry[0] == 0:
            self.now -= entry[1]
            del self.held[place]

    def hooks(self) -> saved_tensors_hooks:
        """The context in which all that autograd keeps is counted."""
        return saved_tensors_hooks(self.pack, lambda handle: handle.x)


class Handle:
    """A tensor that autograd holds."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
