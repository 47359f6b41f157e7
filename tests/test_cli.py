"""The command line: what scripts parse, what people read, what is refused."""

import csv
import io
import json
import os
import shlex
import subprocess
import sys

import pytest
from click.testing import CliRunner

from blockcalc.catalogue import BLOCKS
from blockcalc.cli import COMMANDS, main
from blockcalc.tables import presets
from blockcalc.tables.table import Column, Table, as_csv, as_markdown, print_table, rounded


def run(*words, width=100):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(main, words, prog_name="blockcalc")


def ask(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.stderr.strip()


# -- what scripts parse ------------------------------------------------------------------------------------------------


def test_params():
    found = ask("params", "mixtral-8x7b")
    assert found["model"] == "mixtral-8x7b"
    assert found["params"]["total"] == 46_702_792_704
    assert found["params"]["active"] == 12_879_925_248
    assert list(found["components"][0]) == ["path", "params", "active"]
    assert sum(part["params"] for part in found["components"]) == found["params"]["total"]


def test_flops_and_their_convention():
    found = ask("flops", "llama-3-8b", "--seq", "2048")
    assert found["flops"] == {"forward": 32_938_104_193_024, "backward": None, "recompute": 0, "total": 32_938_104_193_024}
    assert 2 * found["macs"] == found["flops"]["total"]
    assert found["convention"]["name"] == "torch"
    assert found["step"] == {"mode": "forward", "batch": 1, "seq": 2048, "context": 2048}
    assert ask("flops", "llama-3-8b", "--mode", "train")["flops"]["backward"] == 2 * found["flops"]["forward"]


def test_a_decode_step_costs_more_with_more_context():
    decode = ("flops", "llama-3.1-70b", "--mode", "decode", "--context")
    near, far = (ask(*decode, context)["flops"]["forward"] for context in ("1000", "2000"))
    # 4·64·128 a layer and token of context, https://github.com/SemiAnalysisAI/InferenceX-app/pull/849
    assert (far - near) // 1000 == 80 * 32768


def test_the_head_of_the_last_position_only():
    every, last = (ask("flops", "gpt2", "--seq", "64", "--head", head)["flops"]["forward"] for head in ("all", "last"))
    assert every - last == 2 * 63 * 768 * 50257


def test_kv():
    found = ask("kv", "llama-3-8b", "--context", "8192")
    assert found["kv_cache"]["bytes"] == 1_073_741_824
    assert found["kv_cache"]["bytes_per_token"] == 131_072
    assert set(found["kv_cache"]["by_kind"]) == {"full", "window", "latent", "cross", "state"}
    assert ask("kv", "llama-3-8b", "--context", "8192", "--dtype", "fp8")["kv_cache"]["bytes"] == 536_870_912


def test_kv_of_both_streams():
    found = ask("kv", "t5-base", "--context", "512")["kv_cache"]
    assert (found["bytes"], found["by_kind"]["cross"]) == (37_748_736, 18_874_368)
    assert ask("kv", "t5-base", "--context", "512", "--encoder-seq", "256")["kv_cache"]["by_kind"]["cross"] == 9_437_184


def test_activations():
    found = ask("activations", "gpt2", "--seq", "64")
    kept = found["activations"]
    assert set(kept) == {"bytes", "per_layer", "buffers", "loss", "rest"}
    assert sum(kept["per_layer"]) + kept["buffers"] + kept["loss"] + kept["rest"] == kept["bytes"]
    assert len(kept["per_layer"]) == 12
    assert sum(part["bytes"] for part in found["components"]) + kept["buffers"] == kept["bytes"]


def test_one_number_a_layer_encoder_first():
    assert len(ask("activations", "t5-base", "--seq", "64")["activations"]["per_layer"]) == 24


def test_budget_is_all_of_them():
    found = ask("budget", "gemma-2-9b")
    assert found["params"] == ask("params", "gemma-2-9b")["params"]
    assert found["flops"] == ask("flops", "gemma-2-9b")["flops"]
    assert found["kv_cache"] == ask("kv", "gemma-2-9b", "--context", "2048")["kv_cache"]
    assert found["activations"] == ask("activations", "gemma-2-9b")["activations"]
    assert found["memory"] is None
    assert found["verdict"] is None


def test_compare():
    found = ask("compare", "gpt2", "llama-3-8b")["models"]
    assert [one["model"] for one in found] == ["gpt2", "llama-3-8b"]
    assert found[1]["params"]["total"] == 8_030_261_248


def test_formula():
    found = ask("formula", "gated-mlp")
    assert (found["formula"], found["unit"]) == ("3·D·F", "parameters")
    assert found["symbols"]["F"]["meaning"] == "hidden width of the feed-forward"


def test_explain_adds_up():
    found = ask("explain", "deepseek-v3", "--seq", "64")["explained"]
    assert sum(one["params_value"] for one in found) == 671_026_404_352
    assert sum(one["flops_value"] for one in found) == ask("flops", "deepseek-v3", "--seq", "64")["flops"]["forward"]
    part = ask("explain", "deepseek-v3", "decoder.moe.attention.kv_down")["explained"]
    assert part[0]["params"] == "C·D·L_moe"
    assert part[0]["params_put_in"] == "512·7168·58"
    assert "arXiv:2405.04434" in part[0]["source"]


def test_adapters():
    found = ask("params", "llama-3.1-8b", "--lora", "16:q_proj,v_proj")["params"]
    # 32 layers of 16·(4096 + 4096) and 16·(4096 + 1024)
    assert found["trainable"] == 32 * 16 * (4096 + 4096 + 4096 + 1024)
    assert found["total"] - found["trainable"] == 8_030_261_248


@pytest.mark.parametrize("words,key", [(["models"], "models"), (["blocks"], "blocks"), (["conventions"], "conventions")])
def test_lists(words, key):
    assert all("name" in one for one in ask(*words)[key])


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_a_model_for_the_commands(block):
    letter, size = next(iter(BLOCKS[block].sizes.items()))
    assert "params" in ask("params", block, "--set", f"{letter}={size}")
    assert "flops" in ask("flops", block, "--seq", "16")
    assert "activations" in ask("activations", block, "--seq", "16")


def test_a_config_by_path_and_by_folder(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    right = ask("params", str(path))["params"]
    assert ask("params", str(tmp_path))["params"] == right
    halved = ask("params", str(path), "--set", "num_hidden_layers=1")["params"]
    layer = right["total"] - halved["total"]
    assert layer == 4 * 64 * 64 + 3 * 64 * 11008 + 2 * 64


# -- what people read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("words", [["params", "deepseek-v3"], ["compare", "gpt2", "llama-3.1-405b"], ["explain", "gpt2"]])
def test_no_number_is_split_or_cut_at_any_width(words, width):
    lines = run(*words, width=width).stdout
    assert "…" not in lines
    for row in csv.reader(io.StringIO(run(*words, "--csv").stdout)):
        for cell in row:
            if cell.isdigit():
                assert f"{int(cell):,}" in lines, cell


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (8_030_261_248, "count", "8.030 G"), (999, "count", ""), (1000, "count", "1 k"), (999_999, "count", "1.000 M"),
        (1_073_741_824, "bytes", "1 GiB"), (1023, "bytes", ""), (1536, "bytes", "1.500 KiB"), (10**30, "flops", "1 Q"),
        (5 * 10**33, "flops", "5,000 Q"), (None, "count", ""), (131_072, "bytes", "128 KiB"),
    ],
)  # fmt: skip
def test_rounded_numbers(value, unit, text):
    assert rounded(value, unit) == text


