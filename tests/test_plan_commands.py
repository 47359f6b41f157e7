"""The commands of plans: what scripts parse, what is refused, and questions that people ask, each by one command."""

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner

from blockcalc import flops, load
from blockcalc.cli import main
from blockcalc.errors import InputError
from blockcalc.plan.panel import experts, touched
from blockcalc.tensor import Step
from blockcalc.timing.machine import machine
from blockcalc.timing.readings import Speed, printed, readings


def run(*words):
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, words, prog_name="blockcalc")


def ask(line, code=0):
    result = run(*line.split(), "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


H100 = machine("h100-sxm")
SERVE = "llama-3.1-8b --gpu h100-sxm --serve --context 8192 --prefill 1"

# -- questions of users, each by one command ---------------------------------------------------------------------------


def test_does_it_fit_and_what_is_missing():
    found = ask("fit llama-3.1-8b --gpu h100-sxm --train --seq 8192", code=1)
    memory = found["memory"]
    assert not memory["fits"] and memory["available"] == H100.memory_bytes
    assert sum(memory["missing"].values()) == memory["bytes"] - memory["available"] == -memory["free"]
    assert memory["parts"]["weights"] == 2 * 8_030_261_248
    assert ask(f"fit {SERVE}")["memory"]["fits"]


def test_the_largest_context():
    line = "fit llama-3.1-8b --gpu a100-sxm-80 --serve --prefill 1 --context 10 --largest context --reserve 10%"
    found = ask(line)["largest"]
    assert found["at"]["fits"] and not found["next"]["fits"]
    a_token = 2 * 2 * 32 * 8 * 128
    assert found["next"]["parts"]["kv_cache"] - found["at"]["parts"]["kv_cache"] == a_token
    room = 85_899_345_920 - -(-85_899_345_920 // 10) - 2 * 8_030_261_248
    assert room // a_token * 0.97 < found["value"] <= room // a_token


def test_the_largest_concurrency():
    found = ask(f"fit {SERVE} --largest concurrency")["largest"]
    request = 8192 * 2 * 2 * 32 * 8 * 128
    assert found["value"] <= (H100.memory_bytes - 2 * 8_030_261_248) // request <= found["value"] + 2


def test_the_fewest_devices():
    found = ask("fit llama-3.1-70b --gpu h100-sxm --serve --context 4096 --prefill 1 --devices")["smallest"]
    assert found["devices"] == 2 and found["memory"]["fits"] and H100.memory_bytes < 2 * 70_553_706_496


def test_which_machines():
    found = ask("fit llama-3.1-8b --serve --context 4096 --prefill 1 --machines")["machines"]
    assert {one["machine"]: one["devices"] for one in found}["h100-sxm"] == 1
    assert all(one["memory"]["fits"] for one in found if one["devices"])


def test_the_best_format():
    found = ask("fit llama-3.1-8b --memory 8GiB --serve --context 8192 --prefill 1 --formats")
    assert found["best"] == next(one["format"] for one in found["formats"] if one["memory"] and one["memory"]["fits"])
    assert ask("fit llama-3.1-8b --memory 1GiB --serve --context 8192 --prefill 1 --formats", code=1)["best"] is None


def test_the_best_layout():
    found = ask("plan llama-3.2-1b --gpu h100-sxm --count 4 --batch 8 --seq 2048 --recompute none")
    assert found["best"]["memory"]["fits"] and found["best"]["layout"]["devices"] == 4
    assert all(one["seconds"] >= found["best"]["seconds"] for one in found["next"])
    assert found["looked_at"]["timed"] < found["looked_at"]["candidates"]


def test_a_training_run():
    line = "train llama-3.1-8b --gpu h100-sxm --dp 8 --zero 3 --recompute full --batch 64 --seq 4096 --tokens 1T --price 2"
    found = ask(line)
    tokens = 64 * 4096
    assert found["time"]["tokens"] == tokens and found["run"]["steps"] == -(-(10**12) // tokens)
    assert sum(found["time"]["phases"].values()) == pytest.approx(found["time"]["seconds"])
    assert found["time"]["lower_seconds"] <= found["time"]["seconds"]
    assert found["run"]["estimate"]["cost"] == pytest.approx(2 * found["run"]["estimate"]["device_hours"])
    days = 10**12 / found["tokens_per_second"] / 86400
    assert found["run"]["estimate"]["days"] == pytest.approx(days)
    assert found["tokens_per_second_per_device"] * 8 == pytest.approx(found["tokens_per_second"])
    assert found["compute"]["six_nd"] == 6 * 8_030_261_248 * 10**12
    one = flops(load("llama-3.1-8b").budget(Step.train(1, 4096))).total
    assert found["mfu"] == pytest.approx(64 * one / found["time"]["seconds"] / 8 / 989.4e12)
    assert 1.2 < found["hfu"] / found["mfu"] < 1.35  # a forward of the layers more than three
    assert {"compute", "memory", "link", "launch", "latency", "profile"} <= set(found["efficiency"])


def test_a_service():
    found = ask("serve llama-3.1-8b --gpu h100-sxm --batch 4 --prompt 1000 --output 100 --price 3")
    assert found["time_to_first_token"]["lower_seconds"] <= found["time_to_first_token"]["seconds"]
    last = found["time_per_output_token"]["last"]
    assert last["tokens_per_second"] == pytest.approx(4 / last["seconds"])
    assert found["million_output_tokens"]["cost"] == pytest.approx(3 * found["million_output_tokens"]["device_hours"])
    per = found["time_per_output_token"]
    assert found["request_seconds"] == pytest.approx(
        found["time_to_first_token"]["seconds"] + 99 * (per["first"]["seconds"] + last["seconds"]) / 2
    )
    most = ask("fit llama-3.1-8b --gpu h100-sxm --serve --context 1100 --prefill 1 --largest concurrency")["largest"]["value"]
    assert found["concurrency"] == most


def test_whose_utilization_is_printed():
    """PaLM 540B: 238.3K tokens/s on 6144 TPU v4, 46.2% of peak, 45.7% without attention; arXiv:2204.02311, section 4.1."""
    line = "mfu palm-540b --gpu tpu-v4 --count 6144 --tokens-per-second 238.3k --seq 2048 --printed"
    found = {one["convention"]: one for one in ask(f"{line} 46.2%")["readings"]}
    assert found["palm"]["reproduces"] == ["mfu"] and found["kaplan"]["reproduces"] == []
    assert found["megatron-2021"]["refused"] and found["megatron-2021"]["mfu"] is None
    ask(f"{line} 57.8%", code=1)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_experts_that_a_batch_touches():
    """Qwen3 30B-A3B: 128 experts, 8 active; 16 tokens reach 82.42251, https://github.com/vllm-project/vllm/pull/54228."""
    assert round(touched(128, 8, 16), 5) == 82.42251
    (bank,) = experts(load("qwen3-30b-a3b"), 16)
    assert (bank.e, bank.a, round(bank.touched, 5)) == (128, 8, 82.42251)
    assert touched(8, 2, 1) == 2 and experts(load("gpt2"), 4) == ()
    assert ask("serve qwen3-30b-a3b --gpu h100-sxm --batch 16")["experts"][0]["e"] == 128
    with pytest.raises(InputError, match="touched"):
        touched(8, 9, 1)


def test_latent_attention_is_decoded_absorbed():
    """A step reads each layer's latents once, 2·(512 + 64) bytes a token, and not keys and values of 128 heads."""
    found = ask("serve deepseek-v2-lite --gpu h100-sxm --batch 8 --prompt 4096 --output 2 --efficiency published")
    weights = found["memory"]["parts"]["weights"]
    cache = 8 * 4098 * 27 * 576 * 2
    assert found["memory"]["parts"]["kv_cache"] == cache
    assert found["time_per_output_token"]["last"]["seconds"] < (weights + 20 * cache) / H100.bandwidth
    assert any("absorbed" in note for note in found["notes"])


@pytest.mark.parametrize("text,low,high", [("43%", 0.425, 0.435), ("43.1", 0.4305, 0.4315), ("0.431", 0.4305, 0.4315)])
def test_a_printed_figure_is_an_interval(text, low, high):
    found = printed(text)
    assert found.is_of(low) and found.is_of(high) and not found.is_of(low - 1e-5) and not found.is_of(high + 1e-5)


def test_speeds_are_one_measurement():
    """A step of b·t tokens in so many seconds is b·t/seconds tokens a second, and so many FLOP/s a device."""
    budget = load("gpt2").budget(Step.train(4, 512))
    step = readings(budget, Speed.of("step_seconds", 2.0, 2048, 4), 4, 10**14)
    rate = readings(budget, Speed.of("tokens_per_second", 1024.0, 2048, 4), 4, 10**14)
    device = readings(budget, Speed.of("tokens_per_second_per_device", 256.0, 2048, 4), 4, 10**14)
    assert step == rate == device
    for one in step:
        claimed = int(one.flops_per_token * Fraction(256))
        again = {r.convention: r for r in readings(budget, Speed.of("flops_per_second", claimed, 2048, 4), 4, 10**14)}
        assert again[one.convention].tokens_per_second == pytest.approx(1024, rel=1e-4)
        assert again[one.convention].use.mfu == pytest.approx(claimed / 10**14)


def test_what_is_run_again_is_in_hfu_alone():
    plain, again = (
        {one["convention"]: one for one in ask(f"mfu gpt2 --gpu h100-sxm --step-seconds 1 {words}")["readings"]}
        for words in ("", "--recompute full")
    )
    for name in ("torch", "exact", "megatron-2022"):
        assert again[name]["mfu"] == plain[name]["mfu"] == plain[name]["hfu"] < again[name]["hfu"]


def test_factors_by_hand():
    line = "serve llama-3.1-8b --gpu h100-sxm --batch 1 --prompt 10 --output 10"
    slow, fast = (ask(f"{line} --efficiency compute=.6,memory={memory},launch=0") for memory in (0.4, 0.8))
    ratio = slow["time_per_output_token"]["last"]["seconds"] / fast["time_per_output_token"]["last"]["seconds"]
    assert ratio == pytest.approx(2, rel=0.02)
    assert slow["efficiency"]["memory"] == 0.4 and slow["efficiency"]["launch"] == 0
    same = [one["time_per_output_token"]["last"]["lower_seconds"] for one in (slow, fast)]
    assert same[0] == same[1]


# -- budget ------------------------------------------------------------------------------------------------------------


def test_a_budget_has_memory_and_a_verdict_on_a_machine():
    empty = ask("budget llama-3.1-8b")
    assert empty["memory"] is None and empty["verdict"] is None
    found = ask("budget llama-3.1-8b --mode decode --context 4096 --batch 8 --gpu h100-sxm")
    assert found["verdict"]["fits"] and found["memory"]["parts"]["kv_cache"] == found["kv_cache"]["bytes"]
    trained = ask("budget llama-3.1-8b --mode train --gpu h100-sxm")
    assert not trained["verdict"]["fits"] and sum(trained["verdict"]["missing"].values()) == -trained["verdict"]["free"]
    assert {name: value for name, value in empty.items() if value is not None}.keys() <= found.keys()


# -- forms and refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--csv"], ["--markdown"], ["--latex"], ["--html"]], ids=str)
@pytest.mark.parametrize("line", [
    f"fit {SERVE}", f"fit {SERVE} --largest batch", "plan gpt2 --gpu h100-sxm --count 2 --serve --latency",
    "plan gpt2 --gpu h100-sxm --count 2 --batch 2 --seq 64", "mfu gpt2 --gpu h100-sxm --step-seconds 1",
    "train gpt2 --gpu h100-sxm --batch 2 --seq 64 --tokens 1G", "serve gpt2 --gpu h100-sxm --prompt 10 --output 10",
])  # fmt: skip
def test_every_form(line, form):
    result = run(*line.split(), *form)
    assert result.exit_code == 0 and result.stdout.strip(), result.output


@pytest.mark.parametrize("line", [
    "plan deepseek-v2-lite --gpu h100-sxm --count 1 --batch 1 --seq 4096",
    "plan llama-3.1-70b --gpu h100-sxm --count 1 --serve", "fit llama-3.1-70b --gpu t4 --serve",
    "plan llama-3.1-8b --gpu h100-sxm --count 1 --serve --within 0.000001",
    "train llama-3.1-8b --gpu h100-sxm --batch 1 --tokens 1G", "serve llama-3.1-70b --gpu h100-sxm",
])  # fmt: skip
def test_no_is_exit_code_1(line):
    result = run(*line.split())
    assert result.exit_code == 1 and result.stdout and not result.stderr, result.output


@pytest.mark.parametrize("line,message", [
    ("fit llama-3.1-8b --serve", "give --gpu NAME, or --memory SIZE"), ("fit gated-mlp --gpu h100-sxm", "is a block"),
    ("fit llama-3.1-8b --gpu h900", "machine 'h900'"), ("fit llama-3.1-8b --gpu h100-sxm --reserve 5%%", "--reserve 5%%"),
    ("fit llama-3.1-8b --gpu h100-sxm --reserve 100%", "leaves nothing"), ("fit llama-3.1-8b --memory x", "--memory x"),
    ("fit llama-3.1-8b --gpu h100-sxm --count 4 --tp 2", "the layout has 2 devices"),
    ("fit llama-3.1-8b --gpu h100-sxm --largest batch --devices", "one question at a time"),
    ("fit llama-3.1-8b --gpu h100-sxm --largest concurrency", "requests in serving"),
    ("fit gemma-2-9b --gpu h100-sxm --serve --attention flash", "soft-capped"),
    ("fit gpt2 --gpu h100-sxm --count 7 --serve --tp 7", "divisible"),
    ("fit llama-3.1-8b --gpu h100-sxm --train --formats", "weights that train"),
    ("plan llama-3.1-8b --gpu h100-sxm --batch 8", "--count"), ("plan llama-3.1-8b --gpu h100-sxm --count 8", "--batch"),
    ("plan llama-3.1-8b --gpu h100-sxm --count 8 --batch 7 --tp 1 --pp 1 --cp 1", "no layout of 8 devices"),
    ("plan llama-3.1-8b --gpu h100-sxm --count 8 --batch 8 --within 1", "--within: an option of --serve"),
    ("plan llama-3.1-8b --gpu h100-sxm --count 0 --batch 8", "count = 0"),
    ("train llama-3.1-8b --gpu h100-sxm --batch 3 --dp 2 --tokens 1T", "not divisible by dp"),
    ("train llama-3.1-8b --gpu h100-sxm --batch 2 --tokens 1.5", "--tokens 1.5"),
    ("train llama-3.1-8b --gpu h100-sxm --batch 2 --tokens 1T --price nan", "--price nan"),
    ("train llama-3.1-8b --gpu h100-sxm --batch 2 --tokens 1T --optimizer lion", "--optimizer lion"),
    ("train llama-3.1-8b --gpu h100-sxm --batch 2 --tokens 1T --efficiency compute=2", "a fraction of the peak"),
    ("train llama-3.1-8b --gpu h100-sxm --batch 2 --tokens 1T --efficiency speed=1", "--efficiency speed=1"),
    ("train t5-base --gpu h100-sxm --pp 2 --batch 2 --tokens 1T", "an encoder beside a decoder"),
    ("serve llama-3.1-8b --gpu h100-sxm --quant nf3", "format 'nf3'"),
    ("serve llama-3.1-8b --gpu v100-sxm2-32", "no rate in bf16"),
    ("mfu gpt2 --gpu h100-sxm", "give one of --tokens-per-second"),
    ("mfu gpt2 --gpu h100-sxm --tokens-per-second 1 --step-seconds 1", "give one of"),
    ("mfu gpt2 --gpu h100-sxm --tokens-per-second -1", "--tokens-per-second -1"),
    ("mfu gpt2 --gpu h100-sxm --step-seconds 1 --printed high", "--printed high"),
    ("mfu gpt2 --gpu h100-sxm --step-seconds 1 --dtype fp4", "no rate in fp4"), ("budget gpt2 --count 2", "give --gpu"),
])  # fmt: skip
def test_bad_input_is_one_line(line, message):
    result = run(*line.split())
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert message in result.stderr and result.stderr.count("\n") == 1 and result.stderr.startswith("blockcalc: ")


def test_what_is_assumed_stands_below():
    text = " ".join(run("serve", "gemma-2-9b", "--gpu", "h100-sxm", "--batch", "2").stdout.split())
    for words in ("attention fused", "Lower bound", "kept free", "hidden behind"):
        assert words in text


def test_a_budget_takes_a_layout_and_holds_what_memory_says():
    layout, kernels = "--tp 8 --sp --pp 4 --dp 2 --zero 1 --optimizer adamw-megatron", "--attention math --norm composed"
    held = ask(f"memory llama-3.1-70b --train {layout} {kernels}")["memory"]
    found = ask(f"budget llama-3.1-70b --mode train {layout}")
    assert {name: found["memory"][name] for name in held} == held and found["verdict"] is None
    assert found["memory"]["layout"]["devices"] == 64
    served = ask("budget llama-3.1-8b --mode decode --context 8192 --tp 2 --quant fp8 --gpu h100-sxm")
    same = ask(f"memory llama-3.1-8b --serve --context 8192 --prefill 1 --tp 2 --quant fp8 {kernels}")["memory"]
    assert served["memory"]["parts"] == same["parts"] and served["verdict"]["devices"] == 2


@pytest.mark.parametrize(("line", "said"), [
    ("budget gpt2 --optimizer sgd", "--optimizer sgd: of what?"),
    ("budget gpt2 --quant fp8", "--quant fp8: of what?"),
    ("budget llama-3.1-8b --gpu h100-sxm --count 2 --tp 4", "--count 2: the layout has 4 devices"),
    ("budget llama-3.1-8b --tp 2 --optimizer sgd", "an option of --mode train"),
    ("budget llama-3.1-8b --mode train --tp 2 --quant fp8", "weights in it do not train"),
    ("budget llama-3.1-8b --mode train --tp 2 --optimizer zzz", "--optimizer zzz: not one of"),
    ("budget mha --tp 2", "mha is a block"),
])  # fmt: skip
def test_a_budget_refuses_options_of_memory_that_mean_nothing(line, said):
    result = run(*line.split())
    assert result.exit_code == 2 and said in result.stderr and result.stderr.count("\n") == 1
