"""``blockcalc train``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..errors import UndefinedError
from ..parallel.layout import Layout
from ..plan import panel
from ..plan.search import search
from ..plan.task import Task
from ..timing.costs import Counting
from . import capacity, options, panels, runs, works


def _make(given: runs.Given) -> works.TrainingWork:
    return works.training(given, given["batch"])


@click.command("train")
@options.model
@capacity.place
@click.option("--tokens", required=True, metavar="N", help="Tokens to train on: 15T, 300B.")
@runs.gathered(
    "work", _make, click.option("--batch", type=int, required=True, metavar="B", help="Sequences of a step, of all devices."),
    *works.of_training, works.dtype, options.device_kernels,
)
@runs.layout
@runs.vocab_multiple
@options.convention
@capacity.efficiency
@capacity.products
@capacity.fused
@capacity.price
@capacity.overhead
@options.output
@click.pass_context
def command(
    ctx: click.Context, model: str, changes: tuple[str, ...], place: capacity.Place, tokens: str, work: works.TrainingWork,
    layout: Layout, vocab_multiple: int | None, convention: str, efficiency: str | None, products: str | None, fused: bool,
    price: str | None, pue: str, form: str | None,
) -> None:  # fmt: skip
    """A training run in one view: memory, time by phase, utilization, days, energy, cost, compute-optimal sizes beside it.

    With --count alone the layout is the fastest that fits (blockcalc plan). Exit code 1: it does not fit.

    \b
    blockcalc train llama-3.1-8b --gpu h100-sxm --count 64 --tokens 1T --batch 512 --seq 8192
    blockcalc train llama-3.1-70b --gpu h100-sxm --tp 8 --sp --pp 4 --dp 16 --zero 1 --tokens 15T --batch 1024 --price 2
    blockcalc train gpt3-175b --gpu a100-sxm-80 --tp 8 --pp 8 --dp 16 --tokens 300B --batch 1536 --vocab-multiple 1024 --json
    """
    subject = options.subject(model, changes)
    component = runs.as_run(subject, vocab_multiple)
    run = replace(work.run, step=runs.settled(component, work.run.step))
    found = capacity.devices(place, layout)
    setup = capacity.setup(place, found or layout, efficiency, fused, Counting(precision=run.precision, products=products))
    if found is None:
        task = Task(component, setup, place.devices or 1, work.batch, run, place.available, _wanted(work))
        best = search(task).best
        if not best:
            raise UndefinedError(capacity.NONE_FITS.format(place.devices))
        setup, run = setup._replace(layout=best[0].layout), best[0].run
    else:
        run = works.at_step(work._replace(run=run), panel.gathered(found, work.batch, int(run.step.b)))
    price_, pue_ = capacity.priced(price, pue)
    answer = panel.train(
        component, setup, run, place.available, capacity.count("--tokens", tokens), convention=convention, price=price_,
        overhead=pue_,
    )  # fmt: skip
    data, tables = panels.train(subject.name, place, setup, run, answer, works.routes(subject.component))
    options.warn_beyond_table(subject, int(run.step.s))
    options.emit(form, data, *tables)
    ctx.exit(0 if answer.fit.fits else 1)


def _wanted(work: works.TrainingWork) -> Any:
    from ..plan.layouts import Wanted

    return Wanted(microbatch=work.microbatch, recompute=work.recompute)  # type: ignore[arg-type]