def test_a_table_as_csv_and_markdown():
    table = Table("t", (Column("a|b"), Column("n", "count")), (("x|y", 1234), (None, None)), ("note",))
    assert as_csv(table) == "a|b,n\nx|y,1234\n,\n"
    assert "| x\\|y | 1,234 |" in as_markdown(table)


def test_a_table_too_wide_for_the_terminal_is_transposed(capsys):
    print_table(Table("t", (Column("name"), Column("n", "count")), (("x" * 30, 10**30),)), width=40)
    assert f"n     {10**30:,}" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Usage: blockcalc" in result.stdout


def test_completion_knows_the_presets():
    assert "_BLOCKCALC_COMPLETE" in run("completion", "bash").stdout
    result = CliRunner().invoke(main, [], prog_name="blockcalc", env={
        "_BLOCKCALC_COMPLETE": "bash_complete", "COMP_WORDS": "blockcalc params llama-3.1-4", "COMP_CWORD": "2",
    })  # fmt: skip
    assert "llama-3.1-405b" in result.stdout


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["params", "lama-3.1-8b"], "did you mean llama-3.1-8b"),
        (["params", "no/such/config.json"], "no such file"),
        (["params", "gpt2", "--set", "n_head"], "expected FIELD=VALUE"),
        (["params", "gpt2", "--set", "n_head=7"], "n_embd = 768 is not divisible by n_head = 7"),
        (["params", "gpt2", "--set", "n_layer=twelve"], 'n_layer: found "twelve"'),
        (["params", "gpt2", "--set", "n_layer=12.0"], "n_layer: found 12.0"),
        (["params", "gpt2", "--set", "n_layer=true"], "n_layer: found true"),
        (["params", "gpt2", "--set", "n_layer=NaN"], "n_layer: found NaN"),
        (["params", "gated-mlp", "--set", "f=0"], "f = 0"),
        (["params", "gated-mlp", "--set", "f=2.5"], "f = 2.5"),
        (["params", "gated-mlp", "--set", "q=3"], "it has d, f"),
        (["params", "gated-mlp", "--set", "d=-1"], "d = -1"),
        (["params", "gated-mlp", "--set", "d=null"], "d: found null"),
        (["params", "mha", "--set", "n=0"], "n = 0"),
        (["params", "mla", "--set", "c=[1]"], "c = [1]"),
        (["params", "gpt2", "--set", "n_embdd=1024"], "did you mean n_embd"),
        (["kv", "llama-2-7b", "--encoder-seq", "5"], "no encoder"),
        (["kv", "whisper-tiny", "--encoder-seq", "7"], "always has 1500 positions"),
        (["activations", "gpt2", "--dtype", "fp8"], "activations are kept in"),
        (["flops", "gpt2", "--seq", "0"], "seq = 0"),
        (["params", "mha", "--set", "n=5"], "d = 77 is not divisible by n = 5"),
        (["params", "gpt2", "--lora", "q"], "expected a rank and names"),
        (["params", "gpt2", "--lora", "0:q"], "r = 0"),
        (["params", "gpt2", "--lora", "4:z"], "no linear is named z"),
        (["flops", "gpt2", "--batch", "0"], "batch = 0"),
        (["flops", "gpt2", "--seq", "-1"], "seq = -1"),
        (["flops", "gpt2", "--seq", "9999999999999999"], "2**40"),
        (["flops", "gpt2", "--mode", "train", "--context", "9"], "--context 9"),
        (["flops", "gpt2", "--mode", "prefill", "--seq", "9", "--context", "5"], "shorter than the 9 new tokens"),
        (["flops", "gpt2", "--convention", "best"], "not one of torch, exact"),
        (["flops", "bert-base", "--mode", "decode"], "nothing to decode"),
        (["flops", "mixtral-8x7b", "--convention", "kaplan"], "kaplan: defined for dense models"),
        (["kv", "gpt2", "--dtype", "fp7"], "dtype 'fp7'"),
        (["activations", "deepseek-v3", "--attention", "flash"], "keys are 192 wide and values 128"),
        (["activations", "gemma-2-9b", "--attention", "flash"], "soft-capped"),
        (["formula", "llama", "watts"], "quantity 'watts' is not one of params"),
        (["explain", "gpt2", "decoder.nothing"], "has no such path"),
        (["formula", "gpt2", "params", "--convention", "best"], "not one of torch, exact"),
        (["solve", "params = 7B", "gpt2", "--for", "d", "--convention", "best"], "not one of torch, exact"),
        (["solve", "kv <= 1GiB", "llama-2-7b", "--for", "batch", "--encoder-seq", "5"], "no encoder"),
        (["solve", "kv <= 1GiB", "whisper-tiny", "--for", "batch", "--encoder-seq", "7"], "always has 1500 positions"),
        (["compare", "gpt2", "--metric", "params", "--convention", "best"], "not one of torch, exact"),
        (["compare", "gpt2", "--metric", "params", "--dtype", "fp7"], "dtype 'fp7'"),
        (["compare", "gpt2", "--metric", "params", "--kv-dtype", "fp7"], "dtype 'fp7'"),
        (["compare", "gpt2", "bert-base", "--mode", "decode"], "bert-base: mixing positions in both directions"),
    ],
)
def test_one_line_and_exit_code_2(words, said):
    line = refused(*words)
    assert said in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "words", [["flops", "gpt2", "--batch", "x"], ["flops", "gpt2", "--mode", "dream"], ["nothing"], ["params"]]
)
def test_click_s_own_refusals_have_the_same_exit_code(words):
    assert run(*words).exit_code == 2


