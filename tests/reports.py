"""Reports of several models, settings drawn for them, and what the engine counts there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from blockcalc import Kernels, Step, UndefinedError, flops, load, widths
from blockcalc.explain import Subject
from blockcalc.plots import parts
from blockcalc.report.ledgers import CHOICES, ONE_MORE
from blockcalc.report.page import Settings, write

MODELS = ("llama-3.1-8b", "gemma-2-9b", "deepseek-v3", "mixtral-8x7b", "t5-base", "bert-base")
DRAWS = 20
FIRST = Settings(
    {"batch": 2, "seq": 640, "context": 5000, "encoder": 77},
    {"mode": "train", "convention": "exact", "attention": "math", "recompute": "none", "dtype": "bf16", "kv_dtype": "fp8"},
)


def report(name: str) -> str:
    """The model's page at the first settings."""
    return write(Subject.of(name, load(name)), FIRST)


def draws(name: str) -> Iterator[tuple[dict[str, int], dict[str, str]]]:
    """Lengths and words; the context includes the new tokens, sizes reach far past 2⁵³ when multiplied."""
    rng = random.Random(name)
    keeps = any(load(name).budget(Step.prefill(1, 4)).cache(widths("bf16")).values())
    for index in range(DRAWS):
        most = 2 ** rng.choice((4, 12, 17, 32))
        seq = rng.randint(1, most)
        lengths = {
            "batch": rng.randint(1, 64), "seq": seq, "context": seq + rng.randint(0, most), "encoder": rng.randint(1, most),
        }  # fmt: skip
        words = {setting: rng.choice(options) for setting, options in CHOICES.items()}
        words["mode"] = CHOICES["mode"][index % 4] if keeps else ("forward", "train")[index % 2]
        yield lengths, words


def counted(name: str, lengths: dict[str, int], words: dict[str, str]) -> dict[str, dict[str, int] | str]:
    """What the ledgers of integers give: rows by table, zeros left out, or why a table is not defined."""
    model = load(name)
    b, t, s, source = (lengths[field] for field in ("batch", "seq", "context", "encoder"))
    steps = {
        "forward": Step.forward(b, t, source), "prefill": Step.prefill(b, t, s, source), "decode": Step.decode(b, s, source),
        "train": Step.train(b, t, source),
    }  # fmt: skip
    kernels, trains = Kernels(attention=words["attention"]), words["mode"] == "train"
    still = model.budget(Step.forward(1, 1))
    asked: dict[str, Any] = {
        "params": lambda: {key.replace("_", " "): value for key, value in still.parameters()._asdict().items() if key != "trainable"},
        "parts": lambda: {part: stored for part, (stored, _) in parts.parameters(still).items()} | _total(still.parameters().total),
        "components": lambda: {one.path: one.params for one in still.components()} | _total(still.parameters().total),
        "active": lambda: {one.path: one.active for one in still.components() if one.active != one.params},
        "flops": lambda: _flops(
            model.budget(steps[words["mode"]], kernels, words["recompute"] if trains else "none"), words["convention"]
        ),
        "kv": lambda: _cache(model.budget(Step.prefill(b, s, source=source)), words["kv_dtype"]),
        "activations": lambda: _kept(model.budget(steps["train"], kernels, words["recompute"]).activations(widths(words["dtype"]))),
    }  # fmt: skip
    return {table: _or_reason(read) for table, read in asked.items()}


def _or_reason(read: Any) -> dict[str, int] | str:
    try:
        return {row: value for row, value in read().items() if value}
    except UndefinedError as reason:
        return str(reason)


def _total(value: int) -> dict[str, int]:
    return {"total": value}


def _flops(budget: Any, convention: str) -> dict[str, int]:
    """Its passes, and under torch each kind of operation (under exact those are only known to sum up)."""
    found = flops(budget, convention)
    passes = {"forward": found.forward, "backward": found.backward, "recompute": found.recompute} if budget.step.training else {}
    return {**(parts.work(budget) if convention == "torch" else {}), **passes, "total": found.total}


def _cache(budget: Any, dtype: str) -> dict[str, int]:
    kinds = budget.cache(widths(dtype))
    rows = {f"{kind} layers" if kind in ("full", "window") else kind: size for kind, size in kinds.items()}
    return {**rows, "total": sum(kinds.values()), ONE_MORE: budget.cache_per_token(widths(dtype))}


def _kept(found: Any) -> dict[str, int]:
    outside = {"outside the layers": found.rest, "loss": found.loss, "buffers": found.buffers}
    return {"layers": sum(found.per_layer), **outside, "total": found.bytes}


def same(found: dict[str, dict[str, int] | str], expected: dict[str, dict[str, int] | str]) -> bool:
    """Are all tables equal? Kinds of operation that are not expected must at least sum up to the total."""
    for table, rows in expected.items():
        shown = found[table]
        if isinstance(rows, dict) and isinstance(shown, dict) and table == "flops":
            work = {row: value for row, value in shown.items() if row in parts.WORK}
            if sum(work.values()) != rows["total"]:
                return False
            shown = {row: value for row, value in shown.items() if row in rows or row not in parts.WORK}
        if shown != rows:
            return False
    return True
