"""A model cut into stages, run by torch's own schedules, and what a rank keeps of it at once.

Narayanan et al. 2021, arXiv:2104.04473, section 2.2: one forward, one backward, and the same of interleaved stages.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

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
        self, embedding: model.Embedding | None, stack: model.Stack | None, head: nn.Module | None, *, first: bool, tied: bool,
        run: Callable[..., Run] = Run,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding, self.stack, self.head = embedding, stack, head
        self.first, self.tied, self.run = first, tied, run
        self.constants: dict[Hashable, Tensor] = {}

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """Tokens (b t) or what the stage before made (b t d), to that, or to logits (b t v)."""
        run = self.run(buffers=self.constants) if run is None else run
        x = self.embedding(x, run) if self.first and self.embedding is not None else x
        x = x if self.stack is None else self.stack(x, run)
        return x if self.head is None else self.head(x, None if self.embedding is None else self.embedding.token)


def schedule(
    parts: Sequence[Stage], ranks: Ranks, microbatches: int, stages: int, ends: tuple[Tensor, Tensor, Tensor]
) -> PipelineScheduleSingle | PipelineScheduleMulti:
    """torch's schedule of this rank's pieces: piece i of the model belongs to rank i mod pp.

    *ends* are examples of what the first stage gets (b t), of what each hands on (b t d) and of what the last makes (b t v).
    """
    first, between, last = ends
    pieces = [
        PipelineStage(
            part, number, stages, torch.device("cpu"), first if number == 0 else between,
            last if number == stages - 1 else between, group=ranks.pp.process,
        )
        for number, part in zip(range(ranks.pp.rank, stages, ranks.pp.size), parts, strict=True)
    ]  # fmt: skip
    loss = partial(mean_loss, group=ranks.tp)
    if len(pieces) == 1:
        return Schedule1F1B(pieces[0], microbatches, loss_fn=loss, scale_grads=False)
    return ScheduleInterleaved1F1B(pieces, microbatches, loss_fn=loss, scale_grads=False)  # type: ignore[arg-type]


def mean_loss(logits: Tensor, targets: Tensor, *, group: Group) -> Tensor:
    """The loss of one microbatch, logits (b t v) at targets (b t)."""
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), group)


def sum_ends(parts: Sequence[Stage], ranks: Ranks) -> None:
    """Add up the gradients of a tied table that the first and the last stage hold."""
    for part in parts:
        if part.tied and part.embedding is not None and part.embedding.token.grad is not None:
            add_up(part.embedding.token.grad, ranks.ends)


class Kept:
    """Bytes of storages that autograd holds, now and at most, over as many forward passes as are under way at once."""

    def __init__(self, skip: Iterable[Tensor], batch: Iterable[Tensor]) -> None:
        self.skip = {place_of(x) for x in skip}
        self.batch = {place_of(x) for x in batch}  # which the schedule cuts into microbatches, views of it
        self.held: dict[tuple[int, int], list[int]] = {}  # how often, and bytes
        self.now = self.most = 0

    def pack(self, x: Tensor) -> Handle:
        """What autograd holds in place of x: gone when autograd lets go."""
        handle, place = Handle(x), place_of(x)
        if place not in self.skip:
            part = place in self.batch
            key = place, int(x.storage_offset()) if part else 0
            entry = self.held.setdefault(key, [0, x.nbytes if part else x.untyped_storage().nbytes()])
            self.now += entry[1] if entry[0] == 0 else 0
            entry[0] += 1
            self.most = max(self.most, self.now)
            weakref.finalize(handle, self.drop, key)
        return handle

    def drop(self, key: tuple[int, int]) -> None:
        """One of those who hold a storage is gone."""
        entry = self.held[key]
        entry[0] -= 1
        if entry[0] == 0:
            self.now -= entry[1]
            del self.held[key]

    def hooks(self) -> saved_tensors_hooks:
        """The context in which all that autograd keeps is counted."""
        return saved_tensors_hooks(self.pack, lambda handle: handle.x)


class Handle:
    """A tensor that autograd holds."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
