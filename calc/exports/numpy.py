"""A NumPy function: int64 arrays, bounded first in Python's integers, for NumPy's wrap without a word."""

from __future__ import annotations

from typing import Any

from sympy.printing.numpy import NumPyPrinter
from sympy.printing.precedence import PRECEDENCE

from ..symbolic import Formula
from ..whole import bounds, fraction
from .about import WINDOW, identifier, names, windows
from .python import Printer, docstring, returned

_BODY = """\
    sizes = dict({sizes})
    arrays = {{name: numpy.asarray(size) for name, size in sizes.items()}}
    for name, array in arrays.items():
        if array.dtype.kind not in "iu":
            raise TypeError(f"{{name}}: an array of {{array.dtype}}, but sizes are whole numbers")
        if array.size and array.min() < 1:
            raise ValueError(f"{{name}}: from {{array.min()}}, but sizes are from 1")

    def bound({names}):
        return {bound}

    largest = bound(*(int(array.max(initial=1)) for array in arrays.values()))
    if largest >= 2**63:
        raise OverflowError(f"may reach {{largest}}, past the 2**63 that int64 holds")
    {names} = (array.astype(numpy.int64) for array in arrays.values())"""


class _Printer(NumPyPrinter):  # type: ignore[misc]
    """Integers alone, elementwise."""

    def _print_Quotient(self, expr: Any) -> str:
        above, below = (self.parenthesize(arg, PRECEDENCE["Func"], strict=True) for arg in expr.args)
        return f"({above} // {below})"

    def _chained(self, name: str, expr: Any) -> str:
        *others, text = map(self._print, expr.args)
        for other in reversed(others):
            text = f"numpy.{name}({other}, {text})"
        return str(text)

    def _print_Min(self, expr: Any) -> str:
        return self._chained("minimum", expr)

    def _print_Max(self, expr: Any) -> str:
        return self._chained("maximum", expr)

    def _print_Relational(self, expr: Any) -> str:
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_Piecewise(self, expr: Any) -> str:
        *cases, (otherwise, _) = expr.args
        text = self._print(otherwise)
        for branch, condition in reversed(cases):
            text = f"numpy.where({self._print(condition)}, {self._print(branch)}, {text})"
        return str(text)


def write(formula: Formula) -> str:
    """A function of the symbols in alphabetical order, broadcast against each other."""
    above, below = fraction(formula.expr)
    printer, symbols = _Printer(), names(formula)
    head = ["import numpy", "", "", f"def {identifier(formula)}({', '.join(symbols)}):"]
    head += docstring(formula, "Takes integer arrays and gives int64, or raises OverflowError where a result might not fit.")
    if symbols:
        limits = [Printer().doprint(limit) for limit in bounds(above)]
        sizes = ", ".join(f"{name}={name}" for name in symbols)
        bound = limits[0] if len(limits) == 1 else f"max({', '.join(limits)})"
        head.append(_BODY.format(sizes=sizes, names=", ".join(symbols) + "," * (len(symbols) == 1), bound=bound))
    head += [f'    if numpy.any({name} < 2):\n        raise ValueError("{name}: {WINDOW}")' for name in windows(formula)]
    numerator = printer.doprint(above) if symbols else f"numpy.int64({above})"
    return "\n".join([*head, *returned(numerator, above, below, printer, "numpy.divmod", "numpy.any(rest)")])
