"""Plans over grids: every row is the number that the planner itself computes for that configuration, or says why not."""

import csv
import random
from dataclasses import replace
from functools import reduce
from importlib.util import find_spec

import numpy as np
import pytest
from click.testing import CliRunner

from blockcalc import InputError, load
from blockcalc.cli import main
from blockcalc.convention import flops
from blockcalc.errors import BlockcalcError
from blockcalc.memory.held import Serving, Training, heaviest, serving, training
from blockcalc.parallel.layout import Layout
from blockcalc.plan.engines import absorbed
from blockcalc.storage.optimizers import OPTIMIZERS
from blockcalc.storage.precision import Precision, named
from blockcalc.sweep.evaluate import rows
from blockcalc.sweep.grid import Grid
from blockcalc.sweep.plans import PLANS
from blockcalc.sweep.run import sweep
from blockcalc.sweep.spec import spec
from blockcalc.tensor import Kernels, Step
from blockcalc.timing.costs import Counting
from blockcalc.timing.efficiency import MEASURED, Efficiency
from blockcalc.timing.machine import machine
from blockcalc.timing.roofline import Setup
from blockcalc.timing.serving import first_token, next_token
from blockcalc.timing.training import training_step


def lines(*models, over, quantities, **rest):
    """All rows of a small grid."""
    grid = Grid(spec(models, over, quantities, **rest))
    return [line for block in range(grid.blocks) for line in rows(grid, block).lines()]


def truth(line, quantity, model=None):
    """The number of a row, or the refusal, from the planner on numbers alone: no letter, no closed form."""
    fields = ("num_hidden_layers", "hidden_size", "intermediate_size")
    model = model or load(line["model"], {field: line[field] for field in fields if field in line})
    ranks = {name: line.get(name, 1) for name in ("tp", "cp", "dp", "ep", "pp")}
    layout = Layout(**ranks, etp=line.get("etp"), sequence=line.get("sp") == "true", zero=line.get("zero", 0))
    b, t, s = line.get("b", 1), line.get("t", 2048), line.get("s", 8192)
    dtype = line.get("dtype", "bf16")
    precision = Precision.of(named(line.get("quant") or dtype), named(dtype))
    if "kv_dtype" in line:
        precision = replace(precision, key_value=named(line["kv_dtype"]))
    kernels = Kernels(attention=line.get("attention", "fused"), norm="fused")
    microbatches, recompute = line.get("microbatches", 1), line.get("recompute", "none")
    optimizer = OPTIMIZERS[line.get("optimizer", "adamw-mixed")]
    kind, _, what = quantity.partition("_")
    if what == "memory" and kind == "train":
        run = Training(
            step=model.fit(Step.train(b, t)), microbatches=microbatches, kernels=kernels, recompute=recompute,
            optimizer=optimizer, precision=precision,
        )  # fmt: skip
        return heaviest(training(model, layout, run)).bytes
    if what == "memory":
        prefill = replace(Step.prefill(b, s), head="last")
        model, step = (model, prefill) if kind == "prefill" else (absorbed(model), Step.decode(b, s))
        return heaviest(serving(model, layout, Serving(step=model.fit(step), kernels=kernels, precision=precision))).bytes
    device = machine(line["gpu"])
    setup = Setup(device, layout, Counting(precision=precision), Efficiency.of(device, MEASURED))
    if kind == "train":
        step = training_step(
            model, setup, Step.train(b, t), microbatches, kernels=kernels, recompute=recompute, optimizer=optimizer
        )
        if what == "mfu":
            whole = model.budget(Step.train(b * microbatches * layout.dp, t))
            return flops(whole, "torch").total / step.seconds / layout.devices / device.peaks.bf16
        return {"seconds": step.seconds, "bound": step.lower, "tokens_per_second": step.per_second}[what]
    one = {"prefill": first_token, "decode": next_token}[kind]
    found = one(model if kind == "prefill" else absorbed(model), setup, b, s, kernels)
    return {"seconds": found.seconds, "bound": found.lower, "tokens_per_second": found.per_second}[what]


