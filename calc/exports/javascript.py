"""A JavaScript function of one object of BigInts: exact at any size, no import."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.printing.jscode import JavascriptCodePrinter
from sympy.printing.precedence import PRECEDENCE

from ..symbolic import Formula
from ..whole import Quotient, divides, fraction
from .about import WINDOW, about, identifier, names, windows


class _Printer(JavascriptCodePrinter):  # type: ignore[misc]
    """BigInts alone."""

    def _print_Integer(self, expr: Any) -> str:
        return f"{int(expr)}n"

    _print_Zero = _print_One = _print_NegativeOne = _print_Integer

    def _print_Pow(self, expr: Any) -> str:
        return f"({self.parenthesize(expr.base, PRECEDENCE['Func'], strict=True)} ** {int(expr.exp)}n)"

    def _print_Quotient(self, expr: Any) -> str:
        return f"floor({', '.join(map(self._print, expr.args))})"

    def _print_Piecewise(self, expr: Any) -> str:
        *cases, (otherwise, _) = expr.args
        text = self._print(otherwise)
        for branch, condition in reversed(cases):
            text = f"({self._print(condition)} ? {self._print(branch)} : {text})"
        return str(text)

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(map(self._print, expr.args))})"

    def _print_Max(self, expr: Any) -> str:
        return f"max({', '.join(map(self._print, expr.args))})"


_HELPERS = {
    "Min": "const min = (...all) => all.reduce((a, b) => (a < b ? a : b));",
    "Max": "const max = (...all) => all.reduce((a, b) => (a > b ? a : b));",
    "Quotient": "const floor = (a, b) => a / b - (a % b < 0n ? 1n : 0n); // of a positive b; BigInt cuts towards zero",
}


def write(formula: Formula) -> str:
    """``function NAME({ B, D })``, called as ``NAME({ B: 1n, D: 4096n })``; RangeError where a size does not divide, or a
    window is 1 that has another closed form."""
    above, below = fraction(formula.expr)
    printer, symbols = _Printer(), ", ".join(names(formula))
    used = {type(node).__name__ for node in above.atoms(sympy.Min, sympy.Max, Quotient)}
    lines = [helper for name, helper in _HELPERS.items() if name in used]
    lines += [f'if ({name} < 2n) throw new RangeError("{name}: {WINDOW}");' for name in windows(formula)]
    numerator = printer.doprint(above)
    if below == 1:
        lines.append(f"return {numerator};")
    elif divides(above, below):
        lines.append(f"return ({numerator}) / {printer.doprint(below)};")
    else:
        lines += [
            f"const above = {numerator};",
            f"const below = {printer.doprint(below)};",
            'if (above % below !== 0n) throw new RangeError("not a whole number: a size does not divide");',
            "return above / below;",
        ]
    comment = ["/**", *(f" * {line}" for line in about(formula)), " */"]
    head = f"function {identifier(formula)}({f'{{ {symbols} }}' if symbols else ''}) {{"
    return "\n".join([*comment, head, *(f"  {line}" for line in lines), "}"])
