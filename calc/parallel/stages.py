"""Pipelining: which layers, tables and heads each stage holds, and how many microbatches it keeps at once.

A stage is traced like the model, with fewer layers: the same declarations write its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..blocks.wiring import Blended
from ..budget import Budget
from ..declare import declaration
from ..dims import Dim
from ..errors import InputError, UndefinedError
from ..model import Embedding, LMHead, Model, Stack, check_targets
from ..recorder import Recompute
from ..tape import Tape
from ..tensor import Adapters, Kernels, Step, Tensor
from .layout import Layout


@declaration
class Stage:
    """Consecutive layers of a model, behind its embedding if they are the first, before its head if they are the last.

    A tied table is held by both ends, each of which adds to its gradient.
    """

    model: Model
    layers: Stack | None  # None where the stage has no layers, only an end of the model
    first: bool
    last: bool

    def budget(
        self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none", adapters: Adapters | None = None
    ) -> Budget:
        """What the stage costs for one microbatch in *step*."""
        if self.first and self.last:  # the whole model, its encoder included
            return self.model.budget(step, kernels, recompute, adapters)
        step = self.model.fit(step)
        tape = Tape(step, kernels, recompute, adapters)
        self.trace(tape)
        check_targets(tape)
        runs: Callable[[], tuple[tuple[str, Dim], ...]] = tuple if self.layers is None else self.layers.runs
        return Budget(tape.lines, tape.carries, tape.buffers, step, tape.kernels, recompute, runs)

    def trace(self, tape: Tape) -> Tensor:
        """What the stage hands on (b t d), or the model's output."""
        model, step = self.model, tape.step
        table: Any = model.embedding.table(tape)  # None where there are no tokens
        if self.first:
            x: Tensor = tape.call("embedding", model.embedding, table)
        else:
            x = tape.tensor(("b", "t", "d"), (step.b, step.t, model.embedding.d))
        if self.layers is not None:
            x = tape.call(self.layers.name, self.layers, x)
        return model.output(tape, x, table) if self.last else x


def stages(model: Model, layout: Layout) -> tuple[Stage, ...]:
    """The pipeline's pieces in order: piece i belongs to rank i mod pp.

    The layers are dealt out evenly unless the layout says otherwise; the embedding stands before the first piece, the
    head behind the last. Raises InputError where they cannot be.
    """
    count = layout.pp * layout.chunks
    if count == 1 and not layout.stages:
        return (Stage(model=model, layers=model.stack, first=True, last=True),)
    order = [name for name, times in model.stack.runs() for _ in range(times)]
    if count > 1:
        _check(model, layout)
    shares = layout.stages or _even(len(order), count)
    if sum(shares) != len(order):
        raise InputError(f"Layout: stages of {', '.join(map(str, shares))} layers hold {sum(shares)}, but l = {len(order)}")
    if any(share < 0 for share in shares):
        raise InputError("Layout: a stage cannot hold fewer than 0 layers")
    found, start = [], 0
    for index, share in enumerate(shares):
        part = _part(model.stack, order[start : start + share], last=index == count - 1)
        found.append(Stage(model=model, layers=part, first=index == 0, last=index == count - 1))
        start += share
    return tuple(found)


def _even(layers: int, count: int) -> tuple[int, ...]:
    if layers % count:
        raise InputError(
            f"Layout: l = {layers} layers are not divisible by pp·chunks = {count}: give the layers of each stage (--stages)"
        )
    return (layers // count,) * count


def _check(model: Model, layout: Layout) -> None:
    if model.encoder is not None:
        raise UndefinedError(f"pipeline stages of {model.name}: an encoder beside a decoder is not declared for them")
    blended = any(isinstance(layer.block, Blended) for layer in model.stack.layers)
    if model.stack.exit is not None or blended:
        raise UndefinedError(f"pipeline stages of {model.name}: its layers read the stream of layers far before them")
    if layout.ep != 1 and all(line.bank == 1 for line in model.budget(Step.forward(1, 1)).lines):
        raise InputError(f"Layout: ep = {layout.ep}, but there is no bank of experts to spread")


def _part(stack: Stack, names: Sequence[str], *, last: bool) -> Stack | None:
    """The stack of these layers, by their full names; its norm stands behind the last layer alone."""
    if not names and not (last and (stack.norm is not None or stack.i is not None)):
        return None
    runs: list[tuple[str, int]] = []
    for name in (name.removeprefix(f"{stack.name}.") for name in names):
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    counts: dict[str, int] = {}
    for name, times in runs:
        counts[name] = counts.get(name, 0) + times
    known = {layer.name: layer for layer in stack.layers}
    layers = tuple(replace(known[name], l=times) for name, times in counts.items())
    return replace(
        stack, layers=layers, order=tuple(runs), norm=stack.norm if last else None, i=stack.i if last else None
    )


def padded(model: Model, multiple: int) -> Model:
    """The model with its vocabulary rounded up to a multiple, table and head alike, as Megatron-LM pads it."""
    if not isinstance(model.embedding, Embedding):
        raise InputError(f"vocabulary padding: {model.name} looks up no tokens")
    v = -(-model.embedding.v // multiple) * multiple
    head = replace(model.head, v=v) if isinstance(model.head, LMHead) else model.head
    return replace(model, embedding=replace(model.embedding, v=v), head=head)


# -- what a rank keeps at once -----------------------------------------------------------------------------------------


def in_flight(layout: Layout, rank: int, microbatches: int) -> list[list[int]]:
    """The pieces of which a rank holds a microbatch's activations, one list a moment, at each forward of the schedule.

    One forward, one backward (Narayanan et al. 2021, section 2.2.1): at most min(pp − rank, m). Interleaved (section
    2.2.2): the first rank warms up with 2(pp − 1) + (chunks − 1)·pp forwards, so that it holds pp·chunks + pp − 1 of its
    pieces. Pieces are counted from 0 on the rank.
    """
    pp, chunks = layout.pp, layout.chunks
    total = microbatches * chunks
    if chunks == 1:
        warm = pp - rank - 1
    else:
        if microbatches % pp:
            raise InputError(f"interleaved stages: {microbatches} microbatches are not divisible by pp = {pp}")
        warm = 2 * (pp - rank - 1) + (chunks - 1) * pp
    held: list[int] = []
    moments: list[list[int]] = []
    for number in range(min(total, warm + 1 + 2 * pp * chunks)):
        if number > warm:
            held.remove(chunks - 1 - (number - warm - 1) // pp % chunks)
        held.append(number // pp % chunks)
        moments.append(list(held))
    return moments
