"""The little language of equations: read letter by letter, never evaluated as code."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

from ..breakdown import quantity
from ..errors import InputError
from ..readers.config import printable

Relation: TypeAlias = Literal["=", "<=", ">="]

SHAPE = "QUANTITY[PART, …](SUBJECT, LETTER=SIZE, …) = | <= | >= the same, or a number with a unit: 7e9, 7B, 80GiB"
LONGEST = 400
DEEPEST = 20

_SI = {"k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21}
COUNTS = {"": 1, "B": 10**9} | {letter: 10**power for letter, power in _SI.items()}
BYTES = (
    {"": 1, "B": 1}
    | {f"{letter}B": 10**power for letter, power in _SI.items()}
    | {f"{letter}iB": 1024 ** (power // 3) for letter, power in _SI.items() if letter != "k"}
)
"""What a number may be followed by: SI letters (7B is 7·10⁹) for counts and FLOPs, for memory also binary units."""

_AMOUNT = re.compile(r"(\d+(?:[_,]\d{3})*)(?:\.(\d+))?(?:[eE]\+?(\d{1,2}))?\s*([A-Za-z]*)", re.ASCII)
_SIDE = re.compile(r"\s*([a-z_]+)\s*(?:\[([^\[\]()]*)\])?\s*(?:\(([^()]*)\))?\s*", re.ASCII)
_RELATION = re.compile(r"<=|>=|==|[=≤≥<>]")
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z][A-Za-z0-9_]*)|(.))", re.ASCII)


class Side(NamedTuple):
    """One side: a quantity, the parts of the model that count (all, when none is named), whose, and sizes that it fixes."""

    quantity: str
    parts: tuple[str, ...]
    subject: str | None
    fixed: tuple[tuple[str, str], ...]


class Equation(NamedTuple):
    """A quantity and what it is to be: a number in its unit, or another quantity."""

    left: Side
    relation: Relation
    right: Side | int


def equation(text: str) -> Equation:
    """Read an equation such as ``kv <= 16GiB`` or ``params = params(mlp, f=4d)``. Raises InputError where it is none."""
    if len(text) > LONGEST:
        raise InputError(f"the equation has {len(text)} characters, at most {LONGEST} are read")
    found = [m for m in _RELATION.finditer(text) if text.count("(", 0, m.start()) == text.count(")", 0, m.start())]
    if len(found) != 1 or found[0][0] in ("==", "<", ">"):
        raise InputError(f"{_quoted(text)}: expected one of =, <= and >= between two sides, as in {SHAPE}")
    relation: Any = {"≤": "<=", "≥": ">="}.get(found[0][0], found[0][0])
    left, right = _side(text[: found[0].start()]), text[found[0].end() :].strip()
    if right[:1].isdigit():
        return Equation(left, relation, amount(right, left.quantity))
    other = _side(right)
    units = quantity(left.quantity).unit, quantity(other.quantity).unit
    if units[0] != units[1]:
        raise InputError(f"{_quoted(text)}: {left.quantity} is in {units[0]} and {other.quantity} in {units[1]}")
    return Equation(left, relation, other)


def _side(text: str) -> Side:
    match = _SIDE.fullmatch(text)
    if match is None:
        raise InputError(f"{_quoted(text)}: expected {SHAPE}")
    name, parts, inside = match.groups()
    quantity(name)
    subject, *rest = [part.strip() for part in (inside or "").split(",")]
    return Side(name, _names(parts, text), subject or None, tuple(assignment(one) for one in rest))


def _names(parts: str | None, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in parts.split(",")) if parts is not None else ()
    if not all(names):
        raise InputError(f"{_quoted(text)}: expected names of parts in the brackets, as in flops[scores, mix]")
    return names


def assignment(text: str) -> tuple[str, str]:
    """``l=d/128``: a letter and the text of its size."""
    letter, sign, size = text.partition("=")
    if not sign or not letter.strip() or not size.strip():
        raise InputError(f"{_quoted(text)}: expected LETTER=SIZE, as in f=4d or l=32")
    return letter.strip(), size.strip()


def amount(text: str, of: str) -> int:
    """A whole number in the unit of the quantity: ``7e9``, ``1.5T``, ``80GiB``, ``7,000,000``."""
    unit = quantity(of).unit
    letters = BYTES if unit == "bytes" else COUNTS
    match = _AMOUNT.fullmatch(text)
    if match is None or match[4] not in letters:
        known = ", ".join(letter for letter in letters if letter)
        raise InputError(f"{_quoted(text)}: expected a number of {unit}, plain or with one of {known}")
    whole, decimals, power, letter = match.groups()
    digits = whole.replace("_", "").replace(",", "") + (decimals or "")
    value = Fraction(int(digits), 10 ** len(decimals or "")) * 10 ** int(power or 0) * letters[letter]
    if value.denominator != 1 or value < 1:
        raise InputError(f"{_quoted(text)}: found {float(value):g} {unit}, expected a whole number from 1")
    return int(value)


def _quoted(text: str) -> str:
    return repr(printable(text.strip()))[1:-1] or "an empty side"


# -- sizes -------------------------------------------------------------------------------------------------------------


def size(text: str, value_of: Callable[[str], Any]) -> Any:
    """The value of a size such as ``8d/3``, ``l/128 + 1`` or ``(n+k)*h``, of numbers and of letters that *value_of* knows."""
    if len(text) > LONGEST:
        raise InputError(f"a size of {len(text)} characters, at most {LONGEST} are read")
    return _Size(text, value_of).read()


class _Size:
    """Sums of products of factors; a number right before a letter multiplies it."""

    def __init__(self, text: str, value_of: Callable[[str], Any]) -> None:
        self.text, self.value_of, self.depth = text, value_of, 0
        self.tokens = [match.groups() for match in _TOKEN.finditer(text.strip())]
        self.place = 0

    def read(self) -> Any:
        value = self._sum()
        if self.place < len(self.tokens):
            raise self._refuse()
        return value

    def _refuse(self) -> InputError:
        return InputError(f"{_quoted(self.text)}: expected a size of numbers, letters, + - * / and brackets, as in 8d/3")

    def _sign(self) -> str | None:
        return self.tokens[self.place][2] if self.place < len(self.tokens) else None

    def _sum(self) -> Any:
        value = self._product()
        while (sign := self._sign()) in ("+", "-"):
            self.place += 1
            term = self._product()
            value = value + term if sign == "+" else value - term
        return value

    def _product(self) -> Any:
        value = self._factor()
        while self.place < len(self.tokens):
            number, letter, sign = self.tokens[self.place]
            if letter is not None and self.tokens[self.place - 1][0] is not None:
                if self.place > 1 and self.tokens[self.place - 2][2] == "/":  # 1/3d: is d above or below
                    raise self._refuse()
                value = value * self._factor()
                continue
            if number is not None or sign not in ("*", "·", "/"):
                break
            self.place += 1
            factor = self._factor()
            if sign == "/" and factor == 0:
                raise self._refuse()
            value = value / factor if sign == "/" else value * factor
        return value

    def _factor(self) -> Any:
        import sympy

        if self.place == len(self.tokens) or self.depth > DEEPEST:
            raise self._refuse()
        number, letter, sign = self.tokens[self.place]
        self.place += 1
        if number is not None and len(number) <= 30:
            return sympy.Integer(int(number))
        if letter is not None:
            return self.value_of(letter)
        if sign != "(":
            raise self._refuse()
        self.depth += 1
        value = self._sum()
        self.depth -= 1
        if self._sign() != ")":
            raise self._refuse()
        self.place += 1
        return value
