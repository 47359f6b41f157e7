"""``blockcalc compare``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, UndefinedError
from ..tensor import Kernels
from . import answers, options, runs
from .budget import everything

if TYPE_CHECKING:
    from ..comparisons.metrics import Metric, Setting


def _metrics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ..comparisons.metrics import METRICS

    return [name for name in METRICS if name.startswith(incomplete)]


@click.command("compare")
@click.argument("models", nargs=-1, required=True, shell_complete=options.complete_model)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", shell_complete=_metrics,
              help="What is compared; repeatable: params, active, flops, macs, kv, kv_per_token, activations …")  # fmt: skip
@click.option("--relative", is_flag=True, help="Beside each number, how many times the first one's it is.")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE",
              help="A letter of the blocks that have it, else a field of the models' configs.")  # fmt: skip
@options.batch
@options.seq
@options.mode
@click.option("--context", type=int, default=None, metavar="S",
              help="Visible tokens, the new ones included; where the mode sees --seq, tokens in the cache.")  # fmt: skip
@options.convention
@options.dtype
@options.kv_dtype
@runs.kernels
@options.policy
@options.recompute
@options.output
def command(
    models: tuple[str, ...], metrics: tuple[str, ...], relative: bool, changes: tuple[str, ...], batch: int, seq: int,
    mode: str, context: int | None, convention: str, dtype: str, kv_dtype: str | None, kernels: Kernels, policy: Any,
    recompute: Any, form: str | None,
) -> None:  # fmt: skip
    """Models or blocks side by side: parameters, FLOPs, KV cache and activations of the same step.

    \b
    blockcalc compare llama-3.1-8b qwen3-8b gemma-2-9b
    blockcalc compare mixtral-8x7b deepseek-v3 --mode decode --context 32768 --markdown
    blockcalc compare llama-3.1-8b gemma-2-9b --metric kv --context 131072 --relative
    blockcalc compare mha gqa mqa mla --set d=4096 --set n=32 --set k=8 --set h=128 --metric params --metric kv
    """
    from ..comparisons.metrics import Setting, chosen, compared

    step = options.step(mode, batch, seq, context if mode in ("prefill", "decode") else None)
    at = Setting(step, step.s if context is None else context, kernels, recompute, convention, dtype, kv_dtype or dtype, policy)
    at.check()
    asked = chosen(metrics)
    subjects = _subjects(models, changes)
    cached = "" if at.context == step.s else f"; a cache of {at.context}"
    note = f"{answers.in_words(answers.describe(step))}{cached}; {dtype}; convention {convention}; policy {policy}"
    notes = (f"{note}; {answers.in_kernels(kernels)}; recompute {recompute}",)
    counts = [_counted(subject, asked, at) for subject in subjects]
    table, shares = compared([subject.name for subject in subjects], asked, counts, relative, notes)
    found = []
    for subject, values, times in zip(subjects, counts, shares, strict=True):
        whole = {"model": subject.name} if metrics or form != "json" else _whole(subject, at)
        found.append(whole | {"metrics": values} | ({"relative": times} if relative else {}))
    about = [{"name": metric.name, "heading": metric.heading, "unit": metric.unit} for metric in asked]
    for subject in subjects:
        options.warn_beyond_table(subject, max(step.s, at.context))
    options.emit(form, {"models": found, "metrics": about, "kv_context": at.context}, table)


def _counted(subject: options.Subject, metrics: Sequence[Metric], at: Setting) -> dict[str, Any]:
    """The metrics of a subject. Raises UndefinedError, behind the subject's name, where it has none of them."""
    try:
        return {metric.name: metric.of(subject, at) for metric in metrics}
    except UndefinedError as error:
        raise UndefinedError(f"{subject.name}: {error}") from None


def _whole(subject: options.Subject, at: Any) -> dict[str, Any]:
    """The JSON object of all ledgers, the cache at its own context."""
    found = everything(
        subject, at.step, at.kernels, at.convention, at.dtype, at.kv_dtype, at.policy, at.recompute
    )[0]  # fmt: skip
    return found | answers.kv(at.filled(subject), at.kv_dtype, at.policy)[0]


def _subjects(names: Sequence[str], texts: Sequence[str]) -> list[options.Subject]:
    """The models and blocks. A change goes to the blocks that have the letter; where none has it, to the models."""
    letters = {name: _letters(name) for name in names}
    known = {letter for own in letters.values() if own is not None for letter in own}
    fields = {text: text.partition("=")[0] for text in texts}
    for text, field in fields.items():
        if field not in known and None not in letters.values():
            has = ", ".join(sorted(known))
            raise InputError(f"--set {text}: none of these blocks has the letter {field}; they have {has}")
    of_models = [text for text, field in fields.items() if field not in known]
    return [
        options.subject(name, of_models if own is None else [text for text, field in fields.items() if field in own])
        for name in names for own in (letters[name],)
    ]  # fmt: skip


def _letters(name: str) -> Any:
    """The letters of a block; None of a model."""
    if not options.is_block(name):
        return None
    from ..catalogue import BLOCKS

    return BLOCKS[name].sizes
