"""``blockcalc activations``."""

from __future__ import annotations

import click

from ..tensor import Kernels, Step
from . import answers, options


@click.command("activations")
@options.model
@options.batch
@options.seq
@options.encoder_seq
@options.dtype
@options.attention
@options.recompute
@options.lora
@options.output
def command(
    model: str, changes: tuple[str, ...], batch: int, seq: int, encoder_seq: int | None, dtype: str, attention: str,
    recompute: str, lora: str | None, form: str | None,
) -> None:  # fmt: skip
    """Size what autograd keeps between the forward and the backward pass of a training step, parameters excluded.

    \b
    blockcalc activations gpt2 --batch 8 --seq 1024
    blockcalc activations llama-3.1-8b --attention flash --recompute full
    """
    subject = options.subject(model, changes)
    step = Step.train(batch, seq, encoder_seq)
    options.check_encoder_seq(subject, encoder_seq)
    budget = subject.budget(step, Kernels(attention=attention), recompute, lora)  # type: ignore[arg-type]
    found, tables = answers.activations(budget, dtype)
    options.warn_beyond_table(subject, seq)
    about = {"dtype": dtype, "attention": attention, "recompute": recompute, "lora": lora}
    options.emit(form, {"model": subject.name, "step": answers.describe(budget.step), **about, **found}, *tables)
