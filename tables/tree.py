"""A tree of amounts as an indented table. A number is never split or cut, at any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from textwrap import wrap
from typing import NamedTuple

from .table import Column, Table, Unit, print_table, rounded


class Branch(NamedTuple):
    """A row: its label, value, share of the whole, and its texts (the closed form, the numbers put in), for which there may be
    no room beside the numbers; and the rows below it."""

    label: str
    value: int
    share: Fraction
    texts: tuple[str, str]
    below: tuple[Branch, ...] = ()


class _Row(NamedTuple):
    label: str
    under: str
    branch: Branch


def percent(share: Fraction) -> str:
    """One decimal, or one significant digit of what is less than a tenth of a percent.

    >>> percent(Fraction(1, 3)), percent(Fraction(1)), percent(Fraction(1, 30000))
    ('33.3%', '100.0%', '0.003%')
    """
    digits, hundred = 1, 100 * share
    while hundred and hundred < Fraction(1, 10**digits):
        digits += 1
    units = round(hundred * 10**digits)
    return f"{units // 10**digits}.{units % 10**digits:0{digits}d}%"


def _rows(branches: Sequence[Branch], guide: str, top: bool = False) -> Iterator[_Row]:
    for index, branch in enumerate(branches):
        last = index == len(branches) - 1
        joint, under = ("", "") if top else ("└── ", "    ") if last else ("├── ", "│   ")
        below = f"{guide}{under}" + ("│   " if branch.below else "    ")
        yield _Row(guide + joint + branch.label, below, branch)
        yield from _rows(branch.below, guide + under)


def print_tree(title: str, unit: Unit, branches: Sequence[Branch], width: int | None = None) -> None:
    """Print the rows under their guides, texts beside the numbers or below; where not even the numbers fit, as records."""
    import rich.console

    console = rich.console.Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if console.width < 1:
        console.width = 80
    rows = list(_rows(branches, "", top=True))
    cells = [(r.label, f"{r.branch.value:,}", rounded(r.branch.value, unit), percent(r.branch.share)) for r in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + 2 * len(widths) > console.width:
        columns = Column("component"), Column("value", unit), Column("share"), Column("formula"), Column("=")
        records = tuple((r.branch.label, r.branch.value, percent(r.branch.share), *r.branch.texts) for r in rows)
        print_table(Table(title, columns, records), console.width)
        return
    console.print(title, style="bold")
    for row, (label, *numbers) in zip(rows, cells, strict=True):
        line = "  ".join([label.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
        beside = " = ".join(row.branch.texts)
        if len(line) + 2 + len(beside) <= console.width:
            console.print(f"{line}  {beside}".rstrip())
            continue
        console.print(line)
        for sign, one in zip(("", "= "), row.branch.texts, strict=True):
            console.print(f"{row.under}{sign}{one}")


def print_legend(title: str, texts: Sequence[tuple[str, str]], width: int | None = None) -> None:
    """Names and what each stands for, wrapped between words."""
    import rich.console

    console = rich.console.Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(title, style="bold")
    for name, text in texts:
        for line in wrap(f"{name}: {text}", max(console.width - 2, 40), subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False):  # fmt: skip
            console.print(f"  {line}")
