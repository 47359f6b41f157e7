"""Closed forms as functions: exact on integers, exact or refused on arrays."""

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from blockcalc import Compiled, InputError, formula
from blockcalc.dims import symbol

D, S, W = symbol("D"), symbol("S"), symbol("W")


@given(st.integers(1, 10**40), st.integers(1, 10**40))
def test_integers_of_any_size_are_exact(d, s):
    triangle, product = Compiled([S * (S + 1) / 2, D**3 * S])(D=d, S=s)
    assert triangle == s * (s + 1) // 2
    assert product == d**3 * s


def test_arrays_equal_integers_across_blocks():
    compiled = Compiled([4 * D**2 + sympy.Min(S, W) * D, S * (S + 1) / 2])
    rng = np.random.default_rng(0)
    count = 70_001
    sizes = {"D": rng.integers(1, 9999, count), "S": rng.integers(1, 9999, count), "W": 512}
    found = compiled.over(**sizes)
    for index in (0, 1, 32767, 32768, 65536, count - 1):
        one = {name: int(array[index]) if hasattr(array, "shape") else array for name, array in sizes.items()}
        assert tuple(int(column[index]) for column in found) == compiled(**one)


def test_arrays_are_broadcast_against_each_other():
    (grid,) = Compiled([D * S]).over(D=np.arange(1, 4)[:, None], S=np.arange(1, 6))
    assert grid.tolist() == [[d * s for s in range(1, 6)] for d in range(1, 4)]


def test_a_result_that_would_wrap_is_refused_and_one_below_is_not():
    compiled = Compiled([D**2])
    fits, wraps = 3_037_000_499, 3_037_000_500  # the largest square below 2**63, and the next
    assert int(compiled.over(D=np.array([fits]))[0][0]) == fits**2
    with pytest.raises(InputError, match=r"past the 2\*\*63"):
        compiled.over(D=np.array([wraps]))
    assert compiled(D=wraps) == (wraps**2,)


def test_a_wrap_inside_a_result_that_would_fit_is_refused():
    """(D² − S²) is small where both are large; the squares are not."""
    with pytest.raises(InputError, match="past the"):
        Compiled([D**2 - S**2]).over(D=np.array([4 * 10**9]), S=np.array([4 * 10**9]))


@pytest.mark.parametrize("array", [np.array([1.5]), np.array([True]), np.array(["7"])])
def test_arrays_that_are_not_whole_numbers_are_refused(array):
    with pytest.raises(InputError, match="D: an array of"):
        Compiled([D]).over(D=array)


@pytest.mark.parametrize("array", [np.array([3, 0]), np.array([-3]), np.array([2**63], dtype=np.uint64)])
def test_sizes_that_are_no_sizes_are_refused(array):
    with pytest.raises(InputError, match="D: from"):
        Compiled([D]).over(D=array)


def test_branches_are_taken_entry_by_entry():
    compiled = Compiled([sympy.Piecewise((S, sympy.Eq(W, 1)), (sympy.Min(S, W - 1), True))])
    assert compiled.over(S=9, W=np.array([1, 2, 7, 30]))[0].tolist() == [9, 1, 6, 9]
    assert [compiled(S=9, W=w) for w in (1, 2, 7, 30)] == [(9,), (1,), (6,), (9,)]


def test_empty_arrays_give_empty_results():
    assert Compiled([D]).over(D=np.zeros(0, dtype=int))[0].shape == (0,)


def test_a_missing_size_is_named():
    with pytest.raises(InputError, match="S"):
        Compiled([D * S])(D=1)
    with pytest.raises(InputError, match="S"):
        Compiled([D * S]).over(D=np.array([1]))


def test_a_size_in_a_denominator_is_refused():
    with pytest.raises(InputError, match="denominator"):
        Compiled([D / S])


def test_the_formula_of_a_sweep_is_the_budget_of_each_of_its_models():
    compiled = Compiled([formula("llama", "flops").expr])
    layers = np.arange(1, 50)
    (found,) = compiled.over(B=2, T=64, D=128, N=4, K=2, H=32, F=344, V=1000, L=layers)
    for count in layers:
        assert found[count - 1] == formula("llama", "flops").subs(B=2, T=64, D=128, N=4, K=2, H=32, F=344, V=1000, L=int(count))
