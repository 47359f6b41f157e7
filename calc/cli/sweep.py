"""``blockcalc sweep``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..quantities import QUANTITIES
from ..sweep.plans import PLANS
from ..tables.table import Column, Table, Unit
from ..timing.efficiency import PROFILES
from . import capacity, options, runs

if TYPE_CHECKING:
    from ..sweep.grid import Grid
    from ..sweep.run import Summary
    from ..sweep.spec import Spec

_SHOWN = 1000  # rows that are printed where no file is named


def _counted(given: runs.Given) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


counted = runs.gathered(
    "counted", _counted,
    options.dtype, options.convention,
    click.option("--attention", type=click.Choice(["math", "flash", "fused"]), default=None,
                 help="math unless given, of plans fused: a kernel that does not write scores out."),
    options.recompute, options.policy,
    click.option("--gpu", default=None, metavar="NAME", shell_complete=options.complete_machine,
                 help="A machine (blockcalc machines), or a TOML file of your own; of plans, as what follows."),
    click.option("--quant", default=None, metavar="FORMAT", shell_complete=options.complete_format,
                 help="Format of the weights that serve: fp8, int8, nf4 …"),
    options.kv_dtype,
    click.option("--optimizer", default=None, metavar="NAME", shell_complete=options.complete_optimizer,
                 help="adamw-mixed unless given."),
    click.option("--microbatches", type=int, default=None, metavar="M",
                 help="Microbatches of b sequences that a data rank runs in a training step, 1 unless given."),
    capacity.products,
    click.option("--efficiency", type=click.Choice(list(PROFILES)), default=None,
                 help="Profile of what is attained of the peaks, measured unless given."),
)  # fmt: skip


@click.command("sweep")
@click.argument("models", nargs=-1, required=True, shell_complete=options.complete_model, metavar="MODEL...")
@click.option("--over", multiple=True, metavar="NAME=VALUES",
              help="An axis: a letter (b, s, d, l, f_expert …), a word (batch, context), a field of the config, a rank of the "
                   "layout (tp, pp, dp, cp, ep, etp, sp, zero), a machine (gpu), or an option (dtype, attention, optimizer …). "
                   "VALUES: 1,2,4 or 64:4096:64 or 2^10:2^20.")  # fmt: skip
@click.option("--quantity", "quantities", multiple=True, metavar="NAME",
              shell_complete=options.completing(lambda: (*QUANTITIES, *PLANS)),
              help=f"params unless given; as for blockcalc formula, or of a plan: {', '.join(PLANS)}.")
@click.option("--tie", "ties", multiple=True, metavar="LETTER=SIZE", help="A letter in terms of others: f=4d, h=d/n.")
@click.option("--where", multiple=True, metavar="CONDITION",
              help="Keep rows that satisfy it: 'kv <= 16GiB', 'b*s <= 8e6', in letters, quantities, gpu_memory and devices.")
@click.option("--valid", is_flag=True, help="Leave refused rows out, which are otherwise there with the reason.")
@counted
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
    where: tuple[str, ...], valid: bool, counted: dict[str, Any], path: Path | None, resume: bool,
    force: bool, parts: bool, block: int, dask: str | None, quiet: bool, form: str | None,
) -> None:  # fmt: skip
    """Compute quantities over any grid of models, sizes, steps and layouts: a row a point, exact, or with the reason why not.

    Under a layout a row is one rank's (of pipeline ranks, the most that any has); a batch b is that of one data rank, in a plan
    of training its microbatch. Plans are what 'memory', 'train' and 'serve' compute: bytes of the heaviest device, seconds as
    estimated, bounds that no run beats. Rows are numbered: models, fields, options and layouts first, then letters, the last
    fastest. A sweep that was stopped goes on with --resume; on a cluster it writes the same rows.

    \b
    blockcalc sweep llama-3.1-8b --over s=2^10:2^17 --over b=1,8 --quantity kv
    blockcalc sweep llama-3.1-70b --over tp=1,2,4,8 --over pp=1,2 --over s=2^12:2^17 --quantity kv --where "kv <= 8GiB"
    blockcalc sweep gpt2 --over gpu=h100-sxm,t4 --over b=1:64 --quantity decode_memory --where "decode_memory <= gpu_memory"
    blockcalc sweep gated-mlp --over d=1024:8192:128 --tie f=8d/3 --quantity params --quantity flops -o mlp.parquet
    blockcalc sweep mixtral-8x7b --over l=1:64 --over b=1:64 --over s=2^8:2^20 --quantity kv -o kv.csv --dask local:2
    """
    from ..sweep.spec import spec

    for name in runs.said(*counted):
        if any(text.partition("=")[0].strip().replace("-", "_") == name for text in over):
            raise InputError(f"--{name.replace('_', '-')}: an axis too (--over {name}=…); give it once")
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
        options.emit(form, {**_data(found), "assumed": _assumed(grid)}, _summary(found, grid))


def _print(asked: Spec, form: str | None) -> None:
    """A small grid's rows, on standard output."""
    from ..sweep.evaluate import rows
    from ..sweep.grid import Grid

    grid = Grid(asked)
    _warn(grid)
    if grid.points > _SHOWN:
        raise InputError(f"{grid.points} points, and {_SHOWN} are printed at most: name a file with -o")
    lines = [line for block in range(grid.blocks) for line in rows(grid, block).lines()]
    options.emit(form, {"rows": lines, "assumed": _assumed(grid)}, _table(grid, lines))


