"""``blockcalc sweep``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..tables.table import Column, Table, Unit
from . import options

if TYPE_CHECKING:
    from ..sweep.grid import Grid
    from ..sweep.run import Summary
    from ..sweep.spec import Spec

_SHOWN = 1000  # rows that are printed where no file is named


@click.command("sweep")
@click.argument("models", nargs=-1, required=True, shell_complete=options._names, metavar="MODEL...")
@click.option("--over", multiple=True, metavar="NAME=VALUES",
              help="An axis: a letter (b, s, d, l, f_expert …), a word (batch, context), a field of the config, a rank of the "
                   "layout (tp, pp, dp, cp, ep, etp, sp, zero), or an option (dtype, attention …). VALUES: 1,2,4 or 64:4096:64 "
                   "or 2^10:2^20.")  # fmt: skip
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="params unless given; as for blockcalc formula.")
@click.option("--tie", "ties", multiple=True, metavar="LETTER=SIZE", help="A letter in terms of others: f=4d, h=d/n.")
@click.option("--where", multiple=True, metavar="CONDITION", help="Keep rows that satisfy it: 'kv <= 16GiB', 'b*s <= 8e6'.")
@click.option("--valid", is_flag=True, help="Leave refused rows out, which are otherwise there with the reason.")
@options.dtype
@options.convention
@options.attention
@options.recompute
@options.policy
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), metavar="FILE",
              help="FILE.parquet, FILE.csv or FILE.jsonl; without it up to 1000 points are printed.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with a sweep that was stopped.")
@click.option("--force", is_flag=True, help="Write over FILE, or start anew.")
@click.option("--parts", is_flag=True, help="Leave a file a block in FILE.parts, and make no FILE.")
@click.option("--block", default=2**18, show_default=True, metavar="N", help="Points computed and written at once.")
@click.option("--dask", default=None, metavar="ADDRESS", help="Compute on a Dask cluster: its scheduler, or local:N processes.")
@click.option("--quiet", is_flag=True, help="No progress bar and no summary.")
@options.output
def command(
    models: tuple[str, ...], over: tuple[str, ...], quantities: tuple[str, ...], ties: tuple[str, ...],
    where: tuple[str, ...], valid: bool, dtype: str, convention: str, attention: str, recompute: str, policy: str,
    path: Path | None, resume: bool, force: bool, parts: bool, block: int, dask: str | None, quiet: bool, form: str | None,
) -> None:  # fmt: skip
    """Compute quantities over any grid of models, sizes, steps and layouts: a row a point, exact, or with the reason why not.

    Under a layout a row is one rank's (of pipeline ranks, the most that any has); a batch is that of one data rank. Rows are
    numbered: models, fields, options and layouts first, then letters, the last fastest. A sweep that was stopped goes on with
    --resume; on a cluster it writes the same rows.

    \b
    blockcalc sweep llama-3.1-8b --over s=2^10:2^17 --over b=1,8 --quantity kv
    blockcalc sweep llama-3.1-70b --over tp=1,2,4,8 --over pp=1,2 --over s=2^12:2^17 --quantity kv --where "kv <= 8GiB"
    blockcalc sweep gated-mlp --over d=1024:8192:128 --tie f=8d/3 --quantity params --quantity flops -o mlp.parquet
    blockcalc sweep mixtral-8x7b --over l=1:64 --over b=1:64 --over s=2^8:2^20 --quantity kv -o kv.csv --dask local:2
    """
    from ..sweep.spec import spec

    counted = {"dtype": dtype, "convention": convention, "attention": attention, "recompute": recompute, "policy": policy}
    asked = spec(models, over, quantities or ("params",), ties=ties, where=where, options=counted, valid=valid, block=block)
    if path is None:
        for flag, given in (("--resume", resume), ("--parts", parts), ("--dask", dask)):
            if given:
                raise InputError(f"{flag}: rows are only printed; name a file with -o")
        _print(asked, form)
        return
    from ..sweep.grid import Grid
    from ..sweep.run import sweep

    grid = Grid(asked)
    _warn(grid)
    with _progress(grid.points, quiet) as tell:
        found = sweep(asked, path, resume=resume, force=force, parts=parts, dask=dask, tell=tell)
    if not quiet:
        options.emit(form, _data(found), _summary(found))


def _print(asked: Spec, form: str | None) -> None:
    """A small grid's rows, on standard output."""
    from ..sweep.evaluate import rows
    from ..sweep.grid import Grid

    grid = Grid(asked)
    _warn(grid)
    if grid.points > _SHOWN:
        raise InputError(f"{grid.points} points, and {_SHOWN} are printed at most: name a file with -o")
    lines = [line for block in range(grid.blocks) for line in rows(grid, block).lines()]
    options.emit(form, {"rows": lines}, _table(grid, lines))


def _warn(grid: Grid) -> None:
    for place, (name, _) in enumerate(grid.spec.models):
        options.warn_beyond_table(options.Subject(name, grid.variants.read(place, ())[1], None), grid.longest)


def _table(grid: Grid, lines: list[dict[str, Any]]) -> Table:
    from ..quantities import QUANTITIES

    units: dict[str, Unit] = {name: "bytes" if QUANTITIES[name].unit == "bytes" else "count" for name in grid.spec.quantities}
    names = [name for name in (lines[0] if lines else {}) if name != "refused" or any(line["refused"] for line in lines)]
    shown = tuple(Column(name, units.get(name, "size")) for name in names)
    return Table("", shown, tuple(tuple(line[name] for name in names) for line in lines))


def _data(found: Summary) -> dict[str, Any]:
    refused = [{"reason": reason, "points": count} for reason, count in found.refused.items()]
    return {**found._asdict(), "refused": refused, "points_per_second": round(found.rate)}


def _summary(found: Summary) -> Table:
    facts = [(name, getattr(found, name)) for name in ("points", "rows", "blocks", "resumed")]
    facts += [(f"refused: {reason}", count) for reason, count in sorted(found.refused.items(), key=lambda one: -one[1])]
    facts += [("points a second", round(found.rate))] if found.computed else []
    return Table(found.output, (Column(""), Column("count", "count")), tuple(facts))


@contextmanager
def _progress(points: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("points", total=points)
        yield lambda done: bar.advance(task, done)
