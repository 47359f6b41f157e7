"""Presentation MathML of the elements that browsers draw (MathML Core)."""

from __future__ import annotations

from typing import Any

from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.precedence import precedence_traditional

from ..symbolic import Formula
from ..text import positive_first

_SIGNS = {"<": "&lt;", "<=": "≤", ">": "&gt;", ">=": "≥", "==": "=", "!=": "≠"}


class _MathML(MathMLPresentationPrinter):  # type: ignore[misc]
    """Parentheses as operators, a symbol's scope as upright text below, minima as functions."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> Any:
        return positive_first(super()._as_ordered_terms(expr, order=order))

    def element(self, tag: str, *children: Any) -> Any:
        """An element of these; text becomes a text node."""
        made = self.dom.createElement(tag)
        for child in children:
            made.appendChild(self.dom.createTextNode(child) if isinstance(child, str) else child)
        return made

    def between(self, opening: str, closing: str, *args: Any) -> Any:
        """Printed arguments, with commas, between two signs."""
        row = [part for arg in args for part in (self.element("mo", ","), self._print(arg))][1:]
        return self.element("mrow", self.element("mo", opening), *row, self.element("mo", closing))

    def parenthesize(self, item: Any, level: Any, strict: bool = False) -> Any:
        """Printed, in parentheses where its precedence asks for them."""
        needed = precedence_traditional(item) < level or (not strict and precedence_traditional(item) <= level)
        return self.between("(", ")", item) if needed else self._print(item)

    def _print_Symbol(self, sym: Any, style: str = "plain") -> Any:
        letter, _, scope = sym.name.partition("_")
        base = self.element("mi", letter)
        return self.element("msub", base, self.element("mtext", scope.replace("_", " "))) if scope else base

    def _function(self, name: str, expr: Any) -> Any:
        return self.element(
            "mrow", self.element("mi", name), self.element("mo", "\u2061"), self.between("(", ")", *expr.args)
        )

    def _print_Min(self, expr: Any) -> Any:
        return self._function("min", expr)

    def _print_Max(self, expr: Any) -> Any:
        return self._function("max", expr)

    def _print_floor(self, expr: Any) -> Any:
        return self.between("⌊", "⌋", expr.args[0])

    def _print_ceiling(self, expr: Any) -> Any:
        return self.between("⌈", "⌉", expr.args[0])

    def _print_Relational(self, expr: Any) -> Any:
        sign = self.element("mo", _SIGNS[expr.rel_op])
        return self.element("mrow", self._print(expr.lhs), sign, self._print(expr.rhs))

    def _print_Piecewise(self, expr: Any) -> Any:
        rows = []
        for branch, condition in expr.args:
            when = ["otherwise"] if condition == True else ["if ", self._print(condition)]  # noqa: E712
            words = [self.element("mtext", part) if isinstance(part, str) else part for part in when]
            rows.append(self.element("mtr", self.element("mtd", self._print(branch)), self.element("mtd", *words)))
        return self.element("mrow", self.element("mo", "{"), self.element("mtable", *rows))


def write(formula: Formula) -> str:
    """A ``<math>`` element that stands alone, as XML or inside HTML."""
    inner = _MathML().doprint(formula.expr).replace("&InvisibleTimes;", "\u2062")
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{inner}</math>'
