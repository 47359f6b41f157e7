"""Twins that really decode: the caches' bytes, the FLOPs of each step, and the same logits as in one pass."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from test_refmodel_models import MODELS

from blockcalc import Step, widths
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.linear_attention import GatedDeltaNet
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.mlp import GatedMLP
from blockcalc.blocks.norm import RMSNorm
from blockcalc.blocks.position import ALiBi, RelativeBias, RelativeKeys, Rotary
from blockcalc.blocks.short_convolution import ShortConvolution
from blockcalc.blocks.state_space import Mamba, Mamba2
from blockcalc.blocks.wiring import Block, Residual
from blockcalc.model import Embedding, Layer, LMHead, Model, Stack
from blockcalc.refmodel import measure
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Caches, Run

torch.set_num_threads(1)

B, PROMPT, CHUNK, STEPS = 2, 5, 3, 4

grouped = partial(Attention, n=6, k=2, h=10)


def model(*attentions):
    mlp = Residual(name="mlp", branch=GatedMLP(f=29))
    branches = [(Residual(name="attention", branch=one, before=RMSNorm()), mlp) for one in attentions]
    layers = tuple(Layer(block=Block(branches=pair), l=2, name=f"kind{i}") for i, pair in enumerate(branches))
    return Model(
        name="model", embedding=Embedding(v=31, d=22), stack=Stack(name="decoder", layers=layers),
        head=LMHead(v=31, tied=True),
    )  # fmt: skip


DECODERS = {
    **{
        name: MODELS[name]
        for name in (
            "Llama", "GPT-2", "GPT-J", "Gemma 2", "Gemma 3n", "Gemma 4", "alternating windows", "Llama 4", "MPT", "OPT",
            "Mixtral with a dense first layer", "nanochat", "T5", "the first transformer", "Whisper",
        )
    },
    "a window of one": model(grouped(w=1)),
    "a window beside full attention": model(grouped(w=3, position=Rotary(r=10)), grouped()),
    "a window that is never full": model(grouped(w=17)),
    "chunks": model(grouped(chunk=5), grouped(chunk=2)),
    "DeepSeek": replace(MODELS["DeepSeek"], predictors=()),
    "absorbed MLA": model(MLA(n=5, c=13, q=None, p=9, r=4, u=7, absorbed=True)),
    "ALiBi in a window": model(grouped(w=3, position=ALiBi(n=6))),
    "a relative bias in a window": model(grouped(w=3, position=RelativeBias(m=23, n=6))),
    "a relative bias of each layer": model(grouped(position=RelativeBias(m=23, n=6, each_layer=True))),
    "relative keys": model(grouped(position=RelativeKeys(m=9)), grouped(w=3, position=RelativeKeys(m=9))),
    "W_K = W_V": model(grouped(kv_tied=True), Attention(n=5, k=5, h=6, qk_tied=True, kv_tied=True)),
    "W_Q = W_K": model(Attention(n=5, k=5, h=6, qk_tied=True, position=Rotary(r=4))),
    "short convolutions": model(ShortConvolution(g=4), grouped(), ShortConvolution(g=7, bias=True)),
    "state spaces": model(
        Mamba(f=14, h=5, i=3), Mamba(f=9, h=4, i=5, g=2, norm=RMSNorm()),
        Mamba2(n=6, k=2, h=5, u=7, chunk=3), grouped(), Mamba2(n=4, k=1, h=6, u=3, g=2, norm="before the gate"),
    ),
    "the gated delta rule": model(
        GatedDeltaNet(n=6, k=2, h=10, u=7, g=4, chunk=4), grouped(), GatedDeltaNet(n=3, k=3, h=5, u=9)
    ),
    "sinks and an output gate": model(grouped(w=3, sinks=True), grouped(output_gate=True)),
}  # fmt: skip


@torch.no_grad()
def decode(declaration, twin, policy, kernel="math"):
    """The prompt, a chunk of several tokens, then single ones: each step, its FLOPs, its caches' bytes and its logits."""
    torch.manual_seed(1)
    ids, source = measure.inputs(twin, B, PROMPT + CHUNK + STEPS, 7)
    length = None if source is None else 7
    steps = [
        Step.prefill(B, PROMPT, source=length),
        replace(Step.prefill(B, CHUNK, PROMPT + CHUNK, source=length), source_new=0),
        *(Step.decode(B, PROMPT + CHUNK + i, source=length) for i in range(1, STEPS + 1)),
    ]
    caches, logits = Caches(policy), []

    def forward(run):
        new = ids[:, run.start : run.start + step.t]
        logits.append(twin(new, run, source if run.start == 0 else None))
        return logits[-1]

    found = []
    for step in steps:
        flops = measure.flops(forward, Run(kernel, caches=caches), training=False).forward
        found.append((step, flops, measure.cache_bytes(caches)))
    return found, torch.cat(logits, dim=1), twin(ids, Run(), source)


@pytest.mark.parametrize("policy", ["minimal", "transformers", "unified"])
@pytest.mark.parametrize("name", DECODERS)
def test_decoding_costs_what_the_twin_costs_and_gives_the_logits_of_one_pass(name, policy):
    declaration, twin = DECODERS[name], build(DECODERS[name]).double()
    found, logits, at_once = decode(declaration, twin, policy)
    for step, flops, cached in found:
        budget = declaration.budget(step)
        assert 2 * budget.work().forward == flops
        assert {**budget.cache({**widths("fp32"), "key_value": 8, "state": 8}, policy)} == cached
    torch.testing.assert_close(logits, at_once, rtol=1e-5, atol=1e-6)  # routers, rotations and wide logits are fp32


def test_what_transformers_caches_whole_is_attended_to_whole():
    """GPT-Neo: all positions of all query heads, although a window of three is seen."""
    declaration = model(grouped(w=3, cached_whole=True), grouped(cached_whole=True))
    found, logits, at_once = decode(declaration, build(declaration).double(), "transformers")
    for step, flops, cached in found:
        budget = declaration.budget(step)
        assert 2 * budget.work().forward == flops
        assert {**budget.cache({**widths("fp32"), "key_value": 8, "state": 8}, "transformers")} == cached
        # keys and values, layers, sequences, heads, width, bytes
        assert cached["window"] == cached["full"] == 2 * 2 * B * 6 * 10 * step.s * 8
    torch.testing.assert_close(logits, at_once)


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["math", "flash", "fused"])
def test_the_head_may_run_on_the_last_position_alone(kernel):
    declaration = DECODERS["Llama"]
    twin = build(declaration)
    ids, _ = measure.inputs(twin, B, PROMPT)
    step = replace(Step.prefill(B, PROMPT), head="last")
    run = Run(kernel=kernel, caches=Caches())
    flops = measure.flops(lambda run: twin(ids, run, last=True), run, training=False).forward
    assert flops == 2 * declaration.budget(step).work().forward
    torch.testing.assert_close(twin(ids, Run(), last=True), twin(ids, Run())[:, -1:])


@pytest.mark.parametrize(("kernel", "name"), [
    ("flash", "a window beside full attention"), *(("fused", name) for name in DECODERS if name != "relative keys"),
])  # fmt: skip
def test_one_kernel_decodes_with_the_same_flops_and_logits_as_math(kernel, name):
    declaration = DECODERS[name]
    twin = build(declaration).double()
    results = (decode(declaration, twin, "transformers", kernel) for kernel in ("math", kernel))
    (math, logits, at_once), (found, same, _) = results
    assert math == found
    torch.testing.assert_close((logits, same), (at_once, at_once), rtol=1e-5, atol=1e-6)
