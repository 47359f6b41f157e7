"""Sizes: plain integers or sympy expressions, and the few operations in which the two differ.

Nothing else in the library asks which of the two a size is. Products and sums need no help: Python's operators do both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, TypeAlias

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
    if type(a) is int and type(b) is int:
        return a if a < b else b
    import sympy

    return sympy.Min(a, b)


def quotient(a: Dim, b: Dim) -> Dim:
    """a / b without its remainder."""
    if type(a) is int and type(b) is int:
        return a // b
    import sympy

    return sympy.floor(a / b)


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
    return a / b


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
    if type(a) is int and type(b) is int and a % b:
        raise InputError(f"{owner}: {what} = {a} is not divisible by {by} = {b}")