TRAIN, SERVE = (tuple(name for name in PLANS if (name[:5] == "train") == training) for training in (True, False))


@pytest.mark.parametrize("models,over,quantities", [
    (["llama-3.1-8b"], ["gpu=h100-sxm,a100-sxm-80", "tp=1,2,3", "pp=1,2", "b=1,3", "s=96,4096,5000"], SERVE),
    (["llama-3.1-8b", "gpt2"], ["gpu=h100-sxm", "dp=1,3", "zero=0,1,3", "b=1,2", "t=96,1000"], TRAIN),
    (["llama-3.1-8b"], ["gpu=h100-sxm", "tp=2", "sp=true", "cp=1,2", "microbatches=1,4", "pp=1,4", "t=96,4096",
                        "recompute=none,selective,full"], TRAIN),
    (["gemma-2-9b"], ["gpu=mi300x", "tp=1,4", "pp=1,2,3", "b=1,7", "s=100,4095,4096,4097,100000"], SERVE),
    (["gemma-2-9b"], ["gpu=mi300x", "recompute=none,full", "b=1,7", "t=100,4095,4096,4097"], TRAIN),
    (["deepseek-v3"], ["gpu=h200-sxm", "tp=1,8", "ep=1,8", "dp=1,8", "b=1,64", "s=128,4096"], SERVE),
    (["mixtral-8x7b"], ["gpu=h100-sxm", "ep=1,2", "dp=1,8", "zero=0,3", "optimizer=adamw,adamw-8bit,muon", "t=512"], TRAIN),
    (["llama-3.1-70b"], ["gpu=h100-sxm", "tp=4", "quant=fp8,nf4,gptq-4-128,awq-4-128", "kv_dtype=fp8,bf16", "b=1,9", "s=777"],
     SERVE),
    (["llama-3.1-8b"], ["gpu=h100-sxm", "num_hidden_layers=1,5", "intermediate_size=96,1000", "b=1,5", "s=33"], SERVE),
    (["t5-base", "bart-large"], ["gpu=a100-sxm-80", "b=1,5", "s=33,512"], SERVE),
])  # fmt: skip
def test_random_rows_are_what_the_planner_computes(models, over, quantities):
    every = lines(*models, over=over, quantities=quantities)
    seen = set()
    for line in random.Random(11).sample(every, min(24, len(every))):
        for quantity in quantities:
            try:
                wanted = truth(line, quantity)
            except BlockcalcError:
                wanted = None
            if PLANS[quantity].timed and wanted is not None:
                assert line[quantity] == pytest.approx(wanted, rel=1e-9), (quantity, line)
            else:
                assert line[quantity] == wanted, (quantity, line)
            assert line[quantity] is not None or line["refused"], line
            seen.add(line[quantity] is None)
    assert False in seen


def test_a_family_with_free_sizes_is_the_model_of_such_a_config():
    over = ["gpu=a100-sxm-80", "d=256,384", "l=2,3", "b=1,4", "t=64,100"]
    ties = ["n=d/64", "k=2", "h=64", "r=64", "f=4d", "v=1000"]
    for line in lines("llama", over=over, ties=ties, quantities=["train_memory", "train_seconds"]):
        model = load({
            "model_type": "llama", "hidden_size": line["d"], "num_attention_heads": line["n"], "num_key_value_heads": 2,
            "num_hidden_layers": line["l"], "vocab_size": 1000, "intermediate_size": 4 * line["d"], "head_dim": 64,
        })  # fmt: skip
        run = Training(step=Step.train(line["b"], line["t"]), kernels=Kernels(attention="fused", norm="fused"))
        assert line["train_memory"] == heaviest(training(model, Layout(), run)).bytes
        device = machine("a100-sxm-80")
        step = training_step(model, Setup(device), run.step)
        assert line["train_seconds"] == pytest.approx(step.seconds, rel=1e-9)


