"""What the page answers: for each ledger the closed form of each row, in each case of the settings that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from ..breakdown import How, budget_of, step_of
from ..budget import Budget, Policy, widths
from ..convention import flops
from ..dims import Dim, symbol
from ..errors import UndefinedError
from ..explain import Subject
from ..plots import parts
from ..tables.table import Unit
from ..tensor import Kernels
from .forms import LENGTHS, Forms

CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("forward", "prefill", "decode", "train"),
    "convention": ("torch", "exact"),
    "attention": ("math", "flash", "fused"),
    "recompute": ("none", "selective", "full"),
    "dtype": ("bf16", "fp16", "fp32"),
    "kv_dtype": ("bf16", "fp16", "fp32", "fp8", "int8"),
}
"""The settings that are words, each with its words."""

Sums = Mapping[str, tuple[str, Dim]]
"""Rows: what each is a quantity of, and its sum."""


class Ledger(NamedTuple):
    """A table of the page. A case is the words of the settings that it *depends* on; it gives each row the number of its
    form, or the reason why it is not defined. ``rows`` are those of all cases; those that are *parts* sum to the total."""

    name: str
    title: str
    unit: Unit
    depends: tuple[str, ...]
    cases: Mapping[str, Mapping[str, int] | str]
    parts: bool = True

    def case(self, settings: Mapping[str, str]) -> Mapping[str, int] | str:
        """The case of these settings."""
        return self.cases["|".join(settings[name] for name in self.depends)]

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of all cases, the longest case's order first."""
        defined = sorted((case for case in self.cases.values() if not isinstance(case, str)), key=len, reverse=True)
        return tuple(dict.fromkeys(row for case in defined for row in case))

    def reads(self, setting: str) -> bool:
        """Does any number change with that setting?"""
        if setting not in self.depends:
            return False
        place = self.depends.index(setting)
        others: dict[tuple[str, ...], list[object]] = {}
        for key, case in self.cases.items():
            words = key.split("|")
            others.setdefault((*words[:place], *words[place + 1 :]), []).append(case)
        return any(case != cases[0] for cases in others.values() for case in cases)


