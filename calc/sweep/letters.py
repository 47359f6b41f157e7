"""Letters and words of the user's: what each names, ties between letters, and conditions on rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..dims import symbol
from ..errors import InputError
from ..inverse.grammar import BYTES
from ..inverse.grammar import size as read_size
from ..inverse.problem import WORDS
from ..quantities import QUANTITIES
from ..readers.config import printable
from ..whole import fraction
from .closed import RANKS
from .exact import Boxed, Real
from .plans import NO_MACHINE, PLANS, is_real

GPU_MEMORY = "gpu_memory"
"""Bytes that the row's machine has."""

_RELATION = re.compile(r"<=|>=|!=|[=<>≤≥≠]")
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "=": operator.eq, "<": operator.lt, ">": operator.gt,
    "≤": operator.le, "≥": operator.ge, "≠": operator.ne,
}  # fmt: skip
_UNITS = {name: size for name, size in BYTES.items() if len(name) > 1}  # one letter is a size's
_POWER = re.compile(r"e(\d{1,2})", re.ASCII)


class Fraction(NamedTuple):
    """A size in terms of letters, over a denominator that has to divide it."""

    name: str
    text: str
    forms: Boxed  # numerator, denominator


class Comparison(NamedTuple):
    """A condition on rows, and the quantities that it asks about."""

    text: str
    difference: Boxed | Real
    holds: Callable[[Any, Any], Any]
    quantities: tuple[str, ...]


def letter(name: str) -> str:
    """The symbol that a letter or a word would name: ``f_expert`` F_expert, ``context`` S, ``tp`` itself."""
    plain = WORDS.get(name.replace("-", "_"), name.replace("-", "_"))
    return plain if plain in (*RANKS, "pp") else plain[:1].upper() + plain[1:]


def column(symbol_name: str) -> str:
    """The name of a letter's column: that of its symbol with a small first letter."""
    return symbol_name[:1].lower() + symbol_name[1:]


def tie(text: str, known: Iterable[str]) -> Fraction:
    """Read ``f=8d/3``. Raises InputError where it is no size of letters that there are."""
    name, sign, size = text.partition("=")
    if not sign or not name.strip() or not size.strip():
        raise InputError(f"--tie {printable(text)}: expected LETTER=SIZE, as in f=4d or h=d/n")
    expr = _size(size, known, {})
    return Fraction(letter(name.strip()), f"{name.strip()} = {size.strip()}", Boxed(list(fraction(expr))))


def where(text: str, known: Iterable[str], quantities: Sequence[str], *, machine: bool = False) -> Comparison:
    """Read ``params <= 8e9`` or ``b*s <= 2*1024*1024``; with a *machine* also what it has. Raises InputError where it is no
    comparison of two sizes."""
    found = list(_RELATION.finditer(text))
    if len(found) != 1:
        raise InputError(f"--where {printable(text)}: expected one of <= >= < > = != between two sizes, as in params <= 8e9")
    words = {name: symbol(name) for name in (*quantities, *([GPU_MEMORY] if machine else []))}
    words["devices"] = symbol("tp") * symbol("cp") * symbol("dp") * symbol("pp")
    left, right = (_size(side, known, words) for side in (text[: found[0].start()], text[found[0].end() :]))
    asked = tuple(name for name in quantities if symbol(name) in (left - right).free_symbols)
    difference = Real([left - right]) if any(map(is_real, asked)) else Boxed([fraction(left - right)[0]])
    return Comparison(text.strip(), difference, _COMPARED[found[0][0]], asked)


def _size(text: str, known: Iterable[str], words: Mapping[str, Any]) -> Any:
    names = frozenset(known)

    def value_of(name: str) -> Any:
        import sympy

        power = _POWER.fullmatch(name)
        if power:
            return sympy.Integer(10) ** int(power[1])
        if name in _UNITS:
            return sympy.Integer(_UNITS[name])
        if name in words:
            return words[name]
        if letter(name) not in names:
            raise InputError(f"{printable(name)}: {unknown(name, names, words)}")
        return symbol(letter(name))

    return read_size(text, value_of)


def unknown(name: str, known: Iterable[str], words: Iterable[str] = ()) -> str:
    """What to say of a name that is none here, with those that are."""
    left_out = name in {**QUANTITIES, **PLANS} and name not in words
    missing = f"quantity {name} is not asked for (--quantity); " if left_out else ""
    missing = f"{NO_MACHINE}; " if name == GPU_MEMORY else missing
    several = sorted(column(one) for one in known if one.startswith(f"{letter(name)}_"))
    if several:
        return f"the closed form has {', '.join(several)}; name one of them"
    there = ", ".join([*sorted(map(column, known)), *words])
    return f"{missing}no letter of the closed form, which has {there}"
