"""One training step of a model under every convention."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ..budget import Budget
from ..convention import CONVENTIONS, flops
from ..model import Model
from ..tables.table import Table
from ..tensor import Step
from .comparison import Asked, Comparison, Quantity, beyond, loaded, tabulate


def _step(asked: Asked, name: str, model: Model) -> Table:
    b, t = asked.batch, asked.seq or 0
    budget = model.budget(Step.train(b, t))
    yardstick = flops(budget).total
    quantities = (
        Quantity("FLOPs", "flops", _read(budget, lambda found: found.total)),
        Quantity("forward", "flops", _read(budget, lambda found: found.forward)),
        Quantity("backward", "flops", _read(budget, lambda found: found.backward)),
        Quantity("run again", "flops", _read(budget, lambda found: found.recompute)),
        Quantity("over torch's", "ratio", _read(budget, lambda found: Fraction(found.total, yardstick))),
    )
    notes = (f"a training step, batch {b}, seq {t:,}; nothing is run again but what a convention always counts",)
    rows = ((convention, convention) for convention in CONVENTIONS)
    return tabulate(f"{name} under every convention", "convention", rows, quantities, (*notes, *beyond([(name, model)], t)))


def _read(budget: Budget, part: Callable[[Any], Any]) -> Callable[[str], Any]:
    return lambda convention: part(flops(budget, convention))


def draw(asked: Asked) -> tuple[Table, ...]:
    """A table a model: the conventions differ in what they are defined for."""
    return tuple(_step(asked, name, model) for name, model in loaded(asked.models))


COMPARISON = Comparison(Asked(models=("gpt3-175b", "deepseek-v3"), batches=(1,), seq=2048), draw)
