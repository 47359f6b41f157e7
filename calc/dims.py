"""Sizes: plain integers or sympy expressions, and the few operations in which the two differ.

Nothing else in the library asks which of the two a size is. Products and sums need no help: Python's operators do both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from math import prod
from typing import Any, Protocol, TypeAlias

from .errors import InputError

Dim: TypeAlias = Any
"""An ``int`` or a ``sympy.Expr`` (typed loosely so that sympy is never imported for a number). Has no unit."""

LARGEST_SIZE = 2**40
"""No size of a model or of a step may exceed this."""


def symbol(letter: str) -> Dim:
    """A positive integer symbol, for a size that is not fixed."""
    import sympy

    return sympy.Symbol(letter, integer=True, positive=True)


product: Callable[[Iterable[Dim]], Dim] = prod
"""The product of sizes, 1 when there are none."""


def smaller(a: Dim, b: Dim) -> Dim:
    """min(a, b)."""
    return (a if a < b else b) if type(a) is int and type(b) is int else _minimum(a, b)


@cache
def _minimum(a: Dim, b: Dim) -> Dim:
    """sympy takes milliseconds to compare two."""
    import sympy

    return sympy.Min(a, b)


def largest(sizes: Iterable[Dim]) -> Dim:
    """The maximum."""
    found = list(sizes)
    if not any(map(_free, found)):
        return max(found)
    import sympy

    watch = _watching.get()
    return sympy.Max(*found) if watch is None else watch.largest(found)


def _free(size: Dim) -> bool:
    return type(size) is not int and type(size) is not float and hasattr(size, "free_symbols")


def larger(a: Dim, b: Dim) -> Dim:
    """max(a, b)."""
    return largest((a, b))


def chosen(a: Dim, b: Dim, then: Dim, otherwise: Dim) -> Dim:
    """*then* where a ≤ b, else *otherwise*."""
    if type(a) is int and type(b) is int:
        return then if a <= b else otherwise
    import sympy

    watch = _watching.get()
    return sympy.Piecewise((then, a <= b), (otherwise, True)) if watch is None else watch.chosen(a, b, then, otherwise)


def quotient(a: Dim, b: Dim) -> Dim:
    """a / b without its remainder."""
    if type(a) is int and type(b) is int:
        return a // b
    import sympy

    return sympy.floor(a / b)


def ceiling(a: Dim, b: Dim) -> Dim:
    """a / b rounded up."""
    if type(a) is int and type(b) is int:
        return -(-a // b)
    import sympy

    watch = _watching.get()
    return sympy.ceiling(a / b) if watch is None else watch.rounded_up(a, b)


def spread(a: Dim, b: Dim) -> Dim:
    """a / b, each part rounded up where it is not whole; on symbols it is taken to be whole, unless someone watches."""
    if type(a) is int and type(b) is int:
        return -(-a // b)
    watch = _watching.get()
    return a / b if watch is None or not (_free(a) or _free(b)) else watch.rounded_up(a, b)


def ratio(a: Dim, b: Dim) -> Any:
    """a / b as a Fraction, or on symbols."""
    if type(a) is int and type(b) is int:
        from fractions import Fraction

        return Fraction(a, b)
    return a / b


def half(a: Dim) -> Dim:
    """a / 2 of a number that is even by construction, such as x(x + 1)."""
    if type(a) is int:
        assert a % 2 == 0, a
        return a // 2
    return a / 2


def divide(a: Dim, b: Dim, what: str, by: str) -> Dim:
    """a / b, refused unless it is a whole number. *what* and *by* name the two sizes in the message."""
    if type(a) is int and type(b) is int:
        if a % b:
            raise InputError(f"{what} = {a} is not divisible by {by} = {b}")
        return a // b
    watch = _watching.get()
    return a / b if watch is None else watch.divides(a, b, f"{what} is not divisible by {by}")


def check_sizes(owner: str, **sizes: Dim) -> None:
    """Refuse a size that is not a positive whole number of at most 2**40; symbols and ``None`` (absent) pass.

    >>> check_sizes("MLP", f=0)
    Traceback (most recent call last):
    blockcalc.errors.InputError: MLP: f = 0, but a size is a whole number from 1 to 2**40
    """
    for name, size in sizes.items():
        if type(size) is int:
            if 1 <= size <= LARGEST_SIZE:
                continue
        elif size is None or hasattr(size, "free_symbols"):
            continue
        raise InputError(f"{owner}: {name} = {size!r}, but a size is a whole number from 1 to 2**40")


def check_divides(owner: str, what: str, a: Dim, by: str, b: Dim) -> None:
    """Refuse unless b divides a; symbols pass."""
    if type(a) is int and type(b) is int:
        if a % b:
            raise InputError(f"{owner}: {what} = {a} is not divisible by {by} = {b}")
    elif (watch := _watching.get()) is not None:
        watch.divides(a, b, f"{owner}: {what} is not divisible by {by}")


def check_at_most(a: Dim, b: Dim, refusal: str) -> None:
    """Refuse a > b, with ``refusal.format(a, b)``; symbols pass."""
    if type(a) is int and type(b) is int:
        if a > b:
            raise InputError(refusal.format(a, b))
    elif (watch := _watching.get()) is not None:
        watch.at_most(a, b, refusal.format(a, b))


def granted(a: Dim, b: Dim, refusal: str) -> bool:
    """Is a at most b? Of symbols it is not known, unless someone watches who refuses the others."""
    if type(a) is int and type(b) is int:
        return a <= b
    watch = _watching.get()
    return watch is not None and watch.granted(a, b, refusal)


# -- what is taken for granted of symbols ------------------------------------------------------------------------------


class Watch(Protocol):
    """Is told what symbols pass without: numbers put in for them are refused where it does not hold. And asked for what
    numbers alone decide."""

    def divides(self, a: Dim, b: Dim, refusal: str) -> Dim:
        """b divides a. Returns the quotient."""

    def at_most(self, a: Dim, b: Dim, refusal: str) -> None:
        """a is at most b."""

    def granted(self, a: Dim, b: Dim, refusal: str) -> bool:
        """May it be taken for granted that a is at most b?"""

    def rounded_up(self, a: Dim, b: Dim) -> Dim:
        """⌈a / b⌉."""

    def largest(self, sizes: Sequence[Dim]) -> Dim:
        """The maximum."""

    def chosen(self, a: Dim, b: Dim, then: Dim, otherwise: Dim) -> Dim:
        """*then* where a ≤ b, else *otherwise*."""


_watching: ContextVar[Watch | None] = ContextVar("watching", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Tell *watch* what is taken for granted of symbols in here."""
    before = _watching.set(watch)
    try:
        yield
    finally:
        _watching.reset(before)
