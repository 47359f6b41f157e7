"""Closed forms over a box: in int64 where a bound proves that nothing wraps, in Python's integers where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sympy
from numpy.typing import NDArray

from ..compiled import Compiled, function

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Reals: TypeAlias = NDArray[np.float64]
Size: TypeAlias = "Ints | Reals | int | float"

LIMIT = 2**63
_FEW = 1024  # points that are not cut further before Python's integers take over


class Exact(NamedTuple):
    """Values, and where they are past int64: there the value is the nearest one inside; of real numbers, where there is none.
    Both broadcast to the box."""

    values: Any
    past: Bools | None


class Real:
    """Several closed forms in floating-point numbers, of letters that are numbers, or arrays as those of :class:`Boxed`."""

    def __init__(self, expressions: Sequence[Any]) -> None:
        self.expressions = tuple(map(sympy.sympify, expressions))
        free: set[Any] = set().union(*(expr.free_symbols for expr in self.expressions))
        self.symbols = tuple(sorted(map(str, free)))
        code = function(self.symbols, self.expressions, (1,) * len(self.expressions))
        self._run = code(np.minimum, np.maximum, np.where)

    def on(self, sizes: Mapping[str, Size], shape: tuple[int, ...]) -> list[Exact]:
        """The values on a box of that shape, none of which is infinite or no number."""
        given = (np.asarray(sizes[name], np.float64) for name in self.symbols)
        with np.errstate(all="ignore"):  # of rows that are refused, a size may be anything
            return [_finite(values) for values in self._run(*given)]


class Boxed(Compiled):
    """Several closed forms of letters that are numbers, or arrays with one axis each axis of a box."""

    @cached_property
    def _run(self) -> Any:
        return self._code(np.minimum, np.maximum, np.where)

    def on(self, sizes: Mapping[str, Size], shape: tuple[int, ...]) -> list[Exact]:
        """The values on a box of that shape. Where a sum on the way might wrap the box is halved, again and again."""
        given = [sizes[name] for name in self.symbols]
        largest = [int(size) if isinstance(size, int | float) else int(size.max()) for size in given]
        if all(bound < LIMIT for bound in self._bounds(*largest)):
            return [Exact(values, None) for values in self._run(*given)]
        if prod(shape) <= _FEW:
            return [_narrowed(values) for values in self._run(*map(_python, given))]
        axis = shape.index(max(shape))
        middle = shape[axis] // 2
        halves = []
        for part in (range(middle), range(middle, shape[axis])):
            cut = {name: _cut(sizes[name], axis, part) for name in self.symbols}
            halves.append((part, self.on(cut, (*shape[:axis], len(part), *shape[axis + 1 :]))))
        return [_joined(shape, axis, [(part, found[i]) for part, found in halves]) for i in range(len(self.expressions))]


def _finite(values: Any) -> Exact:
    """Real numbers, where they are some."""
    past = ~np.isfinite(values)
    return Exact(np.where(past, 0.0, values), past) if past.any() else Exact(values, None)


def _python(size: Size) -> Any:
    return size if isinstance(size, int | float) else size.astype(object)


def _narrowed(values: Any) -> Exact:
    """Python's integers as int64, where they fit."""
    wide = np.asarray(values, dtype=object)
    past = np.asarray((wide >= LIMIT) | (wide < -LIMIT), dtype=bool)
    return Exact(np.clip(wide, -LIMIT, LIMIT - 1).astype(np.int64), past if past.any() else None)


def _cut(size: Size, axis: int, part: range) -> Size:
    if isinstance(size, int | float) or size.shape[axis] == 1:
        return size
    return size[(slice(None),) * axis + (slice(part.start, part.stop),)]


def _joined(shape: tuple[int, ...], axis: int, halves: Sequence[tuple[range, Exact]]) -> Exact:
    values, past = np.empty(shape, np.int64), np.zeros(shape, bool)
    for part, found in halves:
        place = (slice(None),) * axis + (slice(part.start, part.stop),)
        values[place] = found.values
        if found.past is not None:
            past[place] = found.past
    return Exact(values, past if past.any() else None)
