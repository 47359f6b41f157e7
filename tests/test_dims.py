"""Sizes: what is refused, and what integers and symbols have in common."""

import pytest
import sympy

from blockcalc.dims import LARGEST_SIZE, check_divides, check_sizes, divide, half, product, smaller, symbol
from blockcalc.errors import InputError


@pytest.mark.parametrize("size", [0, -1, 2.5, 4096.0, "7", True, LARGEST_SIZE + 1, float("nan")])
def test_a_size_that_is_no_positive_whole_number_is_refused_by_name(size):
    with pytest.raises(InputError, match="MLP: f = "):
        check_sizes("MLP", f=size)


def test_the_largest_size_a_symbol_and_an_absent_size_pass():
    check_sizes("MLP", f=LARGEST_SIZE, n=symbol("N"), w=None)


def test_division_is_exact_or_refused():
    assert divide(91, 7, "d", "n") == 13
    with pytest.raises(InputError, match="d = 92 is not divisible by n = 7"):
        divide(92, 7, "d", "n")
    with pytest.raises(InputError, match="Attention: n = 8 is not divisible by k = 3"):
        check_divides("Attention", "n", 8, "k", 3)


@pytest.mark.parametrize(("a", "b"), [(3, 5), (5, 3), (4, 4)])
def test_minimum_and_half_commute_with_substituting(a, b):
    x, y = symbol("X"), symbol("Y")
    assert smaller(x, y).subs({x: a, y: b}) == smaller(a, b) == min(a, b)
    assert half(x * (x + 1)).subs(x, a) == half(a * (a + 1))
    assert product((x, y, 2)).subs({x: a, y: b}) == product((a, b, 2))


def test_symbols_are_positive_integers():
    assert symbol("D") == sympy.Symbol("D", integer=True, positive=True)
