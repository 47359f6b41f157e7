"""For what value of a config's field: the reader itself is asked, so that what depends on the field follows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import sympy

from ..breakdown import How, breakdown, budget_of, measure, quantity, step_of
from ..dims import LARGEST_SIZE
from ..errors import InputError
from ..model import Model
from ..readers import find, load
from ..readers.config import printable
from ..symbolic import symbolize
from .answers import Scale, answers, reason
from .grammar import Equation, Side
from .search import search
from .sides import DEFAULTS, ENCODER, STEP, Term, of_part, subject
from .solution import LOOKED, Solution


def solve_field(
    equation: Equation, field: str, model: Any, changes: dict[str, Any], step: Mapping[Any, int | None], how: How, multiple: int
) -> Solution:
    """The value of *field* at the boundary, between values that the reader takes; all other fields are held.

    Raises InputError for a field that the config does not have, or where the sides go up and down.
    """
    if not isinstance(equation.right, int) and (equation.right.subject or equation.right.fixed):
        raise InputError(f"{printable(field)}: while a field of the config is asked for, both sides are of the one model")
    if equation.left.subject or equation.left.fixed:
        raise InputError(f"{printable(field)}: is a field of the model, which stands beside the equation, not in brackets")
    if field in changes:
        raise InputError(f"{printable(field)}: asked for and given at once")
    sizes = {s: n if n is not None else DEFAULTS.get(s) for s, n in step.items()}
    _, config = find(model)
    start = config.get(field)
    before = load(model, {**changes, field: start} if start is not None else changes)
    if type(start) is not int:
        load(model, {**changes, field: 1})  # refuses a field that is none
        start = 1

    def values(at: int) -> tuple[int, int]:
        here = load(model, {**changes, field: at})
        left = _value(equation.left, here, sizes, how)
        return left, equation.right if isinstance(equation.right, int) else _value(equation.right, here, sizes, how)

    scale = Scale(values, equation.relation, multiple, LARGEST_SIZE)
    known, seen = search(scale, start)
    found = answers(known.runs, scale)
    asked, unit = equation.left.quantity, quantity(equation.left.quantity).unit
    why = None if found else reason(known, scale, field, asked, unit)
    after = load(model, {**changes, field: found[0].at}) if found else before
    right = str(equation.right) if isinstance(equation.right, int) else equation.right.quantity
    known_step = {s: sympy.Integer(n) for s, n in sizes.items() if n is not None}
    used = {str(s) for s in Term(equation.left, subject(before), known_step, how, sizes[ENCODER] is not None).symbols}
    return Solution(
        equation, field, unit, asked, right, (), tuple(found), why, LOOKED.format(seen), _held(before, after, sizes, used)
    )


def _value(side: Side, model: Model, sizes: Mapping[Any, int | None], how: How) -> int:
    b, t, s, source = (sizes[symbol] for symbol in STEP)
    step = step_of(side.quantity, b, t, s, source)
    budget = budget_of(model, step, how, None)
    if not side.parts:
        return int(measure(budget, side.quantity, how))
    return int(sum(of_part(budget, side.parts, breakdown(budget, side.quantity, how)).values()))


def _held(before: Model, after: Model, sizes: Mapping[Any, int | None], used: set[str]) -> Mapping[str, str]:
    """The sizes that the quantity depends on: those that moved with the field as ``768 -> 1024``."""
    old, new = ({str(s): n for s, n in symbolize(model)[1].items()} for model in (before, after))
    moved = {name: str(n) if old.get(name) == n else f"{old.get(name, 'none')} -> {n}" for name, n in new.items()}
    every = moved | {str(s): str(n) for s, n in sizes.items() if n is not None}
    return MappingProxyType({name: size for name, size in every.items() if name in used or "->" in size})
