"""Closed forms in the languages that people compute and write in. Each is one module with one function, ``write``.

Every one is exact or refuses: integers in Python and JavaScript, int64 bounded first in NumPy, 128 bits with overflow
checks in C, 53 bits in Excel. A rational such as T(T + 1)/2 is one integer division by a denominator that is proven to
divide, or is checked to.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..symbolic import Formula

FORMATS = ("text", "latex", "mathml", "python", "numpy", "javascript", "c", "excel", "sympy")
"""The forms of :func:`export`; each is the name of its module."""


def export(formula: Formula, form: str) -> str:
    """The formula in one of :data:`FORMATS`, without a final newline.

    ``text`` Unicode; ``latex`` for math mode; ``mathml`` a ``<math>`` element; ``python``, ``numpy``, ``javascript`` and
    ``c`` a function that needs nothing else; ``excel`` a cell's formula over named cells; ``sympy`` what ``eval`` turns
    into the same expression. Raises InputError for another form, and for an expression that has no form in integers.
    """
    if form not in FORMATS:
        raise InputError(f"format {form!r} is not one of {', '.join(FORMATS)}")
    text: str = import_module(f".{form}", __name__).write(formula)
    return text
