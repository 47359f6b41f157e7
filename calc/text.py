"""Formulas as plain text: signs of multiplication and powers as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy.printing.str import StrPrinter

_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class _Text(StrPrinter):  # type: ignore[misc]
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.sizes = sizes

    def _print_Symbol(self, expr: Any) -> str:
        return str(self.sizes.get(expr.name, expr.name))

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        if expr.exp.is_Integer and expr.exp > 0:
            return f"{self.parenthesize(expr.base, 100)}{str(expr.exp).translate(_POWERS)}"
        return str(super()._print_Pow(expr, rational=rational)).replace("**", "^")

    def _print_Mul(self, expr: Any) -> str:
        return str(super()._print_Mul(expr)).replace("*", "·")

    def _print_floor(self, expr: Any) -> str:
        return f"⌊{self._print(expr.args[0])}⌋"

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(self._print(arg) for arg in expr.args)})"


def text(expr: Any, sizes: Mapping[str, int] | None = None) -> str:
    """One line, ``D·L·(3·F + 2·H·N)``; with *sizes*, these numbers stand for their symbols."""
    return str(_Text(sizes or {}).doprint(expr))
