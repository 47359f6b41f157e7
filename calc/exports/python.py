"""A Python function: integers of any size, exact, no import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy.printing.precedence import PRECEDENCE
from sympy.printing.pycode import PythonCodePrinter

from ..symbolic import Formula
from ..whole import divides, fraction
from .about import WINDOW, about, identifier, names, windows


class Printer(PythonCodePrinter):  # type: ignore[misc]
    """Integers alone."""

    def _print_Quotient(self, expr: Any) -> str:
        above, below = (self.parenthesize(arg, PRECEDENCE["Func"], strict=True) for arg in expr.args)
        return f"({above} // {below})"

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(map(self._print, expr.args))})"

    def _print_Max(self, expr: Any) -> str:
        return f"max({', '.join(map(self._print, expr.args))})"


def write(formula: Formula) -> str:
    """A function of the symbols in alphabetical order. It raises ValueError where a size does not divide, or a window is 1 that
    has another closed form."""
    above, below = fraction(formula.expr)
    head = [f"def {identifier(formula)}({', '.join(names(formula))}):", *docstring(formula)]
    head += [f'    if {name} < 2:\n        raise ValueError("{name}: {WINDOW}")' for name in windows(formula)]
    printer = Printer()
    return "\n".join([*head, *returned(printer.doprint(above), above, below, printer)])


def returned(
    numerator: str, above: Any, below: Any, printer: Any, divmod: str = "divmod", some: str = "rest"
) -> Sequence[str]:
    """The lines, indented once, that return *above* (its text *numerator*) over *below*: checked where that may not divide."""
    if below == 1:
        lines = [f"return {numerator}"]
    elif divides(above, below):
        lines = [f"return ({numerator}) // {below}"]
    else:
        lines = [
            f"quotient, rest = {divmod}({numerator}, {printer.doprint(below)})",
            f"if {some}:",
            '    raise ValueError("not a whole number: a size does not divide")',
            "return quotient",
        ]
    return [f"    {line}" for line in lines]


def docstring(formula: Formula, *more: str) -> Sequence[str]:
    """What the function says of itself, indented once."""
    first, *rest = [*about(formula), *more]
    return [f'    """{first}', "", *(f"    {line}" for line in rest), '    """']