def test_a_pipe_is_no_config_and_a_folder_needs_one(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert "a pipe" in refused("params", str(tmp_path / "pipe.json"))
    assert "without a config.json" in refused("params", str(tmp_path))


def test_a_cache_of_another_type_than_the_activations():
    found = ask("budget", "gpt2", "--seq", "64", "--kv-dtype", "fp8")
    assert 2 * found["kv_cache"]["bytes"] == ask("kv", "gpt2", "--context", "64")["kv_cache"]["bytes"]
    assert found["activations"] == ask("activations", "gpt2", "--seq", "64")["activations"]


def test_every_preset_answers_every_ledger_alike():
    for preset in presets():
        found = ask("budget", preset, "--seq", "32")
        assert sum(found["kv_cache"]["by_kind"].values()) == found["kv_cache"]["bytes"]
        assert sum(part["params"] for part in found["components"]) == found["params"]["total"]


def test_a_width_of_nothing_still_prints():
    assert "75,497,472" in run("kv", "gpt2", "--context", "2048", width=0).stdout


def test_a_warning_beyond_the_position_table_goes_to_standard_error():
    result = run("flops", "gpt2", "--seq", "2048", "--json")
    assert result.exit_code == 0
    assert "gpt2 has 1024 learned positions" in result.stderr
    json.loads(result.stdout)
    assert run("flops", "gpt2", "--seq", "1024", "--json").stderr == ""


def test_a_closed_standard_output_is_no_traceback():
    code = "from blockcalc.cli import main; main()"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} params gpt2 --json >&-"
    result = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in result.stderr


def test_a_command_that_there_is_none_of_is_told_with_the_nearest():
    result = CliRunner().invoke(main, ["parms", "gpt2"])
    assert result.exit_code == 2 and "no such command 'parms'; did you mean params?" in result.stderr
    assert "did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr


def test_the_shell_completes_names_of_options():
    from blockcalc.cli import options

    assert options.complete_machine(None, None, "h100")[0] == "h100-sxm"
    assert "gguf-q4_k" in options.complete_format(None, None, "gguf-q4") and options.complete_convention(None, None, "tor")
