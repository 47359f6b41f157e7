"""Times on machines: against sums by hand, against each other, and against what papers print of their runs."""

from dataclasses import replace
from fractions import Fraction
from math import isclose

import pytest

from blockcalc import flops, load
from blockcalc.budget import widths
from blockcalc.errors import InputError, UndefinedError
from blockcalc.parallel.collectives import Collective
from blockcalc.parallel.layout import Layout
from blockcalc.storage.formats import FP8
from blockcalc.storage.optimizers import ADAMW_BF16, ADAMW_MIXED
from blockcalc.storage.precision import Precision, named
from blockcalc.tensor import Kernels, Step
from blockcalc.timing.costs import Counting, compulsory, costs
from blockcalc.timing.efficiency import PERFECT, PUBLISHED, Efficiency
from blockcalc.timing.links import route, seconds
from blockcalc.timing.machine import Machine, Peaks, machine
from blockcalc.timing.roofline import Setup, roofline
from blockcalc.timing.serving import first_token, generate, next_token
from blockcalc.timing.training import bubble, optimizer_traffic, training_step

H100, A100 = machine("h100-sxm"), machine("a100-sxm-80")
LLAMA = load("llama-3-8b")
TINY = load("llama-3-8b", {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 10, "vocab_size": 70,
})  # fmt: skip
FLASH = Kernels(attention="flash", norm="fused")
ALONE = Layout()


# -- work and bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2", "mixtral-8x7b", "deepseek-v3", "t5-base", "gemma-2-9b"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_flops_are_those_of_the_convention_torch(name, recompute):
    budget = load(name).budget(Step.train(2, 64), recompute=recompute)
    assert sum(cost.flops for cost in costs(budget, Counting(), ALONE)) == flops(budget).total


def test_flash_computes_the_visible_pairs():
    budget = LLAMA.budget(Step.forward(2, 64), FLASH)
    assert sum(cost.flops for cost in costs(budget, Counting(), ALONE)) == flops(budget, "exact").total


def test_unfused_bytes_are_the_budgets_traffic_but_for_the_rows_of_the_table():
    b, t, d, v = 2, 128, 4096, 128256
    budget = LLAMA.budget(Step.forward(b, t))
    moved = sum(cost.nbytes for cost in costs(budget, Counting(), ALONE))
    assert moved == budget.traffic(widths("bf16")) - 2 * v * d + 2 * b * t * d


def test_a_linear_by_hand():
    """y = x W: forward x, W, y. Backward dX = dY Wᵀ and dW = Xᵀ dY: dY twice, the saved x, W, dX, and dW added to in fp32."""
    b, t, d, f = 2, 8, 48, 80
    found = costs(TINY.budget(Step.train(b, t), FLASH), Counting(), ALONE)
    by_phase = {cost.phase: cost for cost in found if cost.path.endswith("mlp.up")}
    x, y, w, layers = b * t * d, b * t * f, d * f, 4
    assert by_phase["forward"].flops == layers * 2 * b * t * d * f
    assert by_phase["backward"].flops == layers * 4 * b * t * d * f
    assert by_phase["forward"].nbytes == layers * 2 * (x + w + y)
    assert by_phase["backward"].nbytes == layers * (2 * (2 * y + x + w + x) + 8 * w)
    assert by_phase["forward"].launches == layers


def test_fused_lines_move_nothing_and_scores_stay_on_chip():
    for kernels in (FLASH, Kernels()):
        budget = TINY.budget(Step.train(2, 8), kernels)
        found = list(costs(budget, Counting(fused=True), ALONE))
        assert all(cost.flops for cost in found if not cost.path.startswith(("embedding", "loss")))
    scores = next(cost for cost in found if cost.path.endswith("scores"))
    b, t, n, k, h, layers = 2, 8, 4, 2, 10, 4
    assert scores.nbytes == layers * 2 * b * t * h * (n + k)  # queries and keys, no b·n·t·s


def test_a_decode_step_reads_weights_and_cache_once():
    b, s = 3, 100
    budget = LLAMA.budget(Step.decode(b, s), FLASH)
    rows = 2 * b * 4096
    total, table = 8_030_261_248, 128256 * 4096
    cache = budget.cache(widths("bf16"))["full"]
    assert cache == 2 * 2 * 32 * b * s * 8 * 128
    assert compulsory(budget, Counting(), ALONE) == 2 * (total - table) + rows + cache


