"""``blockcalc serve``."""

from __future__ import annotations

from dataclasses import replace

import click

from ..errors import UndefinedError
from ..parallel.layout import Layout
from ..plan import panel
from ..plan.deploy import Service, deploy
from ..timing.costs import Counting
from . import capacity, options, panels, runs, works


@click.command("serve")
@options.model
@capacity.place
@runs.gathered(
    "work", works.serving,
    click.option("--batch", type=int, default=1, show_default=True, metavar="B", help="Requests of a data rank at once."),
    *works.of_serving, works.dtype, options.device_kernels,
)
@runs.layout
@runs.vocab_multiple
@capacity.efficiency
@capacity.products
@capacity.fused
@capacity.price
@capacity.overhead
@options.output
@click.pass_context
def command(
    ctx: click.Context, model: str, changes: tuple[str, ...], place: capacity.Place, work: works.ServingWork, layout: Layout,
    vocab_multiple: int | None, efficiency: str | None, products: str | None, fused: bool, price: str | None, pue: str,
    form: str | None,
) -> None:  # fmt: skip
    """Serving in one view: memory, time to the first token and for each further one, tokens a second, requests that fit, cost.

    With --count alone the layout is the one of the lowest latency that fits. Exit code 1: it does not fit.

    \b
    blockcalc serve llama-3.1-8b --gpu h100-sxm --batch 32 --prompt 2048 --output 512
    blockcalc serve llama-3.1-70b --gpu h100-sxm --tp 8 --batch 64 --quant fp8 --price 2.0
    blockcalc serve deepseek-v3 --gpu h200-sxm --count 8 --batch 16 --quant fp8-block --json
    """
    subject = options.subject(model, changes)
    component = runs.as_run(subject, vocab_multiple)
    reads = works.reads(subject.component)
    run = replace(work.run, step=work.last(component))
    found = capacity.devices(place, layout)
    setup = capacity.setup(place, found or layout, efficiency, fused, Counting(precision=run.precision, products=products))
    prompt, context = work.prompt, work.prompt + work.output
    if found is None:
        service = Service(
            component, setup, place.devices or 1, prompt, context, run, place.available, batch=work.batch, goal="latency"
        )
        best = deploy(service).best
        if not best:
            raise UndefinedError(capacity.NONE_FITS.format(place.devices))
        setup = setup._replace(layout=best[0].layout)
    price_, pue_ = capacity.priced(price, pue)
    answer = panel.serve(component, setup, run, place.available, prompt, work.output, price=price_, overhead=pue_)
    data, tables = panels.serve(subject.name, place, setup, run, answer, (prompt, work.output), reads)
    options.warn_beyond_table(subject, int(run.step.s))
    options.emit(form, data, *tables)
    ctx.exit(0 if answer.fit.fits else 1)
