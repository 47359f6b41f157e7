"""``blockcalc activations``."""

from __future__ import annotations

import click

from ..tensor import Kernels, Step
from . import answers, options, runs


@click.command("activations")
@options.model
@options.batch
@options.seq
@options.encoder_seq
@options.dtype
@runs.kernels
@options.recompute
@options.lora
@options.output
def command(
    model: str, changes: tuple[str, ...], batch: int, seq: int, encoder_seq: int | None, dtype: str, kernels: Kernels,
    recompute: str, lora: str | None, form: str | None,
) -> None:  # fmt: skip
    """Size what autograd keeps between the forward and the backward pass of a training step, parameters excluded.

    \b
    blockcalc activations gpt2 --batch 8 --seq 1024
    blockcalc activations llama-3.1-8b --attention flash --recompute full
    blockcalc activations llama-3.1-8b --attention flash --norm fused --gated fused --loss fused
    """
    subject = options.subject(model, changes)
    step = Step.train(batch, seq, encoder_seq)
    options.check_encoder_seq(subject, encoder_seq)
    budget = subject.budget(step, kernels, recompute, lora)
    found, tables = answers.activations(budget, dtype)
    options.warn_beyond_table(subject, seq)
    about = {"dtype": dtype, **answers.kernels(kernels), "recompute": recompute, "lora": lora}
    options.emit(form, {"model": subject.name, "step": answers.describe(budget.step), **about, **found}, *tables)
