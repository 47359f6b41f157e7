"""``blockcalc comm``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..parallel.layout import Layout
from . import options, planned, runs


@click.command("comm")
@options.model
@runs.layout
@planned.run
@runs.vocab_multiple
@options.output
def command(
    model: str, changes: tuple[str, ...], layout: Layout, run: Any, vocab_multiple: int | None, form: str | None
) -> None:
    """List every collective of a step, with its bytes, for one device of each pipeline rank.

    \b
    blockcalc comm llama-3.1-8b --train --tp 8 --sp --dp 4 --zero 1
    blockcalc comm deepseek-v3 --train --tp 1 --pp 16 --dp 16 --ep 16 --stages 4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1 --attention math
    blockcalc comm llama-3.1-70b --serve --tp 8 --batch 16 --context 4096 --prefill 1 --json
    """
    from ..plan.traffic import traffic

    subject = options.subject(model, changes)
    component = runs.as_run(subject, vocab_multiple)
    run = replace(run, step=runs.settled(component, run.step))
    found = traffic(component, layout, run)
    data, tables = planned.comm(subject.name, layout, run, found)
    options.emit(form, data, *tables)
