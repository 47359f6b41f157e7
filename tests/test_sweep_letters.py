"""Plans with letters: what closed forms may not take for granted is refused or chosen by the row, never wrong."""

import math
from dataclasses import replace
from functools import cache

import pytest
from click.testing import CliRunner
from test_sweep_plans import lines, truth

from blockcalc import InputError, load
from blockcalc.cli import main
from blockcalc.dims import symbol
from blockcalc.errors import BlockcalcError
from blockcalc.inverse.sides import concrete, subject
from blockcalc.memory.held import Serving, Training, heaviest, serving, training
from blockcalc.parallel.layout import Layout
from blockcalc.plan.engines import routed
from blockcalc.plan.fit import fit
from blockcalc.sweep.exact import Real
from blockcalc.tensor import Kernels, Step
from blockcalc.timing.efficiency import MEASURED, Efficiency
from blockcalc.timing.machine import machine
from blockcalc.timing.roofline import Setup
from blockcalc.timing.serving import first_token, served

DEVICE = Kernels(attention="fused", norm="fused")
LETTERS = ("d", "f", "n", "k", "h", "l", "e", "a", "t_chunk")
_subject = cache(lambda name: subject(load(name)))


def sized(line):
    """The row's model in numbers, its letters among them, and its layers in the order of the preset."""
    found, whole = _subject(line["model"]), load(line["model"])
    own = {symbol(letter[0].upper() + letter[1:]): line[letter] for letter in LETTERS if letter in line}
    made = concrete(found.component, {**found.values, **own})
    return replace(made, stack=replace(made.stack, order=whole.stack.order)) if whole.stack.order else made


def differences(every, quantities):
    """Rows that are another number than the planner's, or a number where it refuses; and how many cells have one."""
    wrong, numbers = [], 0
    for line in every:
        for quantity in quantities:
            try:
                wanted = truth(line, quantity, sized(line))
            except BlockcalcError:
                wanted = None
            got = line[quantity]
            numbers += got is not None
            if got is not None and (wanted is None or not math.isclose(got, wanted, rel_tol=1e-9)):
                wrong.append((quantity, got, wanted, line))
    return wrong, numbers


TIMED, HELD = ("train_seconds", "decode_seconds", "prefill_seconds"), ("train_memory", "decode_memory", "prefill_memory")
ALL = (*TIMED, *HELD)


@pytest.mark.parametrize("model,over,quantities,refused", [
    ("llama-3.1-8b", ["tp=4,8", "sp=true,false", "k=1,2,4,8", "t=96"], ["train_seconds", "train_bound"],
     "ranks that share k"),  # their gradients are summed
    ("dinov2-base", ["l=1,2,3", "b=1,64"], ["train_memory", "prefill_memory"], None),  # the first layer's input
    ("llama-3.1-8b", ["l=1,2", "t=96", "recompute=none,full"], ["train_memory", "train_seconds"], None),
    ("mixtral-8x7b", ["e=1,2,3,7", "a=1,2", "dp=2", "ep=2", "t=96"], ALL, "experts of a bank e is not divisible by ep"),
    ("llama-3.1-8b", ["h=64,256,257", "t=96"], ["train_seconds", "train_memory", "activations"], "at most 256 backward"),
    ("llama-2-70b", ["f=28672,28673", "quant=gptq-4-128", "s=64"], ["decode_memory", "decode_seconds"], "not divisible by 32"),
    ("nemotron-h-56b", ["s=1,2,3,1000"], ["decode_memory", "decode_seconds", "prefill_memory"], "one visible token"),
    ("granite-4.0-h-1b", ["t_chunk=64,128", "s=2,1000"], ["decode_memory", "decode_seconds"], None),
    ("qwen3-next-80b-a3b", ["t_chunk=32,64", "s=2,100"], ["decode_memory", "decode_seconds"], None),
    ("qwen3-next-80b-a3b", ["t=1,2,64,65,128", "recompute=none,full"], ["train_seconds", "train_memory", "train_mfu"], None),
    ("qwen3-next-80b-a3b", ["b=1,3", "s=1,2,100"], ["decode_memory", "decode_seconds", "prefill_seconds"], "one visible token"),
])  # fmt: skip
def test_letters_are_numbers_row_by_row(model, over, quantities, refused):
    asked = [name for name in quantities if name != "activations"]
    every = lines(model, over=["gpu=h200-sxm", *over], quantities=quantities, options={"attention": "fused"})
    wrong, numbers = differences([{**line, "attention": "fused"} for line in every], asked)
    assert numbers and not wrong, wrong[:3]
    reasons = " ".join(line["refused"] or "" for line in every)
    assert (refused or "") in reasons and (refused or not reasons.strip()), reasons


def test_chunks_of_attention_are_whole_ones_in_seconds():
    quantities = ["train_bound", "train_seconds"]
    for line in lines("llama-4-scout", over=["gpu=gb200", "t=1000,8193,20000", "s=8193"], quantities=quantities):
        for quantity in quantities:
            wanted = truth(line, quantity, routed(load(line["model"])))
            assert line[quantity] == pytest.approx(wanted, rel=1e-9)


def test_an_encoders_length_is_that_of_what_it_reads():
    model, device = load("t5-base"), machine("a100-sxm-80")
    setup = Setup(device, efficiency=Efficiency.of(device, MEASURED))
    for line in lines("t5-base", over=["gpu=a100-sxm-80", "encoder_seq=7,100", "b=1,2", "s=33", "t=20"], quantities=ALL):
        b, source = line["b"], line["t_encoder"]
        assert line["prefill_seconds"] == pytest.approx(first_token(model, setup, b, source).seconds, rel=1e-9)
        step = Step.decode(b, 33, source)
        assert line["decode_seconds"] == pytest.approx(served(model, setup, step).seconds, rel=1e-9)
        assert line["decode_memory"] == heaviest(serving(model, Layout(), Serving(step=step, kernels=DEVICE))).bytes
        run = Training(step=Step.train(b, 20, source), kernels=DEVICE)
        assert line["train_memory"] == heaviest(training(model, Layout(), run)).bytes


def test_experts_are_spread_whole_whatever_the_number_of_layers():
    """Seven experts in each of 32 layers are 224, which two ranks could share; a layer's seven they cannot."""
    model = load("mixtral-8x7b", {"num_local_experts": 7})
    run = Serving(step=Step.decode(1, 64), kernels=DEVICE)
    with pytest.raises(InputError, match="e = 7 is not divisible by ep = 2"):
        fit(model, Layout(dp=2, ep=2), run, 10**12)


def test_what_is_no_finite_number_is_none():
    x = symbol("X")
    values, past = Real([1 / (x - 1), x]).on({"X": 1}, (1,))[0]
    assert past.all() and math.isfinite(float(values))


def test_a_folder_is_not_written_over(tmp_path):
    (tmp_path / "rows.csv").mkdir()
    found = CliRunner().invoke(main, ["sweep", "gpt2", "-o", str(tmp_path / "rows.csv"), "--force"])
    assert found.exit_code == 2 and "Is a directory" in found.output and not (tmp_path / "rows.csv.parts").exists()


def test_a_machine_without_the_memory_asked_of_it():
    for words in (["--quantity", "train_memory", "--where", "train_memory <= gpu_memory"], ["--where", "params <= gpu_memory"]):
        found = CliRunner().invoke(main, ["sweep", "gpt2", *words])
        assert found.exit_code == 2 and "gpu_memory" in found.output and "Traceback" not in found.output
