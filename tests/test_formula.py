"""``blockcalc formula``: several quantities, components, formats, files; and each operation's closed form."""

import json

import pytest
import sympy
from test_cli import ask, refused, run
from test_exports import defined

from blockcalc import InputError, Kernels, UndefinedError, formula, load, trace, widths
from blockcalc.catalogue import BLOCKS
from blockcalc.exports import FORMATS
from blockcalc.symbolic import QUANTITIES, components
from blockcalc.tensor import Step


@pytest.mark.parametrize("name", [*BLOCKS, "llama", "mixtral", "deepseek_v3", "t5", "bert", "gemma2", "whisper"])
def test_the_operations_sum_to_the_whole(name):
    for quantity in QUANTITIES:
        try:
            whole = formula(name, quantity)
        except UndefinedError:
            with pytest.raises(UndefinedError):
                components(name, quantity)
            continue
        parts = components(name, quantity)
        assert sympy.expand(sum(part.expr for part in parts.values()) - whole.expr) == 0
        assert all(part.expr != 0 for part in parts.values())


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "t5-base", "gemma-2-2b"])
def test_each_operation_is_the_ledger_s_own(name):
    model = load(name)
    params = {path: part.value for path, part in components(name).items()}
    assert params == {part.path: part.params for part in model.budget(Step.forward(1, 8)).components() if part.params}
    b, t = 3, 17
    kept = model.budget(Step.train(b, t)).activations(widths("fp32"))
    found = {path: part.subs(B=b, T=t) for path, part in components(name, "activations", dtype="fp32").items()}
    assert found == {path: size for path, size in {**kept.paths, "buffers": kept.buffers}.items() if size}
    work = {}
    for line in model.budget(Step.forward(b, t)).lines:
        work[line.path] = work.get(line.path, 0) + 2 * line.copies * line.pairs * line.forward
    found = {path: part.subs(B=b, T=t) for path, part in components(name, "flops").items()}
    assert found == {path: flops for path, flops in work.items() if flops}


def test_a_convention_that_counts_a_whole_model_has_no_operations():
    with pytest.raises(UndefinedError, match="convention palm counts a whole model"):
        components("llama", "flops", convention="palm")
    assert components("llama", "flops", convention="exact")
    assert components("llama", "params", convention="palm") == components("llama", "params")


def test_what_recomputation_a_policy_and_a_kernel_change():
    b, t, s = 2, 31, 40
    model = load("mistral-7b")
    for recompute in ("none", "selective", "full"):
        right = model.budget(Step.train(b, t), None, recompute).activations(widths("bf16")).bytes
        assert formula("mistral-7b", "activations", recompute=recompute).subs(B=b, T=t) == right
    full, none = (formula("llama", "train_flops", recompute=recompute).expr for recompute in ("full", "none"))
    assert sympy.expand(full - none) != 0
    for policy in ("minimal", "transformers", "unified"):
        right = model.budget(Step.prefill(b, s)).cache(widths("bf16"), policy)
        assert formula("mistral-7b", "kv", policy=policy).subs(B=b, S=s) == sum(right.values())
    flash = Kernels(attention="flash")
    right = trace(BLOCKS["gqa"].build({})[0], Step.train(b, t), 13, flash).activations(widths("bf16")).bytes
    assert formula("gqa", "activations", kernels=flash).subs(B=b, T=t) == right


def test_a_window_of_one_is_refused_where_transformers_caches_it_whole():
    cached = formula("mistral-7b", "kv", policy="transformers")
    assert [meaning for meaning in cached.meanings.values() if "window" in meaning] == ["window, 2 at least"]
    with pytest.raises(InputError, match="W = 1: policy transformers"):
        cached.subs(B=1, S=8, W=1)
    one = {"sliding_window": 1}
    with pytest.raises(InputError, match="W = 1: policy transformers"):
        formula("mistral-7b", "kv", policy="transformers", changes=one)
    assert formula("mistral-7b", "kv", changes=one).subs(B=1, S=8) == 4 * 128 * 8 * 32
    assert formula("mistral-7b", "params", policy="transformers", changes=one).value == formula("mistral-7b").value
    assert "W = 1: policy transformers" in refused(
        "explain", "mistral-7b", "--quantity", "kv", "--policy", "transformers", "--set", "sliding_window=1"
    )


