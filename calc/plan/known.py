"""What a search has counted once: the time and the bytes of each section of a stage, under each split.

A candidate's time is put together from these, and equals ``training_step``'s.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import BlockcalcError
from ..parallel.collectives import gradients
from ..recorder import Recompute
from ..timing.roofline import links, roofline
from ..timing.serving import boundaries
from ..timing.training import bubble, optimizer_traffic
from .layouts import Split
from .room import SAFE, Room
from .sections import Kinds, Section, layout
from .task import Candidate, Task

ROUNDED = 1 - 1e-3
"""Whole bytes of the experts that a microbatch reaches are off by less."""

REDUCED = 4
"""Bytes an element in which gradients are summed over data ranks, as ``training_step`` has it."""


class Sums(NamedTuple):
    """Seconds of one microbatch: lines, collectives that wait and those beside computation."""

    local: float = 0.0
    waits: float = 0.0
    beside: float = 0.0

    def plus(self, other: Sums, times: float = 1) -> Sums:
        """One after the other, the second so many times."""
        return Sums(self.local + times * other.local, self.waits + times * other.waits, self.beside + times * other.beside)

    @property
    def seconds(self) -> float:
        """What is not hidden."""
        return self.local + self.waits + max(0.0, self.beside - self.local)


class Known(Room):
    """Seconds and bytes of the candidates of a task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.model, task.run)
        self.setup, self.batch = task.setup, task.batch

    def refusal(self, split: Split) -> str:
        """Why the model cannot be split so; empty if it can."""

        def make() -> str:
            try:
                self.passes(self.whole, split, 1, "none")
            except BlockcalcError as error:
                return str(error)
            return ""

        return self.once(("refusal", split), make)

    # -- one microbatch ------------------------------------------------------------------------------------------------

    def passes(self, kinds: Kinds, split: Split, microbatch: int, mode: Recompute) -> Sums:
        """One microbatch through these pieces."""

        def make() -> Sums:
            total = Sums()
            for section, count in self.mix(kinds):
                total = total.plus(self._passes(section, split, microbatch, mode), count / section.times)
            return total

        return self.once(("passes", kinds, split, microbatch, mode), make)

    def _passes(self, section: Section, split: Split, microbatch: int, mode: Recompute) -> Sums:
        cut = section.cut(split)

        def make() -> Sums:
            time = roofline(self.lines(section, microbatch, mode), self.setup._replace(layout=layout(cut)))
            beside = sum(part.link for part in time.parts if part.hidden)
            return Sums(time.local, sum(part.link for part in time.parts if not part.hidden), beside)

        return self.once(("section's passes", section, cut, microbatch, mode), make)

    def sent(self, one: Candidate) -> Sums:
        """What a piece hands on for one microbatch, and gets back."""

        def make() -> Sums:
            setup = self.setup._replace(layout=one.split.layout(one.dp, 2))
            budget = self.budget(self.pieces(one.pp, one.chunks)[0], one.microbatch, "none")
            parts = links(boundaries((budget, budget), setup.layout)[0], setup, setup.counting.precision.widths())
            hidden = sum(part.link for part in parts if part.hidden)
            return Sums(0.0, sum(part.link for part in parts) - hidden, hidden)

        return self.once(("sent", one.split, one.dp, one.microbatch), make) if one.pp > 1 else Sums()

    # -- a step --------------------------------------------------------------------------------------------------------

    def coarse_seconds(self, one: Candidate) -> float:
        """As ``least_seconds`` if a sequence took no longer than in one microbatch of the whole batch, which shares most."""
        return ROUNDED * self._mean_rank(one, self.batch, self.batch // one.dp)

    def least_seconds(self, one: Candidate) -> float:
        """The mean rank's microbatches, the pipeline's bubble and the mean rank's optimizer."""
        return SAFE * self._mean_rank(one, one.microbatch, one.microbatch * one.microbatches)

    def _mean_rank(self, one: Candidate, microbatch: int, sequences: int) -> float:
        time = self.passes(self.whole, one.split, microbatch, one.recompute)
        passes = sequences / microbatch * (time.local + time.waits) * self._busy(one)
        return (passes + self._optimizer(self.whole, one)) / one.pp

    def _busy(self, one: Candidate) -> float:
        """All time over that in which a pipeline works."""
        sizes = one.pp, one.microbatches, one.chunks
        return self.once(("busy", sizes), lambda: 1 + float(bubble(*sizes)))

    def seconds(self, one: Candidate) -> float:
        """A step's, as ``training_step`` adds them up."""
        slowest = exposed = optimizer = 0.0
        sent = self.sent(one)
        for kinds, senders in self.ranks(one.pp, one.chunks):
            time = self.passes(kinds, one.split, one.microbatch, one.recompute)
            slowest = max(slowest, time.plus(sent, senders).seconds)
            over = self._over_data(kinds, one)
            exposed = max(exposed, sum(n * (each.waits + max(0.0, each.beside - time.local)) for n, each in over))
            optimizer = max(optimizer, self._optimizer(kinds, one))
        return one.microbatches * slowest * self._busy(one) + exposed + optimizer

    def _over_data(self, kinds: Kinds, one: Candidate) -> tuple[tuple[int, Sums], ...]:
        """How often, and what, over all pieces; in a pipeline all of it once a step."""
        step, every = self._data(kinds, one)
        if one.pp > 1 or one.microbatches == 1:
            return ((1, step.plus(every)),)
        return (1, step), (one.microbatches, every)

    def _data(self, kinds: Kinds, one: Candidate) -> tuple[Sums, Sums]:
        """Over data ranks once a step, and for every microbatch."""

        def make() -> tuple[Sums, Sums]:
            step, every = Sums(), Sums()
            for kind in kinds:
                found = self._data_of(kind, one)
                step, every = step.plus(found[0]), every.plus(found[1])
            return step, every

        return self.once(("data", kinds, one.split, one.dp, one.zero), make)

    def _data_of(self, kind: int, one: Candidate) -> tuple[Sums, Sums]:
        """The same of one piece."""

        def make() -> tuple[Sums, Sums]:
            setup = self.setup._replace(layout=one.split.layout(one.dp, zero=one.zero))
            weights = float(setup.counting.precision.linear.bits_per_weight / 8)
            step, every = Sums(), Sums()
            for each in gradients(self.budget(kind, 1, "none"), setup.layout):
                width = {"matrix": REDUCED if each.path == "gradients" else weights}
                for part in links((each,), setup, width):  # type: ignore[arg-type]
                    found = Sums(0.0, *((0.0, part.link) if part.hidden else (part.link, 0.0)))
                    step, every = (step.plus(found), every) if each.phase == "step" else (step, every.plus(found))
            return step, every

        return self.once(("data of", kind, one.split, one.dp, one.zero), make)

    def _optimizer(self, kinds: Kinds, one: Candidate) -> float:
        """The optimizer's step over the weights of these pieces."""

        def make() -> float:
            moved = sum(count * self._moved(section, one) // section.times for section, count in self.mix(kinds))
            return moved / self.setup.machine.bandwidth / self.setup.attained.memory

        return self.once(("optimizer", kinds, one.split, one.zero and one.dp, one.zero != 0), make)

    def _moved(self, section: Section, one: Candidate) -> int:
        """Bytes that it moves for a section. The stage of ZeRO makes no difference."""
        cut, dp = section.cut(one.split), one.dp if one.zero else None

        def make() -> int:
            return int(optimizer_traffic(self.weighing(section), self.run.optimizer, layout(cut, dp, min(one.zero, 1))))

        return self.once(("moved", section, cut, dp), make)
