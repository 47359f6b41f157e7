"""``blockcalc memory``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..parallel.layout import Layout
from . import options, planned, runs


@click.command("memory")
@options.model
@runs.layout
@planned.run
@runs.vocab_multiple
@options.output
def command(
    model: str, changes: tuple[str, ...], layout: Layout, run: Any, vocab_multiple: int | None, form: str | None
) -> None:
    """Size what one device holds, by part and by pipeline rank, in training or in serving.

    \b
    blockcalc memory llama-3.1-8b --train --dp 8 --zero 3 --seq 8192 --recompute full
    blockcalc memory llama-3.1-70b --train --tp 8 --sp --pp 4 --dp 4 --zero 1 --microbatches 8
    blockcalc memory llama-3.1-70b --serve --tp 4 --batch 16 --context 8192 --quant fp8
    blockcalc memory llama-3.1-8b --train --lora 16:q,v --quant nf4 --json
    """
    subject = options.subject(model, changes)
    component = runs.as_run(subject, vocab_multiple)
    run = replace(run, step=runs.settled(component, run.step))
    held = planned.held(component, layout, run)
    found, tables = planned.memory(subject.name, layout, run, held)
    options.warn_beyond_table(subject, run.step.s)
    options.emit(form, found, *tables)
