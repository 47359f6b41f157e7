"""What ``eval`` turns into the same sympy expression, given ``from sympy import *``."""

from __future__ import annotations

from typing import Any

from sympy.printing.repr import ReprPrinter

from ..symbolic import Formula


class _Repr(ReprPrinter):  # type: ignore[misc]
    """As srepr; a product that sympy would multiply out, 2·(D + F), is told not to be."""

    def _print_Mul(self, expr: Any, order: Any = None) -> str:
        kept = "" if expr.func(*expr.args) == expr else ", evaluate=False"
        return f"Mul({', '.join(map(self._print, expr.args))}{kept})"

    def _print_ExprCondPair(self, expr: Any) -> str:
        return f"({self._print(expr.expr)}, {self._print(expr.cond)})"


def write(formula: Formula) -> str:
    """The formula alone, with what is assumed of its symbols."""
    return str(_Repr().doprint(formula.expr))
