"""Budgets of 10,000 distinct models of one family, one at a time, against llm-flops 0.0.1.

    python -m pip install llm-flops==0.0.1
    python benchmarks/single.py [MODELS]

Both sides start from the same sizes and make their own description of the model of them. Chunks of 100 models run in turn.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from llmflops import ModelConfig, estimate
from llmflops.flops import forward_flops
from llmflops.memory import kv_cache_bytes, parameter_count
from measure import Measure, Row, interleaved, pairs, report

from blockcalc import Step, compile_formulas, formula, widths
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.mlp import GatedMLP
from blockcalc.blocks.norm import RMSNorm
from blockcalc.blocks.position import Rotary
from blockcalc.blocks.wiring import Block, Residual
from blockcalc.model import Embedding, Layer, LMHead, Model, Stack

CHUNK, BATCH, TOKENS = 100, 1, 2048
TRAIN, PREFILL, BF16 = Step.train(BATCH, TOKENS), Step.prefill(BATCH, TOKENS), widths("bf16")
NORM = RMSNorm()


class Sizes(NamedTuple):
    """The sizes of a llama, by blockcalc's letters."""

    d: int
    f: int
    l: int
    n: int
    k: int
    h: int
    v: int


def draw(count: int) -> list[Sizes]:
    """That many llamas, no two alike."""
    dice, found = random.Random(0), dict[Sizes, None]()
    while len(found) < count:
        k, h = dice.choice((2, 4, 8, 16)), dice.choice((64, 80, 96, 128))
        d, f, v = 64 * dice.randint(8, 256), 64 * dice.randint(16, 1024), 64 * dice.randint(100, 4000)
        found[Sizes(d, f, dice.randint(2, 160), k * dice.choice((1, 2, 4, 8)), k, h, v)] = None
    return list(found)


# -- blockcalc ---------------------------------------------------------------------------------------------------------


def model(x: Sizes) -> Model:
    """The llama of these sizes, as its reader builds it."""
    attention = Attention(n=x.n, k=x.k, h=x.h, position=Rotary(r=x.h))
    block = Block(branches=(
        Residual(name="attention", branch=attention, before=NORM),
        Residual(name="mlp", branch=GatedMLP(f=x.f), before=NORM),
    ))  # fmt: skip
    stack = Stack(name="decoder", layers=(Layer(block=block, l=x.l),), norm=NORM)
    return Model(name="llama", embedding=Embedding(v=x.v, d=x.d), stack=stack, head=LMHead(v=x.v, tied=False))


def traced(x: Sizes) -> object:
    """Everything of a training step: parameters, forward and backward, what autograd keeps; and the cache."""
    budget = model(x).budget(TRAIN)
    return budget.parameters(), budget.work(), budget.cache(BF16), budget.activations(BF16)


def traced_prefill(x: Sizes) -> object:
    """Parameters, FLOPs and cache of a prefill."""
    budget = model(x).budget(PREFILL)
    return budget.parameters().total, 2 * budget.work().forward, sum(budget.cache(BF16).values())


def compiled(*quantities: str) -> Callable[[Sizes], tuple[int, ...]]:
    """The family's closed forms as one function."""
    function = compile_formulas([formula("llama", quantity) for quantity in quantities])

    def call(x: Sizes) -> tuple[int, ...]:
        return function(B=BATCH, T=TOKENS, S=TOKENS, D=x.d, F=x.f, L=x.l, N=x.n, K=x.k, H=x.h, R=x.h, V=x.v)

    return call


# -- llm-flops ---------------------------------------------------------------------------------------------------------


def config(x: Sizes) -> ModelConfig:
    """The same llama as llm-flops describes it."""
    return ModelConfig(
        name="llama", hidden_size=x.d, num_layers=x.l, num_attention_heads=x.n, vocab_size=x.v, intermediate_size=x.f,
        num_key_value_heads=x.k, head_dim=x.h,
    )  # fmt: skip


def estimated(x: Sizes) -> object:
    """Its whole estimate, without a GPU."""
    return estimate(config(x), BATCH, TOKENS, "bf16", gpu=None)