def test_rows_where_a_model_fits_are_those_that_the_machine_has_memory_for():
    over = ["gpu=h100-sxm,rtx4090", "b=1:64", "s=8192"]
    every = lines("llama-3.1-8b", over=over, quantities=["decode_memory"])
    fitting = lines("llama-3.1-8b", over=over, quantities=["decode_memory"], where=["decode_memory <= gpu_memory"])
    assert 0 < len(fitting) < len(every)
    assert fitting == [line for line in every if line["decode_memory"] <= machine(line["gpu"]).memory_bytes]
    every = lines("llama-3.1-8b", over=over, quantities=["decode_seconds"])
    fast = lines("llama-3.1-8b", over=over, quantities=["decode_seconds"], where=["decode_seconds <= 1/80"])
    assert 0 < len(fast) < len(every) and fast == [line for line in every if line["decode_seconds"] <= 1 / 80]


def run(*words):
    return CliRunner().invoke(main, ["sweep", *words])


def test_a_config_and_a_machine_of_ones_own_go_into_a_file(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2}'
    )
    (tmp_path / "ours.toml").write_text('like = "h100-sxm"\nmemory_bytes = 80000000000\nbandwidth = "2T"\n')
    gpu, out = tmp_path / "ours.toml", tmp_path / "rows.csv"
    words = (str(tmp_path / "config.json"), "--gpu", str(gpu), "--over", "b=1,2", "--quantity", "decode_seconds", "--quiet")
    assert run(*words, "-o", str(out)).exit_code == 0
    device, model = machine(gpu), load(tmp_path / "config.json")
    with out.open(newline="") as file:
        for line in csv.DictReader(file):
            wanted = next_token(model, Setup(device), int(line["b"]), 8192, Kernels(attention="fused", norm="fused"))
            assert float(line["decode_seconds"]) == pytest.approx(wanted.seconds, rel=1e-9)
    gpu.write_text('like = "h100-sxm"\nmemory_bytes = 80000000000\nbandwidth = "3T"\n')
    again = run(*words, "-o", str(out), "--resume")  # another machine, so another grid
    assert again.exit_code == 2 and "Traceback" not in again.output


@pytest.mark.parametrize("words,said", [
    (["llama-3.1-8b", "--quantity", "train_seconds"], "no machine: give --gpu NAME"),
    (["gpt2", "--quantity", "decode_memory", "--where", "decode_memory <= gpu_memory"], "gpu_memory: no machine: give --gpu"),
    (["gpt2", "--quantity", "kv", "--where", "train_memory <= 9"], "quantity train_memory is not asked for"),
    (["llama-3.1-8b", "--over", "gpu=h101", "--quantity", "train_seconds"], "h101"),
    (["llama-3.1-8b", "--over", "gpu=1,2", "--quantity", "train_seconds"], "machine '1'"),
    (["llama-3.1-8b", "--gpu", "h100-sxm", "--over", "gpu=h100-sxm", "--quantity", "train_seconds"], "--gpu: an axis too"),
    (["gated-mlp", "--over", "d=64", "--gpu", "h100-sxm", "--quantity", "train_memory"], "plans are of a whole model"),
    (["llama-3.1-8b", "--dtype", "fp8", "--quantity", "decode_memory"], "devices compute in fp32, bf16 or fp16"),
    (["llama-3.1-8b", "--quant", "nf4", "--quantity", "train_memory"], "weights in it do not train"),
    (["llama-3.1-8b", "--quant", "fp7", "--quantity", "decode_memory"], "fp7"),
    (["llama-3.1-8b", "--optimizer", "sgdm", "--quantity", "train_memory"], "not one of sgd"),
    (["llama-3.1-8b", "--microbatches", "0", "--quantity", "train_memory"], "microbatches"),
    (["llama-3.1-8b", "--over", "microbatches=a,b", "--quantity", "train_memory"], "microbatches"),
    (["llama-3.1-8b", "--kv-dtype", "nf4", "--quantity", "decode_memory"], "nf4"),
    (["llama-3.1-8b", "--over", "quant=1,null", "--quantity", "decode_memory"], "quant 1: format '1' is not one of"),
    (["llama-3.1-8b", "--over", "kv_dtype=true", "--quantity", "decode_memory"], "format 'true' is not one of"),
    (["llama-3.1-8b", "--gpu", "x" * 5000, "--quantity", "decode_seconds"], "machine 'xxx"),
    (["gemma-2-9b", "--over", "l_window=1,2", "--quantity", "train_memory"], "its layers alternate"),
    (["gpt2", "--over", "tp=8", "--gpu", "rtx4090", "--quantity", "decode_seconds"], "tp"),
    (["llama-3.1-8b", "--gpu", "v100-sxm2-32", "--quantity", "decode_seconds"], "no rate in bf16"),
])  # fmt: skip
def test_what_cannot_be_planned_is_refused_in_one_line(words, said):
    found = run(*words)
    text = (found.stderr if found.exit_code == 2 else found.stdout).replace("\n", " ")
    assert said in text and "Traceback" not in text
    assert found.exit_code == 2 or "refused" in found.stdout