def test_weights_in_other_formats_are_read_in_those():
    """AWQ of groups of 128 stores 4 + 20/128 bits an element in place of 16."""
    step = Step.decode(1, 2)
    full, small = (
        sum(c.nbytes for c in costs(LLAMA.budget(step, FLASH), Counting(precision=precision), ALONE) if ".mlp." in c.path)
        for precision in (Precision(), Precision.of(named("awq-4-128")))
    )
    weights = 3 * 4096 * 14336 * 32
    assert full - small == weights * 2 - weights * (4 * 128 + 20) // 128 // 8


def test_experts_read_are_those_that_rows_reach():
    """One row reads a of e experts; many rows of evenly routed tokens e(1 − (1 − a/e)ᵀ), a bank's all at most."""
    model = load("mixtral-8x7b")
    expert, layers, e, a = 4096 * 14336 * 2, 32, 8, 2

    def read(b):
        budget = model.budget(Step.decode(b, 4), FLASH)
        cost = next(c for c in costs(budget, Counting(), ALONE) if c.path.endswith("experts.up"))
        return cost.nbytes - layers * 2 * b * a * (4096 + 14336)

    assert read(1) == layers * a * expert
    assert read(3) == round(layers * e * (1 - (1 - a / e) ** 3) * expert)
    assert read(200) == layers * e * expert


# -- links -------------------------------------------------------------------------------------------------------------


def collective(kind, group, ranks, elements=1000):
    return Collective("x", "forward", kind, group, ranks, elements, "activation", 3)


BF16 = widths("bf16")


@pytest.mark.parametrize("kind,group,layout,hand", [
    # inside the node: 2·(n − 1)/n of 2·1000 bytes, three times, at 450 GB/s
    ("all-reduce", "tp", Layout(tp=8), 3 * 2 * 7 / 8 * 2000 / 450e9),
    ("all-gather", "tp", Layout(tp=8), 3 * 7 / 8 * 2000 / 450e9),
    # data ranks alone on their nodes: a network link each
    ("all-reduce", "dp", Layout(tp=8, dp=4), 3 * 2 * 3 / 4 * 2000 / 50e9),
    # four data ranks a node: the ring runs through four links; eight give 400 of NVLink's 450
    ("all-reduce", "dp", Layout(tp=2, dp=8), 3 * 2 * 7 / 8 * 2000 / 200e9),
    ("reduce-scatter", "dp", Layout(dp=16), 3 * 15 / 16 * 2000 / 400e9),
    # all to all over two nodes: 8 of 16 shares over the network
    ("all-to-all", "ep", Layout(dp=16, ep=16), 3 * 8 / 16 * 2000 / 50e9),
    ("all-to-all", "ep", Layout(dp=8, ep=8), 3 * 7 / 8 * 2000 / 450e9),
    ("send", "pp", Layout(tp=8, pp=2), 3 * 2000 / 50e9),
    ("send", "pp", Layout(tp=2, pp=2), 3 * 2000 / 450e9),
])  # fmt: skip
def test_collectives_by_hand(kind, group, layout, hand):
    ranks = {"tp": layout.tp, "dp": layout.dp, "ep": layout.ep, "pp": layout.pp}[group]
    assert isclose(seconds(collective(kind, group, ranks, 1000), layout, H100, BF16), hand, rel_tol=1e-3)


def test_a_rack_is_one_domain():
    assert route(collective("all-reduce", "dp", 72), Layout(dp=72), machine("gb200")).ring == 900 * 10**9


def test_latency_and_efficiency_of_links():
    one = collective("all-reduce", "tp", 8)
    slow = Efficiency(link=0.5, latency=1e-6)
    plain = seconds(one, Layout(tp=8), H100, BF16)
    assert isclose(seconds(one, Layout(tp=8), H100, BF16, slow), 2 * plain + 3 * 2 * 7 * 1e-6)


def test_what_no_link_joins_is_refused():
    with pytest.raises(InputError, match=r"l4: 16 ranks of dp at a stride of 1 leave its domain of 8 devices"):
        route(collective("all-reduce", "dp", 16), Layout(dp=16), machine("l4"))
    with pytest.raises(InputError, match="apple-m1max: 2 ranks of tp"):
        roofline(LLAMA.budget(Step.decode(1, 10), FLASH), Setup(machine("apple-m1max"), Layout(tp=2)))


# -- times -------------------------------------------------------------------------------------------------------------

