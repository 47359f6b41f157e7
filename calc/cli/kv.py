"""``blockcalc kv``."""

from __future__ import annotations

from typing import Any

import click

from ..dims import check_sizes
from ..tensor import Step
from . import answers, options


@click.command("kv")
@options.model
@options.batch
@click.option("--context", default=8192, show_default=True, metavar="S", help="Tokens in the cache.")
@options.encoder_seq
@options.dtype
@options.policy
@options.output
def command(
    model: str, changes: tuple[str, ...], batch: int, context: int, encoder_seq: int | None, dtype: str, policy: Any,
    form: str | None,
) -> None:  # fmt: skip
    """Size the KV cache at a context, by kind of layer.

    \b
    blockcalc kv llama-3.1-8b --context 131072
    blockcalc kv gemma-2-9b --batch 16 --context 32768 --policy transformers
    blockcalc kv deepseek-v3 --context 8192 --dtype fp8 --json
    """
    subject = options.subject(model, changes)
    options.check_encoder_seq(subject, encoder_seq)
    check_sizes("the cache", batch=batch, context=context)
    found, tables = answers.kv(subject.budget(Step.prefill(batch, context, source=encoder_seq)), dtype, policy)
    options.warn_beyond_table(subject, context)
    about = {"model": subject.name, "batch": batch, "context": context, "dtype": dtype, "policy": policy}
    options.emit(form, {**about, **found}, *tables)