def estimated_by_default(x: Sizes) -> object:
    """Its whole estimate as it comes, with its default GPU."""
    return estimate(config(x), BATCH, TOKENS, "bf16")


def estimated_training(x: Sizes) -> object:
    """Its whole estimate of a training step, without a GPU."""
    return estimate(config(x), BATCH, TOKENS, "bf16", gpu=None, training=True)


def estimated_three(x: Sizes) -> tuple[int, int, int]:
    """Its parameters, FLOPs (of matrix products alone, as ours) and cache by the three functions that count them."""
    made = config(x)
    flops = forward_flops(made, BATCH, TOKENS, count_elementwise=False).total
    return parameter_count(made).total, int(flops), int(kv_cache_bytes(made, BATCH, TOKENS, "bf16"))


# -- side by side ------------------------------------------------------------------------------------------------------


def main(count: int) -> None:
    """Measure all of them over the same models."""
    models = draw(count)
    start = time.process_time()
    full = compiled("params", "active", "flops", "train_flops", "kv", "activations")
    making = time.process_time() - start
    three = compiled("params", "flops", "kv")
    work = {
        "traced": traced, "prefill": traced_prefill, "three": three, "full": full,
        "estimated": estimated, "default": estimated_by_default, "training": estimated_training,
        "estimated three": estimated_three,
    }  # fmt: skip

    def over(function: Callable[[Sizes], object]) -> Measure:
        def seconds(chunk: int) -> float:
            part = models[chunk * CHUNK : (chunk + 1) * CHUNK]
            start = time.process_time()
            for x in part:
                function(x)
            return time.process_time() - start

        return seconds

    for function in work.values():
        function(models[0])
    found = interleaved({name: over(function) for name, function in work.items()}, count // CHUNK)
    rows = [
        Row("full budget, traced", "`estimate()`", pairs(found["traced"], found["default"]), 2.0),
        Row("full budget, traced", "`estimate(gpu=None)`", pairs(found["traced"], found["estimated"])),
        Row("full budget, traced", "`estimate(gpu=None, training=True)`", pairs(found["traced"], found["training"])),
        Row("parameters, FLOPs, KV, traced", "`estimate(gpu=None)`", pairs(found["prefill"], found["estimated"])),
        Row("parameters, FLOPs, KV, closed form", "its three functions", pairs(found["three"], found["estimated three"]), 0.5),
        Row("full budget, closed form", "`estimate(gpu=None)`", pairs(found["full"], found["estimated"]), 0.5),
        Row("the same, with making the closed forms", "`estimate(gpu=None)`", pairs(
            [chunk + making * CHUNK / count for chunk in found["full"]], found["estimated"]
        ), 1.0),
    ]  # fmt: skip
    notes = [
        f"{count:,} distinct llamas in chunks of {CHUNK}; a ratio below 1 is the faster blockcalc. A full budget is parameters,"
        " multiply-adds forward and backward, cache, and what autograd keeps, by layer, role and operation.",
        "`estimate()` as it comes also estimates the latency and the energy on a GPU, which a budget does not; with `gpu=None`"
        " it does not either.",
        f"Making the closed forms, once, takes as long as {making / sum(found['estimated']) * count:,.0f} estimates with"
        " `gpu=None`, sympy's import not counted.",
        *agreement(models, three),
    ]
    report("single", "One model at a time", rows, notes, ("blockcalc", "llm-flops", "sympy"))


def agreement(models: Sequence[Sizes], three: Callable[[Sizes], tuple[int, ...]]) -> list[str]:
    """How often the numbers are equal."""
    sample = models[:: max(1, len(models) // 1000)]
    ours, theirs = [three(x) for x in sample], [estimated_three(x) for x in sample]
    assert ours == [traced_prefill(x) for x in sample]
    equal = [sum(a[i] == b[i] for a, b in zip(ours, theirs, strict=True)) for i in range(3)]
    return [
        f"Of {len(sample):,} of these models the closed form equals the trace in all; llm-flops gives the same parameters in"
        f" {equal[0]:,}, the same FLOPs of matrix products in {equal[1]:,}, the same cache in {equal[2]:,}."
    ]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
