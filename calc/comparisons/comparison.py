"""What the tables are made of: what a table takes, rows that have a budget, quantities that are asked of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

from ..budget import Budget
from ..dims import Dim, check_sizes
from ..errors import InputError, UndefinedError
from ..model import Component, Model, trace
from ..recorder import Recompute
from ..tables.table import Column, Table, Unit
from ..tensor import Kernels, Step


class Asked(NamedTuple):
    """What a table is drawn for. In a declaration: what it takes, with the values it has unless others are given."""

    models: tuple[str, ...] = ()
    contexts: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    seq: int | None = None
    dtype: str | None = None
    sizes: Mapping[str, int] = MappingProxyType({})  # letters of the blocks

    @property
    def batch(self) -> int:
        """The batch of a table that takes one."""
        return self.batches[0]

    @property
    def context(self) -> int:
        """The context of a table that takes one."""
        return self.contexts[0]

    @property
    def letters(self) -> SimpleNamespace:
        """The sizes by letter."""
        return SimpleNamespace(**self.sizes)


OPTIONS: Mapping[str, str] = MappingProxyType({
    "models": "--model", "contexts": "--context", "batches": "--batch", "seq": "--seq", "dtype": "--dtype", "sizes": "--set",
})  # fmt: skip


class Comparison(NamedTuple):
    """A declared table: what it takes, and what draws it."""

    takes: Asked
    draw: Callable[[Asked], tuple[Table, ...]]


def settled(name: str, comparison: Comparison, given: Asked) -> Asked:
    """The declared values with the given ones in their place. Raises InputError for what the table has no use for."""
    declared = {field: getattr(comparison.takes, field) for field in OPTIONS}
    for field, option in OPTIONS.items():
        value, own = getattr(given, field), declared[field]
        if value in (None, ()) or value == {}:
            continue
        if own in (None, ()) or own == {}:
            takes = ", ".join(OPTIONS[field] for field, value in declared.items() if value)
            raise InputError(f"{option}: the table {name} has no use for it; it takes {takes or 'no options'}")
        if field in ("contexts", "batches") and len(own) == 1 < len(value):
            raise InputError(f"{option}: the table {name} takes one, found {len(value)}")
        declared[field] = _with_letters(name, own, value) if field == "sizes" else value
    check_sizes(f"the table {name}", seq=declared["seq"], **declared["sizes"])
    for field in ("contexts", "batches"):
        for size in declared[field]:
            check_sizes(f"the table {name}", **{OPTIONS[field].strip("-"): size})
    return Asked(**declared)


def _with_letters(name: str, own: Mapping[str, int], given: Mapping[str, int]) -> Mapping[str, int]:
    for letter, size in given.items():
        if letter not in own:
            raise InputError(f"{letter}: the table {name} has no such letter; it has {', '.join(own)}")
        if size is None:
            raise InputError(f"{letter}: found null, expected a whole number from 1 to 2**40")
    return MappingProxyType({**own, **given})


# -- rows and columns --------------------------------------------------------------------------------------------------


class Costed(Protocol):
    """Whatever has a budget: a Model, or a block with the width of its input."""

    def budget(self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none", /) -> Budget:
        """What it costs in a step."""


class Alone(NamedTuple):
    """A block, and the width of its input."""

    component: Component
    d: Dim

    def budget(self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none") -> Budget:
        """What the block costs in a step."""
        return trace(self.component, step, self.d, kernels, recompute)


class Quantity(NamedTuple):
    """A column: its heading, its unit, and how it is read off what stands in a row."""

    name: str
    unit: Unit
    of: Callable[[Any], Any]


def tabulate(
    title: str, first: str, rows: Iterable[tuple[str, Any]], quantities: Iterable[Quantity], notes: Iterable[str] = ()
) -> Table:
    """Every quantity of every named row. What is not defined is blank, and the reason stands below."""
    asked = tuple(quantities)
    reasons: list[str] = []
    found = tuple((name, *_read(name, row, asked, reasons)) for name, row in rows)
    return Table(title, (Column(first), *(Column(one.name, one.unit) for one in asked)), found, (*notes, *reasons))


def _read(name: str, row: Any, asked: tuple[Quantity, ...], reasons: list[str]) -> list[Any]:
    """The row's values; to *reasons* goes why some are blank."""
    values: list[Any] = []
    refused: dict[str, list[str]] = {}
    for quantity in asked:
        try:
            values.append(quantity.of(row))
        except UndefinedError as error:
            values.append(None)
            refused.setdefault(str(error), []).append(quantity.name)
    for reason, names in refused.items():
        why = reason if reason.startswith(f"{name}: ") else f"{name}: {reason}"
        reasons.append(f"blank: {why}" if len(names) == len(asked) else f"blank, {' and '.join(names)}: {why}")
    return values


# -- what several tables ask of a model --------------------------------------------------------------------------------


def loaded(names: Iterable[str]) -> list[tuple[str, Model]]:
    """The models of these names, or of these paths."""
    from ..readers import load

    return [(name, load(name)) for name in names]


def beyond(models: Iterable[tuple[str, Model]], tokens: int) -> list[str]:
    """A note on each model whose learned positions are fewer than the tokens."""
    return [
        f"{name} has {model.positions:,} learned positions: beyond them its numbers are arithmetic, and no model"
        for name, model in models if model.positions is not None and tokens > model.positions
    ]  # fmt: skip


def pieces(component: Any, *kinds: type) -> list[Any]:
    """Every component of the kinds inside another, in the order of its fields."""
    if isinstance(component, tuple):
        return [found for item in component for found in pieces(item, *kinds)]
    if not is_dataclass(component) or isinstance(component, type):
        return []
    own = [component] if isinstance(component, kinds) else []
    return own + [found for field in fields(component) for found in pieces(getattr(component, field.name), *kinds)]


def parts(budget: Budget, word: str) -> int:
    """Parameters of the components that have the word as a part of their path."""
    return sum(leaf.params for leaf in budget.components() if word in leaf.path.split("."))
