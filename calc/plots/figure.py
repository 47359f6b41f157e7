"""A picture as data: exact rows, and which of their columns are the axes, the legend and the panels."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

from ..tables.table import Column, Table

Kind: TypeAlias = Literal["bars", "columns", "lines", "areas", "points"]
"""Stacked horizontal bars, upright ones, lines, shares of a whole, or points under a roof."""

Unit: TypeAlias = Literal["", "parameters", "bytes", "tokens", "FLOPs", "FLOP/s", "FLOPs a byte", "share of FLOPs"]

Value: TypeAlias = int | Fraction | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A column of the rows, what is written beside it, what its numbers are, and how they are spread."""

    column: str
    label: str
    unit: Unit = ""
    scale: Literal["linear", "log"] = "linear"


class Series(NamedTuple):
    """One entry of the legend in one panel: its places along x and its values there."""

    label: str
    x: tuple[Any, ...]
    y: tuple[Any, ...]

    def at(self, place: Any) -> Any:
        """Its value there, 0 where it has none."""
        return self.y[self.x.index(place)] if place in self.x else 0


class Panel(NamedTuple):
    """One pair of axes. A stack has a series for each label of the figure, whether it is in this panel or not."""

    title: str
    series: tuple[Series, ...]

    @property
    def places(self) -> tuple[Any, ...]:
        """The places along x, each once."""
        return tuple(dict.fromkeys(place for series in self.series for place in series.x))

    def total(self, place: Any) -> Any:
        """The sum of the stack there."""
        return sum(series.at(place) for series in self.series)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A title, axes, a kind, notes that say what was assumed, and the numbers: integers and fractions, never rounded.

    ``series`` is the column that the legend lists, ``panel`` the one that has a pair of axes for each of its values.
    ``roof`` are the corners of a line that bounds the points.
    """

    name: str
    title: str
    kind: Kind
    x: Axis
    y: Axis
    series: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    panel: str | None = None
    roof: tuple[tuple[Fraction, Fraction], ...] = ()
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> tuple[Value, ...]:
        """All values of a column, row by row."""
        place = [column.name for column in self.columns].index(name)
        return tuple(row[place] for row in self.rows)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the legend lists, in order."""
        return tuple(str(label) for label in dict.fromkeys(self.column(self.series)))

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The rows by panel and series."""
        titles: Any = self.column(self.panel) if self.panel else [""] * len(self.rows)
        columns = titles, self.column(self.series), self.column(self.x.column), self.column(self.y.column)
        points: dict[Any, dict[Any, list[tuple[Any, Any]]]] = {title: {label: [] for label in self.labels} for title in titles}
        for title, label, x, y in zip(*columns, strict=True):
            points[title][label].append((x, y))
        return tuple(
            Panel(title, tuple(
                Series(label, tuple(x for x, _ in found), tuple(y for _, y in found)) for label, found in series.items()
            ))
            for title, series in points.items()
        )  # fmt: skip

    @property
    def table(self) -> Table:
        """The numbers behind the picture, a row each."""
        rows = tuple(tuple(_plain(value) for value in row) for row in self.rows)
        return Table(self.title, self.columns, rows, self.notes)

    def as_json(self) -> dict[str, Any]:
        """The same as an object; a ratio is its nearest float, beside the integers that it is of."""
        names = [column.name for column in self.columns]
        axes = {
            side: {"column": axis.column, "label": axis.label, "unit": axis.unit, "scale": axis.scale}
            for side, axis in (("x", self.x), ("y", self.y))
        }
        rows = [dict(zip(names, row, strict=True)) for row in self.table.rows]
        return {"picture": self.name, "title": self.title, "kind": self.kind, **axes, "rows": rows, "notes": list(self.notes)}


def _plain(value: Value) -> Any:
    if not isinstance(value, Fraction):
        return value
    return value.numerator if value.denominator == 1 else float(value)
