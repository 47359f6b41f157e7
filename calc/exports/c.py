"""A C function (GNU C, for __int128): every sum and product is checked, and a result that does not fit is reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sympy.printing.c import C99CodePrinter

from ..symbolic import Formula
from ..whole import fraction
from .about import WINDOW, about, identifier, names, windows

_HELPERS = """\
#ifndef BLOCKCALC_CHECKED
#define BLOCKCALC_CHECKED
#include <stdbool.h>
#include <stdint.h>
/* Arithmetic on 128 bits that clears *fits where a number leaves them. */
static inline __int128 checked_add(__int128 a, __int128 b, bool *fits) {
    __int128 sum;
    if (__builtin_add_overflow(a, b, &sum)) *fits = false;
    return sum;
}
static inline __int128 checked_mul(__int128 a, __int128 b, bool *fits) {
    __int128 product;
    if (__builtin_mul_overflow(a, b, &product)) *fits = false;
    return product;
}
/* The floor of a / b. */
static inline __int128 checked_floor(__int128 a, __int128 b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline __int128 smaller(__int128 a, __int128 b) { return a < b ? a : b; }
static inline __int128 larger(__int128 a, __int128 b) { return a > b ? a : b; }
#endif"""


class _Printer(C99CodePrinter):  # type: ignore[misc]
    """Nested calls of the checked helpers."""

    def _nested(self, name: str, args: Iterable[str], last: str = "") -> str:
        text, *others = args
        for other in others:
            text = f"{name}({text}, {other}{last})"
        return text

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        return self._nested("checked_add", map(self._print, self._as_ordered_terms(expr, order=order)), ", &fits")

    def _print_Mul(self, expr: Any) -> str:
        coefficient, *rest = expr.as_ordered_factors() if len(expr.args) > 2 else expr.args
        return self._nested("checked_mul", map(self._print, (coefficient, *rest)), ", &fits")

    def _print_Pow(self, expr: Any) -> str:
        return self._nested("checked_mul", [self._print(expr.base)] * int(expr.exp), ", &fits")

    def _print_Integer(self, expr: Any) -> str:
        return str(int(expr))

    def _print_Quotient(self, expr: Any) -> str:
        return f"checked_floor({', '.join(map(self._print, expr.args))})"

    def _print_Min(self, expr: Any) -> str:
        return self._nested("smaller", map(self._print, expr.args))

    def _print_Max(self, expr: Any) -> str:
        return self._nested("larger", map(self._print, expr.args))

    def _print_Relational(self, expr: Any) -> str:
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_Piecewise(self, expr: Any) -> str:
        *cases, (otherwise, _) = expr.args
        text = self._print(otherwise)
        for branch, condition in reversed(cases):
            text = f"({self._print(condition)} ? {self._print(branch)} : {text})"
        return str(text)


def write(formula: Formula) -> str:
    """``bool NAME(int64_t B, int64_t D, __int128 *result)``: false, and no result, where a number leaves 128 bits, a size
    does not divide, or a window is 1 that has another closed form. A branch that is not taken must fit too."""
    above, below = fraction(formula.expr)
    printer = _Printer()
    arguments = ", ".join([*(f"int64_t {name}" for name in names(formula)), "__int128 *result"])
    lines = [f"if ({name} < 2) return false; /* {WINDOW} */" for name in windows(formula)]
    lines += ["bool fits = true;", f"const __int128 above = {printer.doprint(above)};"]
    if below != 1:
        lines += [
            f"const __int128 below = {printer.doprint(below)};",
            "if (!fits || above % below != 0) return false;",
            "*result = above / below;",
            "return true;",
        ]
    else:
        lines += ["if (fits) *result = above;", "return fits;"]
    comment = "\n".join(["/* " + "\n * ".join(about(formula)), " * Gives false where the result does not fit 128 bits. */"])
    head = f"bool {identifier(formula)}({arguments}) {{"
    return "\n".join([_HELPERS, "", comment, head, *(f"    {line}" for line in lines), "}"])
