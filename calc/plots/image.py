"""A picture as a PNG or an SVG file, drawn by matplotlib on a canvas of its own: no window, no global state."""

from __future__ import annotations

import warnings
from math import ceil, sqrt
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..errors import InputError
from .figure import Figure
from .panel import LONGEST_NAME, draw, marker, stroke
from .scale import colours, names

INCHES, DPI = (12.0, 8.0), 100
LOOK: Any = {
    "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 12, "axes.titlesize": 13, "text.parse_math": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.8, "svg.fonttype": "none", "svg.hashsalt": "blockcalc",
}  # fmt: skip


def save(figure: Figure, path: Path, *, force: bool = False) -> None:
    """Write the picture, 1200 × 800 pixels, more where many panels need it; the same bytes for the same numbers.

    Raises InputError for another ending than .png or .svg, for a file that is there already, unless *force*, and for one
    that cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in (".png", ".svg"):
        raise InputError(f"{path}: a picture's file ends in .png or .svg")
    if path.exists() and not force:
        raise InputError(f"{path}: it exists; --force writes over it")
    with matplotlib.rc_context(LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        canvas = drawn(figure)
        metadata = {"Date": None, "Title": figure.title} if ending == ".svg" else {"Title": figure.title}
        try:
            canvas.savefig(path, format=ending[1:], metadata=metadata)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def drawn(figure: Figure) -> Canvas:
    """The canvas with everything on it: from above the title, the legend, the panels, the notes."""
    panels = figure.panels
    across = _across(figure, len(panels))
    down = ceil(len(panels) / across)
    tall = max(INCHES[1], 2.6 * down + 2, _room_for_bars(figure, down))
    canvas = Canvas(figsize=(INCHES[0], tall), dpi=DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    grid = canvas.subplots(down, across, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        draw(axes, figure, panel)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    _around(canvas, figure)
    return canvas


def _across(figure: Figure, panels: int) -> int:
    """Panels side by side; a few of bars, which are long, stand under each other."""
    if panels <= 3:
        return 1 if figure.kind == "bars" else panels
    return ceil(sqrt(panels))


def _room_for_bars(figure: Figure, down: int) -> float:
    """Inches that the bars under each other ask for."""
    if figure.kind != "bars":
        return 0
    return 2.2 + down * (0.75 + 0.26 * max(len(panel.places) for panel in figure.panels))


def _around(canvas: Canvas, figure: Figure) -> None:
    """Title and legend above the panels, notes below them, each in the room that it takes."""
    _, tall = canvas.get_size_inches() * DPI
    edge, gap = 0.012, 10 / tall
    head = canvas.text(edge, 1 - gap, figure.title, fontsize=17, weight="bold", va="top")
    notes = "\n".join(line for note in figure.notes for line in wrap(note, 165))
    foot = canvas.text(edge, gap, notes, fontsize=10, color="#444444", va="bottom", linespacing=1.35)
    top = 1 - gap - _height(canvas, head) - gap
    handles = _handles(figure)
    if len(handles) > 1:
        top -= _legend(canvas, handles, top, edge) + gap
    bottom = gap + (_height(canvas, foot) + gap if notes else 0)
    engine: Any = canvas.get_layout_engine()
    engine.set(rect=(edge / 2, bottom, 1 - edge, top - bottom), w_pad=0.08, h_pad=0.08)


def _legend(canvas: Canvas, handles: list[Any], top: float, edge: float) -> float:
    """As many entries in a row as fit; returns its height as a share of the picture's."""
    for columns in range(min(len(handles), 8), 0, -1):
        legend = canvas.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(edge, top), ncols=columns, frameon=False, borderaxespad=0,
            borderpad=0, columnspacing=1.6,
        )  # fmt: skip
        box = legend.get_window_extent(canvas.canvas.get_renderer())  # type: ignore[attr-defined]
        if box.width < canvas.bbox.width * (1 - 2 * edge) or columns == 1:
            return float(box.height / canvas.bbox.height)
        legend.remove()
    raise AssertionError("one column is always enough")


def _height(canvas: Canvas, text: Any) -> float:
    box = text.get_window_extent(canvas.canvas.get_renderer())  # type: ignore[attr-defined]
    return float(box.height / canvas.bbox.height)


def _handles(figure: Figure) -> list[Any]:
    """What the legend shows of each series: its area, its line or its marker."""
    shown = names(figure.labels, LONGEST_NAME)
    if figure.kind in ("lines", "points"):
        look = stroke if figure.kind == "lines" else marker
        return [Line2D([], [], label=shown[label], **look(figure, label)) for label in figure.labels]
    return [Patch(facecolor=colours(figure)[label], label=shown[label]) for label in figure.labels]
