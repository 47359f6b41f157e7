"""``blockcalc budget``."""

from __future__ import annotations

from typing import Any

import click

from ..dims import check_sizes
from ..errors import InputError
from ..tensor import Kernels
from . import answers, options, runs


@click.command("budget")
@options.model
@options.batch
@options.seq
@options.mode
@options.context
@options.encoder_seq
@options.convention
@options.dtype
@options.kv_dtype
@runs.kernels
@options.head
@options.policy
@options.recompute
@click.option("--gpu", default=None, metavar="NAME", help="A machine: fill in memory, and the verdict whether it fits.")
@click.option("--count", type=int, default=None, metavar="N", help="Devices of it, 1 unless given.")
@options.output
def command(
    model: str, changes: tuple[str, ...], batch: int, seq: int, mode: str, context: int | None, encoder_seq: int | None,
    convention: str, dtype: str, kv_dtype: str | None, kernels: Kernels, head: str, policy: Any, recompute: Any,
    gpu: str | None, count: int | None, form: str | None,
) -> None:  # fmt: skip
    """All of it at once: parameters, FLOPs, KV cache at the context, activations of a training step of the same size.

    \b
    blockcalc budget llama-3.1-8b
    blockcalc budget path/to/config.json --batch 4 --seq 4096 --json
    blockcalc budget llama-3.1-8b --mode decode --context 8192 --batch 16 --gpu h100-sxm
    """
    subject = options.subject(model, changes)
    step = options.step(mode, batch, seq, context, encoder_seq, head)
    options.check_encoder_seq(subject, encoder_seq)
    found, tables = everything(subject, step, kernels, convention, dtype, kv_dtype or dtype, policy, recompute)
    if gpu is not None:
        from .verdict import verdict

        check_sizes("--count", count=count)
        said, table = verdict(subject, step, kernels, recompute, (dtype, kv_dtype or dtype), policy, gpu, count or 1)
        found, tables = found | said, [*tables, table]
    elif count is not None:
        raise InputError(f"--count {count}: of what? give --gpu NAME")
    options.warn_beyond_table(subject, step.s)
    options.emit(form, found, *tables)


def everything(
    subject: options.Subject, step: Any, kernels: Kernels, convention: str, dtype: str, kv_dtype: str, policy: Any,
    recompute: Any,
) -> tuple[dict[str, Any], list[Any]]:
    """The JSON object and the tables of all four ledgers."""
    from ..tensor import Step

    budget = subject.budget(step, kernels, recompute)
    filled = Step.prefill(step.b, step.s, source=step.source)
    trained = Step.train(step.b, step.t, step.source)
    parts = [
        answers.params(budget), answers.flops(budget, convention), answers.kv(subject.budget(filled), kv_dtype, policy),
        answers.activations(subject.budget(trained, kernels, recompute), dtype),
    ]  # fmt: skip
    found: dict[str, Any] = {"model": subject.name, "step": answers.describe(budget.step)}
    for data, _ in parts:
        found.update(data if "activations" not in data else {"activations": data["activations"]})
    found |= {"dtype": dtype, "kv_dtype": kv_dtype, "policy": policy, **answers.kernels(kernels), "recompute": recompute}
    return found | {"memory": None, "verdict": None}, [tables[0] for _, tables in parts]
