"""What a search has counted once: of each kind of pipeline stage under each split, its time and its bytes.

A candidate's time is put together from these, and equals ``training_step``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..budget import Budget
from ..errors import BlockcalcError
from ..memory.held import States
from ..parallel.collectives import gradients
from ..parallel.layout import Layout
from ..parallel.shard import shard
from ..parallel.stages import Stage, in_flight, stages
from ..timing.roofline import links, roofline
from ..timing.serving import boundaries
from ..timing.training import bubble, optimizer_traffic
from .layouts import Split, least_data, shares

if TYPE_CHECKING:
    from .search import Candidate, Task

T = TypeVar("T")
Kinds = tuple[int, ...]
"""The kinds of a rank's pieces, in order."""

SAFE = 1 - 1e-9
"""Sums of seconds in another order differ by less."""

ROUNDED = 1 - 1e-3
"""Whole bytes of the experts that a microbatch reaches are off by less."""

REDUCED = 4
"""Bytes an element in which gradients are summed over data ranks, as ``training_step`` has it."""


class Sums(NamedTuple):
    """Seconds of one microbatch: lines, collectives that wait and those beside computation."""

    local: float = 0.0
    waits: float = 0.0
    beside: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """One after the other."""
        return Sums(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def seconds(self) -> float:
        """What is not hidden."""
        return self.local + self.waits + max(0.0, self.beside - self.local)


class Known:
    """Remembers; asks each question of the engine once."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._made: dict[object, object] = {}
        self._kinds: dict[object, int] = {}
        self._stages: list[Stage] = []
        self.whole = self.pieces(1, 1)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What was made for the key, or is made now."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    # -- stages --------------------------------------------------------------------------------------------------------

    def pieces(self, pp: int, chunks: int) -> Kinds:
        """The kind of every piece of the model in order."""
        return self.once(("pieces", pp, chunks), lambda: self._pieces(pp, chunks))

    def _pieces(self, pp: int, chunks: int) -> Kinds:
        layout = Layout(pp=pp, chunks=chunks, stages=shares(self.task.layers, pp * chunks))
        found = []
        for stage in stages(self.task.model, layout):
            stack = stage.layers
            key = stack and (stack.order, tuple((layer.name, layer.l) for layer in stack.layers)), stage.first, stage.last
            if key not in self._kinds:
                self._kinds[key] = len(self._stages)
                self._stages.append(stage)
            found.append(self._kinds[key])
        return tuple(found)

    def ranks(self, pp: int, chunks: int) -> dict[tuple[Kinds, int], int]:
        """The distinct ranks of a pipeline, as their pieces and how many of these send on, each with the first of its kind."""

        def make() -> dict[tuple[Kinds, int], int]:
            pieces = self.pieces(pp, chunks)
            found: dict[tuple[Kinds, int], int] = {}
            for rank in range(pp):
                found.setdefault((pieces[rank::pp], chunks - (rank == pp - 1)), rank)
            return found

        return self.once(("ranks", pp, chunks), make)

    def budget(self, kind: int, microbatch: int, mode: str) -> Budget:
        """The whole trace of a stage."""

        def make() -> Budget:
            run = self.task.run
            run = replace(run, step=replace(run.step, b=microbatch))
            return run.budget(self._stages[kind], mode)  # type: ignore[arg-type]

        return self.once(("budget", kind, microbatch, mode), make)

    def refusal(self, split: Split) -> str:
        """Why the model cannot be split so; empty if it can."""

        def make() -> str:
            try:
                self.passes(self.whole[0], split, 1, "none")
            except BlockcalcError as error:
                return str(error)
            return ""

        return self.once(("refusal", split), make)

    # -- time ----------------------------------------------------------------------------------------------------------

    def passes(self, kind: int, split: Split, microbatch: int, mode: str) -> Sums:
        """One microbatch through a stage."""

        def make() -> Sums:
            setup = self.task.setup._replace(layout=split.layout(least_data(split)))
            time = roofline(self.budget(kind, microbatch, mode), setup)
            beside = sum(part.link for part in time.parts if part.hidden)
            return Sums(time.local, sum(part.link for part in time.parts if not part.hidden), beside)

        return self.once(("passes", kind, split, microbatch, mode), make)

    def sent(self, one: Candidate) -> Sums:
        """What a piece hands on for one microbatch, and gets back."""

        def make() -> Sums:
            setup = self.task.setup._replace(layout=one.split.layout(one.dp, 2))
            budget = self.budget(self.pieces(one.pp, one.chunks)[0], one.microbatch, "none")
            parts = links(boundaries((budget, budget), setup.layout)[0], setup, setup.counting.precision.widths())
            hidden = sum(part.link for part in parts if part.hidden)
            return Sums(0.0, sum(part.link for part in parts) - hidden, hidden)

        return self.once(("sent", one.split, one.dp, one.microbatch), make) if one.pp > 1 else Sums()

    def data(self, kind: int, one: Candidate) -> tuple[Sums, Sums]:
        """Over data ranks once a step, and for every microbatch."""

        def make() -> tuple[Sums, Sums]:
            setup = self.task.setup._replace(layout=one.split.layout(one.dp, zero=one.zero))
            weights = float(setup.counting.precision.linear.bits_per_weight / 8)
            step, every = Sums(), Sums()
            for each in gradients(self.budget(kind, 1, "none"), setup.layout):
                width = {"matrix": REDUCED if each.path == "gradients" else weights}
                for part in links((each,), setup, width):  # type: ignore[arg-type]
                    found = Sums(0.0, *((0.0, part.link) if part.hidden else (part.link, 0.0)))
                    step, every = (step.plus(found), every) if each.phase == "step" else (step, every.plus(found))
            return step, every

        return self.once(("data", kind, one.split, one.dp, one.zero), make)

    def optimizer(self, kind: int, one: Candidate) -> float:
        """The optimizer's step over a stage's weights."""

        def make() -> float:
            layout, setup = one.split.layout(one.dp, zero=one.zero), self.task.setup
            moved = optimizer_traffic(self.budget(kind, 1, "none"), self.task.run.optimizer, layout)
            return moved / setup.machine.bandwidth / setup.attained.memory

        return self.once(("optimizer", kind, one.split, one.zero and one.dp, one.zero != 0), make)

    def coarse_seconds(self, one: Candidate) -> float:
        """As ``least_seconds`` if a sequence took no longer than in one microbatch of the whole batch, which shares most."""
        return ROUNDED * self._mean_rank(one, self.task.batch, self.task.batch // one.dp)

    def least_seconds(self, one: Candidate) -> float:
        """The mean rank's microbatches, the pipeline's bubble and the mean rank's optimizer."""
        return SAFE * self._mean_rank(one, one.microbatch, one.microbatch * one.microbatches)

    def _mean_rank(self, one: Candidate, microbatch: int, sequences: int) -> float:
        time = self.passes(self.whole[0], one.split, microbatch, one.recompute)
        idle = 1 + float(bubble(one.pp, one.microbatches, one.chunks))
        passes = sequences / microbatch * (time.local + time.waits) * idle
        return (passes + self.optimizer(self.whole[0], one)) / one.pp

    def seconds(self, one: Candidate) -> float:
        """A step's, as ``training_step`` adds them up."""
        slowest = exposed = optimizer = 0.0
        for kinds, senders in self.ranks(one.pp, one.chunks):
            time = Sums()
            for kind in kinds:
                time = time.plus(self.passes(kind, one.split, one.microbatch, one.recompute))
            alone, data = time.local, self._over_data(kinds, one)
            for _ in range(senders):
                time = time.plus(self.sent(one))
            slowest = max(slowest, time.seconds)
            exposed = max(exposed, sum(n * (each.waits + max(0.0, each.beside - alone)) for n, each in data))
            optimizer = max(optimizer, sum(self.optimizer(kind, one) for kind in kinds))
        idle = 1 + float(bubble(one.pp, one.microbatches, one.chunks))
        return one.microbatches * slowest * idle + exposed + optimizer

    def _over_data(self, kinds: Kinds, one: Candidate) -> tuple[tuple[int, Sums], ...]:
        """How often, and what, over all pieces; in a pipeline all of it once a step."""
        step, every = Sums(), Sums()
        for kind in kinds:
            found = self.data(kind, one)
            step, every = step.plus(found[0]), every.plus(found[1])
        if one.pp > 1 or one.microbatches == 1:
            return ((1, step.plus(every)),)
        return (1, step), (one.microbatches, every)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def states(self, kinds: Kinds, one: Candidate) -> int:
        """Weights, gradients and the optimizer's states of these pieces; what ZeRO 3 gathers for a moment left out."""

        def make() -> int:
            layout = one.split.layout(one.dp, zero=one.zero)
            found = States(layout, self.task.run)
            for kind in kinds:
                found.add(self.part(kind, one.split))
            return int(sum(size for part, size in found.parts().items() if part != "gathered"))

        return self.once(("states", kinds, one.split, one.zero and one.dp, one.zero), make)

    def part(self, kind: int, split: Split) -> Budget:
        """A rank's part of a stage, with whose weights data ranks have nothing to do but their number."""
        whole = self.budget(kind, 1, "none")
        return self.once(("part", kind, split), lambda: shard(whole, split.layout(least_data(split))))

    def least_bytes(self, one: Candidate) -> float:
        """The mean rank's weights and states."""
        return SAFE * self.states(self.whole, one) / one.pp

    def kept(self, one: Candidate) -> int:
        """The first rank's weights, states, and what it keeps of the microbatches in flight."""

        def one_kind(kind: int) -> int:
            def make() -> int:
                piece = shard(self.budget(kind, one.microbatch, one.recompute), one.split.layout(least_data(one.split)))
                found = piece.activations(self.task.run.precision.widths())
                return int(found.bytes - found.buffers)

            return self.once(("kept", kind, one.split, one.microbatch, one.recompute), make)

        kinds = self.pieces(one.pp, one.chunks)[:: one.pp]
        return self.states(kinds, one) + max(
            sum(count * one_kind(kind) for kind, count in zip(kinds, moment, strict=True)) for moment in self._flight(one)
        )

    def _flight(self, one: Candidate) -> frozenset[tuple[int, ...]]:
        """How many microbatches of each piece of its the first rank holds, at each moment of the schedule."""
        if one.chunks == 1:
            return frozenset(((min(one.pp, one.microbatches),),))

        def make() -> frozenset[tuple[int, ...]]:
            moments = in_flight(one.split.layout(one.dp, one.pp, one.chunks), 0, one.microbatches)
            return frozenset(tuple(moment.count(chunk) for chunk in range(one.chunks)) for moment in moments)

        return self.once(("flight", one.pp, one.chunks, min(one.microbatches, 4 * one.pp)), make)
