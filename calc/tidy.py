"""The shortest honest way of writing a sum: common factors in front, equal layers together, nested where that is shorter.

Every candidate is equal to the expression as a polynomial; which is taken depends on its printed length, and on nothing
that differs from run to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd, lcm, prod
from typing import Any, NamedTuple, TypeAlias

import sympy

from .dims import Dim
from .text import text

Monomial: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a generator's index and its exponent, in the order of the indices."""

Terms: TypeAlias = Mapping[Monomial, int]
"""A sum: the coefficient of each monomial."""


class _Product(NamedTuple):
    """coefficient · monomial · Π (sums), and how many characters it prints as."""

    coefficient: int
    monomial: Monomial
    sums: tuple[_Sum, ...]
    length: int


class _Sum(NamedTuple):
    """Addends, and how many characters they print as."""

    addends: tuple[_Product, ...]
    length: int


def tidy(expr: Dim) -> Any:
    """The expression as an author would write it: ``8·D²``, ``D·L·(2·H·(K + N) + 3·F)``.

    A form that collects each number of layers is taken unless another is more than a tenth shorter.
    """
    expr = sympy.expand(_plain_minima(sympy.sympify(expr)))
    if not expr.is_Add:
        return expr
    generators, terms, below = _read(expr)
    layers = {index for index, base in enumerate(generators) if str(base).partition("_")[0] == "L"}
    wider, merged = _with_equal_layers(generators, terms, layers)
    everywhere = layers | set(range(len(generators), len(wider)))
    writer = _Writer(wider)
    free = [writer.product(terms), *([writer.product(merged)] if len(wider) > len(generators) else [])]
    best = min(free, key=_length)
    if everywhere:
        layered = min((_Writer(wider, everywhere).product(some) for some in (merged, terms)), key=_length)
        best = layered if 10 * layered.length <= 11 * best.length else best
    return _built(best, wider, below)


def _plain_minima(expr: Any) -> Any:
    """min(a + c, b + c) as min(a, b) + c."""

    def lifted(*args: Any) -> Any:
        constants = {arg.as_coeff_Add()[0] for arg in args}
        shift = constants.pop() if len(constants) == 1 else 0
        return sympy.Min(*(arg - shift for arg in args)) + shift

    return expr.replace(sympy.Min, lifted) if expr.has(sympy.Min) else expr


def _read(expr: Any) -> tuple[list[Any], dict[Monomial, int], int]:
    """The generators of an expanded sum, by name, its terms over one denominator, and that."""
    split = [term.as_coeff_Mul() for term in expr.args]
    powers = [(coefficient, [_power(factor) for factor in sympy.Mul.make_args(rest)]) for coefficient, rest in split]
    generators = sorted({base for _, factors in powers for base, _ in factors if base != 1}, key=str)
    place = {base: index for index, base in enumerate(generators)}
    below = lcm(*(int(coefficient.q) for coefficient, _ in split))
    return generators, {
        tuple(sorted((place[base], exponent) for base, exponent in factors if base != 1)): int(coefficient * below)
        for coefficient, factors in powers
    }, below  # fmt: skip


def _power(factor: Any) -> tuple[Any, int]:
    base, exponent = factor.as_base_exp()
    return (base, int(exponent)) if exponent.is_Integer else (factor, 1)


def _with_equal_layers(
    generators: Sequence[Any], terms: Terms, layers: set[int]
) -> tuple[list[Any], dict[Monomial, int]]:
    """The same with the sum of some numbers of layers for a generator, where each has the same terms."""
    rest_of: dict[tuple[Monomial, int], list[int]] = {}
    merged: dict[Monomial, int] = {}
    for monomial, coefficient in terms.items():
        counts = [pair for pair in monomial if pair[0] in layers]
        if len(counts) == 1 and counts[0][1] == 1:
            rest = tuple(pair for pair in monomial if pair[0] not in layers)
            rest_of.setdefault((rest, coefficient), []).append(counts[0][0])
        else:
            merged[monomial] = coefficient
    wider, places = list(generators), {}
    for (rest, coefficient), found in rest_of.items():
        key = tuple(sorted(found))
        if len(key) > 1 and key not in places:
            places[key] = len(wider)
            wider.append(sympy.Add(*(generators[index] for index in key)))
        place = places[key] if len(key) > 1 else key[0]
        merged[tuple(sorted((*rest, (place, 1))))] = coefficient
    return wider, merged


