"""All that the devices of a layout send in one step: inside each pipeline rank, between ranks, and once for the weights."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget import Budget, Widths
from ..memory.held import Serving, Training
from ..model import Model
from ..parallel.collectives import Collective, collectives, ends, gradients, sends
from ..parallel.layout import Layout
from ..parallel.shard import WEIGHTS, check
from ..parallel.stages import Stage, stages
from ..tensor import Tensor


def traffic(model: Model, layout: Layout, run: Training | Serving) -> tuple[tuple[Collective, ...], ...]:
    """The collectives of a device of each pipeline rank in one step, all its microbatches included."""
    pieces = stages(model, layout)
    found: list[list[Collective]] = [[] for _ in range(layout.pp)]
    for index, piece in enumerate(pieces):
        budget = run.budget(piece)
        check(budget, layout)
        rank = found[index % layout.pp]
        rank += _of_microbatches([*collectives(budget, layout), *_handed_on(budget, layout, piece)], run)
        rank += gradients(budget, layout)
    tied = ends(budget, layout)
    found[0] += tied
    if layout.pp > 1:
        found[-1] += tied
    return tuple(map(tuple, found))


def widths_of(one: Collective, run: Training | Serving) -> Widths:
    """Bytes an element: gradients of weights are summed in the optimizer's type, all else is in the type computed in."""
    computed = run.precision.activation.width
    summed = run.optimizer.gradient.width if isinstance(run, Training) else computed
    return {**run.precision.widths(), **dict.fromkeys(WEIGHTS, summed if one.path == "gradients" else computed)}


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