def test_products_in_a_narrower_type():
    """Linear maps multiply at the rate of that type, and all else as before; the command says so."""
    fp8, bf16 = lines("llama-3.1-8b", over=["products=fp8,bf16", "gpu=h100-sxm", "s=4096"], quantities=["prefill_seconds"])
    device = machine("h100-sxm")
    setup = Setup(device, Layout(), Counting(products="fp8"), Efficiency.of(device, MEASURED))
    assert fp8["prefill_seconds"] == pytest.approx(first_token(load("llama-3.1-8b"), setup, 1, 4096).seconds, rel=1e-9)
    assert fp8["prefill_seconds"] < bf16["prefill_seconds"]
    served = CliRunner().invoke(main, ["serve", "gpt2", "--gpu", "h100-sxm", "--products", "fp8"]).stdout
    assert "Linear maps and experts multiply in fp8." in " ".join(served.split())


def test_a_rule_that_is_broken_is_seen(monkeypatch):
    """Were the lesser of compute and memory taken, rows would not be the planner's."""
    from blockcalc.sweep import evaluate

    monkeypatch.setitem(evaluate._MADE, "largest", lambda *values: reduce(np.minimum, values))
    found = lines("llama-3.1-8b", over=["gpu=h100-sxm", "b=1,3", "t=64,4096"], quantities=["train_seconds"])
    assert all(line["train_seconds"] < 0.9 * truth(line, "train_seconds") for line in found)


def test_seconds_are_floating_point_columns():
    grid = Grid(spec(["gpt2"], ["gpu=t4", "b=1,2"], ["decode_seconds", "decode_memory"]))
    found = rows(grid, 0).columns
    assert found["decode_seconds"].values.dtype == np.float64 and found["decode_memory"].values.dtype == np.int64


@pytest.mark.skipif(find_spec("distributed") is None, reason="blockcalc[sweep] is not installed: no dask")
def test_a_cluster_plans_the_same_rows(tmp_path):
    asked = spec(
        ["llama-3.1-8b"], ["gpu=h100-sxm,t4", "tp=1,2", "b=1:40"], ["train_memory", "train_seconds", "decode_bound"], block=32
    )
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    assert sweep(asked, here).blocks > 2
    sweep(asked, there, dask="local:2")
    assert here.read_bytes() == there.read_bytes()


def test_a_quantity_that_there_is_none_of():
    with pytest.raises(InputError, match="'speed' is not one of params"):
        spec(["gpt2"], [], ["speed"])
