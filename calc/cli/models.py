"""``blockcalc models``."""

from __future__ import annotations

import click

from ..tables import presets
from ..tables.table import Column, Table
from . import options


@click.command("models")
@options.output
def command(form: str | None) -> None:
    """List the presets: named models with the source of their sizes.

    \b
    blockcalc models
    blockcalc models --json
    """
    found = [
        {"name": name, "title": preset["title"], "model_type": preset["config"]["model_type"], "source": preset["source"]}
        for name, preset in presets().items()
    ]
    columns = (Column("name"), Column("title"), Column("family"), Column("source"))[: 3 if form is None else 4]
    rows = tuple(tuple(one.values())[: len(columns)] for one in found)
    options.emit(form, {"models": found}, Table("", columns, rows))
