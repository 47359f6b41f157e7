"""``blockcalc plan``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click

from ..errors import InputError
from ..parallel.layout import Layout
from ..plan.deploy import Service, deploy
from ..plan.layouts import Wanted
from ..plan.search import search
from ..plan.task import Task
from ..timing.costs import Counting
from . import capacity, options, plans, runs, works

LOSERS = 3



def _wanted(given: runs.Given) -> Wanted:
    names = ("tp", "pp", "dp", "cp", "ep", "etp", "zero", "chunks")
    return Wanted(**{name: given[name] for name in names}, sequence=given["sp"])


def _fixed(name: str, what: str) -> Any:
    return click.option(f"--{name}", type=click.IntRange(min=1), default=None, metavar="N", help=f"Only this number of {what}.")


@click.command("plan")
@options.model
@capacity.place
@runs.gathered(
    "given", dict,
    click.option("--train", "mode", flag_value="train", default="train", help="The shortest training step (the default)."),
    click.option("--serve", "mode", flag_value="serve", help="Most tokens a second, within a latency if given."),
    works.batch, *works.of_training, *works.of_serving, works.dtype, options.device_kernels,
    click.option("--latency", "goal", flag_value="latency", help="In serving: the lowest latency, not most tokens a second."),
    click.option("--within", default=None, metavar="SECONDS", help="In serving: what an output token may take."),
    click.option("--first", default=None, metavar="SECONDS", help="In serving: what the first token may take."),
)
@runs.gathered(
    "wanted", _wanted,
    _fixed("tp", "tensor-parallel ranks"), _fixed("pp", "pipeline stages"), _fixed("dp", "data-parallel ranks"),
    _fixed("cp", "context-parallel ranks; up to 8 are tried"), _fixed("ep", "expert-parallel ranks"),
    _fixed("etp", "tensor-parallel ranks of an expert"), _fixed("chunks", "pieces a pipeline rank holds"),
    click.option("--zero", type=click.IntRange(0, 3), default=None, help="Only this stage of ZeRO."),
    click.option("--sp/--no-sp", default=None, help="Only with, or only without sequence parallelism."),
)
@runs.vocab_multiple
@click.option("--best", default=3, type=click.IntRange(1, 20), show_default=True, metavar="N", help="How many are shown.")
@capacity.efficiency
@capacity.products
@capacity.fused
@options.output
@click.pass_context
def command(
    ctx: click.Context, model: str, changes: tuple[str, ...], place: capacity.Place, given: runs.Given, wanted: Wanted,
    vocab_multiple: int | None, best: int, efficiency: str | None, products: str | None, fused: bool, form: str | None,
) -> None:  # fmt: skip
    """Search the layout: tensor, sequence, pipeline, context, data and expert parallelism, ZeRO, microbatches, recomputation.

    Prints the best and why others lose: memory that is missing by part, or the term that is slower. Exit code 1: none fits.

    \b
    blockcalc plan llama-3.1-8b --gpu h100-sxm --count 8 --batch 128 --seq 8192
    blockcalc plan llama-3.1-405b --gpu h100-sxm --count 16384 --train --batch 2048 --seq 8192
    blockcalc plan llama-3.1-70b --gpu h100-sxm --count 8 --serve --prompt 2048 --output 512 --within 0.05
    blockcalc plan mixtral-8x7b --gpu a100-sxm-80 --count 4 --serve --latency --json
    """
    if place.devices is None:
        raise InputError("--count: how many devices are there?")
    subject = options.subject(model, changes)
    component = runs.as_run(subject, vocab_multiple)
    work = _serving(given) if given["mode"] == "serve" else _training(given)
    step = work.last(component) if isinstance(work, works.ServingWork) else runs.settled(component, work.run.step)
    run: Any = replace(work.run, step=step)
    setup = capacity.setup(place, Layout(), efficiency, fused, Counting(precision=run.precision, products=products))
    with _progress() as progress:
        if isinstance(work, works.ServingWork):
            reads = works.reads(subject.component)
            service = Service(
                component, setup, place.devices, work.prompt, work.prompt + work.output, run, place.available,
                _seconds("--within", given["within"]), _seconds("--first", given["first"]), work.batch,
                given["goal"] or "throughput", wanted,
            )  # fmt: skip
            answer = plans.served(subject.name, place, service, deploy(service, best, progress), LOSERS, reads)
        else:
            wanted = wanted._replace(microbatch=work.microbatch, recompute=work.recompute)  # type: ignore[arg-type]
            task = Task(component, setup, place.devices, work.batch, run, place.available, wanted)
            found = search(task, best, LOSERS, progress)
            answer = plans.trained(subject.name, place, task, found, works.routes(subject.component))
    options.warn_beyond_table(subject, int(run.step.s))
    options.emit(form, answer.data, *answer.tables)
    ctx.exit(0 if answer.yes else 1)


def _training(given: runs.Given) -> works.TrainingWork:
    """Raises InputError for what serving alone has, and for a batch that is not there."""
    if given["goal"] is not None:
        raise InputError("--latency: an option of --serve")
    for name in runs.said("within", "first", "prompt", "output", "quant", "kv_dtype", "policy"):
        raise InputError(f"--{name.replace('_', '-')}: an option of --serve")
    if given["batch"] is None:
        raise InputError("--batch: how many sequences has a step of all devices?")
    return works.training(given, int(given["batch"]))


def _serving(given: runs.Given) -> works.ServingWork:
    """Raises InputError for what training alone has."""
    for name in runs.said("seq", "microbatch", "recompute", "optimizer", "loss", "dropout", "zero", "chunks", "sp"):
        raise InputError(f"--{name}: an option of --train")
    return works.serving(given)


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else capacity.amount(option, text)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label="layouts", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(max(0, done - bar.pos))

        yield show
