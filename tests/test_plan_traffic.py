"""All that a layout sends in a step, by pipeline rank, and the commands that print it."""

import json

import pytest
from click.testing import CliRunner

from blockcalc import Step, flops, load
from blockcalc.cli import main
from blockcalc.memory.held import Training, training
from blockcalc.parallel.layout import Layout
from blockcalc.plan.traffic import traffic, widths_of
from blockcalc.storage.optimizers import ADAMW_MEGATRON

GPT2, B, T, D = load("gpt2"), 3, 64, 768
RUN = Training(step=Step.train(B, T), microbatches=5, optimizer=ADAMW_MEGATRON)


def ask(*words):
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_one_device_sends_nothing():
    assert traffic(GPT2, Layout(), RUN) == ((),)


def test_stages_hand_the_stream_on_for_every_microbatch():
    ranks = traffic(GPT2, Layout(pp=3), RUN)
    sent = [[(one.phase, one.elements, one.copies) for one in rank if one.group == "pp"] for rank in ranks]
    forth, back = ("forward", B * T * D, 5), ("backward", B * T * D, 5)
    assert sent == [[forth], [forth, back], [back]]


def test_both_ends_sum_the_gradients_of_a_tied_table_in_the_optimizers_type():
    first, middle, last = traffic(GPT2, Layout(pp=3), RUN)
    (table,) = (one for one in first if one.group == "ends")
    assert table in last and not [one for one in middle if one.group == "ends"]
    assert table.sent(widths_of(table, RUN)) == 4 * 50257 * D  # an all-reduce of two: 2·(2 − 1)/2 of it, four bytes each
    assert not [one for rank in traffic(load("llama-3.1-8b"), Layout(pp=2), RUN) for one in rank if one.group == "ends"]


@pytest.mark.parametrize(("zero", "times"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_data_ranks_send_what_zero_says(zero, times):
    # Rajbhandari et al. 2020, section 7, in elements: 2Ψ(Z − 1)/Z, and 3Ψ where weights are gathered twice
    (rank,) = traffic(GPT2, Layout(dp=4, zero=zero), RUN)
    ones = dict.fromkeys(("matrix", "table", "vector", "head"), 1)
    total = GPT2.budget(Step.forward(1, 1)).parameters().total
    outside = 50257 * D + 1024 * D + 2 * D if zero == 3 else 0  # gathered once: torch's fully_shard keeps it
    padding = 3 * D * 3 if zero == 3 else 0  # 50257 rows are filled up to 50260, gathered, and reduced
    assert sum(one.sent(ones) for one in rank) == pytest.approx(((times * total - outside) * 3 + padding) / 4, rel=1e-4)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_ranks_of_a_replica_share_the_models_work(recompute):
    model = load("llama-3.1-8b")
    run = Training(step=Step.train(1, T), microbatches=4, recompute=recompute)
    ranks = training(model, Layout(tp=4, pp=2, dp=3), run)
    whole = flops(model.budget(run.step, run.kernels, recompute)).total
    assert 4 * sum(rank.flops for rank in ranks) == 4 * whole


def test_comm_prints_what_traffic_finds():
    found = ask("comm", "gpt2", "--train", "--batch", "3", "--seq", "64", "--microbatches", "5", "--pp", "3", "--json")
    sent = [sum(one.sent(widths_of(one, Training(step=RUN.step))) for one in rank) for rank in traffic(GPT2, Layout(pp=3), RUN)]
    assert [rank["sent_bytes"] for rank in found["comm"]] == sent
    assert found["layout"]["pp"] == 3 and found["microbatches"] == 5


@pytest.mark.parametrize(("words", "said"), [
    (["--tp", "5", "--vocab-multiple", "5"], "n = 12 is not divisible by tp = 5"),
    (["--tp", "2"], "--vocab-multiple pads, v = 50257 is not divisible by tp = 2"),
    (["--pp", "5"], "l = 12 layers are not divisible by pp·chunks = 5"),
    (["--pp", "2", "--stages", "6,7"], "stages of 6, 7 layers hold 13, but l = 12"),
    (["--ep", "2", "--dp", "2"], "no bank of experts"),
    (["--ep", "2", "--dp", "2", "--pp", "2"], "no bank of experts"),
    (["--ep", "3"], "tp·cp·dp = 1 is not divisible by ep·etp = 3"),
    (["--pp", "2", "--stages", "six,6"], "expected layers of each stage"),
])  # fmt: skip
def test_a_layout_that_does_not_divide_says_which_number_must(words, said):
    result = CliRunner().invoke(main, ["comm", "gpt2", "--train", *words])
    assert result.exit_code == 2
    assert said in result.stderr and result.stderr.count("\n") == 1
