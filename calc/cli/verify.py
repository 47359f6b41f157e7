"""``blockcalc verify``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ..errors import InputError
from ..tables.table import Column, Table
from . import options


@click.command("verify")
@click.argument("models", nargs=-1, shell_complete=options._names)
@click.option("--all", "everything", is_flag=True, help="Every block of the catalogue.")
@click.option("--seed", default=0, show_default=True, help="Of the sizes that are drawn.")
@click.option("--batch", default=2, show_default=True, metavar="B", help="Sequences, for whole models.")
@click.option("--seq", default=5, show_default=True, metavar="T", help="Tokens a sequence, for whole models.")
@options.output
@click.pass_context
def command(
    ctx: click.Context, models: tuple[str, ...], everything: bool, seed: int, batch: int, seq: int, form: str | None
) -> None:
    """Hold blocks (at drawn sizes) or whole models (at their own) against their torch twins: parameters, FLOPs, saved
    bytes, cache bytes. Exit code 1 where a number differs. Needs torch.

    \b
    blockcalc verify gated-mlp mla
    blockcalc verify path/to/config.json
    blockcalc verify --all
    """
    from ..catalogue import BLOCKS

    if bool(models) == everything:
        raise InputError("name the blocks or models to verify, or give --all for every block")
    verify = _verify()
    verdicts = list(_verdicts(verify, tuple(BLOCKS) if everything else models, seed, batch, seq, quiet=form is not None))
    differing = sum(not v.equal for v in verdicts)
    note = f"{len(verdicts)} comparisons, {differing} of them differ."
    if any(v.bound < 1 for v in verdicts):
        note += (
            f" Blocks: up to {max(v.draws for v in verdicts)} draws each of sizes from {verify.SMALLEST} to {verify.LARGEST};"
            " the numbers are those of the last; a wrong polynomial of the same degree (at most"
            f" {max(v.degree for v in verdicts)}) would have agreed with a chance below {verify.BOUND:.0e}."
        )
    if any(v.bound == 1 for v in verdicts):
        note += " Whole models are compared once, at their own sizes, and so without a bound."
    data = {"verify": [v._asdict() | {"equal": v.equal} for v in verdicts], "equal": differing == 0}
    options.emit(form, data, _table(verdicts, whole=form is not None, note=note))
    ctx.exit(1 if differing else 0)


def _verify() -> Any:
    try:
        from ..refmodel import verify
    except ModuleNotFoundError as missing:
        raise InputError(f"verify needs {missing.name}: pip install 'blockcalc[verify]'") from None
    return verify


def _table(verdicts: list[Any], whole: bool, note: str) -> Table:
    """One row a comparison; *whole* with the branch, the draws, the degree and the chance of each."""
    columns = [Column("of"), Column("quantity"), Column("blockcalc", "count"), Column("torch", "count"), Column("verdict")]
    rows = [[v.subject, v.quantity, v.engine, v.torch, "equal" if v.equal else "DIFFERS"] for v in verdicts]
    if whole:
        columns += [Column("branch"), Column("draws", "count"), Column("degree", "count"), Column("chance")]
        rows = [[*row, v.branch, v.draws, v.degree, f"{v.bound:.1e}"] for row, v in zip(rows, verdicts, strict=True)]
    return Table("", tuple(columns), tuple(map(tuple, rows)), (note,))


def _verdicts(
    verify: Any, names: tuple[str, ...], seed: int, batch: int, seq: int, quiet: bool
) -> Iterator[Any]:
    """The verdicts on each name, under a progress bar on standard error."""
    import sys

    from rich.console import Console
    from rich.progress import track

    subjects = [options.subject(name, ()) for name in names]
    show = not quiet and sys.stderr.isatty()
    for subject in track(subjects, "verifying", console=Console(stderr=True), disable=not show, transient=True):
        if subject.width is None:
            yield from verify.verify_model(subject.component, batch, seq)
        else:
            yield from verify.verify_block(subject.name, seed)
