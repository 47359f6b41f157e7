"""One axis of a grid: a name and its values, which are never written out where a range says them."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, TypeAlias

from ..dims import LARGEST_SIZE
from ..errors import InputError
from ..readers.config import printable

Value: TypeAlias = int | float | str | bool | None
"""What an axis can hold: sizes, or what a field of a config or an option can be."""

SHAPE = "NAME=64,128,256 or NAME=64:4096:64 (both ends) or NAME=2^10:2^20 (the powers between)"
_LONGEST = 2**16  # values that are written out one by one
_RUN = re.compile(r"(\d{1,13}|\d{1,3}\^\d{1,2})(?::(\d{1,13}|\d{1,3}\^\d{1,2}))?(?::(\d{1,13}))?", re.ASCII)


class Axis:
    """A name with values in the order given; sizes as runs of equal steps, so that an axis of 10⁹ is no more than one of 3."""

    def __init__(self, name: str, runs: tuple[range, ...] = (), words: tuple[Value, ...] = ()) -> None:
        self.name, self.runs, self.words = name, runs, words
        self._ends = list(accumulate(map(len, runs)))

    def __len__(self) -> int:
        return self._ends[-1] if self.runs else len(self.words)

    def __getitem__(self, index: int) -> Value:
        if not self.runs:
            return self.words[index]
        run = bisect_right(self._ends, index)
        return self.runs[run][index - (self._ends[run - 1] if run else 0)]

    def __iter__(self) -> Iterator[Value]:
        return (self[index] for index in range(len(self)))

    @property
    def sizes(self) -> bool:
        """Are all its values whole numbers from 1."""
        return bool(self.runs)

    @property
    def whole(self) -> bool:
        """Are all its values whole numbers."""
        return self.sizes or all(type(value) is int and abs(value) < 2**63 for value in self.words)

    def between(self, start: int, stop: int) -> Any:
        """The sizes from *start* to *stop*, as an int64 array."""
        import numpy as np

        found, before = [], 0
        for run, end in zip(self.runs, self._ends, strict=True):
            inside = run[max(start - before, 0) : max(stop - before, 0)]
            if inside:
                found.append(np.arange(inside.start, inside.stop, inside.step, dtype=np.int64))
            before = end
        return np.concatenate(found)


def axis(text: str) -> Axis:
    """Read ``NAME=VALUES``. Raises InputError for what is no list, range or powers, and for a value that stands twice."""
    name, sign, values = text.partition("=")
    name = name.strip().replace("-", "_")
    parts = [part.strip() for part in values.split(",")]
    if not sign or not name or not all(parts):
        raise InputError(f"--over {printable(text)}: expected {SHAPE}")
    if len(parts) > _LONGEST:
        raise InputError(f"--over {name}: {len(parts)} values one by one, at most {_LONGEST}; write a range, as in 64:4096:64")
    if all(_RUN.fullmatch(part) for part in parts) and "0" not in parts:
        found = Axis(name, tuple(run for part in parts for run in _runs(name, part)))
    else:
        found = Axis(name, words=tuple(map(_word, parts)))
    if len(found) <= _LONGEST:
        seen = [json.dumps(value) for value in found]
        if len(set(seen)) < len(seen):
            twice = next(value for value in seen if seen.count(value) > 1)
            raise InputError(f"--over {name}: {printable(twice)} stands twice")
    return found


def _runs(name: str, part: str) -> list[range]:
    """A number, an arithmetic progression or the powers of one base, the last value included."""
    match = _RUN.fullmatch(part)
    assert match is not None, part
    first, last, step = match.groups()
    start = _number(first)
    stop = start if last is None else _number(last)
    if not 1 <= start <= stop <= LARGEST_SIZE:
        raise InputError(f"--over {name}={part}: expected sizes from 1 to 2^40, the first not above the last")
    if last is not None and step is None and "^" in first and "^" in last:
        (base, low), (other, high) = (map(int, end.split("^")) for end in (first, last))
        if base != other or base < 2:
            raise InputError(f"--over {name}={part}: expected powers of one base from 2, as in 2^10:2^20")
        return [range(base**power, base**power + 1) for power in range(low, high + 1)]
    stride = 1 if step is None else int(step)
    if stride < 1 or (stop - start) % stride:
        raise InputError(f"--over {name}={part}: steps of {stride} from {start} do not end at {stop}")
    return [range(start, stop + 1, stride)]


def _number(text: str) -> int:
    base, sign, power = text.partition("^")
    return int(base) ** int(power) if sign else int(base)


def _word(text: str) -> Value:
    """A JSON number, true, false or null; else a word."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float | bool | str) or value is None else text
