"""What plans answer, as JSON objects and as tables; and the options of a run, which is a training's or a serving's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from ..dims import check_sizes
from ..errors import InputError
from ..memory import held as plans
from ..memory.held import Held, Serving, Training
from ..parallel.collectives import Collective
from ..parallel.layout import Layout
from ..plan.engines import absorbed
from ..plan.traffic import widths_of
from ..storage.optimizers import OPTIMIZERS, Optimizer
from ..storage.precision import Precision, named
from ..tables.table import Column, Table
from ..tensor import Step
from . import answers, options, runs


def make_run(given: runs.Given) -> Training | Serving:
    """The run that the options describe."""
    kernels = options.make_kernels(given)
    precision = Precision.of(named(given["quant"] or given["dtype"]), named(given["dtype"]))
    if given["kv_dtype"] is not None:
        precision = replace(precision, key_value=named(given["kv_dtype"]))
    if given["mode"] == "serve":
        plain = {"recompute": "none", "loss": "plain", "dropout": "none"}
        runs.only(given, "training", lora=None, optimizer=None, microbatches=None, **plain)
        return Serving(step=_served(given), kernels=kernels, precision=precision, policy=given["policy"])
    runs.only(given, "serving", context=None, prefill=None, kv_dtype=None, policy="minimal")
    check_sizes("the training", microbatches=given["microbatches"])
    if given["quant"] is not None and given["lora"] is None:
        raise InputError(f"--quant {given['quant']}: weights in it do not train; give --lora R:NAMES, or --dtype for all")
    return Training(
        step=options.step("train", given["batch"], given["seq"], None, given["encoder_seq"]),
        microbatches=given["microbatches"] or 1,
        kernels=kernels, recompute=given["recompute"], optimizer=optimizer(given["optimizer"] or "adamw-mixed"),
        precision=precision, adapters=options.adapters(given["lora"]),
    )  # fmt: skip


def _served(given: runs.Given) -> Step:
    """One token of each sequence is a decode step; more are run behind what the cache holds, beside a whole encoder, for
    logits of the last."""
    if given["context"] is not None and runs.said("seq"):
        raise InputError(f"--seq {given['seq']}: beside --context {given['context']} tokens run at once are --prefill")
    context, new = given["seq"] if given["context"] is None else given["context"], given["prefill"]
    check_sizes("the service", context=context, prefill=new)
    source = context if given["encoder_seq"] is None else given["encoder_seq"]
    if new == 1:
        return options.step("decode", given["batch"], context, context, source)
    return options.step("prefill", given["batch"], context if new is None else new, context, source, "last")


def optimizer(name: str) -> Optimizer:
    """The optimizer of that name. Raises InputError for an unknown one."""
    if name not in OPTIMIZERS:
        raise InputError(f"--optimizer {name}: not one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


OPTIONS: tuple[Any, ...] = (
    click.option("--train", "mode", flag_value="train", default="train", help="A training step (the default)."),
    click.option("--serve", "mode", flag_value="serve", help="A model that answers: weights, cache, a pass."),
    options.batch,
    options.seq,
    click.option("--context", type=int, default=None, metavar="S", help="Tokens in a sequence's cache, in serving."),
    options.encoder_seq,
    click.option("--prefill", type=int, default=None, metavar="T",
                 help="Tokens run at once, in serving; the context unless given."),
    click.option("--microbatches", type=int, default=None, metavar="M",
                 help="Microbatches a data rank runs before a step of the optimizer, in training; 1 unless given."),
    click.option("--optimizer", default=None, metavar="NAME", shell_complete=options.complete_optimizer,
                 help=f"adamw-mixed unless given; one of {', '.join(OPTIMIZERS)}."),
    click.option("--dtype", type=click.Choice(["fp32", "bf16", "fp16"]), default="bf16", show_default=True,
                 help="What is computed in."),
    click.option("--quant", default=None, metavar="FORMAT", shell_complete=options.complete_format,
                 help="Format of weights that do not train: fp8, int8, nf4, mxfp4, gguf-q4_k, gptq-4-128 …"),
    click.option("--kv-dtype", default=None, metavar="TYPE", help="Type of the cache, where it is not --dtype."),
    options.policy,
    options.recompute,
    options.lora,
)  # fmt: skip
run = runs.gathered("run", make_run, *OPTIONS, options.device_kernels)


def held(model: Any, layout: Layout, run: Training | Serving) -> tuple[Held, ...]:
    """What a device of each pipeline rank holds. A step of one token decodes latent attention absorbed."""
    if isinstance(run, Training):
        return plans.training(model, layout, run)
    return plans.serving(absorbed(model) if run.step.t == 1 else model, layout, run)


def about(layout: Layout, run: Training | Serving) -> dict[str, Any]:
    """The run and its layout, as they stand beside each number."""
    kernels = {name: getattr(run.kernels, name) for name in ("attention", "norm", "gated", "loss", "dropout")}
    found: dict[str, Any] = {"layout": runs.describe(layout), "step": answers.describe(run.step), "kernels": kernels}
    weights = {"weights": run.precision.linear.name, "computed": run.precision.activation.name}
    if isinstance(run, Training):
        found |= {"microbatches": run.microbatches, "recompute": run.recompute, "optimizer": run.optimizer.name}
        return found | {"frozen": weights["weights"] if run.adapters else None, "dtype": weights["computed"]}
    return found | weights | {"kv_dtype": run.precision.key_value.name, "policy": run.policy}


def memory(
    name: str, layout: Layout, run: Training | Serving, ranks: Sequence[Held]
) -> tuple[dict[str, Any], list[Table]]:
    """The heaviest rank by part, and every rank's total."""
    worst = plans.heaviest(ranks)
    facts = about(layout, run)
    parts = [(part.replace("_", " "), size) for part, size in worst.parts.items() if size]
    where = f"one device of pipeline rank {worst.rank}, the heaviest of {layout.pp}" if layout.pp > 1 else "one device"
    summary = Table(f"memory of {where}", (Column("part"), Column("bytes", "bytes")), (*parts, ("total", worst.bytes)), (
        *_counts(worst), *lines(facts), "not counted: the driver's and libraries' own memory, and what an allocator cannot use",
    ))  # fmt: skip
    tables = [summary]
    if layout.pp > 1:
        columns = Column("pipeline rank"), *(Column(part.replace("_", " "), "bytes") for part in worst.parts)
        rows = tuple((str(one.rank), *one.parts.values(), one.bytes) for one in ranks)
        tables.append(Table("every rank", (*columns, Column("total", "bytes")), rows))
    data = {"bytes": worst.bytes, "rank": worst.rank, "parts": dict(worst.parts),
            "ranks": [one._asdict() | {"bytes": one.bytes, "parts": dict(one.parts)} for one in ranks]}  # fmt: skip
    return {"model": name, **facts, "memory": data}, tables


