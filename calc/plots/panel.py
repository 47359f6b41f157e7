"""One pair of axes: what each kind of picture draws in them."""

from __future__ import annotations

from itertools import count
from typing import Any

from matplotlib.axes import Axes

from ..tables.table import rounded
from .figure import Axis, Figure, Panel
from .scale import colours, names, number, places, prefix, short, title

LONGEST_NAME = 34
MARKERS = "osD^vP*X"
STYLES = ("-", "--", ":")


def draw(axes: Axes, figure: Figure, panel: Panel) -> None:
    """The axes of a panel, and what its kind draws in them."""
    grid: Any = axes.get_subplotspec()
    across, first = grid.get_gridspec().ncols, grid.is_first_col()
    if panel.title:
        axes.set_title(short(panel.title, min(LONGEST_NAME, 84 // across)), loc="left", weight="bold")
    values = [panel.total(place) for place in panel.places] if figure.kind in ("bars", "columns") else [
        y for series in panel.series for y in series.y] + [y for _, y in figure.roof]  # fmt: skip
    divisor, unit = prefix(figure.y, values)
    named = title(figure.y, unit), title(figure.x, figure.x.unit)
    if figure.kind == "bars":
        _bars(axes, figure, panel, divisor, 1 + 0.16 * across)
        axes.set(xlabel=named[0], ylabel=named[1] if first else "")
        return
    {"lines": _lines, "areas": _areas, "columns": _columns, "points": _points}[figure.kind](axes, figure, panel, divisor)
    axes.set(xlabel=named[1], ylabel=named[0])
    _ticks(axes, "x", figure.x)
    _ticks(axes, "y", figure.y)


def _ticks(axes: Axes, side: str, axis: Axis) -> None:
    """Round numbers, in full."""
    low, high = axes.get_xlim() if side == "x" else axes.get_ylim()
    grid = axes.get_subplotspec().get_gridspec()  # type: ignore[union-attr]
    most = 12 // grid.ncols if side == "x" else 12 // grid.nrows
    marks = places(axis, low, high, max(most, 3))
    put: Any = axes.set_xticks if side == "x" else axes.set_yticks
    put(marks, [number(mark) for mark in marks])
    put([], minor=True)


def _bars(axes: Axes, figure: Figure, panel: Panel, divisor: int, room: float) -> None:
    """Horizontal stacks from above, the total of each behind it; *room* times the longest is what the axis shows."""
    shown = names([str(place) for place in panel.places], LONGEST_NAME)
    rows = _rows(panel.places)
    left, thick = [0.0] * len(rows), 0.72 * min(1, len(rows) / 3)
    for series in panel.series:
        sizes = [series.at(place) / divisor for place in panel.places]
        axes.barh(rows, sizes, left=left, height=thick, color=colours(figure)[series.label], edgecolor="white", linewidth=0.5)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    unit: Any = "bytes" if figure.y.unit == "bytes" else "count"
    for row, end, place in zip(rows, left, panel.places, strict=True):
        total = panel.total(place)
        axes.annotate(rounded(total, unit) or f"{total:,}", (end, row), (6, 0), textcoords="offset points", va="center",
                      fontsize=11, bbox={"color": "white", "pad": 1.5})  # fmt: skip
    axes.set_yticks(rows, [shown[str(place)] for place in panel.places])
    axes.set_xlim(0, max(left) * room or 1)
    axes.set_ylim(max(rows) + 0.6, -0.6)
    axes.grid(visible=False, axis="y")


def _rows(places: tuple[Any, ...]) -> list[float]:
    """Where bars stand, with a gap where the first word of their names changes: the attention kernel."""
    groups = [str(place).partition(", ")[0] if ", " in str(place) else "" for place in places]
    gaps = count()
    rows, gap = [], 0
    for row, group in enumerate(groups):
        if row and group != groups[row - 1]:
            gap = next(gaps) + 1
        rows.append(row + 0.4 * gap)
    return rows


def _lines(axes: Axes, figure: Figure, panel: Panel, divisor: int) -> None:
    for series in panel.series:
        axes.plot([float(x) for x in series.x], [float(y) / divisor for y in series.y], **stroke(figure, series.label))
    if figure.x.scale == "log":
        axes.set(xscale="log", yscale="log")
    else:
        axes.set(xlim=(0, None), ylim=(0, None))


def _areas(axes: Axes, figure: Figure, panel: Panel, divisor: int) -> None:
    """Shares, in per cent of the sum at each place."""
    totals = [panel.total(place) for place in panel.places]
    shares = [[100 * series.at(place) / (total or 1) for place, total in zip(panel.places, totals, strict=True)]
              for series in panel.series]  # fmt: skip
    colour = colours(figure)
    axes.stackplot(panel.places, shares, colors=[colour[s.label] for s in panel.series], edgecolor="white", linewidth=0.7)
    axes.set(xscale="log", xlim=(panel.places[0], panel.places[-1]), ylim=(0, 100))


def _columns(axes: Axes, figure: Figure, panel: Panel, divisor: int) -> None:
    wide = 0.8 if len(panel.places) * len(figure.panels) <= 100 else 1.0
    for series in panel.series:
        axes.bar(series.x, [y / divisor for y in series.y], width=wide, color=colours(figure)[series.label])
    axes.set_xlim(-0.7, max(panel.places) + 0.7)


def _points(axes: Axes, figure: Figure, panel: Panel, divisor: int) -> None:
    """Operations on the roof, which bounds them; of those that meet the later is smaller, and they share a label."""
    axes.plot([float(x) for x, _ in figure.roof], [float(y) / divisor for _, y in figure.roof], color="#555555", linewidth=1.5)
    axes.set(xscale="log", yscale="log")
    points = sorted((float(x), float(y) / divisor, s.label) for s in panel.series for x, y in zip(s.x, s.y, strict=True))
    groups: list[list[tuple[float, float, str]]] = []
    apart = 1.12 ** axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    for point in points:
        if groups and point[0] < apart * groups[-1][-1][0]:
            groups[-1].append(point)
        else:
            groups.append([point])
    for group in groups:
        for depth, (x, y, label) in enumerate(group):
            axes.plot(x, y, **marker(figure, label) | {"markersize": max(16 - 5 * depth, 5)}, zorder=3 + depth)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.6)
    if len(figure.panels) <= 2:
        _labels(axes, groups, float(figure.roof[1][0]))


def _labels(axes: Axes, groups: list[list[tuple[float, float, str]]], ridge: float) -> None:
    """Under the roof: beside its slope, and below its flat part the deeper the further left, so that no line crosses a name."""
    depth = 0
    for group in reversed(groups):
        flat = group[0][0] >= ridge
        axes.annotate(
            "\n".join(label for _, _, label in group), group[0][:2], (4, -24 - 18 * depth) if flat else (14, -4),
            textcoords="offset points", va="top", fontsize=11,
            arrowprops={"arrowstyle": "-", "color": "#999999", "relpos": (0, 1), "shrinkB": 6} if flat else None,
        )  # fmt: skip
        depth += len(group) if flat else 0


# -- what a series looks like --------------------------------------------------------------------------------------------


def stroke(figure: Figure, label: str) -> dict[str, Any]:
    """A line's look: colours first, and where they begin again another dash."""
    place = figure.labels.index(label)
    return {"color": colours(figure)[label], "linestyle": STYLES[place // 8 % 3], "marker": MARKERS[place % 8],
            "linewidth": 2, "markersize": 6, "markevery": 4}  # fmt: skip


def marker(figure: Figure, label: str) -> dict[str, Any]:
    """A point's look."""
    return {"color": colours(figure)[label], "marker": MARKERS[figure.labels.index(label) % 8], "linestyle": "",
            "markersize": 11, "markeredgecolor": "white"}  # fmt: skip
