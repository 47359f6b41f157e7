"""Formulas are as short as an author's: held against the textbook's forms, and equal to what they were before."""

from __future__ import annotations

import random

import pytest
import sympy

from blockcalc import UndefinedError, formula
from blockcalc.catalogue import BLOCKS
from blockcalc.dims import symbol
from blockcalc.symbolic import QUANTITIES
from blockcalc.text import text
from blockcalc.tidy import tidy

LETTERS = {letter: symbol(letter) for letter in "ABCDEFHIJKLMNPQRSTUVWXYZ"} | {
    name: symbol(name) for name in ("L_full", "L_window", "L_dense", "L_moe", "L_encoder", "F_dense", "F_expert", "V_types")
}
"""The symbols that a form below is written with."""


def written(form):
    """A textbook's form as sympy keeps it when told not to rearrange it."""
    with sympy.evaluate(False):
        return eval(form, {"__builtins__": {}, "min": sympy.Min}, LETTERS)


def size(expr):
    """Leaves and operators. A product of n factors has n − 1 signs, a square one, a minus none of its own."""
    if expr.is_Atom:
        return 1
    if expr.is_Mul and expr.args[0] == -1:
        return size(sympy.Mul(*expr.args[1:], evaluate=False)) if len(expr.args) > 2 else size(expr.args[1])
    return sum(map(size, expr.args)) + max(len(expr.args) - 1, 1)


