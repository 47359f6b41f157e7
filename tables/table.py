"""A table as data, and its forms: for a terminal, as CSV, as Markdown. A number is never split or cut, at any width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["", "count", "flops", "bytes", "share"]


class Column(NamedTuple):
    """A heading and what its values are: text, or numbers of a unit."""

    name: str
    unit: Unit = ""


class Table(NamedTuple):
    """A title, headings, rows of values (integers stay integers; None is blank), and lines that belong below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()


def rounded(value: Any, unit: Unit) -> str:
    """A number for reading: SI letters for counts and FLOPs, binary units for bytes; four significant digits.

    >>> rounded(8030261248, "count"), rounded(1073741824, "bytes"), rounded(999, "count")
    ('8.030 G', '1 GiB', '')
    """
    step, letters = (1024, ("", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")) if unit == "bytes" else (1000, tuple(" kMGTPEZYRQ"))
    if type(value) is not int or unit in ("", "share") or abs(value) < step:
        return ""
    power = 0
    while abs(value) >= step ** (power + 1) and power + 1 < len(letters):
        power += 1
    whole, rest = divmod(value, step**power)
    if rest == 0:
        return f"{whole:,} {letters[power]}"
    scaled = value / step**power
    if scaled >= 999.95 and unit != "bytes" and power + 1 < len(letters):
        power, scaled = power + 1, scaled / step
    digits = max(0, 4 - len(str(int(scaled))))
    return f"{scaled:,.{digits}f} {letters[power]}"


def cell(value: Any, unit: Unit) -> str:
    """A value in full."""
    if value is None:
        return ""
    if unit == "share":
        return f"{100 * value:.1f}%"
    return f"{value:,}" if type(value) is int else str(value)


def as_csv(table: Table) -> str:
    """Comma-separated values with a heading: whole integers, no units."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return out.getvalue()


def as_markdown(table: Table) -> str:
    """A pipe table with numbers to the right, its title above and its notes below."""
    lines = [f"**{table.title}**", ""] if table.title else []
    lines.append("| " + " | ".join(_escaped(column.name) for column in table.columns) + " |")
    lines.append("|" + "|".join("---:" if column.unit else "---" for column in table.columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_escaped(text) for text in _texts(table.columns, row)) + " |")
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _texts(columns: Sequence[Column], row: Sequence[Any]) -> list[str]:
    return [cell(value, column.unit) for column, value in zip(columns, row, strict=True)]


def widened(table: Table) -> Table:
    """With a column of rounded numbers behind each column of counts, FLOPs or bytes that has a number to round."""
    columns: list[Column] = []
    rows: list[list[Any]] = [[] for _ in table.rows]
    for index, column in enumerate(table.columns):
        columns.append(column)
        values = [row[index] for row in table.rows]
        for row, value in zip(rows, values, strict=True):
            row.append(value)
        texts = [rounded(value, column.unit) for value in values]
        if any(texts):
            columns.append(Column("≈", "count"))
            for row, text in zip(rows, texts, strict=True):
                row.append(text)
    return table._replace(columns=tuple(columns), rows=tuple(map(tuple, rows)))


def print_table(table: Table, width: int | None = None) -> None:
    """Print to the terminal: as a grid, without the rounded numbers where they do not fit, else one value a line."""
    import rich.console
    import rich.table

    console = rich.console.Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if console.width < 1:
        console.width = 80
    for form in (widened(table), table):
        needs = _needs(form)
        if sum(needs) + 3 * len(needs) + 1 <= console.width:
            grid = rich.table.Table(title=form.title or None, title_justify="left", title_style="bold")
            for column, need in zip(form.columns, needs, strict=True):
                grid.add_column(column.name, justify="right" if column.unit else "left", min_width=need, no_wrap=True)
            for row in form.rows:
                grid.add_row(*_texts(form.columns, row))
            console.print(grid)
            break
    else:
        _print_records(console, table)
    for note in table.notes:
        console.print(note, style="dim")


def _needs(table: Table) -> list[int]:
    """The width of each column's widest text."""
    texts = [[column.name for column in table.columns], *(_texts(table.columns, row) for row in table.rows)]
    return [max(len(row[index]) for row in texts) for index in range(len(table.columns))]


def _print_records(console: Any, table: Table) -> None:
    """The transposed form: one value a line, so that nothing needs more width than its own."""
    if table.title:
        console.print(table.title, style="bold")
    label = max(len(column.name) for column in table.columns)
    for row in table.rows:
        for column, value in zip(table.columns, row, strict=True):
            if value is not None:
                near = rounded(value, column.unit)
                console.print(f"{column.name:<{label}}  {cell(value, column.unit)}" + (f"  ≈ {near}" if near else ""))
        console.print()
