"""The boundary of an inequality where no expression tells it: by halving, between sizes that a model can have."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ..errors import InputError
from .answers import Choice, Scale
from .signs import Run, Signs

SPREAD = 16
"""Sizes that are looked at besides, evenly spread, to see whether the difference goes one way."""


def search(scale: Scale, start: int) -> tuple[Signs, int]:
    """The signs, and how many sizes were looked at. Raises InputError where left − right goes up and down between them."""
    seen: dict[int, Choice] = {}

    def look(choice: Choice | None) -> Choice | None:
        if choice is not None:
            seen[choice.at] = choice
        return choice

    low = look(scale.above(1))
    if low is None:
        return Signs((), None), 0
    high = _reach(scale, look, low, start)
    for index in range(1, SPREAD):
        look(scale.below(low.at + (high.at - low.at) * index // SPREAD))
    way = 1 if high.distance >= low.distance else -1
    reached = _first(scale, look, low, high, lambda c: way * c.distance >= 0)
    passed = _first(scale, look, low, high, lambda c: way * c.distance > 0)
    ordered = [seen[at] for at in sorted(seen)]
    if any(way * (other.distance - one.distance) < 0 for one, other in pairwise(ordered)):
        raise InputError(f"the difference of the sides goes up and down from {low.at} to {high.at}: no boundary can be told")
    ends = [scale.most + 1 if bound is None else 1 if bound is low else bound.at for bound in (reached, passed)]
    runs = (Run(1, ends[0] - 1, -way), Run(ends[0], ends[1] - 1, 0), Run(ends[1], scale.most, way))
    return Signs(tuple(run for run in runs if run.first <= run.last), None), len(seen)


def _reach(scale: Scale, look: Callable[[Choice | None], Choice | None], low: Choice, start: int) -> Choice:
    """A size at which the difference has another sign than at the smallest, else the largest possible."""
    high, at = low, max(start, 2 * low.at)
    while at <= scale.most:
        choice = look(scale.below(at))
        if choice is None or choice.at <= high.at:
            return _largest(scale, look, high, at)
        high, at = choice, 2 * at
        if (high.distance > 0) != (low.distance > 0) and high.distance != 0:
            break
    return high


def _largest(scale: Scale, look: Callable[[Choice | None], Choice | None], high: Choice, refused: int) -> Choice:
    """The largest size below one that is refused."""
    while refused - high.at > scale.multiple:
        choice = look(scale.below((high.at + refused) // 2))
        if choice is None or choice.at <= high.at:
            refused = (high.at + refused) // 2
        else:
            high = choice
    return high


def _first(
    scale: Scale, look: Callable[[Choice | None], Choice | None], low: Choice, high: Choice, holds: Callable[[Choice], bool]
) -> Choice | None:
    """The first size from which on it holds, if it holds at the largest."""
    if holds(low) or not holds(high):
        return low if holds(low) else None
    while True:
        middle = (low.at + high.at) // 2
        choice = look(scale.below(middle))
        if choice is None or choice.at <= low.at:
            choice = look(scale.above(middle + 1))
        if choice is None or choice.at >= high.at:
            return high
        low, high = (low, choice) if holds(choice) else (choice, high)
