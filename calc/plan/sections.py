"""Stages taken apart into sections: the lines of a distinct layer, which any stage has once a layer, and those outside.

Layers hand on nothing but the stream, so that what a stage takes and keeps is the sum over its layers. Lines with experts
stand apart from the rest, which neither the experts' ranks nor their tensor ranks change. A model whose layers read more of
each other is not taken apart: each stage is a section of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar

from ..budget import Budget, Widths, storage
from ..memory.held import Training
from ..model import Model
from ..parallel.layout import Layout
from ..parallel.stages import Stage, stages
from ..recorder import Carry, Recompute
from ..tensor import Line, Tensor
from .layouts import Split, least_data, shares
from .task import MODES

T = TypeVar("T")
Kinds = tuple[int, ...]
"""The kinds of a rank's pieces, in order."""

class Section(NamedTuple):
    """Lines of a stage of this kind, which has so many layers of them: those of a layer, or outside of layers.

    ``experts`` says whether ranks of experts split them; ``part``, whether they are all lines of the stage, of the layer, or of
    the layer only those with experts, or without.
    """

    kind: int
    times: int = 1
    layer: str | None = None
    experts: bool = True
    part: Literal["all", "layer", "place"] = "all"  # which of the stage's lines

    def cut(self, split: Split) -> Split:
        """What of a split cuts its lines: ranks of experts cut nothing else."""
        return split if self.experts else Split(split.tp, split.cp, 1, split.tp, split.sequence)


def layout(split: Split, dp: int | None = None, zero: int = 0) -> Layout:
    """Of a stage of several, which may have no experts; with as few data ranks as can be unless given."""
    return split.layout(least_data(split) if dp is None else dp, 2, zero=zero)


Mix = tuple[tuple[Section, int], ...]
"""Sections, and how many layers there are of each."""


class Sections:
    """The stages of one run of a model. Remembers; asks each question of the engine once."""

    def __init__(self, model: Model, run: Training) -> None:
        self.model, self.run = model, run
        self.layers = sum(int(count) for _, count in model.stack.runs())
        self._made: dict[object, object] = {}
        self._kinds: dict[object, int] = {}
        self._stages: list[Stage] = []
        self._outside: dict[object, Section] = {}
        self.whole = self.pieces(1, 1)
        self.apart = all(_apart(self.budget(self.whole[0], 1, mode), run.precision.widths()) for mode in MODES)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What was made for the key, or is made now."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found  # type: ignore[return-value]

    # -- pieces --------------------------------------------------------------------------------------------------------

    def pieces(self, pp: int, chunks: int) -> Kinds:
        """The kind of every piece of the model in order."""
        return self.once(("pieces", pp, chunks), lambda: self._pieces(pp, chunks))

    def _pieces(self, pp: int, chunks: int) -> Kinds:
        layout = Layout(pp=pp, chunks=chunks, stages=shares(self.layers, pp * chunks))
        found = []
        for stage in stages(self.model, layout):
            stack = stage.layers
            key = stack and (stack.order, tuple((layer.name, layer.l) for layer in stack.layers)), stage.first, stage.last
            if key not in self._kinds:
                self._kinds[key] = len(self._stages)
                self._stages.append(stage)
            found.append(self._kinds[key])
        return tuple(found)

    def ranks(self, pp: int, chunks: int) -> tuple[tuple[Kinds, int], ...]:
        """The distinct ranks of a pipeline, as the kinds of their pieces in any order, and how many of these send on."""

        def make() -> tuple[tuple[Kinds, int], ...]:
            pieces = self.pieces(pp, chunks)
            return tuple(dict.fromkeys((tuple(sorted(pieces[rank::pp])), chunks - (rank == pp - 1)) for rank in range(pp)))

        return self.once(("ranks", pp, chunks), make)

    def budget(self, kind: int, microbatch: int, mode: Recompute) -> Budget:
        """The whole trace of a stage."""

        def make() -> Budget:
            run = replace(self.run, step=replace(self.run.step, b=microbatch))
            return run.budget(self._stages[kind], mode)

        return self.once(("budget", kind, microbatch, mode), make)

    # -- sections ------------------------------------------------------------------------------------------------------

    def mix(self, kinds: Kinds, *, layers: bool = False) -> Mix:
        """The sections of these pieces; whole *layers*, or those of their lines that have experts apart."""

        def make() -> Mix:
            found = Counter[Section]()
            for kind in kinds:
                for section, count in self._sections(kind, layers):
                    found[section] += count
            return tuple(found.items())

        return self.once(("mix", kinds, layers), make)

    def _sections(self, kind: int, layers: bool) -> Iterator[tuple[Section, int]]:
        """Those of a stage. Layers are those of the whole model."""
        if not self.apart:
            yield Section(kind), 1
            return
        budget = self.budget(kind, 1, "none")
        counts, whole = _counts(budget), _counts(self.budget(self.whole[0], 1, "none"))
        places = _places(budget.lines)
        for (layer, experts), lines in places.items():
            if layers and experts and (layer, False) in places:
                continue
            one = Section(kind, 1, layer, experts or (layers and (layer, True) in places), "layer" if layers else "place")
            if layer is not None:
                yield one._replace(kind=self.whole[0], times=whole[layer]), counts[layer]
            else:
                key = layers, experts, tuple(line.path for line in (budget.lines if layers else lines) if line.layer is None)
                yield self._outside.setdefault(key, one), 1

    def lines(self, section: Section, microbatch: int, mode: Recompute) -> Budget:
        """The trace of a section, with all its layers."""

        def make() -> Budget:
            whole, layer = self.budget(section.kind, microbatch, mode), section.layer
            if section.part == "all":
                return whole
            if section.part == "place":
                places = self.once(("places", section.kind, microbatch, mode), lambda: _places(whole.lines))
                return _only(whole, places.get((layer, section.experts), ()))
            carries = (carry for carry in whole.carries if carry.layer == layer)
            return _only(whole, (line for line in whole.lines if line.layer == layer), carries)

        return self.once(("lines", section, microbatch, mode), make)


