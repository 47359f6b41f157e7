"""A cell's formula for Excel and LibreOffice, over cells that are named as the symbols are.

A spreadsheet computes in doubles, which are exact below 2⁵³: the formula bounds its largest number first, and gives #N/A
where that is not below. A name that Excel reads as a cell or a row or column (R, C, L1, RC2) ends in an underscore: R_.
"""

from __future__ import annotations

import re
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from ..symbolic import Formula
from ..whole import bounds, divides, fraction
from .about import conditions, symbols, title, windows

_REFERENCE = re.compile(r"[A-Z]{1,3}[0-9]+|R[0-9]*C[0-9]*|R[0-9]*|C[0-9]*|TRUE|FALSE", re.IGNORECASE)


class _Printer(StrPrinter):  # type: ignore[misc]
    """Operators and functions of a cell. There −D^2 is D², so that a minus sign never stands before a power."""

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        return "+".join(map(self._print, self._as_ordered_terms(expr, order=order))).replace("+-", "-")

    def _print_Mul(self, expr: Any) -> str:
        factors = expr.as_ordered_factors() if len(expr.args) > 2 else expr.args
        return "*".join(self.parenthesize(factor, PRECEDENCE["Mul"]) for factor in factors)

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        return f"{self.parenthesize(expr.base, PRECEDENCE['Func'], strict=True)}^{int(expr.exp)}"

    def _call(self, name: str, expr: Any) -> str:
        return f"{name}({','.join(map(self._print, expr.args))})"

    def _print_Min(self, expr: Any) -> str:
        return self._call("MIN", expr)

    def _print_Max(self, expr: Any) -> str:
        return self._call("MAX", expr)

    def _print_Quotient(self, expr: Any) -> str:
        above, below = (self.parenthesize(arg, PRECEDENCE["Func"], strict=True) for arg in expr.args)
        return f"INT({above}/{below})"

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)}{ {'==': '=', '!=': '<>'}.get(expr.rel_op, expr.rel_op) }{self._print(expr.rhs)}"

    def _print_Piecewise(self, expr: Any) -> str:
        *cases, (otherwise, _) = expr.args
        text = self._print(otherwise)
        for branch, condition in reversed(cases):
            text = f"IF({self._print(condition)},{self._print(branch)},{text})"
        return str(text)


def cell_names(formula: Formula) -> dict[str, str]:
    """The name of each symbol's cell: its own, with underscores behind it where that would be no name."""
    taken = {str(symbol).upper() for symbol in formula.expr.free_symbols}
    found = {}
    for name in sorted(map(str, formula.expr.free_symbols)):
        cell = name
        while _REFERENCE.fullmatch(cell) or (cell != name and cell.upper() in taken):
            cell += "_"
        taken.add(cell.upper())
        found[name] = cell
    return found


def write(formula: Formula) -> str:
    """The formula, ``=`` first; N("…") is 0, and holds what it says of itself."""
    cells = cell_names(formula)
    renamed = {s: sympy.Symbol(cells[str(s)], integer=True, positive=True) for s in formula.expr.free_symbols}
    above, below = fraction(formula.expr)
    printer = _Printer()
    value, limits = (printer.doprint(above.xreplace(renamed)), [limit.xreplace(renamed) for limit in bounds(above)])
    largest = printer.doprint(limits[0]) if len(limits) == 1 else f"MAX({','.join(map(printer.doprint, limits))})"
    checks = [f"{largest}<2^53"] if formula.expr.free_symbols else []
    checks += [f"{cells[name]}>1" for name in windows(formula)]
    if below != 1:
        under = printer.parenthesize(below.xreplace(renamed), PRECEDENCE["Func"], strict=True)
        checks += [] if divides(above, below) else [f"({value})=INT(({value})/{under})*{under}"]
        value = f"({value})/{under}"
    for check in reversed(checks):
        value = f"IF({check},{value},NA())"
    return f"={value}" + "".join(f'+N("{_short(note)}")' for note in _notes(formula, cells))


def _notes(formula: Formula, cells: dict[str, str]) -> list[str]:
    renamed = [f"{cell} is {name}" for name, cell in cells.items() if cell != name]
    exact = ["exact below 2^53, #N/A from there"] if cells else []
    return [title(formula), *exact, *renamed, *symbols(formula), *conditions(formula)]


def _short(note: str) -> str:
    """A text in a formula has at most 255 characters."""
    return note if len(note) <= 255 else note[:254] + "…"
