"""Closed forms in integers alone: over one denominator in front, and with a bound on every number on the way.

Python, JavaScript, C, NumPy and Excel each divide in their own way, and rationals are none of theirs. What is left here
is sums, products, minima and maxima of integers, ⌊a / b⌋, and a numerator over a denominator.
"""

from __future__ import annotations

from typing import Any

import sympy

from .errors import InputError


class Quotient(sympy.Function):  # type: ignore[misc]
    """⌊a / b⌋ of two integers, b positive."""

    nargs = 2
    is_integer = True


def fraction(expr: Any) -> tuple[Any, Any]:
    """Numerator and denominator, both in integers alone. The numerator keeps the shape of what has no denominator.

    Raises InputError for what is no arithmetic on whole numbers: a root, a symbol that may be negative below the line.
    """
    if expr.is_Symbol or expr.is_Integer:
        return expr, sympy.S.One
    if expr.is_Rational:
        return sympy.Integer(expr.p), sympy.Integer(expr.q)
    if isinstance(expr, sympy.floor):
        return _quotient(*fraction(expr.args[0])), sympy.S.One
    if isinstance(expr, sympy.ceiling):
        above, below = fraction(expr.args[0])
        return -_quotient(-above, below), sympy.S.One
    if expr.is_Pow and expr.exp.is_Integer:
        above, below = fraction(expr.base)
        return (above**expr.exp, below**expr.exp) if expr.exp > 0 else _over(below**-expr.exp, above**-expr.exp)
    if expr.is_Mul:
        above, below = zip(*map(fraction, expr.args), strict=True)
        return (expr, below[0]) if set(below) == {1} and above == expr.args else _over(sympy.Mul(*above), sympy.Mul(*below))
    if expr.is_Add or isinstance(expr, sympy.Min | sympy.Max):
        above, below = over_one_denominator(expr.args)
        return (expr if above == expr.args else expr.func(*above)), below
    if isinstance(expr, sympy.Piecewise):
        above, below = over_one_denominator([branch for branch, _ in expr.args])
        cases = zip(above, (_condition(c) for _, c in expr.args), strict=True)
        return sympy.Piecewise(*cases, evaluate=False), below  # evaluated, 5·S ≥ 3·W would become S ≥ 3·W/5
    raise InputError(f"{expr} is no arithmetic on whole numbers")


def _over(above: Any, below: Any) -> tuple[Any, Any]:
    if not below.is_positive:
        raise InputError(f"{below} stands in a denominator, and may be zero or negative")
    return above, below


def _quotient(above: Any, below: Any) -> Any:
    return above if below == 1 else Quotient(above, below)


def over_one_denominator(exprs: Any) -> tuple[tuple[Any, ...], Any]:
    """The numerators of several, over the least common denominator."""
    above, below = zip(*map(fraction, exprs), strict=True)
    if set(below) == {1}:
        return above, below[0]
    common = sympy.lcm_list(below)
    return tuple(a * sympy.cancel(common / b) for a, b in zip(above, below, strict=True)), common


def _condition(condition: Any) -> Any:
    """A comparison between integers; a combination of comparisons is not needed by any rule, and refused."""
    if condition in (True, False):
        return condition
    if not condition.is_Relational:
        raise InputError(f"{condition} is no comparison of two whole numbers")
    (left, right), _ = over_one_denominator(condition.args)
    return condition.func(left, right, evaluate=False)


def divides(above: Any, below: Any) -> bool:
    """Is the denominator proven to divide the numerator at all whole sizes?

    A polynomial takes multiples of a prime p alone exactly if it vanishes once its coefficients are taken modulo p and each
    x^p as x (Fermat). Minima, quotients and branches count as unknowns of their own. What is not proven is to be checked.
    """
    if below == 1:
        return True
    if not (below.is_Integer and sympy.isprime(below)):
        return False
    prime = int(below)
    left: dict[Any, int] = {}
    for term in sympy.Add.make_args(sympy.expand(above)):
        coefficient, rest = term.as_coeff_Mul()
        powers = (factor.as_base_exp() for factor in sympy.Mul.make_args(rest))
        reduced = sympy.Mul(*(base ** ((int(power) - 1) % (prime - 1) + 1) for base, power in powers))
        left[reduced] = (left.get(reduced, 0) + int(coefficient)) % prime
    return not any(left.values())


def bounds(expr: Any) -> tuple[Any, ...]:
    """Bounds of the value and of every number on the way to it, at sizes up to those put in: the first is the value's own.

    Each is the expression with all its terms added, so that no partial sum or product exceeds it. A minimum is no more
    than its least argument; its arguments have bounds of their own, for they are computed too.
    """
    inner = [arg for node in expr.atoms(sympy.Min, sympy.Max, Quotient) for arg in node.args]
    inner += [side for node in expr.atoms(sympy.core.relational.Relational) for side in node.args]
    others = (_bound(arg) for arg in sorted(inner, key=str))
    return tuple(dict.fromkeys((_bound(expr), *(bound for bound in others if not bound.is_Atom))))


def _bound(expr: Any) -> Any:
    if expr.is_Atom:
        return abs(expr) if expr.is_Number else expr
    if isinstance(expr, sympy.Piecewise):
        return sympy.Max(*(_bound(branch) for branch, _ in expr.args))
    parts = [_bound(arg) for arg in expr.args]
    if expr.is_Pow:
        return parts[0] ** expr.exp
    if isinstance(expr, Quotient):
        return parts[0]
    if isinstance(expr, sympy.Min) and not all(arg.is_nonnegative for arg in expr.args):
        return sympy.Max(*parts)
    return expr.func(*parts)
