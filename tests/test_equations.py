"""The language of equations, what of it is refused, and the command that speaks it."""

import json

import pytest
import sympy
from test_cli import ask, refused, run

import blockcalc
from blockcalc import UndefinedError, solve
from blockcalc.dims import symbol
from blockcalc.inverse.grammar import amount, equation, size

D, F, H, N = map(symbol, "DFHN")
GIB = 2**30


# -- the grammar -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "of", "value"), [
    ("7e9", "params", 7 * 10**9), ("7B", "params", 7 * 10**9), ("1.5T", "flops", 15 * 10**11),
    ("124,439,808", "params", 124_439_808), ("80GiB", "kv", 80 * GIB), ("80 GB", "kv", 80 * 10**9), ("512", "kv", 512),
   
    ("512B", "activations", 512), ("0.5k", "params", 500), ("1e+21", "train_flops", 10**21), ("1_000", "params", 1000),
    ("1.25KiB", "kv", 1280),
])  # fmt: skip
def test_amounts(text, of, value):
    assert amount(text, of) == value


@pytest.mark.parametrize(("text", "value"), [
    ("8d/3", 8 * D / 3), ("(d + 2f)*3 - 1", 3 * D + 6 * F - 1), ("4d", 4 * D), ("d·f", D * F),
    ("d/128", D / 128), ("n*h", N * H), ("17", sympy.Integer(17)), ("d - (f - 1)", D - F + 1),
])  # fmt: skip
def test_sizes(text, value):
    assert sympy.expand(size(text, lambda name: symbol(name.upper())) - value) == 0


def test_an_equation():
    found = equation("flops[scores, mix](llama, f=4d) >= flops[mlp](gpt2)")
    assert found.left == ("flops", ("scores", "mix"), "llama", (("f", "4d"),))
    assert (found.relation, found.right) == (">=", ("flops", ("mlp",), "gpt2", ()))
    assert equation("kv ≤ 1GiB") == equation("kv <= 1 GiB")


BAD = [
    (["params"], "expected one of =, <= and >="),
    (["params == 7e9"], "expected one of =, <= and >="),
    (["params < 7e9"], "expected one of =, <= and >="),
    (["params = 7e9 = 8e9"], "expected one of =, <= and >="),
    (["= 7e9"], "an empty side"),
    (["params ="], "an empty side"),
    (["7e9 = params"], "expected QUANTITY"),
    (["watts = 7"], "quantity 'watts' is not one of params"),
    (["params = 7X"], "expected a number of parameters"),
    (["params = 16GiB"], "expected a number of parameters"),
    (["params = 7e999"], "expected a number of parameters"),
    (["params = 1.5"], "expected a whole number from 1"),
    (["params = 0"], "expected a whole number from 1"),
    (["params = -5"], "expected QUANTITY"),
    (["params = kv"], "params is in parameters and kv in bytes"),
    (["params[] = 7e9"], "expected names of parts"),
    (["params[nothing] = 7e9"], "no component nothing; the names here are"),
    (["params(mlp, f) = 7e9"], "expected LETTER=SIZE"),
    (["params(mlp, f=__import__) = 7e9", "--for", "d"], "__import__: expected a size of numbers"),
    (["params(mlp, f=d**9) = 7e9", "--for", "d"], "expected a size of numbers"),
    (["params(mlp, f=1/3d) = 7e9", "--for", "d"], "expected a size of numbers"),
    (["params(mlp, f=d/0) = 7e9", "--for", "d"], "expected a size of numbers"),
    (["params(nothing) = 7e9"], "no such file, folder, preset or block"),
    (["params = " + "1" * 400], "at most 400"),
    (["params = 7e9", "--for", "q"], "q: no such size here; there are"),
    (["params = 7e9", "--for", "seq"], "T does not occur in params of llama-3.1-8b"),
    (["params = 7e9", "--for", "num_layers"], "or num_hidden_layers?"),
    (["params = 7e9", "--set", "l=0"], "L = 0"),
    (["params = 7e9", "--set", "f=1", "--tie", "f=2"], "f: given twice"),
    (["params = 7e9", "--set", "l=32"], "L: asked for and given at once"),
    (["params = 7e9", "--tie", "f=g"], "g: no such size here"),
    (["params = 7e9", "--tie", "f=h", "--tie", "h=f"], "in a circle"),
    (["params = 7e9", "--family", "gpt2"], "has neither a model"),
    (["params = 7e9", "--multiple", "0"], "multiple = 0"),
    (["activations = 7e9", "--for", "batch", "--dtype", "fp8"], "activations are kept in"),
    (["flops = 7e9", "--for", "l", "--convention", "best"], "not one of torch, exact"),
    (["flops[mlp] = 7e9", "--for", "l", "--convention", "palm"], "a formula of the whole"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_one_line_and_exit_code_2(words, said):
    rest = words[1:] if "--for" in words else [*words[1:], "--for", "l"]
    line = refused("solve", words[0], "llama-3.1-8b", *rest)
    assert said in line
    assert "\n" not in line


def test_what_is_free_must_have_a_short_form():
    assert "no closed form for D while" in refused("solve", "params = 7e9", "--family", "llama", "--for", "d", "--tie", "l=d*d")
    assert "no model: name one" in refused("solve", "params = 7e9", "--for", "d")
    assert "there are L_dense, L_moe" in refused("solve", "params = 7e9", "deepseek-v3", "--for", "l")
    assert "family lama" in refused("solve", "params = 7e9", "--family", "lama", "--for", "d")


def test_what_a_kernel_does_not_do_is_refused():
    with pytest.raises(UndefinedError, match="soft-capped"):
        solve("activations <= 80GiB", "batch", "gemma-2-9b", kernels=blockcalc.Kernels(attention="flash"))


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_as_json():
    found = ask("solve", "kv <= 16GiB", "llama-3.1-8b", "--for", "context")
    assert (found["answer"], found["for"], found["unit"], found["reason"]) == (131072, "S", "bytes", None)
    assert found["answers"][0]["choices"][1] == {
        "at": 131073, "left": 131073 * 131072, "right": 16 * GIB, "holds": False, "distance": 131072,
    }  # fmt: skip
    found = ask("solve", "params = params(mlp, f=4d)", "gated-mlp", "--for", "f")
    assert found["closed_forms"][0]["text"] == "8·D/3"
    assert sympy.sympify(found["closed_forms"][0]["srepr"]) == 8 * D / 3


def test_no_answer_is_exit_code_1():
    result = run("solve", "kv <= 16GiB", "mistral-7b", "--for", "context")
    assert result.exit_code == 1
    assert "no largest S: kv stops growing at S = 4,096" in result.stdout.replace("\n", " ")
    found = json.loads(run("solve", "kv <= 16GiB", "mistral-7b", "--for", "context", "--json").stdout)
    assert found["answer"] is None and "stops growing" in found["reason"]


def test_more_than_the_position_table_is_answered_with_a_warning():
    result = run("solve", "kv <= 1GiB", "gpt2", "--for", "context", "--csv")
    assert result.exit_code == 0
    assert "gpt2 has 1024 learned positions" in result.stderr
    assert result.stdout.splitlines()[1].startswith("largest,29127,")


@pytest.mark.parametrize("width", [20, 60, 100])
def test_numbers_stay_whole_at_any_width(width):
    lines = run("solve", "params <= 400B", "llama-3.1-405b", "--for", "l", width=width).stdout
    for value in (choice.left for choice in solve("params <= 400B", "l", "llama-3.1-405b").answers[0].choices):
        assert f"{value:,}" in lines
