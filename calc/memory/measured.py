"""Public runs whose memory was measured, and what is computed for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from ..model import Model
from ..parallel.layout import Layout
from ..readers import load
from ..storage.optimizers import OPTIMIZERS
from ..storage.precision import Precision, named
from ..tables import measured_memory
from ..tensor import Kernels, Step
from .frameworks import CUBLAS, FRAMEWORKS
from .held import Held, Serving, Training, heaviest, serving, training

_UNITS = {"MiB": 2**20, "GiB": 2**30}

Row = Mapping[str, Any]


class Measured(NamedTuple):
    """A run: where its figure stands, what ran, the figure as printed and in bytes, what is computed, and why it lies beyond
    that, if so."""

    source: str
    model: str
    run: str
    printed: str
    measured: int
    computed: Held
    beyond: str | None

    @property
    def difference(self) -> Fraction:
        """The share that is computed too much."""
        return Fraction(self.computed.bytes - self.measured, self.measured)


def measured() -> tuple[Measured, ...]:
    """Every run of ``blockcalc.tables.measured_memory``."""
    data = measured_memory()
    found = []
    for kind, compute in (("training", _trained), ("serving", _served)):
        for row in data[kind]:
            source, own = data["sources"][row["source"]], data["models"].get(row["model"])
            held, words = compute(load(own or row["model"]), row, source)
            printed, size = f"{row['measured']} {source['unit']}", round(Fraction(row["measured"]) * _UNITS[source["unit"]])
            found.append(Measured(row["source"], row["model"], words, printed, size, held, row.get("beyond")))
    return tuple(found)


def _trained(model: Model, row: Row, source: Row) -> tuple[Held, str]:
    """A pipeline rank of a training run."""
    layout, framework = Layout(zero=1, **row["layout"]), FRAMEWORKS[source["framework"]]
    run = Training(
        step=Step.train(row["batch"], row["seq"]), microbatches=source["microbatches"], kernels=Kernels(**source["kernels"]),
        optimizer=OPTIMIZERS[source["optimizer"]], framework=framework,
        workspace=CUBLAS[source["architecture"]] + framework.workspace,
    )  # fmt: skip
    ranks = training(model, layout, run)
    split = " ".join(f"{name} {size}" for name, size in row["layout"].items() if type(size) is int)
    where = f", pipeline rank {row['rank']}" if len(ranks) > 1 else ""
    return ranks[row["rank"]], f"train {row['seq']:,} tokens, {split}{where}"


def _served(model: Model, row: Row, source: Row) -> tuple[Held, str]:
    """The higher of the prompt's pass and of the last token's."""
    prompt, weights = row["prompt"], row.get("weights", "bf16")
    steps = replace(Step.prefill(1, prompt), head="last"), Step.decode(1, prompt + row["new"])
    kernels, precision, workspace = Kernels(**source["kernels"]), Precision.of(named(weights)), CUBLAS[source["architecture"]]
    runs = (Serving(step=step, kernels=kernels, precision=precision, workspace=workspace) for step in steps)
    words = f"generate {row['new']:,} after {prompt:,}, {weights}"
    return heaviest([serving(model, Layout(), run)[0] for run in runs]), words