def _counts(held: Held) -> tuple[str, ...]:
    token = f"; one more token of a sequence adds {held.kv_per_token:,} bytes" if held.kv_per_token else ""
    return (f"{held.parameters:,} parameters, {held.flops:,} FLOPs a step{token}",)


def lines(facts: dict[str, Any]) -> tuple[str, ...]:
    """The facts in words, one line each for the layout, the step and the rest."""
    usual = runs.describe(Layout()) | {"etp": facts["layout"]["tp"], "devices": None}
    layout = ", ".join(k if v is True else f"{k} {v}" for k, v in facts["layout"].items() if v != usual[k])
    kernels = ", ".join(f"{k} {v}" for k, v in facts["kernels"].items())
    rest = ", ".join(
        f"{k.replace('_', ' ')} {v}" for k, v in facts.items() if k not in ("layout", "step", "kernels") and v is not None
    )
    return f"layout: {layout}", f"{answers.in_words(facts['step'])}; {rest}", f"kernels: {kernels}"


def comm(name: str, layout: Layout, run: Training | Serving, found: Sequence[Sequence[Collective]]) -> tuple[
    dict[str, Any], list[Table]
]:  # fmt: skip
    """Every collective of each pipeline rank, with the bytes of its tensor and those that a device sends."""
    facts = about(layout, run)
    columns = (
        *map(Column, ("collective", "phase", "kind", "group")), Column("ranks", "size"), Column("times", "count"),
        Column("whole tensor", "bytes"), Column("sent by a device", "bytes"),
    )  # fmt: skip
    tables, data = [], []
    for rank, collectives in enumerate(found):
        rows = tuple(
            (one.path, one.phase, one.kind, one.group, one.ranks, one.copies, one.each(widths), one.sent(widths))
            for one in collectives
            for widths in (widths_of(one, run),)
        )
        sent = sum(row[-1] for row in rows)
        title = f"pipeline rank {rank}" if layout.pp > 1 else "collectives"
        tables.append(Table(title, columns, (*rows, ("total", *(None,) * 6, sent)), lines(facts) if rank == 0 else ()))
        keys = ("path", "phase", "kind", "group", "ranks", "times", "tensor_bytes", "sent_bytes")
        data.append({"rank": rank, "sent_bytes": sent, "collectives": [dict(zip(keys, row, strict=True)) for row in rows]})
    return {"model": name, **facts, "comm": data}, tables
