"""``blockcalc table``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from . import options

SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex", ".html": "html"}


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ..comparisons import TITLES

    return [name for name in TITLES if name.startswith(incomplete)]


@click.command("table")
@click.argument("name", required=False, shell_complete=_names)
@click.option("--model", "models", multiple=True, metavar="MODEL", shell_complete=options.complete_model,
              help="A row; repeatable.")
@click.option("--context", "contexts", type=int, multiple=True, metavar="S",
              help="Tokens in the cache; repeatable where they are columns.")  # fmt: skip
@click.option("--batch", "batches", type=int, multiple=True, metavar="B",
              help="Sequences in the batch; repeatable where they are columns.")  # fmt: skip
@click.option("--seq", type=int, default=None, metavar="T", help="New tokens a sequence.")
@click.option("--dtype", default=None, metavar="TYPE", help="Type of activations and cache.")
@click.option("--set", "changes", multiple=True, metavar="LETTER=SIZE", help="Another size of the blocks.")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), default=None, metavar="FILE",
              help="Write to a file: .md, .csv, .tex, .html or .json, unless a form is named.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file where there is one.")
@options.output
def command(
    name: str | None, models: tuple[str, ...], contexts: tuple[int, ...], batches: tuple[int, ...], seq: int | None,
    dtype: str | None, changes: tuple[str, ...], target: Path | None, force: bool, form: str | None,
) -> None:  # fmt: skip
    """Draw the comparison table NAME, or list the tables: kinds of attention, feed-forwards, norms, positions, paradigms,
    mixtures, shapes, KV caches, FLOP conventions, models.

    \b
    blockcalc table
    blockcalc table attention --set k=4 --seq 4096
    blockcalc table kv --model llama-3.1-8b --model gemma-2-9b --context 8192 --context 131072
    blockcalc table feed-forward -o feed-forward.tex
    """
    from ..comparisons import TITLES, Asked, draw
    from ..tables.table import Column, Table, as_object

    asked = Asked(models, contexts, batches, seq, dtype, options.changes_of(changes))
    if name is None:
        if asked != Asked():
            raise InputError("no table is named: 'blockcalc table' lists them")
        data: dict[str, Any] = {"tables": [{"name": one, "title": title} for one, title in TITLES.items()]}
        tables: tuple[Table, ...] = (Table("", (Column("name"), Column("title")), tuple(TITLES.items())),)
    else:
        tables = draw(name, asked)
        data = {"table": name, "title": TITLES[name], "tables": [as_object(table) for table in tables]}
    if target is None:
        options.emit(form, data, *tables)
    else:
        options.save(target, options.written(_form(target, form), data, *tables), force)
        click.echo(f"wrote {target}", err=True)


def _form(target: Path, form: str | None) -> str:
    """The form asked for, else that of the file's name."""
    found = form or SUFFIXES.get(target.suffix.lower())
    if found is None:
        raise InputError(f"-o {target}: its form is not known by its name; end it in {', '.join(SUFFIXES)}, or name a form")
    return found
