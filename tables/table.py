"""A table as data, and its forms: for a terminal, as CSV, as Markdown, as an object. A number is never split or cut, at any
width. ``markup`` has the forms for papers and pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["", "count", "flops", "bytes", "size", "share", "ratio"]
"""What a number is of; a size, such as a width, is read as it is."""


class Column(NamedTuple):
    """A heading and what its values are: text, or numbers of a unit."""

    name: str
    unit: Unit = ""


class Table(NamedTuple):
    """A title, headings, rows of values (integers stay integers, fractions exact; None is blank), and lines that belong below.

    ``compared``: the rows are held against the first, so that a terminal shows in colour what is less or more than there.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    compared: bool = False


def rounded(value: Any, unit: Unit) -> str:
    """A number for reading: SI letters for counts and FLOPs, binary units for bytes; four significant digits.

    >>> rounded(8030261248, "count"), rounded(1073741824, "bytes"), rounded(999, "count")
    ('8.030 G', '1 GiB', '')
    """
    step, letters = (1024, ("", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")) if unit == "bytes" else (1000, tuple(" kMGTPEZYRQ"))
    if type(value) is not int or unit in ("", "size", "share", "ratio") or abs(value) < step:
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
    return f"{_four_digits(scaled)} {letters[power]}"


def _four_digits(value: float) -> str:
    """Four significant digits, as many more in front of the point as there are."""
    if 0 < abs(value) < 1:
        return f"{value:#.4g}"
    return f"{value:,.{max(0, 4 - len(str(int(abs(value)))))}f}"


def cell(value: Any, unit: Unit) -> str:
    """A value in full, but for shares and ratios, which are rounded."""
    if value is None:
        return ""
    if unit == "share":
        return f"{100 * float(value):.1f}%"
    value = plain(value) if unit == "ratio" else value
    if unit == "ratio" and type(value) is float:
        return _four_digits(value)
    return f"{value:,}" if type(value) is int else str(value)


def plain(value: Any) -> Any:
    """A value as CSV and JSON have it: whole numbers exact, other fractions as the nearest float."""
    if isinstance(value, (str, int, float)) or not hasattr(value, "as_integer_ratio"):
        return value
    whole, parts = value.as_integer_ratio()
    return whole if parts == 1 else float(value)


def as_object(table: Table) -> dict[str, Any]:
    """Title, headings with units, rows by heading, notes: what JSON is written of."""
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, map(plain, row), strict=True)) for row in table.rows]
    columns = [column._asdict() for column in table.columns]
    return {"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)}


def as_csv(table: Table) -> str:
    """Comma-separated values with a heading: whole integers, no units."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows(["" if value is None else plain(value) for value in row] for row in table.rows)
    return out.getvalue()


def as_markdown(table: Table) -> str:
    """A pipe table with numbers to the right, its title above and its notes below."""
    lines = [f"**{table.title}**", ""] if table.title else []
    lines.append("| " + " | ".join(_escaped(column.name) for column in table.columns) + " |")
    lines.append("|" + "|".join("---:" if column.unit else "---" for column in table.columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_escaped(text) for text in texts(table.columns, row)) + " |")
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def texts(columns: Sequence[Column], row: Sequence[Any]) -> list[str]:
    """A row's values as people read them."""
    return [cell(value, column.unit) for column, value in zip(columns, row, strict=True)]


# -- for a terminal ----------------------------------------------------------------------------------------------------


class _Text(NamedTuple):
    text: str
    style: str = ""


class _Grid(NamedTuple):
    """What stands in the columns of a terminal: headings, which of them are numbers, rows."""

    headings: list[str]
    numbers: list[bool]
    rows: list[list[_Text]]

    @property
    def needs(self) -> list[int]:
        """The width of each column's widest text."""
        from rich.cells import cell_len

        rows = [self.headings, *([each.text for each in row] for row in self.rows)]
        return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def print_table(table: Table, width: int | None = None) -> None:
    """Print to the terminal: as a grid; where that does not fit without the rounded numbers, or with its rows as columns; else
    one value a line."""
    import rich.console

    console = rich.console.Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if console.width < 1:
        console.width = 80
    for line in _lines(table.title, console.width):
        console.print(line, style="bold")
    for grid in _grids(table):
        if sum(grid.needs) + 3 * len(grid.needs) + 1 <= console.width:
            console.print(_drawn(grid))
            break
    else:
        for line in _records(table, console.width):
            console.print(line)
    for note in table.notes:
        for line in _lines(note, console.width):
            console.print(line, style="dim")


def _drawn(grid: _Grid) -> Any:
    """The grid as rich draws it, each column as wide as its widest text."""
    import rich.table
    import rich.text

    drawn = rich.table.Table()
    for heading, number, need in zip(grid.headings, grid.numbers, grid.needs, strict=True):
        drawn.add_column(heading, justify="right" if number else "left", width=need, no_wrap=True)
    for row in grid.rows:
        drawn.add_row(*(rich.text.Text(*each) for each in row))
    return drawn


def _lines(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """The text in lines of the width, broken between words only: a number is one."""
    if text.isprintable() and 0 < len(text) <= width - len(first):
        return [first + text]
    from textwrap import wrap

    return wrap(
        text, width, initial_indent=first, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def _grids(table: Table) -> Iterator[_Grid]:
    """The table with its rounded numbers, without them, and with its rows as columns if each has a name of its own."""
    yield _grid(table, near=True)
    grid = _grid(table)
    yield grid
    names = [row[0].text for row in grid.rows]
    if not grid.numbers[0] and len(names) > 1 and len(set(names)) == len(names):
        columns = list(map(list, zip(*grid.rows, strict=True)))[1:]
        rows = [[_Text(heading), *column] for heading, column in zip(grid.headings[1:], columns, strict=True)]
        yield _Grid([grid.headings[0], *names], [False, *[all(grid.numbers[1:])] * len(names)], rows)


def _grid(table: Table, near: bool = False) -> _Grid:
    """*near*: a column of rounded numbers behind each that has a number to round."""
    grid = _Grid([], [], [[] for _ in table.rows])
    for index, column in enumerate(table.columns):
        values = [row[index] for row in table.rows]
        styles = [_style(value, values[0]) if table.compared and column.unit else "" for value in values]
        columns = [(column.name, [cell(value, column.unit) for value in values])]
        columns += [("≈", [rounded(value, column.unit) for value in values])] if near else []
        for heading, found in columns:
            if heading == column.name or any(found):
                grid.headings.append(heading)
                grid.numbers.append(column.unit != "")
                for row, text, style in zip(grid.rows, found, styles, strict=True):
                    row.append(_Text(text, style))
    return grid


def _style(value: Any, first: Any) -> str:
    """How a number is shown beside the first of its column."""
    if value is None or first is None or value == first:
        return ""
    return "green" if value < first else "yellow"


def _records(table: Table, width: int) -> Iterator[str]:
    """One value a line, so that nothing needs more width than its own."""
    label = max(len(column.name) for column in table.columns)
    for row in table.rows:
        for column, value in zip(table.columns, row, strict=True):
            if value is not None:
                yield from _record(column.name, label, cell(value, column.unit), rounded(value, column.unit), width)
        yield ""


def _record(name: str, label: int, text: str, near: str, width: int) -> list[str]:
    """A value behind its name, with what is near it if there is room; below its name where that leaves too little."""
    line = f"{name:<{label}}  {text}"
    if near and len(line) + len(near) + 4 <= width:
        return [f"{line}  ≈ {near}"]
    longest, room = max(map(len, text.split()), default=0), width - label - 2
    if len(line) <= width or longest + 2 > width:
        return [line]
    if room >= width // 2 and longest <= room:
        return _lines(text, width, f"{name:<{label}}  ", " " * (label + 2))
    return [*_lines(name, width), *_lines(text, width, "  ", "  ")]
