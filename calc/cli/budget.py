"""``blockcalc budget``."""

from __future__ import annotations

from typing import Any

import click

from ..dims import check_sizes
from ..errors import InputError
from ..parallel.layout import Layout
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
@runs.layout
@click.option("--optimizer", default=None, metavar="NAME", shell_complete=options.complete_optimizer,
              help="Of a training step's memory: adamw-mixed unless given.")
@click.option("--quant", default=None, metavar="FORMAT", shell_complete=options.complete_format,
              help="Format of the weights in memory, where no step trains them.")
@click.option("--gpu", default=None, metavar="NAME", shell_complete=options.complete_machine,
              help="A machine: fill in memory, and the verdict whether it fits.")
@click.option("--count", type=int, default=None, metavar="N", help="Devices of it; those of the layout, or 1, unless given.")
@options.output
def command(
    model: str, changes: tuple[str, ...], batch: int, seq: int, mode: str, context: int | None, encoder_seq: int | None,
    convention: str, dtype: str, kv_dtype: str | None, kernels: Kernels, head: str, policy: Any, recompute: Any,
    layout: Layout, optimizer: str | None, quant: str | None, gpu: str | None, count: int | None, form: str | None,
) -> None:  # fmt: skip
    """All of it at once: parameters, FLOPs, KV cache at the context, activations of a training step of the same size.

    With a layout or a machine also what a device holds; with a machine, whether it fits.

    \b
    blockcalc budget llama-3.1-8b
    blockcalc budget path/to/config.json --batch 4 --seq 4096 --json
    blockcalc budget llama-3.1-8b --mode decode --context 8192 --batch 16 --gpu h100-sxm
    blockcalc budget llama-3.1-70b --mode train --tp 8 --sp --pp 4 --dp 2 --zero 1 --optimizer adamw-megatron
    """
    subject = options.subject(model, changes)
    step = options.step(mode, batch, seq, context, encoder_seq, head)
    options.check_encoder_seq(subject, encoder_seq)
    found, tables = everything(subject, step, kernels, convention, dtype, kv_dtype or dtype, policy, recompute)
    whole = layout == Layout()
    if gpu is not None or not whole:
        from .verdict import verdict

        check_sizes("--count", count=count)
        how = runs.Memory(kernels, recompute, dtype, kv_dtype or dtype, policy, optimizer, quant)
        said, table = verdict(subject, step, how, None if whole else layout, gpu, count)
        found, tables = found | said, [*tables, table]
    else:
        for name, value in (("count", count), ("optimizer", optimizer), ("quant", quant)):
            if value is not None:
                raise InputError(f"--{name} {value}: of what? give --gpu NAME, or a layout such as --tp 2")
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
    if subject.width is None:
        trained = runs.settled(subject.component, trained)
    parts = [
        answers.params(budget), answers.flops(budget, convention), answers.kv(subject.budget(filled), kv_dtype, policy),
        answers.activations(subject.budget(trained, kernels, recompute), dtype),
    ]  # fmt: skip
    found: dict[str, Any] = {"model": subject.name, "step": answers.describe(budget.step)}
    for data, _ in parts:
        found.update(data if "activations" not in data else {"activations": data["activations"]})
    found |= {"dtype": dtype, "kv_dtype": kv_dtype, "policy": policy, **answers.kernels(kernels), "recompute": recompute}
    return found | {"memory": None, "verdict": None}, [tables[0] for _, tables in parts]