class _Reader:
    """Reads ledgers off a subject's budgets on symbols, each of which is made once."""

    def __init__(self, subject: Subject, forms: Forms, policy: Policy) -> None:
        self.subject, self.forms, self.policy = subject, forms, policy
        self._budgets: dict[tuple[str, str, str], Budget] = {}

    def budget(self, quantity: str, attention: Any = "math", recompute: Any = "none") -> Budget:
        """The budget in the quantity's step. Raises UndefinedError where the kernel is not for this subject."""
        key = quantity, attention, recompute
        if key not in self._budgets:
            how, lengths = How(kernels=Kernels(attention=attention), recompute=recompute), [*map(symbol, LENGTHS)]
            try:
                self._budgets[key] = budget_of(self.subject.symbolic, step_of(quantity, *lengths), how, symbol("D"))
            except UndefinedError:  # the reason again, in the subject's own numbers
                budget_of(self.subject.component, step_of(quantity, 1, 1, 1, 1), how, self.subject.width)
                raise
        return self._budgets[key]

    def ledger(
        self, name: str, title: str, unit: Unit, depends: tuple[str, ...], read: Callable[..., Sums], parts: bool = True
    ) -> Ledger:
        """The ledger whose rows *read* gives for the words of each case; a row that is zero is left out."""
        cases: dict[str, Mapping[str, int] | str] = {}
        for words in product(*(CHOICES[setting] for setting in depends)):
            try:
                sums = read(*words)
            except UndefinedError as reason:
                cases["|".join(words)] = str(reason)
                continue
            cases["|".join(words)] = {
                row: self.forms.add(row, quantity, amount) for row, (quantity, amount) in sums.items() if amount != 0
            }
        return Ledger(name, title, unit, depends, cases, parts)

    # -- parameters ----------------------------------------------------------------------------------------------------

    def counts(self) -> Sums:
        """Total, active and the other counts of parameters."""
        names = ("total", "active", "active_without_input", "embedding", "head", "non_embedding")
        found = self.budget("params").parameters()
        return {name.replace("_", " "): ("params" if name == "total" else name, getattr(found, name)) for name in names}

    def components(self) -> Sums:
        """Each component's parameters."""
        budget = self.budget("params")
        found = {one.path: ("params", one.params) for one in budget.components()}
        return {**found, "total": ("params", budget.parameters().total)}

    def active(self) -> Sums:
        """What one token uses of the components that it does not use whole."""
        return {one.path: ("active", one.active) for one in self.budget("params").components() if one.active != one.params}

    def kinds(self) -> Sums:
        """The parameters of each part of the model."""
        budget = self.budget("params")
        found = {part: ("params", stored) for part, (stored, _) in parts.parameters(budget).items()}
        return {**found, "total": ("params", budget.parameters().total)}

    # -- steps ---------------------------------------------------------------------------------------------------------

    def flops(self, mode: str, convention: str, attention: str, recompute: str) -> Sums:
        """A step's passes and parts, and their sum."""
        name = {"forward": "flops", "prefill": "prefill_flops", "decode": "decode_flops", "train": "train_flops"}[mode]
        budget = self.budget(name, attention, recompute if mode == "train" else "none")
        found = flops(budget, convention)
        passes = {"forward": found.forward, "backward": found.backward, "recompute": found.recompute} if mode == "train" else {}
        rows = {**work(budget, convention == "exact"), "total": found.total, **passes}
        return {row: (name, amount) for row, amount in rows.items()}

    def cache(self, dtype: str) -> Sums:
        """The cache at the context by kind of layer, and what one token more adds."""
        budget = self.budget("kv")
        kinds = budget.cache(widths(dtype), self.policy)
        rows = {f"{kind} layers" if kind in ("full", "window") else kind: size for kind, size in kinds.items()}
        more = budget.cache_per_token(widths(dtype), self.policy)
        found = {row: ("kv", amount) for row, amount in {**rows, "total": sum(kinds.values())}.items()}
        return {**found, ONE_MORE: ("kv_per_token", more)}

    def activations(self, dtype: str, attention: str, recompute: str) -> Sums:
        """What a training step keeps, by place."""
        found = self.budget("activations", attention, recompute).activations(widths(dtype))
        outside = {"outside the layers": found.rest, "loss": found.loss, "buffers": found.buffers}
        layers = found.bytes - sum(outside.values())
        return {row: ("activations", amount) for row, amount in {"layers": layers, **outside, "total": found.bytes}.items()}


ONE_MORE = "one more token of one sequence"


def work(budget: Budget, visible: bool) -> dict[str, Dim]:
    """FLOPs of each kind of operation, two a multiply-add, over all pairs or over those that the mask lets through."""
    found: dict[str, Dim] = dict.fromkeys(parts.WORK, 0)
    for line in budget.lines:
        if line.forward or line.dinput:
            pairs = line.visible if visible else line.pairs
            adds = parts.multiply_adds(line, training=budget.step.training)
            found[parts.operation(line)] += 2 * line.copies * pairs * adds
    return found


def ledgers(subject: Subject, forms: Forms, policy: Policy) -> Iterator[Ledger]:
    """All of them, in the order of the page."""
    read = _Reader(subject, forms, policy)
    steps = ("mode", "convention", "attention", "recompute")
    yield read.ledger("params", "Counts of parameters", "count", (), read.counts, parts=False)
    yield read.ledger("parts", "Parameters by part", "count", (), read.kinds)
    yield read.ledger("components", "Parameters of each component", "count", (), read.components)
    yield read.ledger("active", "Of these one token uses", "count", (), read.active, parts=False)
    yield read.ledger("flops", "FLOPs by operation and pass", "flops", steps, read.flops)
    yield read.ledger("kv", "KV cache by kind", "bytes", ("kv_dtype",), read.cache)
    yield read.ledger("activations", "Activations by place", "bytes", ("dtype", "attention", "recompute"), read.activations)
