"""A quantity of a model or block, whole and by path, with all that it is counted with in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .budget import Budget, Policy, Widths, widths
from .convention import named
from .dims import Dim
from .errors import InputError
from .model import Model, trace
from .quantities import QUANTITIES, Quantity, by_path
from .recorder import Recompute
from .tensor import Kernels, Step

ADDITIVE = ("torch", "exact")
"""The conventions that count line by line; the others are formulas of the whole model."""


class How(NamedTuple):
    """What a quantity is counted with: element types, kernels, conventions."""

    dtype: str = "bf16"
    convention: str = "torch"
    policy: Policy = "minimal"
    kernels: Kernels = Kernels()
    recompute: Recompute = "none"

    def about(self, name: str) -> Mapping[str, str]:
        """Those that the quantity depends on, by the names of their options."""
        known = {**self._asdict(), "attention": self.kernels.attention}
        return {option: known[option] for option in quantity(name).depends}


USUAL = How()


def quantity(name: str) -> Quantity:
    """The quantity of that name. Raises InputError for an unknown one."""
    if name not in QUANTITIES:
        raise InputError(f"quantity {name!r} is not one of {', '.join(QUANTITIES)}")
    return QUANTITIES[name]


def step_of(name: str, b: Dim, t: Dim, s: Dim, source: Dim | None = None) -> Step:
    """The step that a quantity is asked of: *source* is the length of an encoder's input, where it is not the decoder's."""
    step = quantity(name).step(b, t, s)
    if source is None:
        return step
    return replace(step, source=source, source_new=source if step.source_new != 0 else 0)


def budget_of(component: Any, step: Step, how: How, d: Dim | None) -> Budget:
    """What a model, or a block on an input d wide, costs in the step."""
    if isinstance(component, Model):
        return component.budget(step, how.kernels, how.recompute)
    return trace(component, step, d, how.kernels, how.recompute)


def measure(budget: Budget, name: str, how: How) -> Dim:
    """The quantity of the whole budget, in its unit."""
    return quantity(name).read(budget, _checked(name, how), how.convention, how.policy)


def breakdown(budget: Budget, name: str, how: How) -> dict[str, Dim]:
    """What each path adds to the quantity, where that is something: the sum is :func:`measure`.

    ``buffers`` are the rotary tables and masks that the model holds. Raises InputError for a convention that is a formula of
    the whole model.
    """
    kept = _checked(name, how)
    if "convention" in quantity(name).depends and how.convention not in ADDITIVE:
        raise InputError(f"convention {how.convention}: a formula of the whole; torch and exact are sums over components")
    found = by_path(name, budget, kept, how.convention, how.policy)
    return {path: value for path, value in found.items() if value != 0}


def _checked(name: str, how: How) -> Widths:
    """The widths of the dtype. Raises InputError for a convention or a dtype that is none, used or not."""
    named(how.convention)
    if name == "activations" and how.dtype in ("fp8", "int8"):
        raise InputError(f"dtype {how.dtype!r}: activations are kept in fp32, bf16 or fp16")
    return widths(how.dtype)
