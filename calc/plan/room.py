"""What devices hold at least, from sections that are each counted once: weights and states, and what is kept in flight."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ..budget import Budget
from ..memory.held import States
from ..parallel.shard import shard
from ..parallel.stages import in_flight
from ..recorder import Recompute
from ..storage.weights import Weight
from ..tensor import Line, Tensor
from .layouts import Split
from .sections import Kinds, Section, Sections, layout
from .task import Candidate

SAFE = 1 - 1e-9
"""Sums in another order differ by less."""


class _Elements(NamedTuple):
    """A section's weights: elements of those that train, of experts and of others, and bytes of those that do not."""

    experts: int = 0
    others: int = 0
    frozen: int = 0

    def plus(self, other: _Elements, count: int, of: int) -> _Elements:
        """With *count* layers of another section that has *of* them."""
        return _Elements(*(one + count * two // of for one, two in zip(self, other, strict=True)))


class Room(Sections):
    """Bytes of candidates, none above the truth."""

    def least_bytes(self, one: Candidate) -> float:
        """The mean rank's weights and states."""
        return SAFE * self.states(self.whole, one) / one.pp

    def kept(self, one: Candidate, *, gathered: bool = False) -> int:
        """Weights, states, and what is kept of the microbatches in flight, on the rank with most of these; with what ZeRO 3
        has whole for a moment where that is asked."""
        total = 0
        for rank, kinds in self.firsts(one.pp, one.chunks):
            flown = self.once(("in flight", rank, one.split, *one[1:4], *one[5:]), partial(self._in_flight, rank, kinds, one))
            more = self._gathered(kinds, one) if gathered and one.zero == 3 else 0
            total = max(total, self.states(kinds, one) + flown + more)
        return total

    def firsts(self, pp: int, chunks: int) -> tuple[tuple[int, Kinds], ...]:
        """The first rank with each of the pipeline's sets of pieces, which has most in flight."""

        def make() -> tuple[tuple[int, Kinds], ...]:
            pieces, found = self.pieces(pp, chunks), dict[Kinds, int]()
            for rank in range(pp):
                found.setdefault(pieces[rank::pp], rank)
            return tuple((rank, kinds) for kinds, rank in found.items())

        return self.once(("firsts", pp, chunks), make)

    # -- weights and states --------------------------------------------------------------------------------------------

    def weighing(self, section: Section) -> Budget:
        """A section's lines that have weights."""

        def make() -> Budget:
            whole = self.lines(section, 1, "none")
            lines = (line for line in whole.lines if line.weights)
            return Budget(lines, (), (), whole.step, whole.kernels, whole.recompute)

        return self.once(("weighing", section), make)

    def part(self, section: Section, cut: Split) -> Budget:
        """A rank's part of these, with which data ranks have nothing to do but their number."""
        return self.once(("part", section, cut), lambda: shard(self.weighing(section), layout(cut)))

    def states(self, kinds: Kinds, one: Candidate) -> int:
        """Weights, gradients and the optimizer's states of these pieces."""

        def make() -> int:
            if one.zero in (1, 2):
                return self._flat(kinds, one)
            return sum(count * self._states(section, one) // section.times for section, count in self.mix(kinds))

        return self.once(("states", kinds, one.split, one.zero and one.dp, one.zero), make)

    def _gathered(self, kinds: Kinds, one: Candidate) -> int:
        """What ZeRO 3 has whole of them for a moment."""

        def make() -> int:
            states = States(layout(one.split, one.dp, 3), self.run)
            for kind in kinds:
                states.add(self.part(Section(kind), one.split))
            return int(sum(states.gathered().values()))

        split, ranks = one.split, one.split.tp * one.split.cp * one.dp
        alone = split.cp * one.dp == 1, ranks == split.ep * split.etp  # what no other rank holds is not gathered
        return self.once(("gathered", kinds, split, alone), make)

    def _states(self, section: Section, one: Candidate) -> int:
        """Those of a section, each weight whole or cut."""
        cut, dp = section.cut(one.split), one.dp if one.zero else None

        def make() -> int:
            found = States(layout(cut, dp, one.zero), self.run)
            found.add(self.part(section, cut))
            return int(sum(found.parts().values()))

        return self.once(("section's states", section, cut, dp, one.zero), make)

    def _flat(self, kinds: Kinds, one: Candidate) -> int:
        """Where ZeRO cuts them into equal runs of elements, of which none is told from another: as two vectors."""
        total = _Elements()
        for section, count in self.mix(kinds):
            total = total.plus(self._elements(section, section.cut(one.split)), count, section.times)
        states = States(one.split.layout(one.dp, zero=one.zero), self.run)
        vectors = (_vector(bank, elements) for bank, elements in ((2, total.experts), (1, total.others)) if elements)
        states.add(Budget(vectors, (), (), self.run.step, self.run.kernels, "none"))
        return int(sum(states.parts().values())) + total.frozen

    def _elements(self, section: Section, cut: Split) -> _Elements:
        def make() -> _Elements:
            found, seen = _Elements(), set[Tensor]()
            for line in self.part(section, cut).lines:
                for weight in line.weights:
                    if weight in seen:
                        continue
                    seen.add(weight)
                    elements = int(weight.copies * weight.numel)
                    if not weight.grad:
                        frozen = int(weight.copies * self.run.precision.nbytes(Weight.used(weight, line)))
                        found = found._replace(frozen=found.frozen + frozen)
                    elif line.bank != 1:
                        found = found._replace(experts=found.experts + elements)
                    else:
                        found = found._replace(others=found.others + elements)
            return found

        return self.once(("elements", section, cut), make)

    # -- activations ---------------------------------------------------------------------------------------------------

    def _in_flight(self, rank: int, kinds: Kinds, one: Candidate) -> int:
        """What a rank keeps of all microbatches in flight, at the worst moment."""
        sizes = [self._activations(kind, one.split, one.microbatch, one.recompute) for kind in kinds]
        moments = self._moments(rank, one.pp, one.chunks, min(one.microbatches, 4 * one.pp))
        return max(sum(count * size for count, size in zip(moment, sizes, strict=True)) for moment in moments)

    def _activations(self, kind: int, split: Split, microbatch: int, mode: Recompute) -> int:
        """What a piece keeps of a microbatch."""
        return sum(
            count * self._saved(section, section.cut(split), microbatch, mode) // section.times
            for section, count in self.mix((kind,), layers=True)
        )

    def _saved(self, section: Section, cut: Split, microbatch: int, mode: Recompute) -> int:
        def make() -> int:
            piece = shard(self.lines(section, microbatch, mode), layout(cut))
            found = piece.activations(self.run.precision.widths())
            return int(found.bytes - found.buffers)

        return self.once(("saved", section, cut, microbatch, mode), make)

    def _moments(self, rank: int, pp: int, chunks: int, microbatches: int) -> frozenset[tuple[int, ...]]:
        """How many microbatches of each piece of its a rank holds, at each moment of the schedule."""

        def make() -> frozenset[tuple[int, ...]]:
            moments = in_flight(Split().layout(1, pp, chunks), rank, microbatches)
            return frozenset(tuple(moment.count(chunk) for chunk in range(chunks)) for moment in moments)

        return self.once(("moments", rank, pp, chunks, microbatches), make)


def _vector(bank: int, elements: int) -> Line:
    """A line with one weight of so many elements, of a bank of experts or of none."""
    line = Line()
    line.path, line.kind, line.layer, line.copies, line.bank = "weights", "scale", None, 1, bank
    line.weights = (Tensor(("flat",), (elements,), "vector"),)
    return line