class _Writer:
    """Looks for the shortest nesting of sums over the same generators; those that come *first* are collected first."""

    def __init__(self, generators: Sequence[Any], first: set[int] | None = None) -> None:
        self.widths = [len(str(base)) if base.is_Symbol else len(text(base)) + 2 * base.is_Add for base in generators]
        self.first = first or set()
        self.found: dict[frozenset[tuple[Monomial, int]], _Product] = {}

    def product(self, terms: Terms) -> _Product:
        """What all terms share, times the rest; one term is the product itself."""
        key = frozenset(terms.items())
        if key not in self.found:
            coefficient, shared, rest = _content(terms)
            sums = () if len(rest) == 1 else tuple(self.sum(factor) for factor in _factors(rest))
            self.found[key] = self._made(coefficient, shared, sums)
        return self.found[key]

    def sum(self, terms: Terms) -> _Sum:
        """Terms that share nothing: the shortest of collecting by one generator or another, or by none."""
        counts = Counter(index for monomial in terms for index, _ in monomial)
        ranked = sorted((index for index in counts if counts[index] > 1), key=lambda index: (-counts[index], index))
        first = [index for index in ranked if index in self.first]
        if first:
            return self._collected(terms, first[0])
        tried = ranked[: 6 if len(terms) <= 6 else 3 if len(terms) <= 14 else 2]
        flat = tuple(self._made(coefficient, monomial, ()) for monomial, coefficient in terms.items())
        return min([*(self._collected(terms, index) for index in tried), _sum(flat)], key=_length)

    def _collected(self, terms: Terms, index: int) -> _Sum:
        inside = {m: c for m, c in terms.items() if any(i == index for i, _ in m)}
        outside = {m: c for m, c in terms.items() if m not in inside}
        product = self.product(inside)
        if not outside:
            return _sum((product,))
        rest = self.product(outside)
        addends: tuple[_Product, ...] = (rest,)
        if len(rest.sums) == 1:
            loose = rest.sums[0] if rest.coefficient == 1 and not rest.monomial else self.sum(outside)
            addends = loose.addends if loose.length < rest.length else addends
        return _sum(self._joined(product, addends))

    def _joined(self, product: _Product, addends: tuple[_Product, ...]) -> tuple[_Product, ...]:
        """The addends behind the product; one that is a multiple of the same sums becomes one with it: a·X + b·X, (a + b)·X."""
        for place, other in enumerate(addends):
            if product.sums and other.sums == product.sums and other.monomial != product.monomial:
                front = self.product({product.monomial: product.coefficient, other.monomial: other.coefficient})
                both = self._made(front.coefficient, front.monomial, (*front.sums, *product.sums))
                return (both, *addends[:place], *addends[place + 1 :])
        return (product, *addends)

    def _made(self, coefficient: int, monomial: Monomial, sums: tuple[_Sum, ...]) -> _Product:
        pieces = [self.widths[index] + (abs(power) != 1) for index, power in monomial]
        pieces += [part.length + 2 for part in sums]
        if abs(coefficient) != 1 or not pieces:
            pieces.append(len(str(abs(coefficient))))
        return _Product(coefficient, monomial, sums, sum(pieces) + len(pieces) - 1)


def _sum(addends: tuple[_Product, ...]) -> _Sum:
    return _Sum(addends, sum(addend.length for addend in addends) + 3 * (len(addends) - 1))


