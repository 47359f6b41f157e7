"""Formulas as plain text: signs of multiplication and powers as people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sympy.printing.str import StrPrinter

_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def positive_first(terms: Sequence[Any]) -> list[Any]:
    """The terms of a sum, in their order but for a positive one in front: S + 1 − min(S, W), not − min(S, W) + S + 1."""
    first = next((term for term in terms if not term.could_extract_minus_sign()), terms[0])
    return [first, *(term for term in terms if term is not first)]


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

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> Any:
        return positive_first(super()._as_ordered_terms(expr, order=order))

    def _print_floor(self, expr: Any) -> str:
        return f"⌊{self._print(expr.args[0])}⌋"

    def _print_ceiling(self, expr: Any) -> str:
        return f"⌈{self._print(expr.args[0])}⌉"

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(self._print(arg) for arg in expr.args)})"

    def _print_Max(self, expr: Any) -> str:
        return f"max({', '.join(self._print(arg) for arg in expr.args)})"

    def _print_Piecewise(self, expr: Any) -> str:
        cases = (
            f"{self._print(branch)} " + ("otherwise" if condition == True else f"if {self._print(condition)}")  # noqa: E712
            for branch, condition in expr.args
        )
        return f"{{{'; '.join(cases)}}}"


def text(expr: Any, sizes: Mapping[str, int] | None = None) -> str:
    """One line, ``D·L·(3·F + 2·H·N)``; with *sizes*, these numbers stand for their symbols."""
    return str(_Text(sizes or {}).doprint(expr))
