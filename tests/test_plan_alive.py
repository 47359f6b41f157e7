"""What is alive at the worst moment: against storages tracked while twins run on torch, and by hand."""

from functools import partial

import pytest
import torch
from test_refmodel_models import MODELS as SMALL
from test_refmodel_models import block, decoder

from blockcalc import Step, widths
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.mlp import MLP, GatedMLP, gelu
from blockcalc.blocks.norm import LayerNorm
from blockcalc.blocks.position import LearnedPositions, Rotary
from blockcalc.memory.alive import Pass
from blockcalc.memory.allocator import counted
from blockcalc.model import Embedding, LMHead
from blockcalc.refmodel import measure
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Caches, Run
from blockcalc.refmodel.live import peak
from blockcalc.tensor import Kernels

torch.set_num_threads(1)

B, T = 2, 256
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WIDE, NARROW = 512, 32
"""Vocabularies with which the loss is the worst moment, or a layer."""

ln, biased = LayerNorm(), partial(Attention, n=4, k=4, h=16, qkv_bias=True, o_bias=True)
MODELS = {
    "GPT-2": lambda v: decoder(
        (block(biased(), MLP(f=256, act=gelu, bias=True), before=ln), 3), norm=ln, head=LMHead(v=v, tied=True),
        embedding=Embedding(v=v, d=64, position=LearnedPositions(m=300)),
    ),
    "BERT": lambda v: decoder(
        (block(biased(causal=False), MLP(f=256, act=gelu, bias=True), outer=ln), 3), norm=None, head=LMHead(v=v, tied=True),
        embedding=Embedding(v=v, d=64, position=LearnedPositions(m=300)),
    ),
    "gated, grouped": lambda v: decoder(
        (block(Attention(n=4, k=2, h=16, position=Rotary(r=16)), GatedMLP(f=176), before=ln), 3), norm=ln,
        embedding=Embedding(v=v, d=64), head=LMHead(v=v, tied=False),
    ),
}  # fmt: skip


def engine(model, dtype, kernels, recompute):
    """What is kept, and what is alive besides."""
    piece, plain = (model.budget(Step.train(B, T), kernels, how) for how in (recompute, "none"))
    sizes = widths(dtype)
    return int(piece.activations(sizes).bytes) + Pass(piece, plain, sizes, {}, {}).training()


def torchs(model, dtype, run):
    """The peak of a second step, whose gradients are there already."""
    torch.manual_seed(0)
    twin = build(model).to(DTYPES[dtype])
    measure.loss(twin, B, T)(run()).backward()
    known = [x for weight in twin.parameters() for x in (weight, weight.grad)]
    return peak(lambda: measure.loss(twin, B, T)(run()).backward(), known)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("kernel", ["math", "flash"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [WIDE, NARROW])
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_a_training_step_is_torchs(name, vocabulary, dtype, kernel, recompute):
    """Equal where the loss is the worst moment and nothing runs again; elsewhere torch has a few small tensors more."""
    model = MODELS[name](vocabulary)
    found = engine(model, dtype, Kernels(attention=kernel), recompute)
    right = torchs(model, dtype, lambda: Run(kernel=kernel, recompute=recompute))
    if vocabulary == WIDE and recompute == "none":
        assert found == right
    else:
        assert abs(found / right - 1) < 0.03


@pytest.mark.parametrize("name", ["Gemma 3n", "Gemma 4", "Qwen3.5", "ModernBERT", "Llama 4", "alternating windows"])
def test_the_peak_of_layers_that_differ_is_near_torchs(name):
    """Windows, lent keys, several streams, recurrent states; torch has a few small tensors more."""
    right = torchs(SMALL[name], "bf16", Run)
    assert abs(engine(SMALL[name], "bf16", Kernels(), "none") / right - 1) < 0.01


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_a_prefill_is_torchs(name, dtype):
    model = MODELS[name](NARROW)
    budget, sizes = model.budget(Step.prefill(B, T), Kernels(attention="flash")), widths(dtype)
    cached = sum(budget.cache(sizes).values()) if name != "BERT" else 0
    found = Pass(budget, budget, sizes, {}, {}).serving() + cached
    torch.manual_seed(0)
    twin = build(model).to(DTYPES[dtype])
    caches = Caches() if cached else None

    def run():
        ids, _ = measure.inputs(twin, B, T)
        with torch.no_grad():
            twin(ids, Run(kernel="flash", caches=caches))

    assert abs(found / peak(run, twin.parameters()) - 1) < 0.03


def test_a_loss_written_over_the_logits_has_nothing_besides_at_the_head():
    """Plain: log-probabilities kept, and two gradients as wide. Fused: the logits' memory holds all of it."""
    model = MODELS["gated, grouped"](4096)
    plain, fused = (engine(model, "bf16", Kernels(attention="flash", loss=loss), "none") for loss in ("plain", "fused"))
    logits, hidden = 2 * B * T * 4096, 2 * B * T * 64
    assert plain - fused == 2 * logits - hidden + 2 + 2  # a scalar that is kept, and the loss's gradient


def test_the_allocator_gives_large_tensors_memory_of_their_own():
    """In steps of 2 MiB; a rest of up to 1 MiB stays with the tensor. Smaller ones are rounded to 512 bytes."""
    mib = 2**20
    sizes = (1, 513, 9 * mib, 135 * mib, 129 * mib + mib // 2, 20 * mib, 26 * mib + mib // 4)
    assert [counted(size) for size in sizes] == [512, 1024, 9 * mib, 136 * mib, 130 * mib, 20 * mib, 26 * mib + mib // 4]
