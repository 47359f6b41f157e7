"""A picture out of characters, for the terminal: bars of blocks, and a grid of marks for lines and points."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import pairwise
from math import log
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..tables.table import cell, rounded
from .figure import Axis, Figure, Panel, Series
from .scale import colours, names, number, places, prefix, short, title

Mark: TypeAlias = tuple[str, str]
"""A character and its style."""

FILLS = "█░▓▒╱╳·═"
MARKS = "abcdefghijklmnopqrstuvwxyz"
NARROWEST = 40


def show(figure: Figure, width: int | None = None) -> None:
    """Print it, as wide as the terminal and no wider; in colours alone only where there are enough of them."""
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    space = max(console.width, NARROWEST)
    for line in lines(figure, space, plain=console.color_system not in ("256", "truecolor")):
        console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def lines(figure: Figure, width: int, *, plain: bool = True) -> Iterator[Text]:
    """The picture line by line, each at most *width* wide. *plain* tells series apart by their fill, else by colour."""
    yield from _wrapped(Text(figure.title, "bold"), width)
    for panel in figure.panels:
        yield Text()
        if panel.title:
            yield Text(names([panel.title], width)[panel.title], "bold")
        draw = _bars if figure.kind in ("bars", "areas") else _grid
        yield from draw(figure, panel, width, plain)
    yield Text()
    yield from _legend(figure, width, plain)
    for note in figure.notes:
        yield from _wrapped(Text(short(note, cell_len(note)), "dim"), width)


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Its lines, by the places that they take in a terminal."""
    for line in text.wrap(Console(width=width), width):
        line.rstrip()
        yield line


def _mark(figure: Figure, label: str, plain: bool) -> Mark:
    """What stands for a series: a fill, or a letter; and its colour."""
    place, colour = figure.labels.index(label), colours(figure)[label].replace("#000000", "default")
    if figure.kind in ("bars", "areas", "columns"):
        return FILLS[place % len(FILLS)] if plain else "█", colour
    return MARKS[place % len(MARKS)], colour


def _legend(figure: Figure, width: int, plain: bool) -> Iterator[Text]:
    """The entries side by side, as many as fit."""
    line = Text()
    for label, name in names(figure.labels, width - 2).items():
        entry = Text.assemble(_mark(figure, label, plain), f" {name}")
        if line and line.cell_len + 3 + entry.cell_len > width:
            yield line
            line = Text()
        line = line.append("   ").append(entry) if line else entry
    if line:
        yield line


# -- bars ---------------------------------------------------------------------------------------------------------------


