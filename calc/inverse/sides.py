"""A side of an equation: on symbols an expression, on whole numbers what the Budget of the model counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import sympy

from ..breakdown import USUAL, How, breakdown, budget_of, measure, step_of
from ..budget import Budget
from ..dims import LARGEST_SIZE, Dim, symbol
from ..errors import InputError
from ..model import Model
from ..readers import load
from ..readers.config import printable
from ..readers.families import FAMILIES
from ..symbolic import capital, check_windows, symbolize
from ..tables import presets
from .grammar import Side

B, T, S, ENCODER = symbol("B"), symbol("T"), symbol("S"), symbol("T_encoder")
STEP = (B, T, S, ENCODER)
DEFAULTS = {B: 1, T: 2048, S: 8192}
"""The step of a model with sizes, where none is given: that of ``blockcalc flops`` and of ``blockcalc kv``."""


class Subject(NamedTuple):
    """A model or block on symbols: the sizes that it has, none while they are free; usual ones; its input's width."""

    name: str
    component: Any
    values: Mapping[Any, int]
    usual: Mapping[Any, int]
    width: Any


def subject(of: Any, changes: Mapping[str, Any] | None = None) -> Subject:
    """The subject on symbols. A block's and a family's sizes are all free, those of a preset or a config are its own."""
    name = str(of) if isinstance(of, str | Path) else getattr(of, "name", "config")
    if is_free(of) and name in FAMILIES:
        return family(name)
    if isinstance(of, str | Path | Mapping) and not is_free(of):
        of = load(of, changes)
    elif changes:
        raise InputError(f"{name}: no config, and so no field {printable(next(iter(changes)))}")
    if isinstance(of, str):
        return _block(name)
    component, values, _ = symbolize(of)
    width = {} if isinstance(component, Model) else {symbol("D"): 1}
    return Subject(name, component, values, {**width, **values}, symbol("D"))


def _block(name: str) -> Subject:
    from ..catalogue import BLOCKS

    symbols = {letter: symbol(capital(letter)) for letter in BLOCKS[name].sizes}
    usual = {symbols[letter]: size for letter, size in BLOCKS[name].sizes.items()}
    return Subject(name, BLOCKS[name].make(**symbols), {}, usual, symbols["d"])


def family(kind: str) -> Subject:
    """A family by its ``model_type``, all sizes free."""
    if kind not in FAMILIES:
        raise InputError(f"family {printable(kind)}: expected one of {', '.join(FAMILIES)}")
    found = subject({"model_type": kind})
    return found._replace(name=kind, values={})


def is_free(of: Any) -> bool:
    """Is it the name of a family or of a block, and not of a preset."""
    from ..catalogue import BLOCKS

    return isinstance(of, str) and of not in presets() and (of in FAMILIES or of in BLOCKS)