def _only(whole: Budget, lines: Iterable[Line], carries: Iterable[Carry] = ()) -> Budget:
    return Budget(lines, carries, whole.buffers, whole.step, whole.kernels, whole.recompute)


def _counts(budget: Budget) -> Counter[str]:
    """How many layers of each name there are."""
    found = Counter[str]()
    for name, count in budget.order():
        found[name] += int(count)
    return found


def _places(lines: Iterable[Line]) -> dict[tuple[str | None, bool], list[Line]]:
    """Lines by the layer in which they stand, and whether they have experts. A module whose lines have experts is one of
    experts, so that what enters it enters once."""
    lines = tuple(lines)
    experts = {_owner(line) for line in lines if _has_experts(line)}
    found: dict[tuple[str | None, bool], list[Line]] = {}
    for line in lines:
        found.setdefault((line.layer, _owner(line) in experts), []).append(line)
    return found


def _owner(line: Line) -> tuple[str | None, str]:
    return line.layer, line.path.rpartition(".")[0]


def _has_experts(line: Line) -> bool:
    tensors = (*line.read, *line.written, *line.saved, *line.weights)
    return line.bank != 1 or line.kind in ("gather", "scatter") or any("a" in tensor.axes for tensor in tensors)


def _apart(budget: Budget, widths: Widths) -> bool:
    """Is what its layers take and keep the sum over them?

    Each line and tensor of a layer is there once a layer; no line uses a tensor that a line of another layer, or outside,
    uses too, and no weight that lines with experts and others share; the stream is kept by none but the layer it enters.
    """
    counts, places, buffers = _counts(budget), _places(budget.lines), set(budget.buffers)
    received = {carry.layer: carry.received for carry in budget.carries}
    layers = dict.fromkeys(layer for layer, _ in places)
    if set(layers) - {None} != set(received) or set(received) != set(counts):
        return False
    users = Counter[Tensor]()
    for lines in places.values():
        users.update({weight for line in lines for weight in line.weights})
    for layer in layers:
        lines = [line for line in budget.lines if line.layer == layer]
        saved = {x for line in lines for x in line.saved} - buffers
        used = {x for line in lines for x in (*line.read, *line.written)} - buffers | saved
        users.update({storage(x, widths) for x in used} - buffers)
        kept = {storage(x, widths) for x in saved}
        if layer is None:
            alone = kept.isdisjoint(carry.before for carry in budget.carries)
        else:
            copies = [line.copies for line in lines]
            copies += [x.copies for line in lines for x in (*line.written, *line.weights)]
            copies += [x.copies for x in saved - {received[layer]}]
            alone = all(number % counts[layer] == 0 for number in copies)
        if not alone or any(carry.returned in kept for carry in budget.carries):
            return False
    return max(users.values(), default=1) == 1
