"""Closed forms of an unknown: of factors that are linear, quadratic or a power."""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy

from .grammar import Relation


class Closed(NamedTuple):
    """The unknown is, is at most, or is at least this expression."""

    relation: Relation
    expr: Any

    def text(self) -> str:
        """The expression in one line."""
        from ..text import text

        return text(self.expr)


def closed_forms(difference: Any, relation: Relation, x: Any) -> tuple[Closed, ...] | None:
    """What positive *x* can be for ``difference`` = 0 (or ≤ 0, ≥ 0): nothing, or None where no short form is known.

    Each root is put back into the equation, at sizes that are all different primes, before it is returned.
    """
    above, below = sympy.fraction(sympy.together(sympy.expand(difference)))
    if not above.is_polynomial(x) or below.has(x):
        return None
    _, factors = sympy.factor_list(above)
    roots: list[Any] = []
    crossed = True
    for factor, times in factors:
        if factor.has(x) and factor != x:
            found = _roots(sympy.Poly(factor, x))
            if found is None:
                return None
            roots += found
            crossed = crossed and times % 2 == 1
    assert all(_solves(above, x, root) for root in roots), (above, roots)
    if len(roots) == 1 and crossed:
        return (Closed(_direction(relation, sympy.Poly(above, x).LC() / below), roots[0]),)
    return tuple(Closed("=", root) for root in roots)


def _solves(polynomial: Any, x: Any, root: Any) -> bool:
    free = sorted((polynomial.free_symbols | root.free_symbols) - {x}, key=str)
    sizes = {s: sympy.Integer(sympy.prime(100 + index)) for index, s in enumerate(free)}
    return bool(sympy.expand(polynomial.xreplace(sizes).xreplace({x: root.xreplace(sizes)})) == 0)


def _roots(polynomial: Any) -> list[Any] | None:
    """Its roots but for those that cannot be positive; None where it is neither linear, quadratic nor a power."""
    degree, terms = polynomial.degree(), polynomial.terms()
    first, last = polynomial.LC(), polynomial.TC()
    if degree == 1:
        found = [sympy.factor(-last / first)]
    elif len(terms) == 2:
        found = [sympy.root(sympy.factor(-last / first), degree)]
    elif degree == 2:
        middle = polynomial.coeff_monomial(polynomial.gen)
        root = sympy.sqrt(sympy.factor(middle**2 - 4 * first * last))
        found = [(-middle + root) / (2 * first), (-middle - root) / (2 * first)]
        if (first * last).is_negative:  # one positive root, by Descartes' rule
            found = found[:1] if first.is_positive else found[1:]
        found = [sympy.factor_terms(one) for one in found]
    else:
        return None
    return [one for one in found if one.is_extended_positive is not False]


def _direction(relation: Relation, leading: Any) -> Relation:
    """With one positive root, the side of it on which the inequality holds, from the sign of the leading coefficient."""
    if relation == "=" or not (leading.is_positive or leading.is_negative):
        return "="
    if leading.is_positive:
        return relation
    return ">=" if relation == "<=" else "<="
