"""``blockcalc fit``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from ..errors import InputError
from ..parallel.layout import Layout
from ..plan.fit import SIZES
from . import capacity, fits, options, planned, runs


@click.command("fit")
@options.model
@capacity.room
@click.option("--largest", type=click.Choice(SIZES), default=None,
              help="How large it may be: a step's batch, a context, requests that decode at once, a microbatch.")
@click.option("--devices", "question", flag_value="devices", help="The smallest number of devices, and their layout.")
@click.option("--machines", "question", flag_value="machines", help="Every machine of the list, and how few of it do.")
@click.option("--formats", "question", flag_value="formats", help="Every format of the weights: the widest that fits.")
@runs.layout
@runs.gathered("run", planned.make_run, *planned.OPTIONS, options.device_kernels)
@runs.vocab_multiple
@options.output
@click.pass_context
def command(
    ctx: click.Context, model: str, changes: tuple[str, ...], room: runs.Given, largest: Any, question: str | None,
    layout: Layout, run: Any, vocab_multiple: int | None, form: str | None,
) -> None:  # fmt: skip
    """Does a run fit into the memory of a device, what is missing, and what would fit. Exit code 1: no.

    With --count alone the layout is the one of so many devices that leaves most room.

    \b
    blockcalc fit llama-3.1-70b --gpu h100-sxm --count 8 --serve --batch 16 --context 8192
    blockcalc fit llama-3.1-8b --gpu h100-sxm --serve --largest context
    blockcalc fit llama-3.1-8b --gpu a100-sxm-80 --serve --context 4096 --largest concurrency --reserve 10%
    blockcalc fit llama-3.1-70b --gpu h100-sxm --train --seq 8192 --recompute full --devices
    blockcalc fit mixtral-8x7b --serve --context 32768 --prefill 1 --machines
    blockcalc fit llama-3.1-8b --memory 8GiB --serve --context 8192 --prefill 1 --formats
    """
    if largest is not None and question is not None:
        raise InputError(f"--largest {largest}, --{question}: one question at a time")
    _check_answered(question)
    subject = options.subject(model, changes)
    component = runs.as_run(subject, vocab_multiple)
    if largest == "context" and component.embedding.length is not None:
        raise InputError(f"--largest context: {subject.name} always has {component.embedding.length} positions")
    run = replace(run, step=runs.settled(component, run.step))
    if question == "machines":
        answer = fits.machines(subject.name, component, run, partial(capacity.free, room["reserve"]))
    else:
        place = capacity.make_room(room)
        asked = fits.Asked(subject.name, component, place, capacity.devices(place, layout), run)
        answer = fits.QUESTIONS["largest" if largest else question or "fit"](asked, largest)
    options.warn_beyond_table(subject, answer.data["largest"]["value"] if largest == "context" else run.step.s)
    options.emit(form, answer.data, *answer.tables)
    ctx.exit(0 if answer.yes else 1)


SEARCHED = {
    "devices": ("count", "tp", "pp", "dp", "cp", "ep", "etp", "sp", "ulysses", "zero", "chunks", "stages"),
    "formats": ("quant",),
}
SEARCHED["machines"] = ("gpu", "memory", *SEARCHED["devices"])
"""What each question searches, and so is not given."""


def _check_answered(question: str | None) -> None:
    for name in runs.said(*SEARCHED.get(question or "", ())):
        raise InputError(f"--{question}: finds the machine, layout, devices or format by itself; leave out --{name}")
