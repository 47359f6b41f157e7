"""``blockcalc conventions``."""

from __future__ import annotations

import click

from ..convention import CONVENTIONS
from ..tables.table import Column, Table
from . import options


@click.command("conventions")
@options.output
def command(form: str | None) -> None:
    """List the named ways of counting FLOPs: what each counts, and where it is published.

    \b
    blockcalc conventions
    """
    found = [{"name": c.name, "formula": c.formula, "counts": c.counts, "source": c.source} for c in CONVENTIONS.values()]
    columns = (Column("name"), Column("formula"), Column("counts"), Column("source"))
    options.emit(form, {"conventions": found}, Table("", columns, tuple(tuple(one.values()) for one in found)))
