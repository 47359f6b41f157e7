"""``blockcalc compare``."""

from __future__ import annotations

from typing import Any

import click

from ..tables.table import Column, Table
from ..tensor import Kernels
from . import answers, options
from .budget import everything


@click.command("compare")
@click.argument("models", nargs=-1, required=True, shell_complete=options._names)
@options.batch
@options.seq
@options.mode
@options.context
@options.convention
@options.dtype
@options.kv_dtype
@options.attention
@options.policy
@options.recompute
@options.output
def command(
    models: tuple[str, ...], batch: int, seq: int, mode: str, context: int | None, convention: str, dtype: str,
    kv_dtype: str | None,
    attention: str, policy: Any, recompute: Any, form: str | None,
) -> None:  # fmt: skip
    """Models side by side: parameters, FLOPs, KV cache and activations of the same step.

    \b
    blockcalc compare llama-3.1-8b qwen3-8b gemma-2-9b
    blockcalc compare mixtral-8x7b deepseek-v3 --mode decode --context 32768 --markdown
    """
    found = []
    step = options.step(mode, batch, seq, context)
    for name in models:
        subject = options.subject(name, ())
        kernels = Kernels(attention=attention)  # type: ignore[arg-type]
        found.append(everything(subject, step, kernels, convention, dtype, kv_dtype or dtype, policy, recompute)[0])
        options.warn_beyond_table(subject, step.s)
    columns = (
        Column("model"), Column("parameters", "count"), Column("active", "count"), Column("FLOPs", "flops"),
        Column("KV cache", "bytes"), Column("one more token", "bytes"), Column("activations", "bytes"),
    )  # fmt: skip
    rows = tuple(
        (one["model"], one["params"]["total"], one["params"]["active"], one["flops"]["total"], one["kv_cache"]["bytes"],
         one["kv_cache"]["bytes_per_token"], one["activations"]["bytes"]) for one in found
    )  # fmt: skip
    note = f"{answers.in_words(answers.describe(step))}; {dtype}; convention {convention}; policy {policy}"
    notes = (f"{note}; attention {attention}; recompute {recompute}",)
    options.emit(form, {"models": found}, Table("", columns, rows, notes))
