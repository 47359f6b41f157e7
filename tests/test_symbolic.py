"""Counting commutes with substituting: a formula at some sizes equals the budget of those sizes."""

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from blockcalc import compile_formulas, formula, load, score_freedom
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.position import Rotary
from blockcalc.budget import widths
from blockcalc.catalogue import BLOCKS
from blockcalc.convention import flops
from blockcalc.dims import symbol
from blockcalc.errors import InputError, UndefinedError
from blockcalc.model import trace
from blockcalc.symbolic import QUANTITIES, capital, symbolize
from blockcalc.tensor import Kernels, Step

D, F = symbol("D"), symbol("F")


def numbers(quantity, subject, b, t, s, width=None, dtype="bf16", kernels=None):
    """The quantity as the ledgers give it, without a formula."""
    asked = QUANTITIES[quantity]
    step = asked.step(b, t, s)
    budget = subject.budget(step, kernels) if width is None else trace(subject, step, width, kernels)
    return asked.read(budget, widths(dtype), "torch")


def size():
    return st.integers(1, 50)


MULTIPLES = {"n": "k", "d": "n", "e": "a"}
"""A letter that another must divide, or be no larger than."""


@st.composite
def sizes_of(draw, entry):
    found = {letter: draw(size()) for letter in entry.sizes}
    if "k" in found:
        found["n"] = found["k"] * draw(st.integers(1, 5))
    if "n" in found and "h" not in found and "p" not in found:
        found["d"] = found["n"] * draw(st.integers(1, 9))
    if "e" in found:
        found["e"] = found["a"] + draw(st.integers(0, 9))
    if "i" in found:
        found["i"] = min(found["i"], found["d"])
    for even in ("r", "h"):
        if even in found:
            found[even] *= 2
    return found


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("block", BLOCKS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_block_and_every_quantity(block, quantity, data):
    b, t = data.draw(size()), data.draw(size())
    s = t + data.draw(size())  # the new tokens are among the visible ones
    entry = BLOCKS[block]
    sizes = data.draw(sizes_of(entry))
    component, width = entry.build(sizes)
    try:
        right = numbers(quantity, component, b, t, s, width)
    except UndefinedError:
        with pytest.raises(UndefinedError):
            formula(block, quantity)
        return
    capitals = {capital(letter): value for letter, value in sizes.items()}
    assert formula(block, quantity).subs(B=b, T=t, S=s, **capitals) == right


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", ["gpt2", "gemma-2-2b", "mixtral-8x7b", "deepseek-v3", "bert-base", "t5-v1.1-base"])
def test_whole_models(name, quantity):
    model = load(name)
    for b, t, s in [(1, 128, 256), (3, 5000, 9001)]:
        try:
            right = numbers(quantity, model, b, t, s)
        except UndefinedError:
            with pytest.raises(UndefinedError):
                formula(name, quantity)
            return
        assert formula(name, quantity).subs(B=b, T=t, S=s) == right


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_saved_bytes_of_a_flash_kernel(dtype):
    kernels = Kernels(attention="flash")
    found = formula("mistral-7b", "activations", dtype=dtype, kernels=kernels)
    assert found.subs(B=2, T=97) == numbers("activations", load("mistral-7b"), 2, 97, 97, dtype=dtype, kernels=kernels)


# -- the textbook, read off the declarations ---------------------------------------------------------------------------


def test_attention_is_4d2_a_feed_forward_8d2_and_a_block_12d2():
    attention, mlp = formula("mha").expr, formula("mlp").expr.subs(F, 4 * D)
    assert attention == 4 * D**2
    assert mlp == 8 * D**2
    assert sympy.expand(attention + mlp) == 12 * D**2


def test_a_gated_feed_forward_is_equal_at_8d_over_3():
    plain = formula("mlp").expr.subs(F, 4 * D)
    assert sympy.solve(sympy.Eq(formula("gated-mlp").expr, plain), F) == [8 * D / 3]


def test_tying_q_and_k_loses_half_of_d_times_d_minus_1():
    """The dimension of the reachable scores: parameters minus the dimension of the group that leaves them unchanged."""
    free = score_freedom(Attention(n=1, k=1, h=D), D)
    tied = score_freedom(Attention(n=1, k=1, h=D, qk_tied=True), D)
    assert sympy.expand(free) == D**2
    assert sympy.factor(tied) == D * (D + 1) / 2
    assert sympy.factor(free - tied) == D * (D - 1) / 2


def test_score_freedom_of_a_narrow_head():
    h = symbol("H")
    free = score_freedom(Attention(n=1, k=1, h=h), D)
    tied = score_freedom(Attention(n=1, k=1, h=h, qk_tied=True), D)
    assert sympy.expand(free - (2 * D * h - h**2)) == 0
    assert sympy.expand(free - tied - (D * h - h * (h + 1) / 2)) == 0


def test_score_freedom_is_not_defined_behind_a_rotation():
    with pytest.raises(UndefinedError, match="score freedom"):
        score_freedom(Attention(n=1, k=1, h=4, position=Rotary(r=4)), 8)


def test_a_family_by_name():
    assert formula("llama").text() == "D·(L·(3·F + 2·H·(K + N) + 2) + 2·V + 1)"
    assert formula("gemma2", "kv").text() == "4·B·H·K·(L_full·S + L_window·min(S, W))"


def test_symbols_of_one_letter_with_several_values_carry_their_scope():
    _, values, letters = symbolize(load("deepseek-v3"))
    by_name = {str(s): value for s, value in values.items()}
    assert (by_name["F_dense"], by_name["F_expert"]) == (18432, 2048)
    assert (by_name["L_dense"], by_name["L_moe"]) == (3, 58)
    assert letters["F_expert"] == "f"


def test_a_formula_says_what_it_lacks():
    with pytest.raises(InputError, match="needs a value for S"):
        formula("llama", "kv").subs(B=1)
    with pytest.raises(InputError, match="quantity 'watts'"):
        formula("llama", "watts")


def test_a_size_that_does_not_divide_gives_no_number():
    with pytest.raises(InputError, match="does not divide"):
        formula("mlp")._replace(expr=D / 2).subs(D=3)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 300))
def test_compiled_formulas_equal_the_budget(b, t, s, f):
    model = load("gpt2", {"n_inner": f})
    compiled = compile_formulas([formula(model, q) for q in ("params", "flops", "kv")])
    _, values, _ = symbolize(model)
    sizes = {str(symbol): value for symbol, value in values.items()} | {"B": b, "T": t, "S": s}
    right = (
        model.budget(Step.forward(b, t)).parameters().total,
        flops(model.budget(Step.forward(b, t))).forward,
        sum(model.budget(Step.prefill(b, s)).cache(widths("bf16")).values()),
    )
    assert compiled(**sizes) == right