def _length(form: _Product | _Sum) -> int:
    return form.length


def _content(terms: Terms) -> tuple[int, Monomial, dict[Monomial, int]]:
    """The coefficient and the monomial that all terms share, and the terms without them."""
    first, *others = terms
    lowest = dict(first)
    for monomial in others:
        powers = dict(monomial)
        for index in {*lowest, *powers}:
            lowest[index] = min(lowest.get(index, 0), powers.get(index, 0))
    shared = tuple(sorted((index, power) for index, power in lowest.items() if power))
    coefficient = gcd(*terms.values()) * (-1 if max(terms.values()) < 0 else 1)
    return coefficient, shared, {_divided(m, shared): c // coefficient for m, c in terms.items()}


def _divided(monomial: Monomial, by: Monomial) -> Monomial:
    if not by:
        return monomial
    powers = dict(monomial)
    for index, power in by:
        powers[index] = powers.get(index, 0) - power
    return tuple(sorted((index, power) for index, power in powers.items() if power))


# -- sums that are products of sums ------------------------------------------------------------------------------------


def _factors(terms: Terms) -> list[Terms]:
    """A sum that is a product of sums as these. A factor that lacks some generator divides each coefficient of its powers."""
    if len(terms) < 4:
        return [terms]
    for index in sorted({i for monomial in terms for i, _ in monomial}):
        by_power: dict[int, dict[Monomial, int]] = {}
        for monomial, coefficient in terms.items():
            power = dict(monomial).get(index, 0)
            by_power.setdefault(power, {})[_divided(monomial, ((index, power),))] = coefficient
        parts = list(by_power.values())
        halves = _common_sum(terms, parts) if _may_share_a_sum(parts) else None
        if halves is not None:
            return [factor for half in halves for factor in _factors(half)]
    return [terms]


def _may_share_a_sum(parts: Sequence[Terms]) -> bool:
    """A quick no: at large sizes that have little in common, a common sum is a large common divisor of the parts' values."""
    if len(parts) < 2 or min(map(len, parts)) < 2:
        return False
    rests = (_content(part)[2] for part in parts)
    values = (sum(c * prod((10**9 + index) ** power for index, power in m) for m, c in rest.items()) for rest in rests)
    return gcd(*values) > 10**6


def _common_sum(terms: Terms, parts: Sequence[Terms]) -> tuple[Terms, Terms] | None:
    """The greatest common divisor of the parts, where it is a sum, and what is left of the terms."""
    from sympy.polys.rings import ring

    used = sorted({index for monomial in terms for index, _ in monomial})
    domain = ring([f"x{index}" for index in used], sympy.ZZ)[0]

    def dense(part: Terms) -> Any:
        return domain.from_dict({tuple(dict(m).get(i, 0) for i in used): sympy.ZZ(c) for m, c in part.items()})

    def sparse(poly: Any) -> dict[Monomial, int]:
        return {tuple((i, power) for i, power in zip(used, m, strict=True) if power): int(c) for m, c in poly.items()}

    common = dense(min(parts, key=len))
    for part in parts:
        common = common.gcd(dense(part))
        if len(common) == 1:
            return None
    return sparse(common), sparse(dense(terms).exquo(common))


# -- back to sympy -----------------------------------------------------------------------------------------------------


def _built(form: _Product, generators: Sequence[Any], below: int = 1) -> Any:
    """The sympy expression, its coefficient (over *below*) kept in front of a sum."""
    coefficient = sympy.Rational(form.coefficient, below)
    factors = [generators[index] ** power for index, power in form.monomial]
    factors += [sympy.Add(*(_built(addend, generators) for addend in part.addends)) for part in form.sums]
    if len(factors) == 1 and factors[0].is_Add and coefficient != 1:
        return sympy.Mul(coefficient, factors[0], evaluate=False)
    return sympy.Mul(coefficient, *factors)
