"""Closed forms as functions: of Python integers, exact at any size, and of NumPy arrays, exact or refused.

NumPy's integers wrap silently, so an array is computed in blocks whose largest result is bounded first in Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from sympy.printing.pycode import PythonCodePrinter

from .errors import InputError
from .whole import bounds, divides, fraction

_BLOCK = 32768
_LIMIT = 2**63


class _Printer(PythonCodePrinter):  # type: ignore[misc]
    """Small powers as products; minima, maxima and branches by the names that the code is run with."""

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        if expr.exp.is_Integer and 0 < expr.exp <= 4:
            return "(" + "*".join([self.parenthesize(expr.base, 100)] * int(expr.exp)) + ")"
        return str(super()._print_Pow(expr, rational=rational))

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))

    def _print_Quotient(self, expr: Any) -> str:
        above, below = map(self._print, expr.args)
        return f"(({above}) // ({below}))"

    def _print_floor(self, expr: Any) -> str:
        above, below = sympy.fraction(sympy.together(expr.args[0]))
        return f"(({self._print(above)}) // ({self._print(below)}))"

    def _chained(self, name: str, expr: Any) -> str:
        *others, text = map(self._print, expr.args)
        for other in reversed(others):
            text = f"{name}({other}, {text})"
        return str(text)

    def _print_Min(self, expr: Any) -> str:
        return self._chained("minimum", expr)

    def _print_Max(self, expr: Any) -> str:
        return self._chained("maximum", expr)

    def _print_Piecewise(self, expr: Any) -> str:
        *branches, (last, _) = expr.args
        text = self._print(last)
        for value, condition in reversed(branches):
            text = f"where({self._print(condition)}, {self._print(value)}, {text})"
        return str(text)


class Compiled:
    """Several closed forms as one function of the same symbols.

    >>> d = sympy.Symbol("D", positive=True, integer=True)
    >>> Compiled([4 * d**2, d * (d + 1) / 2])(D=10**12)
    (4000000000000000000000000, 500000000000500000000000)
    """

    def __init__(self, expressions: Sequence[Any]) -> None:
        self.expressions = tuple(map(sympy.sympify, expressions))
        free: set[Any] = set().union(*(expr.free_symbols for expr in self.expressions))
        self.symbols = tuple(sorted(map(str, free)))
        numerators, denominators = zip(*map(fraction, self.expressions), strict=True)
        if any(not denominator.is_Integer for denominator in denominators):
            raise InputError("a formula with a size in a denominator cannot be compiled: give that size a letter of its own")
        for expr, numerator, denominator in zip(self.expressions, numerators, denominators, strict=True):
            if not divides(numerator, denominator):
                raise InputError(f"{expr} cannot be compiled: {denominator} is not proven to divide it at all sizes")
        self.denominators = tuple(map(int, denominators))
        self._code = function(self.symbols, numerators, self.denominators)
        limits = [sympy.Max(*bounds(numerator)) for numerator in numerators]
        self._bounds = function(self.symbols, limits, (1,) * len(limits))(min, max, _chosen)
        self._exact = self._code(min, max, _chosen)

    def __call__(self, **sizes: int) -> tuple[int, ...]:
        """The values at these sizes, as exact integers. Raises InputError when a size is missing."""
        for name, size in sizes.items():
            if type(size) is not int or size < 1:
                raise InputError(f"{name} = {size!r}, but a size is a whole number from 1")
        try:
            return self._exact(*[sizes[name] for name in self.symbols])  # type: ignore[no-any-return]
        except KeyError as missing:
            raise InputError(f"the formula needs a value for {missing.args[0]}") from None

    def over(self, **sizes: Any) -> tuple[Any, ...]:
        """The values over NumPy arrays of sizes (positive integers, broadcast against each other), as int64 arrays.

        Raises InputError where a result could reach 2**63, naming it, rather than let it wrap.
        """
        import numpy

        missing = [name for name in self.symbols if name not in sizes]
        if missing:
            raise InputError(f"the formula needs a value for {', '.join(missing)}")
        given = [numpy.asarray(sizes[name]) for name in self.symbols]
        for name, array in zip(self.symbols, given, strict=True):
            if array.dtype.kind not in "iu":
                raise InputError(f"{name}: an array of {array.dtype}, but sizes are whole numbers")
            if array.size and not 1 <= int(array.min()) <= int(array.max()) < _LIMIT:
                raise InputError(f"{name}: from {array.min()} to {array.max()}, but sizes are from 1 to 2**63 - 1")
        shape = numpy.broadcast_shapes(*(array.shape for array in given))
        columns: list[Any] = [numpy.broadcast_to(array, shape).reshape(-1) if array.ndim else int(array) for array in given]
        count = int(numpy.prod(shape))
        run = self._code(numpy.minimum, numpy.maximum, numpy.where)
        out = [numpy.empty(count, dtype=numpy.int64) for _ in self.expressions]
        for start in range(0, count, _BLOCK):
            block = [c if type(c) is int else c[start : start + _BLOCK].astype(numpy.int64, copy=False) for c in columns]
            self._check(block)
            for result, values in zip(out, run(*block), strict=True):
                result[start : start + _BLOCK] = values
        return tuple(result.reshape(shape) for result in out)

    def _check(self, block: Sequence[Any]) -> None:
        largest = [size if type(size) is int else int(size.max()) for size in block]
        for expr, bound in zip(self.expressions, self._bounds(*largest), strict=True):
            if bound >= _LIMIT:
                raise InputError(f"{expr} may reach {bound} in this array, past the 2**63 that int64 holds; use integers")


def _chosen(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


def function(
    symbols: Sequence[str], numerators: Sequence[Any], denominators: Sequence[int]
) -> Callable[[Any, Any, Any], Callable[..., Any]]:
    """A function of ``minimum``, ``maximum`` and ``where`` that returns the compiled function, common parts computed once."""
    shared, reduced = sympy.cse(list(numerators), symbols=sympy.numbered_symbols("x_"))
    printer = _Printer()
    lines = [f"        {name} = {printer.doprint(expr)}" for name, expr in shared]
    results = [
        f"({printer.doprint(expr)})" + (f" // {denominator}" if denominator != 1 else "")
        for expr, denominator in zip(reduced, denominators, strict=True)
    ]
    source = "\n".join([
        "def make(minimum, maximum, where):", f"    def compiled({', '.join(symbols)}):", *lines,
        f"        return ({', '.join(results)},)", "    return compiled",
    ])  # fmt: skip
    scope: dict[str, Any] = {}
    exec(compile(source, "<closed form>", "exec"), scope)  # the text is sympy's printing of symbols made here
    make: Callable[[Any, Any, Any], Callable[..., Any]] = scope["make"]
    return make


def compile_formulas(formulas: Mapping[str, Any] | Sequence[Any]) -> Compiled:
    """Several formulas (of :func:`blockcalc.formula`) as one function."""
    found = formulas.values() if isinstance(formulas, Mapping) else formulas
    return Compiled([f.expr for f in found])