class Term:
    """A side on its subject: ``expr`` in the unknown and whatever sizes are free, and :meth:`at` numbers."""

    def __init__(self, side: Side, of: Subject, known: Mapping[Any, Any], how: How = USUAL, encoder: bool = False) -> None:
        """*known* are the sizes by symbol, as numbers or as expressions of other symbols."""
        self.side, self.of, self.known, self.how, self.encoder = side, of, known, how, encoder
        self._check_windows(known)
        counted = sympy.sympify(self._read(of.component, of.width, *STEP))
        self.expr = resolved(counted, known)
        self.symbols = set(counted.free_symbols)
        for _ in known:  # those that stand in the sizes of others
            self.symbols |= {s for one in self.symbols & known.keys() for s in known[one].free_symbols}

    def at(self, x: Any, number: int) -> int:
        """The value where the unknown is *number* and nothing is free. Raises InputError for sizes that no model has."""
        at = {x: sympy.Integer(number)}
        sizes = {s: size if type(size) is int else whole(str(s), size.xreplace(at)) for s, size in self._sizes.items()}
        self._check_windows(sizes)
        component = concrete(self.of.component, sizes)
        step = (sizes[s] for s in STEP)
        value: int = self._read(component, sizes.get(self.of.width), *step)
        assert value == self.expr.xreplace(at), (self.side, number, value, self.expr)
        return value

    def _check_windows(self, sizes: Mapping[Any, Any]) -> None:
        check_windows(self.how.about(self.side.quantity).get("policy"), {str(s): size for s, size in sizes.items()})

    @cached_property
    def _sizes(self) -> dict[Any, Any]:
        """Every size as a number, or as an expression of the unknown; the latter first, for they are refused more often."""
        idle = {s: sympy.Integer(n) for s, n in self.idle().items()}
        found = {s: resolved(s, self.known).xreplace(idle) for s in (*STEP, *self.of.usual)}
        ordered = sorted(found.items(), key=lambda item: not item[1].free_symbols)
        return {s: size if size.free_symbols else whole(str(s), size) for s, size in ordered}

    def idle(self) -> dict[Any, int]:
        """Usual values of the sizes that are free and do not change the quantity."""
        usual = {**dict.fromkeys(STEP, 1), **self.of.usual}
        return {s: n for s, n in usual.items() if s not in self.known and s not in self.expr.free_symbols}

    def _read(self, component: Any, width: Any, b: Dim, t: Dim, s: Dim, source: Dim) -> Dim:
        step = step_of(self.side.quantity, b, t, s, source if self.encoder else None)
        budget = budget_of(component, step, self.how, width)
        if not self.side.parts:
            return measure(budget, self.side.quantity, self.how)
        return sum(of_part(budget, self.side.parts, breakdown(budget, self.side.quantity, self.how)).values())


def of_part(budget: Budget, parts: tuple[str, ...], found: Mapping[str, Dim]) -> dict[str, Dim]:
    """What stands under one of the parts: names of components in a row, such as ``attention`` or ``mlp.experts``, or globs."""
    for part in parts:
        if not any(_matches(line.path, part) for line in budget.lines):
            names = dict.fromkeys(name for line in budget.lines for name in line.path.split("."))
            raise InputError(f"no component {printable(part)}; the names here are {', '.join(names)}")
    return {path: value for path, value in found.items() if any(_matches(path, part) for part in parts)}


def _matches(path: str, part: str) -> bool:
    names, wanted = path.split("."), part.split(".")
    return any(
        all(map(fnmatchcase, names[start : start + len(wanted)], wanted)) for start in range(len(names) - len(wanted) + 1)
    )


# -- from symbols to numbers -------------------------------------------------------------------------------------------


def resolved(expr: Any, known: Mapping[Any, Any]) -> Any:
    """The expression with every known size put in, until none is left. Raises InputError where sizes depend on each other."""
    for _ in range(len(known) + 1):
        after = expr.xreplace(known)
        if after == expr:
            return expr
        expr = after
    raise InputError(f"sizes depend on each other in a circle: {', '.join(sorted(map(str, known.keys() & expr.free_symbols)))}")


def whole(name: str, value: Any) -> int:
    """The size as an int. Raises InputError unless it is a whole number from 1 to 2**40."""
    if value.free_symbols or not value.is_Integer or not 1 <= value <= LARGEST_SIZE:
        raise InputError(f"{name} = {value}, but a size is a whole number from 1 to 2**40")
    return int(value)


def concrete(component: Any, sizes: Mapping[Any, int]) -> Any:
    """The component with these numbers for its symbols; its own checks refuse what no model can have."""
    if isinstance(component, tuple):
        return tuple(concrete(item, sizes) for item in component)
    if hasattr(component, "free_symbols"):
        return whole(str(component), component.xreplace({s: sympy.Integer(n) for s, n in sizes.items()}))
    if not is_dataclass(component) or isinstance(component, type):
        return component
    changed = {field.name: concrete(getattr(component, field.name), sizes) for field in fields(component)}
    return replace(component, **changed)
