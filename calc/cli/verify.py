"""``blockcalc verify``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from ..errors import InputError
from ..tables.table import Column, Table
from . import options


@click.command("verify")
@click.argument("models", nargs=-1, shell_complete=options.complete_model)
@click.option("--all", "everything", is_flag=True, help="Every block of the catalogue.")
@click.option("--seed", default=0, show_default=True, help="Of the sizes that are drawn.")
@click.option("--batch", default=2, show_default=True, metavar="B", help="Sequences, for whole models.")
@click.option("--seq", default=5, show_default=True, metavar="T", help="Tokens a sequence, for whole models.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
              help="Where the twins of blocks run; saved bytes are compared on the CPU.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16"]), default=None, help="Saved bytes in this type only.")
@options.output
@click.pass_context
def command(
    ctx: click.Context, models: tuple[str, ...], everything: bool, seed: int, batch: int, seq: int, device: str,
    dtype: str | None, form: str | None,
) -> None:  # fmt: skip
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
    verify = _verify(device)
    dtypes = ("fp32", "bf16") if dtype is None else (dtype,)
    subjects = [options.subject(name, ()) for name in (BLOCKS if everything else models)]
    verdicts: list[Any] = []
    for subject in _shown(subjects, quiet=form is not None):
        if subject.width is None:
            verdicts += verify.verify_model(subject.component, batch, seq, dtypes=dtypes)
        else:
            verdicts += verify.verify_block(subject.name, seed, device=device, dtypes=dtypes)
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


def _verify(device: str) -> Any:
    try:
        import torch

        from ..refmodel import verify
    except ModuleNotFoundError as missing:
        raise InputError(f"verify needs {missing.name}: pip install 'blockcalc[verify]'") from None
    torch.set_num_threads(1)  # the twins are small, and threads only in each other's way
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device here")
    return verify


def _table(verdicts: list[Any], whole: bool, note: str) -> Table:
    """One row a comparison; *whole* with the branch, the draws, the degree and the chance of each."""
    columns = [Column("of"), Column("quantity"), Column("blockcalc", "count"), Column("torch", "count"), Column("verdict")]
    rows = [[v.subject, v.quantity, v.engine, v.torch, "equal" if v.equal else "DIFFERS"] for v in verdicts]
    if whole:
        columns += [Column("branch"), Column("draws", "count"), Column("degree", "count"), Column("chance")]
        rows = [[*row, v.branch, v.draws, v.degree, f"{v.bound:.1e}"] for row, v in zip(rows, verdicts, strict=True)]
    return Table("", tuple(columns), tuple(map(tuple, rows)), (note,))


def _shown(subjects: list[options.Subject], quiet: bool) -> Iterable[options.Subject]:
    """The subjects, under a progress bar on standard error where somebody looks at one."""
    import sys

    from rich.console import Console
    from rich.progress import track

    show = not quiet and sys.stderr.isatty()
    return track(subjects, "verifying", console=Console(stderr=True), disable=not show, transient=True)
