"""From the signs of left − right at whole numbers to answers, each with what both sides are there and next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Literal, NamedTuple

from ..errors import InputError
from .grammar import Relation
from .signs import Run, Signs

MOST_TRIED = 1024
"""Multiples that are tried for sizes that a model can have, on either side of where the equation holds."""


class Choice(NamedTuple):
    """Both sides at a size, as the Budget counts them."""

    at: int
    left: int
    right: int
    holds: bool

    @property
    def distance(self) -> int:
        """Left minus right."""
        return self.left - self.right


class Answer(NamedTuple):
    """A size, what it is among those that satisfy the equation, and its neighbours on the other side of the boundary."""

    what: Literal["exact", "nearest", "largest", "smallest"]
    at: int
    choices: tuple[Choice, ...]


class Scale:
    """The sizes that may be chosen: multiples of a number, from 1 to a bound, that a model can have."""

    def __init__(self, values: Callable[[int], tuple[int, int]], relation: Relation, multiple: int, most: int) -> None:
        self.values, self.relation, self.multiple, self.most = values, relation, multiple, most
        self.refused = ""

    def choice(self, at: int) -> Choice:
        """Both sides at this size. Raises InputError where no model has it."""
        left, right = self.values(at)
        holds = left == right if self.relation == "=" else left <= right if self.relation == "<=" else left >= right
        return Choice(at, left, right, holds)

    def below(self, at: int) -> Choice | None:
        """The largest possible size up to *at*."""
        start = at // self.multiple * self.multiple
        return self._first(range(start, max(start - MOST_TRIED * self.multiple, 0), -self.multiple))

    def above(self, at: int) -> Choice | None:
        """The smallest possible size from *at* on."""
        start = -(-at // self.multiple) * self.multiple
        return self._first(range(start, min(start + MOST_TRIED * self.multiple, self.most + 1), self.multiple))

    def any(self) -> Choice | None:
        """The smallest possible size if it is among the first, else a power of two times the multiple."""
        powers = (self.multiple << power for power in range((self.most // self.multiple).bit_length()))
        return self.above(1) or self._first(powers)

    def _first(self, sizes: Iterable[int]) -> Choice | None:
        for size in sizes:
            try:
                return self.choice(size)
            except InputError as error:
                self.refused = self.refused or str(error)
        return None


def answers(runs: tuple[Run, ...], scale: Scale) -> list[Answer]:
    """The boundaries of what satisfies the relation; none where it holds everywhere or nowhere that can be chosen."""
    return _equal(runs, scale) if scale.relation == "=" else _bounds(runs, scale)


def _equal(runs: tuple[Run, ...], scale: Scale) -> list[Answer]:
    crossings = [(run.first, run.last) for run in runs if run.sign == 0 and run.first == run.last]
    crossings += [(one.last, other.first) for one, other in pairwise(runs) if one.sign * other.sign < 0]
    found = [answer for run in runs if run.sign == 0 and run.first < run.last for answer in _ends(run, scale)]
    for first, last in sorted(crossings):
        sides = {c.at: c for c in (scale.below(first), scale.above(last)) if c is not None}
        if sides:
            least = min(sides.values(), key=lambda choice: abs(choice.distance))
            found.append(Answer("exact" if least.holds else "nearest", least.at, tuple(sides.values())))
    return found


def _bounds(runs: tuple[Run, ...], scale: Scale) -> list[Answer]:
    wanted = (-1, 0) if scale.relation == "<=" else (0, 1)
    kept: list[Run] = []
    for run in runs:
        if run.sign in wanted:
            if kept and kept[-1].last + 1 == run.first:
                kept[-1] = kept[-1]._replace(last=run.last)
            else:
                kept.append(run)
    return [answer for run in kept for answer in _ends(run, scale)]


def _ends(run: Run, scale: Scale) -> list[Answer]:
    """The smallest and the largest size of a run, but for those that are the ends of the scale."""
    found = []
    if run.first > 1 and (low := scale.above(run.first)) is not None and low.at <= run.last:
        before = scale.below(run.first - 1)
        found.append(Answer("smallest", low.at, (low,) if before is None else (before, low)))
    if run.last < scale.most and (high := scale.below(run.last)) is not None and high.at >= run.first:
        after = scale.above(run.last + 1)
        found.append(Answer("largest", high.at, (high,) if after is None else (high, after)))
    return found


def reason(known: Signs, scale: Scale, x: str, quantity: str, unit: str) -> str:
    """Why there is no answer: nothing satisfies the equation, everything does, or only what no model can have."""
    first, last = scale.any(), scale.below(scale.most)
    if first is None:
        return f"no {x} that a model can have: {scale.refused}"
    last = first if last is None else last
    signs = {run.sign for run in known.runs}
    if signs <= {"<=": {-1, 0}, ">=": {0, 1}, "=": {0}}[scale.relation]:
        flat = None if known.flat is None else scale.above(known.flat)
        if scale.relation == "<=" and flat is not None and flat.left >= first.left:
            where = f"{quantity} stops growing at {x} = {flat.at:,}, where it is {flat.left:,} {unit}"
            return f"no largest {x}: {where}"
        return f"every {x} up to {scale.most:,} satisfies it: {quantity} is {first.left:,} {unit} at {x} = {first.at:,}"
    if len(signs) > 1:
        what = f"multiple of {scale.multiple}" if scale.multiple > 1 else x
        return f"no {what} that a model can have satisfies it" + (f": {scale.refused}" if scale.refused else "")
    said = f"no {x} satisfies it: {quantity} is {first.left:,} {unit} at {x} = {first.at:,}"
    if known.flat is not None and known.flat > 1:
        last = scale.above(known.flat) or last
        return f"{said}, and from {x} = {last.at:,} on it stays at {last.left:,}"
    return said if last is first else f"{said} and {last.left:,} at {x} = {last.at:,}"
