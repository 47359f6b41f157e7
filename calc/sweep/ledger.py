"""What a trace on symbols leaves to numbers, written down: what has to divide or to fit, and what only numbers can choose.

A quotient, a number rounded up, a maximum, a choice: each is a letter of its own, made before what it stands in. So every
closed form is a polynomial in letters; the rows in which a quotient is no whole number are refused, in the others every sum
is exact. Of seconds the maxima are floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import sympy

from ..dims import Dim, symbol, watched
from .exact import Boxed, Real

Kind: TypeAlias = Literal["divides", "at most", "rounded up", "largest", "chosen"]
"""Refused unless the second form divides the first, or is no smaller; ⌈first / second⌉; the maximum; of four forms the third
where the first is at most the second, else the fourth."""

PAST = "a number on the way is past 2^63 - 1"


class Condition(NamedTuple):
    """What a row is refused without, or what is made on the way; ``letter`` is what it makes."""

    kind: Kind
    forms: Boxed | Real
    refusal: str = PAST
    letter: str | None = None


Key: TypeAlias = tuple[Kind, Any]
Noted: TypeAlias = dict[Key, Condition]


class Ledger:
    """A Watch that gives each of these a letter, and remembers what is taken for granted at the moment.

    *real* says that maxima are of floating-point numbers, such as seconds; *lines* that it matters which lines there are, and
    not only the sums over them.
    """

    def __init__(self, *, real: bool = False, lines: bool = False) -> None:
        self.real, self.lines = real, lines
        self.conditions: Noted = {}
        self.noted: Noted = {}

    @contextmanager
    def noting(self, before: Noted) -> Iterator[Noted]:
        """Watch, and note on top of what was noted before."""
        self.noted = dict(before)
        with watched(self):
            yield self.noted

    # -- as a Watch ----------------------------------------------------------------------------------------------------

    def divides(self, a: Dim, b: Dim, refusal: str) -> Dim:
        """The quotient: as a product of letters where those that are there suffice."""
        a, b = sympy.sympify(a), sympy.sympify(b)
        while not _whole(a / b):
            known = (key for kind, key in self.noted if kind == "divides" and _whole(a / key[0]) and _whole(b / key[1]))
            above, below = next(known, (a, b))
            a, b = a / above * self._letter("divides", (above, below), refusal), b / below
        return a / b

    def at_most(self, a: Dim, b: Dim, refusal: str) -> None:
        """Sizes are at least 1."""
        a, b = sympy.sympify(a), sympy.sympify(b)
        if not (b - a).is_nonnegative and not (a.is_Integer and a <= 1):
            self._note("at most", (a, b), refusal)

    def granted(self, a: Dim, b: Dim, refusal: str) -> bool:
        """Plans have lines that numbers alone have or have not; sums of what they cost do not mind."""
        if self.lines:
            self.at_most(a, b, refusal)
        return self.lines

    def rounded_up(self, a: Dim, b: Dim) -> Dim:
        """Whole numbers are rounded, floating-point ones stay as they are."""
        a, b = sympy.sympify(a), sympy.sympify(b)
        if a.atoms(sympy.Float) or _whole(a / b):
            return a / b
        return sympy.ceiling(a / b) if (a / b).is_number else self._letter("rounded up", (a, b))

    def largest(self, sizes: Sequence[Dim]) -> Dim:
        """Left out are those that another is never below."""
        found = _undominated(map(sympy.sympify, sizes))
        return found[0] if len(found) == 1 else self._letter("largest", tuple(found))

    def chosen(self, a: Dim, b: Dim, then: Dim, otherwise: Dim) -> Dim:
        """One of the two where their difference has no letters."""
        a, b, then, otherwise = map(sympy.sympify, (a, b, then, otherwise))
        if (b - a).is_number or then == otherwise:
            return then if then == otherwise or b >= a else otherwise
        return self._letter("chosen", (a, b, then, otherwise))

    # ------------------------------------------------------------------------------------------------------------------

    def _note(self, kind: Kind, forms: tuple[Any, ...], refusal: str = PAST) -> Condition:
        key = kind, forms
        if key not in self.conditions:
            letter = None if kind == "at most" else f"part{len(self.conditions) + 1}"
            made = Real(forms) if self.real and kind == "largest" else Boxed(forms)
            self.conditions[key] = Condition(kind, made, refusal, letter)
        return self.noted.setdefault(key, self.conditions[key])

    def _letter(self, kind: Kind, forms: tuple[Any, ...], refusal: str = PAST) -> Any:
        found = self._note(kind, forms, refusal)
        if kind == "divides":
            return symbol(found.letter or "")
        return sympy.Symbol(found.letter, nonnegative=True, integer=None if isinstance(found.forms, Real) else True)


def _whole(expr: Any) -> bool:
    return bool(sympy.fraction(expr)[1] == 1)


def _undominated(exprs: Iterator[Any]) -> list[Any]:
    """Of sums in letters, none of which is below 0, those that are not term by term at most another."""
    left: list[tuple[Any, Mapping[Any, Any]]] = []
    for expr in dict.fromkeys(exprs):
        terms = expr.expand().as_coefficients_dict()
        if not any(_covers(other, terms) for _, other in left):
            left = [(one, own) for one, own in left if not _covers(terms, own)]
            left.append((expr, terms))
    return [expr for expr, _ in left]


def _covers(more: Mapping[Any, Any], less: Mapping[Any, Any]) -> bool:
    return all(more.get(term, 0) >= less.get(term, 0) for term in {**more, **less})


def needed(closed: Boxed | Real | None, conditions: Sequence[Condition]) -> frozenset[str]:
    """The letters that numbers are needed for: those of the closed forms, and of what is made for them."""
    found = set(closed.symbols) if closed else set()
    for one in reversed(conditions):
        if one.letter in found:
            found.remove(one.letter)
            found.update(one.forms.symbols)
    return frozenset(found)
