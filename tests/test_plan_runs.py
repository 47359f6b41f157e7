"""Whole runs: utilization, days, hours, energy and cost as papers print them; compute-optimal training."""

from math import isclose, log

import pytest

from blockcalc import flops, load
from blockcalc.errors import InputError
from blockcalc.tensor import Step
from blockcalc.timing.chinchilla import LAWS, compute, optimal, twenty
from blockcalc.timing.machine import machine
from blockcalc.timing.run import run, utilization

A100 = machine("a100-sxm-80")


def gpt(layers, width, heads):
    """A GPT as the Megatron papers size it."""
    return load("gpt2", {
        "n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": 51200, "n_inner": 4 * width, "n_positions": 2048,
    })  # fmt: skip


NEMO = "https://github.com/NVIDIA/NeMo/blob/070a0bb168d405d653b9734c0017cf5078e77c0d/docs/source/performance"
BRIDGE = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/00b7660be0254ac6f95f44164ddd0c3e9cc798ed/docs"


@pytest.mark.parametrize("model,s,convention,gigaflops,source", [
    (gpt(24, 4096, 32), 2048, "torch", 32.68, NEMO), (gpt(96, 12288, 96), 2048, "torch", 1076.82, NEMO),
    (load("llama-2-7b"), 4096, "torch", 46.06, NEMO), (load("llama-2-70b"), 4096, "torch", 444.44, NEMO),
    (load("llama-3-8b"), 8192, "torch", 57.93, NEMO), (load("llama-3-70b"), 8192, "torch", 481.63, NEMO),
    (load("llama-3-8b"), 8192, "exact", 51.47, BRIDGE), (load("llama-3-70b"), 8192, "exact", 449.32, BRIDGE),
    (load("llama-3-8b"), 8192, "megatron-lm", 51.47, BRIDGE), (load("llama-3-70b"), 8192, "megatron-lm", 449.32, BRIDGE),
])  # fmt: skip
def test_flops_a_token_behind_published_tables(model, s, convention, gigaflops, source):
    """Printed TFLOP/s over printed tokens/s: NeMo 24.07 counts full squares, Megatron-Bridge 25.11 the causal half."""
    found = flops(model.budget(Step.train(1, s)), convention).total / s / 1e9
    assert abs(found / gigaflops - 1) < 0.001


@pytest.mark.parametrize("devices,tflops,days", [(384, 153, 84), (768, 149, 43), (1536, 141, 23)])
def test_megatron_lm_trains_175b(devices, tflops, days):
    """Narayanan et al. 2021, arXiv:2104.04473, table 2: 300 billion tokens, recomputation counted in."""
    each = flops(gpt(96, 12288, 96).budget(Step.train(1, 2048)), "megatron-2021").total / 2048
    found = run(300e9 * each, tflops * 1e12, devices, A100)
    assert days - 0.1 < found.days < days + 1  # whole days are printed
    assert isclose(found.kilowatt_hours, found.device_hours * 0.4)


def test_llama_65b_took_its_hours():
    """Touvron et al. 2023, arXiv:2302.13971, sections 2.4 and 6: 380 tokens/s/GPU on 2048 A100, 1.4T tokens, 21 days, and
    1,022,362 GPU hours; at 400 W and an overhead of 1.1, 449 MWh."""
    found = run(1.4e12, 380, 2048, A100, overhead=1.1)
    assert abs(found.device_hours / 1_022_362 - 1) < 0.002
    assert round(found.days) == 21
    assert abs(found.kilowatt_hours / 449_000 - 1) < 0.005


def test_deepseek_v3_cost_its_hours():
    """DeepSeek-AI 2024, arXiv:2412.19437, table 1: 180K H800 hours a trillion tokens; 2664K + 119K + 5K hours, 5.576 M$."""
    rate = 1e12 / (180e3 * 3600)
    found = run(14.8e12, rate, 2048, machine("h800-sxm"), price=2)
    assert round(found.device_hours) == 2_664_000
    assert round(found.device_hours + 119e3 + 5e3) == 2_788_000
    assert round(found.cost + 2 * 124e3) == 5_576_000
    assert 54 < found.days < 55  # "less than two months"