def _warn(grid: Grid) -> None:
    for place, (name, _) in enumerate(grid.spec.models):
        options.warn_beyond_table(options.Subject(name, grid.variants.read(place, ())[1], None), grid.longest)


def _table(grid: Grid, lines: list[dict[str, Any]]) -> Table:
    kinds = {name: PLANS[name].unit if name in PLANS else QUANTITIES[name].unit for name in grid.spec.quantities}
    units: dict[str, Unit] = {name: _UNITS.get(kind, "count") for name, kind in kinds.items()}
    names = [name for name in (lines[0] if lines else {}) if name != "refused" or any(line["refused"] for line in lines)]
    shown = tuple(Column(name, units.get(name, "size")) for name in names)
    return Table("", shown, tuple(tuple(line[name] for name in names) for line in lines), (_note(grid),))


def _note(grid: Grid) -> str:
    return "unless a column says otherwise: " + ", ".join(f"{name} {value}" for name, value in _assumed(grid).items())


def _assumed(grid: Grid) -> dict[str, Any]:
    """Sizes and options that are no axis, with what they are."""
    from ..inverse.sides import DEFAULTS
    from ..sweep.letters import column
    from ..sweep.plans import Run

    sizes = {column(str(letter)): size for letter, size in DEFAULTS.items() if str(letter) not in grid.given}
    run = Run()._asdict() if grid.spec.plans else {}
    axes = {one.name for one in grid.outer}
    if grid.spec.plans and grid.spec.budgets:
        run["attention"] = f"math, of plans {run['attention']}"
    found = {**sizes, **run, **dict(grid.spec.options)}
    return {name: value for name, value in found.items() if value is not None and name not in axes}


_UNITS: dict[str, Unit] = {"bytes": "bytes", "seconds": "ratio", "tokens/s": "ratio", "share": "share"}


def _data(found: Summary) -> dict[str, Any]:
    refused = [{"reason": reason, "points": count} for reason, count in found.refused.items()]
    return {**found._asdict(), "refused": refused, "points_per_second": round(found.rate)}


def _summary(found: Summary, grid: Grid) -> Table:
    facts = [(name, getattr(found, name)) for name in ("points", "rows", "blocks", "resumed")]
    facts += [(f"refused: {reason}", count) for reason, count in sorted(found.refused.items(), key=lambda one: -one[1])]
    facts += [("points a second", round(found.rate))] if found.computed else []
    return Table(found.output, (Column(""), Column("count", "count")), tuple(facts), (_note(grid),))


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
