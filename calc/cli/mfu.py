"""``blockcalc mfu``."""

from __future__ import annotations

from typing import Any

import click

from ..dims import check_sizes
from ..errors import InputError
from ..tables.table import Column, Table
from ..tensor import Kernels
from ..timing.machine import machine
from ..timing.readings import Reading, Speed, printed, readings
from . import answers, capacity, options, runs


@click.command("mfu")
@options.model
@click.option("--gpu", required=True, metavar="NAME", shell_complete=options.complete_machine,
              help="A machine (blockcalc machines), or a TOML file of your own.")
@click.option("--count", default=1, show_default=True, metavar="N", help="Devices in all.")
@runs.gathered(
    "measured", dict,
    click.option("--tokens-per-second", default=None, metavar="X", help="Of all devices together."),
    click.option("--tokens-per-second-per-device", default=None, metavar="X", help="Of one."),
    click.option("--flops-per-second", default=None, metavar="X", help="Of one device, as its authors counted: 400T."),
    click.option("--step-seconds", default=None, metavar="X", help="Seconds of a step of --batch sequences of --seq tokens."),
)
@options.batch
@options.seq
@options.recompute
@click.option("--dtype", default="bf16", show_default=True, metavar="TYPE", help="Whose peak is whole: bf16, fp16, fp8 …")
@click.option("--printed", "figure", default=None, metavar="X%", help="A utilization that was printed: whose is it?")
@options.output
@click.pass_context
def command(
    ctx: click.Context, model: str, changes: tuple[str, ...], gpu: str, count: int, measured: runs.Given, batch: int, seq: int,
    recompute: Any, dtype: str, figure: str | None, form: str | None,
) -> None:  # fmt: skip
    """Read a measured speed of training as utilization under every convention, and say which of them a printed figure is of.

    MFU leaves out what is run again, HFU counts it. Exit code 1: no convention gives the printed figure.

    \b
    blockcalc mfu llama-3.1-8b --gpu h100-sxm --count 8 --tokens-per-second 80000 --seq 8192
    blockcalc mfu palm-540b --gpu tpu-v4 --count 6144 --tokens-per-second 238300 --seq 2048 --printed 46.2%
    blockcalc mfu llama-3.1-70b --gpu h100-sxm --count 512 --step-seconds 18 --batch 1024 --seq 8192 --recompute full
    blockcalc mfu llama-3.1-405b --gpu h100-sxm --flops-per-second 400T --seq 8192 --printed 41% --json
    """
    subject, device = options.subject(model, changes), machine(gpu)
    check_sizes("mfu", batch=batch, seq=seq, count=count)
    step = options.step("train", batch, seq, None)
    given = {name: value for name, value in measured.items() if value is not None}
    if len(given) != 1:
        raise InputError(f"give one of {', '.join('--' + name.replace('_', '-') for name in MEASURED)}")
    (what, text), figure_ = next(iter(given.items())), None if figure is None else printed(figure)
    option = f"--{what.replace('_', '-')}"
    value = capacity.count(option, text) if what == "flops_per_second" else capacity.amount(option, text)
    budget = subject.budget(step, Kernels(), recompute)
    step = budget.step  # at the lengths that the model sets itself
    speed = Speed.of(what, value, int(step.b * step.t), count)
    found = readings(budget, speed, count, device.peak(dtype), figure_)
    facts = {
        "model": subject.name, "step": answers.describe(step), "recompute": recompute, "machine": device.name,
        "count": count, "dtype": dtype, "peak_flops_per_second": device.peak(dtype),
        "measured": {"what": what, "value": value}, "printed": figure,
    }  # fmt: skip
    options.warn_beyond_table(subject, int(step.s))
    options.emit(form, {**facts, "readings": [_object(one) for one in found]}, _table(found, facts))
    ctx.exit(0 if figure is None or any(one.reproduces for one in found) else 1)


MEASURED = ("tokens_per_second", "tokens_per_second_per_device", "flops_per_second", "step_seconds")


def _object(one: Reading) -> dict[str, Any]:
    use = one.use
    return {
        "convention": one.convention, "mfu": use and use.mfu, "hfu": use and use.hfu, "flops_per_step": use and use.flops,
        "tokens_per_second": one.tokens_per_second, "reproduces": list(one.reproduces), "refused": one.refused or None,
    }  # fmt: skip


def _table(found: tuple[Reading, ...], facts: dict[str, Any]) -> Table:
    columns = (
        Column("convention"), Column("FLOPs a token", "ratio"), Column("tokens/s", "ratio"), Column("MFU", "share"),
        Column("HFU", "share"), Column("printed"),
    )  # fmt: skip
    rows = tuple(
        (one.convention, one.flops_per_token, one.tokens_per_second, one.use and one.use.mfu, one.use and one.use.hfu,
         ", ".join(one.reproduces).upper() or None)
        for one in found
    )  # fmt: skip
    names = [f"{one.convention} ({', '.join(one.reproduces).upper()})" for one in found if one.reproduces]
    said = f"{facts['printed']} is that of {', '.join(names)}" if names else f"no convention gives {facts['printed']}"
    return Table("utilization", columns, rows, (
        *([said] if facts["printed"] else []),
        f"{answers.in_words(facts['step'])}, recompute {facts['recompute']}; {facts['count']:,} of {facts['machine']} at"
        f" {facts['peak_flops_per_second']:,} FLOP/s in {facts['dtype']}, dense",
        "MFU leaves out what is run again, HFU counts it; megatron-2021 has it in its formula. What each counts:"
        " blockcalc conventions",
        *dict.fromkeys(one.refused for one in found if one.refused),
    ))  # fmt: skip
