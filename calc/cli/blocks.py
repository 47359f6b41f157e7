"""``blockcalc blocks``."""

from __future__ import annotations

import click

from ..catalogue import BLOCKS
from ..tables.table import Column, Table
from . import options


@click.command("blocks")
@options.output
def command(form: str | None) -> None:
    """List the blocks, with their letters and example sizes; --set letter=size gives others.

    \b
    blockcalc blocks
    blockcalc params mla --set d=7168 --set n=128
    """
    found = [{"name": name, "title": entry.title, "sizes": dict(entry.sizes)} for name, entry in BLOCKS.items()]
    rows = tuple((name, entry.title, " ".join(f"{k}={v}" for k, v in entry.sizes.items())) for name, entry in BLOCKS.items())
    options.emit(form, {"blocks": found}, Table("", (Column("name"), Column("what it is"), Column("letters")), rows))
