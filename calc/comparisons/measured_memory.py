"""Memory as public runs measured it, and as it is computed for them."""

from __future__ import annotations

from statistics import median
from typing import Any

from ..memory.measured import Measured, measured
from ..tables import measured_memory
from ..tables.table import Column, Table
from .comparison import Asked, Comparison

COLUMNS = (
    Column("model"), Column("run"), Column("printed"), Column("measured", "bytes"), Column("computed", "bytes"),
    Column("difference"), Column("note"),
)  # fmt: skip


def percent(share: Any) -> str:
    """A difference, signed, with two digits behind the point."""
    return f"{100 * float(share):+.2f}%"


def draw(asked: Asked) -> tuple[Table, ...]:
    """A table a source, then what is left out."""
    data, runs = measured_memory(), measured()
    tables = [_of(name, source, [run for run in runs if run.source == name]) for name, source in data["sources"].items()]
    left_out = tuple((one["what"], one["why"]) for one in data["left_out"])
    return (*tables, Table("left out", (Column("what"), Column("why")), left_out))


def _of(name: str, source: dict[str, Any], runs: list[Measured]) -> Table:
    rows = tuple(
        (one.model, one.run, one.printed, one.measured, one.computed.bytes, percent(one.difference), one.beyond)
        for one in runs
    )
    sizes = [abs(run.difference) for run in runs if run.beyond is None]
    middle, most = (percent(size)[1:] for size in (median(sizes), max(sizes)))
    notes = (
        f"{source['what']}; {source['metric']}",
        f"{len(sizes)} figures without a note: {middle} off in the median, {most} at most",
    )
    return Table(source["title"], COLUMNS, rows, notes)


COMPARISON = Comparison(Asked(), draw)
