"""Closed forms as a page holds them: each distinct one once, as a JavaScript function and as MathML that breaks into lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree as ET

from ..dims import Dim
from ..explain import Subject
from ..exports import export
from ..quantities import MEANINGS, QUANTITIES, UNITS
from ..symbolic import Formula, symbolize, tidy

_MATHML = "http://www.w3.org/1998/Math/MathML"
ET.register_namespace("", _MATHML)

LENGTHS: Mapping[str, str] = MappingProxyType({
    "B": MEANINGS["b"], "T": MEANINGS["t"], "S": MEANINGS["s"], "S_encoder": "tokens of the encoder",
})  # fmt: skip
"""The symbols that the page asks for, and what each is."""


class Forms:
    """The closed forms of a subject, numbered in the order in which they are first asked for."""

    def __init__(self, subject: Subject) -> None:
        self.sizes: Mapping[str, int] = subject.sizes
        self.formulas: list[Formula] = []
        self._letters = symbolize(subject.component)[2] if subject.width is None else {}
        self._places: dict[Any, int] = {}

    def add(self, what: str, quantity: str, expr: Dim) -> int:
        """The number of this expression, which is *what* of a *quantity*."""
        if expr not in self._places:
            tidied = tidy(expr)
            if tidied not in self._places:
                self._places[tidied] = len(self.formulas)
                self.formulas.append(_formula(what, quantity, tidied))
            self._places[expr] = self._places[tidied]
        return self._places[expr]

    def value(self, number: int, lengths: Mapping[str, int]) -> int:
        """The form of that number at the subject's own sizes and these lengths."""
        return self.formulas[number].subs(**{**self.sizes, **lengths})

    @property
    def symbols(self) -> list[str]:
        """The symbols of all forms, those of the lengths last."""
        used = {str(symbol) for one in self.formulas for symbol in one.expr.free_symbols}
        return [*sorted(used - set(LENGTHS)), *(name for name in LENGTHS if name in used)]

    def meaning(self, name: str) -> tuple[str, str]:
        """What a symbol is, and what it counts."""
        letter = self._letters.get(name, name.partition("_")[0].lower())
        scope = name.partition("_")[2].replace("_", " ")
        said = LENGTHS.get(name) or MEANINGS.get(letter, "") + (f" ({scope})" if scope else "")
        return said, UNITS.get(letter, "")

    def javascript(self) -> list[str]:
        """A function each, of an object of BigInts."""
        return [export(one, "javascript") for one in self.formulas]

    def mathml(self, number: int) -> str:
        """The form of that number as a ``<math>`` element."""
        return breakable(export(self.formulas[number], "mathml"))


def _formula(what: str, quantity: str, expr: Any) -> Formula:
    return Formula(what, quantity, QUANTITIES[quantity].unit, expr, MappingProxyType({}), MappingProxyType({}))


# -- lines of MathML ---------------------------------------------------------------------------------------------------


def breakable(mathml: str) -> str:
    """The formula with a row for each term, at whatever depth of parentheses, so that a line may end between two of them."""
    math = ET.fromstring(mathml)
    rows: list[list[ET.Element]] = [[]]
    for leaf in _leaves(math):
        before = rows[-1][-1] if rows[-1] else None
        if leaf.text in ("+", "-") and before is not None and before.text not in ("(", ","):
            leaf.set("form", "infix")
            rows.append([])
        rows[-1].append(_fenced(leaf))
    for child in list(math):
        math.remove(child)
    for leaves in rows:
        ET.SubElement(math, f"{{{_MATHML}}}mrow").extend(leaves)
    return ET.tostring(math, encoding="unicode")


def _leaves(element: ET.Element) -> Iterator[ET.Element]:
    """What is inside, in order, its rows opened; floors, ceilings and branches stay whole."""
    for child in element:
        whole = child.find(f"{{{_MATHML}}}mtable") is not None or (len(child) > 0 and child[0].text in ("⌊", "⌈"))
        if child.tag == f"{{{_MATHML}}}mrow" and not whole:
            yield from _leaves(child)
        else:
            yield child


def _fenced(leaf: ET.Element) -> ET.Element:
    """A parenthesis told which side it closes, for its partner may stand in another row."""
    if leaf.text in ("(", ")"):
        leaf.set("form", "prefix" if leaf.text == "(" else "postfix")
        leaf.set("stretchy", "false")
    if leaf.text == "-":
        leaf.text = "−"
    if leaf.text in ("min", "max"):
        leaf.text = f"\u2009{leaf.text}"
    return leaf
