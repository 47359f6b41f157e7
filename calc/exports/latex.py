"""LaTeX for math mode, of commands that LaTeX, KaTeX and MathJax all have."""

from __future__ import annotations

from typing import Any

from sympy.printing.latex import LatexPrinter

from ..symbolic import Formula
from ..text import positive_first


class _Latex(LatexPrinter):  # type: ignore[misc]
    """A symbol's scope is an upright subscript."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> Any:
        return positive_first(super()._as_ordered_terms(expr, order=order))

    def _print_Symbol(self, expr: Any, style: str = "plain") -> str:
        letter, _, scope = expr.name.partition("_")
        return f"{letter}_{{\\text{{{scope.replace('_', ' ')}}}}}" if scope else letter


def write(formula: Formula) -> str:
    """The formula alone, without dollar signs."""
    return str(_Latex().doprint(formula.expr))
