"""Reports of several models, settings drawn for them, and what the engine counts there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from blockcalc import Kernels, Model, Step, UndefinedError, flops, load, widths
from blockcalc.explain import Subject
from blockcalc.plots import parts
from blockcalc.report.content import Settings
from blockcalc.report.ledgers import CHOICES, ONE_MORE
from blockcalc.report.page import write

MODELS = ("llama-3.1-8b", "gemma-2-9b", "deepseek-v3", "mixtral-8x7b", "t5-base", "bert-base")
DRAWS = 20
FIRST = Settings(
    {"batch": 2, "seq": 640, "context": 5000, "encoder": 77},
    {"mode": "train", "convention": "exact", "attention": "math", "recompute": "none", "dtype": "bf16", "kv_dtype": "fp8"},
)

Tables = dict[str, dict[str, int] | str]
"""Rows by table, those that are zero left out; or why a table is not defined."""


class Pages(dict[str, Path]):
    """Each model's page at the first settings, as a file that is written when it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / f"{name}.html"
        self[name].write_text(_page(name), encoding="utf-8")
        return self[name]


@cache
def _page(name: str) -> str:
    return write(Subject.of(name, load(name)), FIRST)


def draws(name: str) -> Iterator[Settings]:
    """The context includes the new tokens; products of the sizes reach far past 2⁵³."""
    rng = random.Random(name)
    for index in range(DRAWS):
        most = 2 ** rng.choice((4, 12, 17, 32))
        seq = rng.randint(1, most)
        lengths = {
            "batch": rng.randint(1, 64), "seq": seq, "context": seq + rng.randint(0, most), "encoder": rng.randint(1, most),
        }  # fmt: skip
        words = {setting: rng.choice(options) for setting, options in CHOICES.items()}
        words["mode"] = CHOICES["mode"][index % 4] if name != "bert-base" else ("forward", "train")[index % 2]
        yield Settings(lengths, words)


def typed(name: str, settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of the fields that the model's page has, and the words."""
    absent = {"t5-base": (), "bert-base": ("context", "encoder")}.get(name, ("encoder",))
    texts = {field: str(size) for field, size in settings.lengths.items() if field not in absent}
    return texts, dict(settings.words)


def counted(name: str, settings: Settings) -> Tables:
    """What the ledgers of integers give."""
    model, words = load(name), settings.words
    b, t, s, source = (settings.lengths[field] for field in ("batch", "seq", "context", "encoder"))
    kernels = Kernels(attention=words["attention"])  # type: ignore[arg-type]
    recompute: Any = words["recompute"]
    steps = {
        "forward": Step.forward(b, t, source), "prefill": Step.prefill(b, t, s, source), "decode": Step.decode(b, s, source),
        "train": Step.train(b, t, source),
    }  # fmt: skip
    step = steps[words["mode"]]
    asked: dict[str, Callable[[], dict[str, int]]] = {
        "flops": lambda: _work(model.budget(step, kernels, recompute if step.training else "none"), words["convention"]),
        "kv": lambda: _cache(model.budget(Step.prefill(b, s, source=source)), words["kv_dtype"]),
        "activations": lambda: _kept(model.budget(steps["train"], kernels, recompute), words["dtype"]),
    }
    return {**_parameters(model), **{table: _or_reason(read) for table, read in asked.items()}}


def _or_reason(read: Callable[[], dict[str, int]]) -> dict[str, int] | str:
    try:
        return {row: value for row, value in read().items() if value}
    except UndefinedError as reason:
        return str(reason)


def _parameters(model: Model) -> Tables:
    budget = model.budget(Step.forward(1, 1))
    counts, components, total = budget.parameters()._asdict(), budget.components(), {"total": budget.parameters().total}
    return {
        "params": {name.replace("_", " "): count for name, count in counts.items() if count and name != "trainable"},
        "parts": {part: stored for part, (stored, _) in parts.parameters(budget).items() if stored} | total,
        "components": {one.path: one.params for one in components} | total,
        "active": {one.path: one.active for one in components if one.active != one.params},
    }


def _work(budget: Any, convention: str) -> dict[str, int]:
    """Its passes, and under torch each kind of operation (under exact those are only known to sum up)."""
    found = flops(budget, convention)
    passes = {"forward": found.forward, "backward": found.backward or 0, "recompute": found.recompute}
    kinds = parts.work(budget) if convention == "torch" else {}
    return {**kinds, **(passes if budget.step.training else {}), "total": found.total}


def _cache(budget: Any, dtype: str) -> dict[str, int]:
    kinds = budget.cache(widths(dtype))
    rows = {f"{kind} layers" if kind in ("full", "window") else kind: size for kind, size in kinds.items()}
    return {**rows, "total": sum(kinds.values()), ONE_MORE: budget.cache_per_token(widths(dtype))}


def _kept(budget: Any, dtype: str) -> dict[str, int]:
    found = budget.activations(widths(dtype))
    outside = {"outside the layers": found.rest, "loss": found.loss, "buffers": found.buffers}
    return {"layers": sum(found.per_layer), **outside, "total": found.bytes}


def whole(tables: dict[str, Any]) -> Tables:
    """What a page shows, with integers for digits."""
    return {
        name: rows if isinstance(rows, str) else {row: int(value.replace(",", "")) for row, value in rows.items()}
        for name, rows in tables.items()
    }


def same(found: Tables, expected: Tables) -> bool:
    """Are all tables equal? Kinds of operation that are not expected must at least sum up to the total."""
    return found.keys() == expected.keys() and all(_same(table, found[table], rows) for table, rows in expected.items())


def _same(table: str, found: dict[str, int] | str, expected: dict[str, int] | str) -> bool:
    if table != "flops" or isinstance(expected, str) or isinstance(found, str):
        return found == expected
    kinds = {row: value for row, value in found.items() if row in parts.WORK}
    listed = {row: value for row, value in found.items() if row in expected or row not in parts.WORK}
    return listed == expected and sum(kinds.values()) == expected["total"]
