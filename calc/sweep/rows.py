"""Rows as columns: whole numbers, some of which may be missing, and words by number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .axes import Value
from .exact import Bools


class Whole(NamedTuple):
    """Whole numbers; ``missing`` says where there is none."""

    values: NDArray[Any]
    missing: Bools | None = None

    def only(self, rows: Any) -> Whole:
        """Some of the rows."""
        return Whole(self.values[rows], None if self.missing is None else self.missing[rows])

    def cells(self) -> list[int | None]:
        """Python's integers, or None."""
        values: list[int | None] = self.values.tolist()
        if self.missing is None:
            return values
        return [None if absent else value for value, absent in zip(values, self.missing.tolist(), strict=True)]


class Words(NamedTuple):
    """What is no number, as places in a list."""

    values: NDArray[Any]
    words: Sequence[Value]

    def only(self, rows: Any) -> Words:
        """Some of the rows."""
        return Words(self.values[rows], self.words)

    def cells(self) -> list[Value]:
        """The words."""
        return [self.words[index] for index in self.values.tolist()]


class Rows(NamedTuple):
    """The rows of a block by column, and what became of its points."""

    columns: Mapping[str, Whole | Words]
    points: int
    refused: Mapping[str, int]  # how many points, by the reason why

    @property
    def height(self) -> int:
        """How many rows."""
        return len(next(iter(self.columns.values())).values)

    def lines(self) -> Iterable[dict[str, Any]]:
        """Row by row."""
        names = list(self.columns)
        for cells in zip(*(column.cells() for column in self.columns.values()), strict=True):
            yield dict(zip(names, cells, strict=True))


class Reasons:
    """Reasons by number; 0 is none."""

    def __init__(self) -> None:
        self.words: list[str | None] = [None]
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """The reason's number."""
        if text not in self._places:
            self._places[text] = len(self.words)
            self.words.append(text)
        return self._places[text]

    def joined(self, names: Sequence[str], codes: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
        """One number a row for the reasons of several quantities, each of which is named unless it is the reason of all."""
        kinds: list[tuple[int, ...]] = [()]
        place = np.zeros(len(codes[0]), np.int64)
        for code in codes:  # the kinds of rows so far, each with the reasons of its quantities
            place = place * len(self.words) + code
            there = np.flatnonzero(np.bincount(place))
            kinds = [(*kinds[key // len(self.words)], key % len(self.words)) for key in there.tolist()]
            narrow = np.empty(int(there[-1]) + 1, np.int64)
            narrow[there] = np.arange(len(there))
            place = narrow[place]
        return np.array([self._text(names, kind) for kind in kinds], np.int32)[place]

    def _text(self, names: Sequence[str], kind: Sequence[int]) -> int:
        if len(set(kind)) == 1:
            return kind[0]
        return self.place("; ".join(f"{name}: {self.words[code]}" for name, code in zip(names, kind, strict=True) if code))


def as_text(value: Value) -> str:
    """A value as it stands in a column of words: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
