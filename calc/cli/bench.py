"""``blockcalc bench``."""

from __future__ import annotations

import math
from typing import Any

import click

from ..errors import InputError
from ..tables.table import Column, Table
from . import options


def _blocks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ..catalogue import BLOCKS

    return [name for name in BLOCKS if name.startswith(incomplete)]


@click.command("bench")
@click.argument("blocks", nargs=-1, metavar="[BLOCK]...", shell_complete=_blocks)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="What runs the twins.")
@click.option("--rounds", type=click.IntRange(1, 100), default=2, show_default=True, help="How often all of it is measured.")
@options.output
def command(blocks: tuple[str, ...], device: str, rounds: int, form: str | None) -> None:
    """Predict how long blocks take from their ledgers and this machine's rates, time their torch twins, and compare.

    Every block of the catalogue unless some are named, at two sizes, in fp32: forward, backward and, where there is a
    cache, one step of decoding. On a CPU all is the process's own time on one thread. Some minutes for all blocks. Needs
    torch.

    \b
    blockcalc bench
    blockcalc bench llama-block moe --json
    """
    from ..catalogue import BLOCKS

    unknown = [name for name in blocks if name not in BLOCKS]
    if unknown:
        raise InputError(f"{unknown[0]!r} is not a block; 'blockcalc blocks' lists them")
    bench = _bench(device)
    machines, points = _run(bench, blocks or tuple(BLOCKS), device, rounds, quiet=form is not None)
    if not points:
        raise InputError(f"{', '.join(blocks)}: too little work at any batch to be timed")
    machine, fits = _machine(machines), _fits(bench, points)
    data = {
        "bench": [point._asdict() | {"error": point.error} for point in points],
        "fit": {name: _fit(found) for name, found in fits.items()}, "machine": machine,
    }  # fmt: skip
    options.emit(form, data, *_tables(points, fits, machine))


def _bench(device: str) -> Any:
    try:
        import torch

        from ..refmodel import bench
    except ModuleNotFoundError as missing:
        raise InputError(f"bench needs {missing.name}: pip install 'blockcalc[verify]'") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no CUDA device here")
    return bench


def _run(bench: Any, names: tuple[str, ...], device: str, rounds: int, quiet: bool) -> Any:
    """The machines and the points, under a progress bar on standard error."""
    import sys

    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("measuring", total=1.0)
        return bench.benched(names, device, rounds, tell=lambda share: progress.update(task, completed=share))


def _machine(machines: list[Any]) -> dict[str, Any]:
    """What the rounds measured, in the mean."""
    named = {name: [getattr(machine, name) for machine in machines] for name in ("rate", "bandwidth", "overhead")}
    return {"device": machines[0].device} | {name: sum(values) / len(values) for name, values in named.items()}


def _fits(bench: Any, points: list[Any]) -> dict[str, Any]:
    """How well the prediction holds over all points, and over those of each phase."""
    phases = dict.fromkeys(point.phase for point in points)
    of = {phase: [point for point in points if point.phase == phase] for phase in phases}
    return {name: bench.fit(some) for name, some in {"all": points, **of}.items()}


def _fit(found: Any) -> dict[str, Any]:
    """JSON has no number for the correlation of a single point."""
    return {**found._asdict(), "correlation": None if math.isnan(found.correlation) else found.correlation}


def _tables(points: list[Any], fits: dict[str, Any], machine: dict[str, Any]) -> tuple[Table, Table]:
    columns = (
        Column("block"), Column("d", "count"), Column("batch", "count"), Column("seq", "count"), Column("phase"),
        Column("FLOPs", "flops"), Column("predicted ms", "count"), Column("measured ms", "count"), Column("error", "share"),
    )  # fmt: skip
    rows = tuple(
        (p.block, p.d, p.batch, p.seq, p.phase, p.flops, f"{1e3 * p.predicted:.2f}", f"{1e3 * p.measured:.2f}", p.error)
        for p in points
    )
    note = (
        f"{machine['device']}, fp32: products at up to {machine['rate'] / 1e9:.1f} GFLOP/s, large copies at"
        f" {machine['bandwidth'] / 1e9:.1f} GB/s, an operation at least {machine['overhead'] * 1e6:.1f} µs. The rates come from"
        " operations that stand alone; nothing is fitted to a block."
    )
    heads = Column("phase"), Column("points", "count"), Column("rank correlation", "count"), Column("median error", "share")
    fit_rows = tuple((name, found.points, f"{found.correlation:.3f}", found.error) for name, found in fits.items())
    return Table("", columns, rows), Table("", heads, fit_rows, (note,))
