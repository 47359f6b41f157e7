"""All that the devices of a layout send in one step: inside each pipeline rank, between ranks, and once for the weights."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget import Budget
from ..model import Model
from ..tensor import Tensor
from .collectives import Collective, collectives, gradients, sends
from .layout import Layout
from .memory import Serving, Training
from .shard import Shards
from .stages import Stage, stages


def traffic(model: Model, layout: Layout, run: Training | Serving) -> tuple[tuple[Collective, ...], ...]:
    """The collectives of a device of each pipeline rank in one step, all its microbatches included."""
    pieces = stages(model, layout)
    found: list[list[Collective]] = [[] for _ in range(layout.pp)]
    tied = layout.pp > 1 and any(_holds_table(piece) for piece in pieces[1:])
    for index, piece in enumerate(pieces):
        budget = run.budget(piece)
        rank = found[index % layout.pp]
        rank += _of_microbatches([*collectives(budget, layout), *_handed_on(budget, layout, piece)], run)
        rank += gradients(budget, layout)
        if tied and (piece.first or _holds_table(piece)):
            rank += _of_tied(budget, layout)
    return tuple(map(tuple, found))


def _of_microbatches(found: list[Collective], run: Training | Serving) -> Iterator[Collective]:
    times = run.microbatches if isinstance(run, Training) else 1
    return (one._replace(copies=one.copies * times) for one in found)


def _handed_on(budget: Budget, layout: Layout, piece: Stage) -> Iterator[Collective]:
    """A stage sends its output on, and the gradient of its input back."""
    step = budget.step
    stream = Tensor(("b", "t", "d"), (step.b, step.t, piece.model.embedding.d))
    for phase, end in (("forward", piece.last), ("backward", piece.first)):
        if not end:
            yield from (one for one in sends(stream, layout, budget, "stream") if one.phase == phase)


def _holds_table(piece: Stage) -> bool:
    """Does a piece without the embedding look up, or multiply with, the token table?"""
    head = piece.model.head
    return piece.last and not piece.first and (getattr(head, "tied", False) or bool(piece.model.predictors))


def _of_tied(budget: Budget, layout: Layout) -> Iterator[Collective]:
    """Both ends of the pipeline hold the token table, and add up its gradients once a step."""
    shards = Shards(layout, budget)
    for table in {weight for line in budget.lines for weight in line.weights if weight.role == "table" and "v" in weight.axes}:
        if table.grad and budget.step.training:
            yield Collective("table", "step", "all-reduce", "pp", 2, shards.tensor(table).numel, "matrix", 1)
