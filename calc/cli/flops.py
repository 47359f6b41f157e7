"""``blockcalc flops``."""

from __future__ import annotations

import click

from ..tensor import Kernels
from . import answers, options, runs


@click.command("flops")
@options.model
@options.batch
@options.seq
@options.mode
@options.context
@options.encoder_seq
@options.convention
@runs.kernels
@options.head
@options.recompute
@options.lora
@options.output
def command(
    model: str, changes: tuple[str, ...], batch: int, seq: int, mode: str, context: int | None, encoder_seq: int | None,
    convention: str, kernels: Kernels, head: str, recompute: str, lora: str | None, form: str | None,
) -> None:  # fmt: skip
    """Count the FLOPs of a forward pass, a prefill, a decode step or a training step.

    \b
    blockcalc flops llama-3.1-8b --seq 8192
    blockcalc flops mixtral-8x7b --mode train --batch 4 --convention exact
    blockcalc flops gemma-2-9b --mode decode --context 32768 --json
    """
    subject = options.subject(model, changes)
    step = options.step(mode, batch, seq, context, encoder_seq, head)
    options.check_encoder_seq(subject, encoder_seq)
    budget = subject.budget(step, kernels, recompute, lora)
    found, tables = answers.flops(budget, convention)
    options.warn_beyond_table(subject, step.s)
    options.emit(form, {"model": subject.name, "step": answers.describe(budget.step), **found}, *tables)
