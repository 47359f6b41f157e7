"""Where an expression of one symbol is below, at and above zero, on all whole numbers from 1 to a bound.

Minima are resolved into the stretches between their bends, and on each the real roots of the polynomial are isolated exactly:
what holds between two of them is known from one number, so that no solution is missed and nothing is assumed of its shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise
from math import floor
from typing import Any, NamedTuple

import sympy

from ..errors import InputError


class Run(NamedTuple):
    """Consecutive whole numbers at which the expression has one sign: −1, 0 or 1."""

    first: int
    last: int
    sign: int


class Signs(NamedTuple):
    """The runs in order, and the number from which on the expression does not change any more, if there is one."""

    runs: tuple[Run, ...]
    flat: int | None


class NotPiecewise(Exception):
    """The expression has a part that is neither a polynomial nor a minimum of some, such as a rounding."""


def signs(expr: Any, x: Any, most: int) -> Signs:
    """The signs of *expr* at x = 1 … *most*. Raises NotPiecewise where it is no quotient of polynomials between its bends."""
    bends = _near(_bends(expr, x), x, most) | {1, most}
    marks = set(bends)
    for low, high in pairwise(sorted(bends)):
        if high - low > 1:
            above, below = _polynomials(_branch(expr, x, (low + high) // 2), x)
            marks |= {mark for mark in _near([above, below], x, most) if low < mark < high}
    ordered = sorted(marks)
    runs: list[Run] = []
    for index, mark in enumerate(ordered):
        _extend(runs, mark, mark, _sign(expr, x, mark))
        if index + 1 < len(ordered) and ordered[index + 1] - mark > 1:
            after = ordered[index + 1]
            _extend(runs, mark + 1, after - 1, _sign(expr, x, (mark + after) // 2))
    return Signs(tuple(runs), _flat(expr, x, sorted(bends)))


def _extend(runs: list[Run], first: int, last: int, sign: int) -> None:
    if runs and runs[-1].sign == sign:
        runs[-1] = runs[-1]._replace(last=last)
    else:
        runs.append(Run(first, last, sign))


def _bends(expr: Any, x: Any) -> list[Any]:
    """Polynomials whose roots are where a minimum passes from one argument to another."""
    found: list[Any] = []
    for minimum in expr.atoms(sympy.Min):
        if any(arg.has(sympy.Min) for arg in minimum.args):
            raise NotPiecewise
        for one, other in combinations(minimum.args, 2):
            found += _polynomials(one - other, x)
    return found


def _branch(expr: Any, x: Any, at: int) -> Any:
    """The expression with each minimum replaced by that of its arguments which is the least there."""
    least = {m: min(m.args, key=lambda arg: arg.xreplace({x: sympy.Integer(at)})) for m in expr.atoms(sympy.Min)}
    return expr.xreplace(least)


def _polynomials(expr: Any, x: Any) -> tuple[Any, Any]:
    """Numerator and denominator."""
    parts = sympy.fraction(sympy.together(expr))
    if not all(part.is_polynomial(x) for part in parts):
        raise NotPiecewise
    above, below = (sympy.Poly(part, x, domain=sympy.QQ) for part in parts)
    return above, below


def _near(polynomials: Iterable[Any], x: Any, most: int) -> set[int]:
    """The whole numbers on either side of each real root, and those at it."""
    found: set[int] = set()
    for polynomial in polynomials:
        if polynomial.degree() > 0:
            for (low, high), _ in polynomial.intervals(eps=sympy.Rational(1, 4)):
                found.update(range(floor(low) - 1, floor(high) + 3))
    return {mark for mark in found if 1 <= mark <= most}


def _sign(expr: Any, x: Any, at: int) -> int:
    value = expr.xreplace({x: sympy.Integer(at)})
    if not value.is_finite:
        raise InputError(f"at {x} = {at} a size divides by zero")
    return int(sympy.sign(value))


def _flat(expr: Any, x: Any, bends: list[int]) -> int | None:
    """The first number from which on the expression is constant: where the last stretches, all constant, begin."""
    end = expr.xreplace({x: sympy.Integer(bends[-1])})
    found = None
    for low, high in reversed(list(pairwise(bends))):
        stretch = _branch(expr, x, (low + high) // 2)
        if (high - low > 1 and stretch.has(x)) or expr.xreplace({x: sympy.Integer(low)}) != end:
            break
        found = low
    return found