def test_changes_are_a_config_s_fields_or_a_block_s_letters():
    assert formula("gated-mlp", changes={"d": 4096, "f": 14336}).value == 3 * 4096 * 14336
    assert formula("llama-3-8b", changes={"num_hidden_layers": 1}).value < formula("llama-3-8b").value
    assert formula("gated-mlp").value == 3 * 13 * 29
    assert formula("gated-mlp", "flops").value is None
    with pytest.raises(InputError, match="no such letter"):
        formula("gated-mlp", changes={"q": 3})
    with pytest.raises(InputError, match="d = 77 is not divisible by n = 5"):
        formula("mha", changes={"n": 5})
    with pytest.raises(InputError, match="changes are for a config"):
        formula(load("gpt2"), changes={"n_layer": 3})


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_json_has_what_it_had_and_more():
    found = ask("formula", "gqa", "flops")
    assert {"model", "quantity", "unit", "formula", "symbols", "convention"} <= set(found)
    assert found["symbols"]["D"] == {"meaning": "model width", "value": 13, "unit": "elements"}
    assert found["value"] is None
    assert ask("formula", "llama-3-8b")["value"] == 8_030_261_248
    assert ask("formula", "mha", "kv", "--dtype", "fp8")["formula"] == "2·B·D·S"


def test_several_quantities_are_listed():
    found = ask("formula", "gqa", "params", "kv", "params")
    assert [one["quantity"] for one in found["formulas"]] == ["params", "kv"]
    everything = ask("formula", "mha-biased", "all")["formulas"]
    assert [one["quantity"] for one in everything] == list(QUANTITIES)
    undefined = {one["quantity"]: one["undefined"] for one in everything if "undefined" in one}
    assert set(undefined) == {"prefill_flops", "decode_flops"}
    assert "nothing to decode" in undefined["decode_flops"]
    shown = run("formula", "mha-biased", "all").stdout
    assert "not defined: mixing positions" in shown and "4·D·(D + 1)" in shown
    assert "activations are kept in" in run("formula", "mha", "all", "--dtype", "fp8").stdout


def test_operations_are_listed_before_the_whole():
    parts = ask("formula", "llama-3-8b", "--by-component")["components"]
    assert sum(part["value"] for part in parts) == 8_030_261_248
    assert {"path": "decoder.layer.mlp.up", "formula": "D·F·L", "value": 32 * 4096 * 14336} in parts
    assert "decoder.layer.mlp.up" in run("formula", "llama-3-8b", "flops", "--by-component").stdout


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_printed_alone_and_is_in_the_json(form):
    printed = run("formula", "gqa", "kv", "--format", form).stdout
    found = ask("formula", "gqa", "kv", "--format", form)
    if form != "text":
        assert printed == found["export"] + "\n"
        assert found["format"] == form
    else:
        assert found["formula"] in printed


def test_functions_of_several_quantities_and_their_operations_stand_in_one_file(tmp_path):
    file = tmp_path / "gqa.py"
    words = ("formula", "gqa", "params", "kv", "--by-component", "--format", "python", "-o", str(file))
    result = run(*words)
    assert (result.exit_code, result.stdout) == (0, "")
    scope = {}
    exec(file.read_text(encoding="utf-8"), scope)
    queries, keys = dict(D=13, H=22, N=15), dict(D=13, H=22, K=3)
    parts = [scope[f"gqa_{part}_params"](**taken) for part, taken in zip("qkvo", (queries, keys, keys, queries), strict=True)]
    assert scope["gqa_params"](**queries, K=3) == sum(parts)
    assert scope["gqa_kv"](B=1, H=2, K=3, S=4) == 96


def test_a_file_is_not_overwritten_unless_asked(tmp_path):
    file = tmp_path / "mha.js"
    file.write_text("mine", encoding="utf-8")
    words = ("formula", "mha", "--format", "javascript", "-o", str(file))
    assert "the file exists; --force overwrites it" in refused(*words)
    assert file.read_text(encoding="utf-8") == "mine"
    assert run(*words, "--force").exit_code == 0
    assert "function mha_params({ D })" in file.read_text(encoding="utf-8")
    assert "No such file or directory" in refused(*words[:-1], str(tmp_path / "nowhere" / "mha.js"))


@pytest.mark.parametrize(("words", "said"), [
    (("formula", "mha", "--format", "c", "--csv"), "--format c: it is no table; leave out --csv"),
    (("formula", "mha", "-o", "x.txt", "--json"), "leave out --json"),
    (("formula", "bert-base", "decode_flops"), "nothing to decode"),
    (("formula", "mha", "kv", "watts"), "quantity 'watts' is not one of params"),
    (("formula", "llama", "flops", "--convention", "palm", "--by-component"), "convention palm counts a whole model"),
    (("formula", "mha", "activations", "--dtype", "int8"), "activations are kept in fp32"),
])  # fmt: skip
def test_what_is_refused(words, said):
    assert said in refused(*words)


def test_a_formula_of_a_config_file_is_named_by_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 3}), encoding="utf-8")
    text = run("formula", str(tmp_path), "--format", "python").stdout
    function = defined(text, {"__builtins__": {}})
    assert function(D=768, F=3072, H=64, K=12, L=3, M=1024, N=12, V=50257) == load(str(tmp_path)).budget(
        Step.forward(1, 1)
    ).parameters().total
