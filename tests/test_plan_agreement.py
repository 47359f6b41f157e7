"""Commands of plans beside each other: one layout and one run, one number, and nothing that is given goes unread."""

import json
from shlex import split

import click
import pytest
from click.testing import CliRunner

from blockcalc import load
from blockcalc.cli import main
from blockcalc.convention import flops
from blockcalc.tensor import Step
from blockcalc.timing.machine import machine
from blockcalc.timing.request import Request
from blockcalc.timing.roofline import Setup
from blockcalc.timing.training import training_step


def run(*words):
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, words, prog_name="blockcalc")


def ask(line, code=0):
    result = run(*line.split(), "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def words(line):
    return " ".join(run(*line.split()).stdout.split())


# -- one run, one number -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["--tp 2 --sp", "--dp 4 --zero 3", "--pp 2 --dp 2 --zero 1"])
@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen3-30b-a3b"])
def test_memory_fit_and_train_hold_the_same(model, layout):
    memory = ask(f"memory {model} {layout} --seq 256 --microbatches 2 --attention flash --norm fused")["memory"]
    fits = ask(f"fit {model} {layout} --seq 256 --microbatches 2 --attention flash --norm fused --memory 9TB")["memory"]
    batch = 2 * (4 if "--dp 4" in layout else 2 if "--dp 2" in layout else 1)
    line = f"train {model} {layout} --seq 256 --batch {batch} --microbatch 1 --attention flash --norm fused"
    result = run(*line.split(), "--tokens", "1G", "--gpu", "b300-sxm", "--json")
    trained = json.loads(result.stdout)["memory"]
    assert memory["bytes"] == fits["bytes"] == trained["bytes"] and memory["parts"] == fits["parts"] == trained["parts"]


@pytest.mark.parametrize("model", ["deepseek-v2-lite", "llama-3.2-1b", "t5-small", "gemma-3-1b"])
@pytest.mark.parametrize("new", ["--prefill 1", "--prefill 64", ""])
def test_memory_and_fit_serve_the_same(model, new):
    line = f"--serve --batch 2 --context 512 {new} --attention math --norm fused"
    memory, fits = ask(f"memory {model} {line}"), ask(f"fit {model} {line} --memory 9TB")
    assert memory["memory"]["bytes"] == fits["memory"]["bytes"] and memory["step"] == fits["step"]
    assert memory["step"]["mode"] == ("decode" if new == "--prefill 1" else "prefill")


def test_one_token_decodes_beside_a_whole_encoder():
    """T5 small keeps 6 layers of 2·8·64 numbers a position, of the decoder and of the encoder's output."""
    parts = ask("memory t5-small --serve --prefill 1 --context 4000")["memory"]["parts"]
    assert parts["kv_cache"] == 2 * 6 * 2 * 8 * 64 * 2 * 4000


def test_a_request_of_an_encoder_and_a_decoder_holds_what_the_cache_of_transformers_does():
    """The encoder's output of the prompt, and of the decoder its first token and the answer."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"), torch.no_grad():
        model = transformers.T5ForConditionalGeneration(transformers.T5Config()).to(torch.bfloat16).eval()
        prompt, answer = (torch.ones(3, tokens, dtype=torch.long) for tokens in (200, 1 + 40))
        cache = model(input_ids=prompt, decoder_input_ids=answer, use_cache=True).past_key_values
    layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    held = sum(x.numel() * x.element_size() for layer in layers for x in (layer.keys, layer.values))
    found = ask("serve t5-small --gpu h100-sxm --batch 3 --prompt 200 --output 40")
    assert found["memory"]["parts"]["kv_cache"] == held
    assert found["step"]["context"] == 41 and found["step"]["encoder_seq"] == 200


def test_the_first_token_of_an_encoder_and_a_decoder_is_one_pass_of_both():
    line = "flops t5-small --mode prefill --seq 1 --context 1 --encoder-seq 200 --convention exact"
    step = Request.to(load("t5-small"), 200).reading(1)
    assert flops(load("t5-small").budget(step), "exact").forward == ask(line)["flops"]["forward"]
    assert Request.to(load("whisper-tiny"), 4).reading(1).t == 4 and Request.to(load("gpt2"), 4).writing(2, 3).s == 7


@pytest.mark.parametrize("line", [
    "memory llama-3.2-1b --serve --prefill 1 --context 512", "memory llama-3.2-1b --serve --prefill 16 --context 512",
    "fit llama-3.2-1b --gpu h100-sxm --serve --prefill 1 --largest context", "memory vit-base", "memory vit-base --serve",
])  # fmt: skip
def test_no_encoder_has_no_length(line):
    assert "encoder seq" not in words(line)


# -- lengths that a model sets itself ----------------------------------------------------------------------------------


def test_an_image_has_its_patches_and_no_other_tokens():
    """(224/16)² patches and the class token."""
    model, patches = load("vit-base"), 14**2 + 1
    found = training_step(model, Setup(machine("h100-sxm")), Step.train(4, 2048))
    assert found.tokens == 4 * patches
    assert ask("memory vit-base")["step"]["seq"] == patches
    assert ask("train vit-base --gpu h100-sxm --tokens 1G --batch 4")["time"]["tokens"] == 4 * patches
    read = ask("mfu vit-base --gpu h100-sxm --tokens-per-second 10000 --batch 2")["readings"]
    assert read[0]["tokens_per_second"] == pytest.approx(10000)


# -- what is said below ------------------------------------------------------------------------------------------------


def test_only_latent_attention_is_said_to_be_absorbed():
    assert "Latent attention" not in words("serve llama-3.2-1b --gpu h100-sxm")
    assert "Latent attention" in words("serve deepseek-v2-lite --gpu h100-sxm --attention math")
    assert "The encoder reads the prompt" in words("serve t5-small --gpu h100-sxm")
    assert "The encoder reads the prompt" not in words("serve whisper-tiny --gpu h100-sxm --prompt 4 --output 8")


def test_a_run_is_timed_in_its_type():
    line = "train llama-3.2-1b --gpu h100-sxm --seq 512 --batch 8 --microbatch 8 --tokens 1G"
    half, full = (ask(f"{line} --dtype {dtype}") for dtype in ("bf16", "fp32"))
    assert half["peak_flops_per_second"] == 989_400_000_000_000 and full["peak_flops_per_second"] == 66_900_000_000_000
    planned = ask("plan llama-3.2-1b --gpu h100-sxm --count 1 --seq 512 --batch 8 --microbatch 8 --dtype fp32 --recompute none")
    assert planned["best"]["seconds"] == pytest.approx(full["time"]["seconds"])
    assert full["time"]["seconds"] > 2 * half["time"]["seconds"]


def test_how_many_devices_were_too_few_is_said():
    """Two RTX 4090 have 48 GiB, and 405B parameters 754 GiB in 2 bytes each."""
    found = ask("fit llama-3.1-405b --gpu rtx4090 --serve --prefill 1 --devices", code=1)["smallest"]
    assert found["devices"] is None and found["tried"] == 2


def test_copies_of_a_model_fill_devices_that_nothing_else_divides():
    """16 divide neither the 12 layers nor the 50257 words of GPT-2, nor 37 the 32 of Llama."""
    assert ask("fit gpt2 --gpu h100-sxm --count 16 --serve --seq 1024")["layout"]["devices"] == 16
    assert ask("fit llama-3.1-8b --gpu h100-sxm --count 37 --serve")["layout"]["dp"] == 37


def test_a_longer_run_than_the_table_of_positions_is_warned_of():
    machine = "gpt2 --gpu h100-sxm --seq"
    for line in (f"train {machine} 2048 --tokens 1G --batch 1", f"mfu {machine} 2048 --step-seconds 1",
                 f"plan {machine} 2048 --count 1 --batch 1", f"fit {machine} 2048 --serve"):
        assert "1024 learned positions" in run(*line.split()).stderr


def test_no_context_is_longer_than_the_table_of_positions():
    """GPT-2 has n_positions = 1024, of which a multiple of 2·cp = 6 is 1020, and Whisper's decoder 448."""
    for line, rows, value in (("gpt2 --serve", 1024, 1024), ("gpt2 --serve --prefill 1", 1024, 1024),
                              ("gpt2 --cp 3 --seq 12", 1024, 1020), ("whisper-tiny --serve", 448, 448)):
        line = f"fit {line} --gpu h100-sxm --largest context"
        found = ask(line)
        assert (found["largest"]["value"], found["largest"]["limit"]) == (value, "positions") and not found["largest"]["next"]
        assert f"the learned position table ends at {rows:,}: it is the limit, and memory is not" in words(line)
        assert run(*line.split()).stderr == ""
    small = ask("fit gpt2 --memory 300MB --serve --largest context")["largest"]
    assert small["value"] < 1024 and small["limit"] == "memory" and not small["next"]["fits"]


def test_data_ranks_of_experts_alone_are_split_by_zero():
    """Whole experts on each of two tensor ranks are replicas, though no other weight is."""
    whole, cut = (ask(f"memory mixtral-8x7b --tp 2 --etp 1 --zero {zero}")["memory"] for zero in (0, 1))
    assert cut["parts"]["exp_avg"] < whole["parts"]["exp_avg"] and cut["parts"]["weights"] == whole["parts"]["weights"]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line,message", [
    ("memory gpt2 --microbatches 0", "microbatches = 0"), ("memory gpt2 --serve --prefill 0", "prefill = 0"),
    ("memory gpt2 --serve --recompute full", "--recompute full: an option of training"),
    ("memory gpt2 --serve --dropout mask", "--dropout mask: an option of training"),
    ("memory gpt2 --policy unified", "--policy unified: an option of serving"),
    ("memory gpt2 --serve --seq 8 --context 16", "--seq 8"), ("memory gpt2 --pp 2 --stages 0000000006,6", "--stages"),
    ("memory gpt2 --dp 2 --sp", "--sp: splits"), ("comm llama-3.2-1b --tp 2 --ulysses", "--ulysses: context ranks"),
    ("budget gpt2 --pp 2 --zero 1", "--zero 1: splits"), ("fit gpt2 --memory 9GB --count 2 --sp", "--sp: splits"),
    ("memory gpt2 --chunks 2", "but pp = 1"), ("memory gpt2 --dp 2 --ep 2", "no bank of experts"),
    ("fit gpt2 --gpu h100-sxm --devices --tp 2", "leave out --tp"),
    ("fit gpt2 --gpu h100-sxm --devices --count 2", "leave out --count"),
    ("fit gpt2 --memory 9GB --machines", "leave out --memory"),
    ("fit gpt2 --gpu h100-sxm --machines", "leave out --gpu"),
    ("fit gpt2", "give --gpu NAME, or --memory SIZE"),
    ("fit gpt2 --gpu h100-sxm --serve --formats --quant fp8", "leave out --quant"),
    ("fit gpt2 --gpu h100-sxm --serve --largest context --prefill 1025 --context 2000", "the shortest context here is 1025"),
    ("fit gpt2 --memory 0", "--memory 0"), ("fit vit-base --gpu h100-sxm --largest context", "always has 197 positions"),
    ("plan gpt2 --gpu h100-sxm --count 2 --serve --recompute full", "--recompute: an option of --train"),
    ("plan gpt2 --gpu h100-sxm --count 2 --serve --zero 1", "--zero: an option of --train"),
    ("plan gpt2 --gpu h100-sxm --count 2 --batch 2 --quant fp8", "--quant: an option of --serve"),
    ("plan gpt2 --gpu h100-sxm --count 2 --batch 2 --prompt 8", "--prompt: an option of --serve"),
    ("plan llama-3.2-1b --gpu h100-sxm --count 2 --batch 2 --microbatch 4", "batch = 2 is not divisible by dp·microbatch"),
    ("plan gpt2 --gpu h100-sxm --count 2 --batch 2 --tp 3", "what is fixed of tp, cp, pp, dp and ep has to divide them"),
    *((line.format(model), "nothing to decode from a cache") for model in ("vit-base", "mixer-b16", "bert-base") for line in (
        "flops {} --mode decode --seq 64", "flops {} --mode prefill --seq 8 --context 64", "budget {} --mode decode --seq 64",
        "formula {} decode_flops", "memory {} --serve --prefill 1 --context 64", "fit {} --serve --prefill 1 --memory 9GB",
        "fit {} --largest concurrency --serve --memory 9GB", "serve {} --gpu h100-sxm",
        "plan {} --gpu h100-sxm --count 1 --serve",
    )),
    ("train gpt2 --gpu h100-sxm --tokens 1G --batch 1 --pue .5", "--pue .5"),
    ("train gpt2 --gpu h100-sxm --tokens 1G --batch 1 --efficiency compute=.5,compute=.6", "given twice"),
])  # fmt: skip
def test_what_is_not_read_is_refused(line, message):
    result = run(*line.split())
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert message in result.stderr and result.stderr.count("\n") == 1 and result.stderr.startswith("blockcalc: ")


# -- help --------------------------------------------------------------------------------------------------------------

ELSEWHERE = ("path/to", "model.safetensors", "model-Q4", " -o ", "--dask", "16384", "--all")
"""Examples that want a file, write one, or take longer."""


def examples():
    context = click.Context(main)
    for name in ("params", "flops", "kv", "activations", "budget", "memory", "comm", "fit", "plan", "train", "serve", "mfu",
                 "compare", "explain", "machines"):
        lines = (main.get_command(context, name).help or "").splitlines()
        yield from (line.strip() for line in lines if line.strip().startswith("blockcalc "))


@pytest.mark.parametrize("line", [line for line in examples() if not any(part in line for part in ELSEWHERE)])
def test_every_example_of_the_help_is_answered(line):
    result = run(*split(line)[1:])
    assert result.exit_code in (0, 1) and not result.stderr, result.output