# Block or family, quantity, and the form that is written for it. FLOPs are two a multiply-add, bytes those of bf16.
TEXTBOOK = [
    ("layernorm", "params", "2*D"),  # Ba et al. 2016: gain and bias
    ("rmsnorm", "params", "D"),
    ("learned-positions", "params", "M*D"),
    ("mha", "params", "4*D**2"),  # Vaswani et al. 2017, section 3.2.2
    ("mha-biased", "params", "4*D**2 + 4*D"),
    ("tied-qk", "params", "3*D**2"),
    ("identity", "params", "D**2"),
    ("mlp", "params", "2*D*F"),  # Vaswani et al. 2017, section 3.3
    ("gated-mlp", "params", "3*D*F"),  # Shazeer 2020
    ("pre-norm", "params", "4*D**2 + 2*D*F + 4*D"),
    ("gqa", "params", "2*D*H*(N + K)"),  # Ainslie et al. 2023
    ("mqa", "params", "2*D*H*(N + 1)"),  # Shazeer 2019
    ("moe", "params", "E*3*D*F + D*E"),  # Jiang et al. 2024: e experts and a router
    ("moe", "active", "A*3*D*F + D*E"),
    ("moe-shared", "params", "3*E*D*F + 3*D*F + D*E"),
    ("llama-block", "params", "2*D*H*(N + K) + 3*D*F + 2*D"),
    ("mla", "params", "D*Q + Q + N*Q*(P + R) + D*(C + R) + C + N*C*(P + U) + N*U*D"),  # DeepSeek-V2, section 2.1
    ("mha", "flops", "8*B*T*D**2 + 4*B*T**2*D"),
    ("mha", "backward_flops", "16*B*T*D**2 + 8*B*T**2*D"),
    ("mha", "decode_flops", "8*B*D**2 + 4*B*S*D"),
    ("mha", "prefill_flops", "8*B*T*D**2 + 4*B*T*S*D"),
    ("mha", "macs", "4*B*T*D**2 + 2*B*T**2*D"),
    ("mlp", "flops", "4*B*T*D*F"),
    ("gated-mlp", "flops", "6*B*T*D*F"),
    ("gated-mlp", "train_flops", "18*B*T*D*F"),
    ("moe", "flops", "2*B*T*(3*A*D*F + D*E)"),
    ("gqa", "flops", "4*B*T*D*H*(N + K) + 4*B*T**2*N*H"),
    ("window", "decode_flops", "4*B*D*H*(N + K) + 4*B*N*H*min(S, W)"),
    ("mha", "kv", "4*B*S*D"),  # keys and values, two bytes each
    ("gqa", "kv", "4*B*S*K*H"),
    ("mqa", "kv", "4*B*S*H"),
    ("window", "kv", "4*B*K*H*min(S, W)"),
    ("mla", "kv", "2*B*S*(C + R)"),  # DeepSeek-V2, table 1
    ("mla", "kv_per_token", "2*(C + R)"),
    ("gqa", "kv_per_token", "4*K*H"),
    ("mlp", "activations", "2*B*T*D + 4*B*T*F"),
    ("gated-mlp", "activations", "2*B*T*(D + 4*F)"),
    ("mha", "activations", "10*B*T*D + 2*B*N*T**2 + T**2"),  # in the manner of Korthikanti et al. 2022, section 4.1
    ("pre-norm", "activations", "2*B*T*(8*D + 2*F + 4) + 2*B*N*T**2 + T**2"),
    ("llama", "params", "L*(2*D*H*(N + K) + 3*D*F + 2*D) + 2*V*D + D"),  # Touvron et al. 2023
    ("llama", "embedding", "V*D"),
    ("llama", "non_embedding", "L*(2*D*H*(N + K) + 3*D*F + 2*D) + D"),
    ("llama", "flops", "2*B*T*(L*(2*D*H*(N + K) + 3*D*F + 2*T*N*H) + D*V)"),
    ("llama", "kv", "4*B*S*L*K*H"),
    ("llama", "activations", "2*B*T*L*(10*D + 4*F + 4*N*H + N*T + 4) + 2*B*T*(5*D + V + 10) + T*(2*R + T) + 2"),
    ("mistral", "kv", "4*B*L*K*H*min(S, W)"),  # Jiang et al. 2023: a rolling buffer
    ("mixtral", "params", "L*(2*D*H*(N + K) + 3*E*D*F + D*E + 2*D) + 2*V*D + D"),
    ("mixtral", "active", "L*(2*D*H*(N + K) + 3*A*D*F + D*E + 2*D) + 2*V*D + D"),
    ("gemma2", "kv", "4*B*K*H*(L_full*S + L_window*min(S, W))"),
    ("gpt2", "params", "L*(2*D*H*(N + K) + 2*D*F + 6*D + H*(N + 2*K) + F) + D*(V + M) + 2*D"),  # Radford et al. 2019
    ("deepseek_v3", "kv", "2*B*S*(L_dense + L_moe)*(C + R)"),
    (
        "deepseek_v3", "params",
        "(L_dense + L_moe)*(D*Q + Q + N*Q*(P + R) + D*(C + R) + C + N*C*(P + U) + N*U*D + 2*D)"
        " + L_dense*3*D*F_dense + L_moe*(3*D*F_expert*(E + 1) + D*E) + 2*V*D + D",
    ),
    ("t5", "kv", "8*B*S*L*K*H"),
    ("bert", "embedding", "D*(V + M + V_types)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "quantity", "form"), TEXTBOOK)
def test_a_formula_is_the_textbook_s_and_no_longer(name, quantity, form):
    found, known = formula(name, quantity).expr, written(form)
    assert sympy.expand(found - known.doit()) == 0
    assert size(found) <= size(known)


PER_TOKEN = {
    "kaplan": "6*B*T*{non_embedding}",  # Kaplan et al. 2020, section 2.1
    "palm": "6*B*T*({params}) + 12*B*T*L*N*H*T",  # Chowdhery et al. 2022, appendix B
    "nanogpt": "6*B*T*({params}) + 12*B*T*L*N*H*T",
}


@pytest.mark.parametrize("convention", PER_TOKEN)
def test_the_forms_of_conventions(convention):
    parts = {of: f"({formula('llama', of).text().replace('·', '*')})" for of in ("params", "non_embedding")}
    known = written(PER_TOKEN[convention].format(**parts))
    found = formula("llama", "train_flops", convention=convention).expr
    assert sympy.expand(found - known.doit()) == 0
    assert size(found) <= size(known)


@pytest.mark.parametrize(("name", "form"), [
    ("mha", "4·D²"), ("pre-norm", "2·D·(2·D + F + 2)"), ("llama", "D·(L·(3·F + 2·H·(K + N) + 2) + 2·V + 1)"),
])  # fmt: skip
def test_how_they_are_printed(name, form):
    assert formula(name).text() == form


def test_a_transformer_block_of_four_times_the_width_is_12d2():
    attention, mlp = formula("mha").expr, formula("mlp").expr.subs(LETTERS["F"], 4 * LETTERS["D"])
    assert text(mlp) == "8·D²"
    assert text(tidy(attention + mlp)) == "12·D²"


@pytest.mark.parametrize("name", [*BLOCKS, "llama", "deepseek_v3", "whisper", "vit", "albert"])
def test_a_tidy_formula_is_shorter_and_the_same(name):
    for quantity in QUANTITIES:
        try:
            found = formula(name, quantity).expr
        except UndefinedError:
            continue
        loose = sympy.expand(found)
        assert size(found) <= size(loose)
        rng = random.Random(f"{name} {quantity}")
        put_in = {one: rng.randint(2, 10**6) for one in sorted(found.free_symbols, key=str)}
        assert found.xreplace(put_in) == loose.xreplace(put_in)
        assert tidy(loose) == found


A, B, C, D, S, T, W, L_full, L_window = (LETTERS[name] for name in ("A", "B", "C", "D", "S", "T", "W", "L_full", "L_window"))


@pytest.mark.parametrize(("expr", "form"), [
    (A * C + A * D + B * C + B * D, "(A + B)·(C + D)"),
    (A * C + A * D + B * C + B * D + 2 * A + 2 * B, "(A + B)·(C + D + 2)"),
    (T * (T + 1) / 2, "T·(T + 1)/2"),
    (T**2 / 2 + 3 * T / 2, "T·(T + 3)/2"),
    (2 * A + 2 * B, "2·(A + B)"),
    (A + B, "A + B"),
    (S - sympy.Min(S, W), "S - min(S, W)"),
    (sympy.Min(W, S + 1) - sympy.Min(S, W), "min(W, S + 1) - min(S, W)"),
    (2 * B * C * L_full + 2 * B * C * L_window, "2·B·C·(L_full + L_window)"),
    (B * C * L_full + B * D * L_full + B * C * L_window + D, "B·C·L_window + B·L_full·(C + D) + D"),
    (A / B + C, "(A + B·C)/B"),
    (sympy.Integer(0), "0"),
    (7, "7"),
])  # fmt: skip
def test_shapes(expr, form):
    found = tidy(expr)
    assert sympy.expand(found - expr) == 0
    assert text(found) == form


def test_a_constant_leaves_a_minimum():
    assert text(tidy(sympy.Min(S - 1, W - 1) * D + D)) == "D·min(S, W)"
