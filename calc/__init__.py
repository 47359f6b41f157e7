"""Exact parameters, FLOPs, activation memory and KV cache of transformers, derived from one declaration a block.

>>> model = load("llama-3.1-8b")
>>> model.budget(Step.train(1, 2048)).parameters().total
8030261248

Importing this package loads neither sympy, numpy nor torch: a name below is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Budget as Budget
    from .budget import widths as widths
    from .compiled import Compiled as Compiled
    from .compiled import compile_formulas as compile_formulas
    from .convention import CONVENTIONS as CONVENTIONS
    from .convention import flops as flops
    from .errors import BlockcalcError as BlockcalcError
    from .errors import InputError as InputError
    from .errors import UndefinedError as UndefinedError
    from .freedom import score_freedom as score_freedom
    from .inverse.solution import Solution as Solution
    from .inverse.solve import solve as solve
    from .model import Component as Component
    from .model import Model as Model
    from .model import trace as trace
    from .readers import load as load
    from .symbolic import Formula as Formula
    from .symbolic import formula as formula
    from .tensor import Kernels as Kernels
    from .tensor import Step as Step

__version__ = "0.3.0"

_HOME = {
    "Budget": "budget", "widths": "budget", "Compiled": "compiled", "compile_formulas": "compiled", "CONVENTIONS": "convention",
    "flops": "convention", "BlockcalcError": "errors", "InputError": "errors", "UndefinedError": "errors",
    "Formula": "symbolic", "formula": "symbolic", "score_freedom": "freedom", "Solution": "inverse.solution",
    "solve": "inverse.solve", "Component": "model", "Model": "model", "trace": "model", "load": "readers", "Kernels": "tensor",
    "Step": "tensor",
}  # fmt: skip

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blockcalc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