def _bars(figure: Figure, panel: Panel, width: int, plain: bool) -> Iterator[Text]:
    """One stacked bar a place, its total behind it; where shares are shown every bar is full, and one an octave is enough."""
    chosen = panel.places[:: 4 if figure.kind == "areas" else 1]
    labels = names([number(p) if isinstance(p, int) else str(p) for p in chosen], width // 3)
    unit: Any = {"bytes": "bytes", "parameters": "count"}.get(figure.y.unit, "flops")
    totals = [panel.total(place) for place in chosen]
    ends = [rounded(total, unit) or cell(total, unit) for total in totals]
    left, right = max(map(cell_len, labels.values())), max(map(len, ends))
    room = width - left - right - 2
    head = title(figure.x, figure.x.unit)
    what = figure.y.label or figure.y.unit
    if head:
        yield Text(names([f"{head}: {what}"], width)[f"{head}: {what}"], "dim")
    largest = max(totals) or 1
    for place, total, name, end in zip(chosen, totals, labels.values(), ends, strict=True):
        bar = _stack(figure, panel, place, (total if figure.kind == "areas" else largest) or 1, room, plain)
        behind = f" {end:>{right}}" if figure.kind == "areas" else f" {end}"
        yield Text(" " * (left - cell_len(name)) + f"{name} ").append(bar).append(behind)


def _stack(figure: Figure, panel: Panel, place: Any, whole: int, room: int, plain: bool) -> Text:
    """Each part up to where the sum so far ends, so that no rounding adds up."""
    bar, so_far = Text(), 0
    for series in panel.series:
        so_far += series.at(place)
        cells = (2 * so_far * room + whole) // (2 * whole) - len(bar)
        fill, colour = _mark(figure, series.label, plain)
        bar.append(fill * cells, colour)
    return bar


# -- lines and points ---------------------------------------------------------------------------------------------------


class _Scale:
    """From numbers of an axis to cells."""

    def __init__(self, axis: Axis, values: list[float], cells: int, most: int) -> None:
        self.log = axis.scale == "log"
        self.low, self.high, self.cells = (min(values) if self.log or axis.unit == "tokens" else 0.0), max(values), cells
        self.ticks = places(axis, self.low, self.high, most)

    def cell(self, value: float) -> int:
        """The nearest cell."""
        a, b, at = (log(v) if self.log else v for v in (self.low, self.high, value))
        return round((at - a) / (b - a) * (self.cells - 1)) if b > a else 0


def _grid(figure: Figure, panel: Panel, width: int, plain: bool) -> Iterator[Text]:
    """Axes with ticks, and a mark wherever a series passes; where several do, they take turns."""
    roof = figure.roof
    xs = [float(x) for s in panel.series for x in s.x] + [float(x) for x, _ in roof]
    if figure.kind == "columns":
        xs = [min(xs) - 0.5, max(xs) + 0.5]
    values = [y for s in panel.series for y in s.y] + [y for _, y in roof]
    divisor, unit = prefix(figure.y, values)
    height = max(12, min(24, width // 4))
    down = _Scale(figure.y, [float(y) / divisor for y in values], height, height // 3)
    ticks = {down.cell(tick): number(tick) for tick in down.ticks}
    left = max(map(len, ticks.values()), default=1)
    across = _Scale(figure.x, xs, width - left - 2, max(2, (width - left) // 12))
    marks = _marks(figure, panel, across, down, divisor, plain)
    yield Text(title(figure.y, unit), "dim")
    for row in reversed(range(height)):
        line = Text(f"{ticks.get(row, ''):>{left}} ").append("┤" if row in ticks else "│")
        for column in range(across.cells):
            line.append(*marks.get((column, row), (" ", "")))
        line.rstrip()
        yield line
    yield Text(" " * (left + 1) + "└" + "─" * across.cells)
    yield from _below(figure.x, across, left + 2)


def _marks(
    figure: Figure, panel: Panel, across: _Scale, down: _Scale, divisor: int, plain: bool
) -> dict[tuple[int, int], Mark]:
    """The marks by column and row."""
    corners = [(across.cell(float(x)), down.cell(float(y) / divisor)) for x, y in figure.roof]
    roof: dict[tuple[int, int], Mark] = dict.fromkeys(_joined(corners), ("·", "dim"))
    found: dict[tuple[int, int], list[Mark]] = {}
    for series in panel.series:
        cells = [(across.cell(float(x)), down.cell(float(y) / divisor)) for x, y in zip(series.x, series.y, strict=True)]
        if figure.kind == "lines":
            cells = list(_joined(cells))
        elif figure.kind == "columns":
            cells = list(_columns(series, cells, across))
        else:
            cells = [_free(cell, found, across) for cell in cells]
        for place in dict.fromkeys(cells):
            found.setdefault(place, []).append(_mark(figure, series.label, plain))
    return roof | {place: many[sum(place) % len(many)] for place, many in found.items()}


def _columns(series: Series, cells: list[tuple[int, int]], across: _Scale) -> Iterator[tuple[int, int]]:
    """Upright bars, each from half a place before its own to half a place behind it."""
    for x, (column, top) in zip(series.x, cells, strict=True):
        wide = range(across.cell(x - 0.5), max(column + 1, across.cell(x + 0.5)))
        yield from ((place, row) for place in wide for row in range(top + 1))


def _free(cell: tuple[int, int], taken: Container[tuple[int, int]], across: _Scale) -> tuple[int, int]:
    """The cell itself, or the next free one beside it: points that meet stand side by side."""
    column, row = cell
    step = 1 if column < across.cells // 2 else -1
    while (column, row) in taken:
        column += step
    return column, row


def _joined(cells: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The cells of straight lines through all of these."""
    for (x, y), (to_x, to_y) in pairwise(cells):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        yield from ((x + round((to_x - x) * n / steps), y + round((to_y - y) * n / steps)) for n in range(steps + 1))


def _below(axis: Axis, across: _Scale, left: int) -> Iterator[Text]:
    """The ticks under the axis, those that there is room for, and what it is."""
    line = ""
    for tick in across.ticks:
        text = number(tick)
        start = max(0, min(left + across.cell(tick) - len(text) // 2, left + across.cells - len(text)))
        if start >= len(line) + (2 if line else 0):
            line = line.ljust(start) + text
    yield Text(line)
    name = title(axis, axis.unit)
    yield Text(" " * max(0, left + (across.cells - len(name)) // 2) + name, "dim")
