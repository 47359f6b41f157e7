"""The budgets that a picture needs of a model: against a length, or by kernel and recompute mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, get_args

from ..budget import Budget
from ..errors import InputError, UndefinedError
from ..recorder import Recompute
from ..tensor import Kernels, Step

MOST_MODELS = 12
"""In one picture: more lines than that nobody can tell apart."""


class Source(Protocol):
    """What has a name and budgets, such as a Model."""

    @property
    def name(self) -> str:
        """What the picture calls it."""

    def budget(self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none") -> Budget:
        """Its budget in a step."""


def lengths(first: int, last: int) -> tuple[int, ...]:
    """From first to last, four to an octave: 4, 5, 6 and 7 times the powers of two between them.

    >>> lengths(7, 17)
    (7, 8, 10, 12, 14, 16, 17)
    """
    if not 1 <= first < last:
        raise InputError(f"lengths from {first} to {last}: the first must be at least 1, and below the last")
    between = (m << power for power in range(last.bit_length()) for m in (4, 5, 6, 7))
    return tuple(sorted({first, last, *(length for length in between if first < length < last)}))


def sweep(source: Source, first: int, last: int, step: Callable[[int], Step]) -> list[Budget]:
    """Its budgets in the steps of all lengths. Raises InputError for a model that sets its own length."""
    found = []
    for length in lengths(first, last):
        budget = source.budget(step(length))
        if budget.step.s != length:
            raise InputError(f"{source.name}: it always runs {budget.step.s} positions: nothing to draw against the length")
        found.append(budget)
    return found


def trainings(sources: Sequence[Source], step: Step) -> tuple[Mapping[str, list[Budget]], tuple[str, ...]]:
    """Each model's budgets by attention kernel and recompute mode; and, in words, why a kernel is left out of a model."""
    budgets: dict[str, list[Budget]] = {}
    missing = []
    for source in sources:
        modes = get_args(Recompute)
        budgets[source.name] = [source.budget(step, Kernels(attention="math"), mode) for mode in modes]
        try:
            budgets[source.name] += [source.budget(step, Kernels(attention="flash"), mode) for mode in modes]
        except UndefinedError as error:
            missing.append(f"{source.name}: {error}.")
    return budgets, tuple(missing)