def test_palm_540b_used_its_peak():
    """Chowdhery et al. 2022, arXiv:2204.02311, section 4.1: 238.3K tokens/s on 6144 TPU v4, MFU 46.2 %."""
    palm = load("palm-540b").budget(Step.train(1, 2048))
    found = utilization(palm, "palm", 2048 / 238_300, 6144, machine("tpu-v4").peak("bf16"))
    assert round(100 * found.mfu, 1) == 46.2 and found.mfu == found.hfu


@pytest.mark.parametrize("model,batch,time,devices,mfu", [
    (gpt(48, 6144, 64), 4, 1.10, 8, 41.5), (gpt(96, 12288, 96), 64, 13.75, 64, 51.4),
    (gpt(105, 20480, 128), 280, 37.83, 280, 56.0), (gpt(128, 25600, 160), 512, 71.49, 512, 56.3),
])  # fmt: skip
def test_korthikanti_used_theirs(model, batch, time, devices, mfu):
    """Korthikanti et al. 2022, arXiv:2205.05198, table 5; what is run again counts in the hardware's alone."""
    budget = model.budget(Step.train(1, 2048), recompute="selective")
    found = utilization(budget, "megatron-2022", time, devices, A100.peak("bf16"), batch)
    assert abs(100 * found.mfu - mfu) < 0.2 and found.hfu > found.mfu


def test_run_refuses_what_is_not_above_nothing():
    for arguments in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(InputError, match="run: "):
            run(*arguments)
    assert run(1, 1, 1, machine("tpu-v4")).kilowatt_hours is None  # no power is published


# -- Chinchilla --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n,flops,tokens", [
    (1e9, 1.21e20, 20.2e9), (10e9, 1.23e22, 205.1e9), (67e9, 5.76e23, 1.5e12), (175e9, 3.85e24, 3.7e12),
])  # fmt: skip
def test_twenty_tokens_a_parameter_is_chinchillas_table(n, flops, tokens):
    """Hoffmann et al. 2022, arXiv:2203.15556, table 3: parameters, FLOPs and tokens by approach 1."""
    found = twenty(flops)
    assert abs(found.n / n - 1) < 0.05 and abs(found.d / tokens - 1) < 0.08
    assert isclose(6 * found.n * found.d, flops)


def test_the_three_fits_at_the_budget_of_gopher():
    """Their approach 3 gives 40 billion parameters at 5.76e23 FLOPs; rounding it gives 93 tokens a parameter; the corrected
    fit agrees with Chinchilla's own 70 billion and 20 tokens a parameter (Besiroglu et al. 2024, arXiv:2404.10102)."""
    found = {name: optimal(5.76e23, name) for name in LAWS}
    assert round(found["hoffmann"].n / 1e9) == 40
    assert round(found["hoffmann-rounded"].tokens_per_parameter) == 93
    assert abs(found["besiroglu"].n / 70e9 - 1) < 0.05 and 18 < found["besiroglu"].tokens_per_parameter < 20
    # the published shares of a budget that go to parameters: a = β/(α + β) = 0.46 and 0.513
    for name, a in (("hoffmann", 0.4565), ("besiroglu", 0.5126)):
        law = LAWS[name]
        assert abs(law.beta / (law.alpha + law.beta) - a) < 0.001
        assert isclose(log(optimal(1e24, name).n / optimal(1e21, name).n) / log(1000), law.beta / (law.alpha + law.beta))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("budget", [1e18, 1e21, 5.76e23, 1e26])
def test_no_other_division_has_less_loss(name, budget):
    best = optimal(budget, name)
    assert isclose(6 * best.n * best.d, budget) and isclose(best.loss, LAWS[name].loss(best.n, best.d))
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        assert LAWS[name].loss(best.n * factor, best.d / factor) > best.loss


def test_six_nd_beside_the_count():
    step = flops(load("llama-3-8b").budget(Step.train(1, 8192)), "exact").total
    found = compute(8_030_261_248, 15 * 10**12, step, 8192)
    assert found.six_nd == 6 * 8_030_261_248 * 15 * 10**12
    assert found.exact == step * 15 * 10**12 // 8192 and 1.06 < found.ratio < 1.08


def test_impossible_budgets_are_refused():
    for call in (lambda: twenty(0), lambda: optimal(-1), lambda: optimal(float("nan")), lambda: optimal(1e20, "kaplan")):
        with pytest.raises(InputError):
            call()