LAYOUTS = [
    Layout(), Layout(tp=2), Layout(tp=2, sequence=True), Layout(dp=2, zero=3), Layout(dp=4, zero=1), Layout(pp=2),
    Layout(pp=2, chunks=2), Layout(tp=2, pp=2, dp=2, zero=1, sequence=True), Layout(cp=2),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("efficiency", [PERFECT, Efficiency(), Efficiency(compute=0.1, link=0.2, hidden=frozenset())])
def test_no_estimate_beats_the_bound(layout, efficiency):
    setup = Setup(H100, layout, efficiency=efficiency)
    found = training_step(TINY, setup, Step.train(2, 64), 4)
    assert 0 < found.lower <= found.seconds
    waits = found.microbatch.waits()
    assert isclose(sum(waits.values()), found.microbatch.estimate) and min(waits.values()) >= 0
    assert found.devices == layout.devices and found.tokens == 4 * 2 * 64 * layout.dp
    if layout.cp == 1:
        served = next_token(TINY, setup._replace(layout=replace(layout, zero=0, sequence=False, chunks=1)), 2, 64)
        assert 0 < served.lower <= served.seconds


def test_no_estimate_is_faster_than_a_more_efficient_one():
    slow, fast = Efficiency(), Efficiency(compute=0.9, memory=0.9, link=0.9, launch=0)
    layout = Layout(tp=8)
    for call in (lambda setup: first_token(LLAMA, setup, 1, 512), lambda setup: next_token(LLAMA, setup, 4, 512)):
        assert call(Setup(H100, layout, efficiency=fast)).seconds < call(Setup(H100, layout, efficiency=slow)).seconds


def test_bottlenecks():
    assert next_token(LLAMA, Setup(H100), 1, 2048).time.bottleneck == "memory"
    assert first_token(LLAMA, Setup(H100), 1, 2048).time.bottleneck == "compute"
    tiny = replace(H100, link=10**6)
    assert first_token(LLAMA, Setup(tiny, Layout(tp=8)), 1, 2048).time.bottleneck == "link"
    assert next_token(TINY, Setup(H100), 1, 64).time.bottleneck == "launch"
    peak = next_token(LLAMA, Setup(H100), 1, 2048).time.peak
    assert peak.bottleneck == "memory" and peak.seconds == peak.memory


def test_one_device_decodes_at_the_speed_of_its_memory():
    """(8,030,261,248 − 525,336,576) bf16 weights, a row of the table, 2·32·8·128·2 bytes of cache a token, at 3.35 TB/s."""
    right = (2 * 7_504_924_672 + 2 * 4096 + 2 * 2 * 32 * 8 * 128 * 2048) / 3.35e12
    found = next_token(LLAMA, Setup(H100), 1, 2048)
    assert isclose(found.lower, right)
    assert isclose(found.per_second, 1 / found.seconds)


def test_paths_and_phases_sum_up():
    time = roofline(LLAMA.budget(Step.train(1, 256), FLASH), Setup(H100))
    assert isclose(sum(time.by_path().values()), time.estimate)
    assert isclose(time.phases("forward").estimate + time.phases("backward").estimate, time.estimate)
    assert next(iter(time.by_path(4))).startswith("decoder.layer.mlp")
    again = roofline(LLAMA.budget(Step.train(1, 256), FLASH, "full"), Setup(H100))
    layers = sum(part.local for part in time.phases("forward").parts if part.path.startswith("decoder.layer"))
    assert isclose(again.phases("recompute").estimate, layers)


def test_hidden_links_wait_for_nothing_until_computation_is_over():
    setup = Setup(H100, Layout(tp=8, dp=8, zero=1, sequence=True))
    step = Step.train(1, 4096)
    assert training_step(LLAMA, setup, step).data < training_step(
        LLAMA, setup._replace(efficiency=replace(setup.attained, hidden=frozenset())), step
    ).data
    slow = replace(H100, network=10**8)
    assert training_step(LLAMA, setup._replace(machine=slow), step).data > 1


def test_fp8_products_are_computed_in_fp8():
    plain, fast = (
        roofline(LLAMA.budget(Step.forward(1, 4096), FLASH), Setup(H100, counting=Counting(products=products)))
        for products in (None, "fp8")
    )
    head = 2 * 4096 * 4096 * 128256
    attention = sum(c.flops for c in costs(LLAMA.budget(Step.forward(1, 4096), FLASH), Counting(), ALONE) if "flash" in c.path)
    linear = plain.flops - head - attention
    assert isclose(plain.peak.compute - fast.peak.compute, linear / 989.4e12 - linear / 1978.9e12)
    with pytest.raises(UndefinedError, match="a100-sxm-80 has no rate in fp8"):
        roofline(LLAMA.budget(Step.forward(1, 8), FLASH), Setup(A100, counting=Counting(products="fp8")))


def test_generation_is_a_prefill_and_decode_steps():
    setup = Setup(H100)
    found = generate(LLAMA, setup, 2, 100, 11)
    first, early, last = first_token(LLAMA, setup, 2, 100), next_token(LLAMA, setup, 2, 101), next_token(LLAMA, setup, 2, 110)
    assert isclose(found.seconds, first.seconds + 10 * (early.seconds + last.seconds) / 2)
    assert isclose(found.per_second, 2 * 11 / found.seconds)
    assert generate(LLAMA, setup, 1, 100, 1).seconds == first_token(LLAMA, setup, 1, 100).seconds


def test_bubble():
    """Narayanan et al. 2021: (p − 1)/m, and v times less when interleaved."""
    assert bubble(8, 64) == Fraction(7, 64) and bubble(8, 64, 2) == Fraction(7, 128) and bubble(1, 1) == 0
    found = training_step(TINY, Setup(H100, Layout(pp=4)), Step.train(1, 8), 8)
    assert isclose(found.bubble, found.passes * 3 / 8)
    with pytest.raises(InputError, match="bubble: pp = 0"):
        bubble(0, 1)


def test_optimizer_steps_by_hand():
    """Mixed Adam: 2 bytes of gradient read, 12 of states read and written, 2 of weights written: 28 a parameter."""
    budget = TINY.budget(Step.train(1, 8))
    total = budget.parameters().total
    assert optimizer_traffic(budget, ADAMW_MIXED, ALONE) == (2 + 2 * 12 + 2) * total
    assert optimizer_traffic(budget, ADAMW_MIXED, Layout(dp=4, zero=1)) == (2 + 2 * 12 + 2) * total // 4
    tensors = sum(len(set(line.weights)) * line.copies for line in budget.lines)
    assert optimizer_traffic(budget, ADAMW_BF16, ALONE) == (2 + 2 * 4 + 2 * 2) * total + 2 * 4 * tensors


def test_a_machine_of_ones_times_by_counting():
    """On a device of 1 FLOP/s and 1 byte/s seconds are counts."""
    one = Machine(name="one", peaks=Peaks(bf16=1), memory_bytes=1, bandwidth=1)
    budget = TINY.budget(Step.forward(2, 8), FLASH)
    time = roofline(budget, Setup(one, efficiency=PERFECT))
    assert time.peak.compute == time.flops == flops(budget, "exact").total
    assert time.peak.memory == compulsory(budget, Counting(), ALONE) <= time.nbytes
    assert time.estimate == sum(max(c.flops, c.nbytes) for c in costs(budget, Counting(), ALONE))
    low = roofline(budget, Setup(one, counting=Counting(precision=Precision.of(FP8)), efficiency=PERFECT))
    assert low.peak.memory < time.peak.memory


# -- measured -----------------------------------------------------------------------------------------------------------

MEASURED = {
    ("llama-2-7b", 1): 104.9, ("llama-2-7b", 2): 168.84, ("llama-2-7b", 4): 254.02, ("llama-2-7b", 8): 328.43,
    ("llama-2-70b", 2): 21.32, ("llama-2-70b", 4): 38.01, ("llama-2-70b", 8): 62.5,
}  # fmt: skip
"""Tokens/s of one sequence in bf16 on A100s of 80 GB, by model and tensor-parallel ranks: the README of gpt-fast,
https://github.com/pytorch-labs/gpt-fast/blob/0f925b5d4ce457b89a7ca6c9ce50f42bf2576945/README.md; 5 prompt tokens, 200 more."""


def test_measured_decoding_is_slower_than_the_bound_and_in_the_estimates_order():
    attained = Efficiency.of(A100, PUBLISHED)
    found = {key: next_token(load(key[0]), Setup(A100, Layout(tp=key[1]), efficiency=attained), 1, 105) for key in MEASURED}
    for key, measured in MEASURED.items():
        assert measured < 1 / found[key].lower
        assert 0.3 < measured / found[key].per_second < 1.1, key
    assert sorted(MEASURED, key=MEASURED.__getitem__) == sorted(found, key=lambda key: found[key].per_second)
