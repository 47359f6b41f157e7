"""Fused kernels: what their twins keep is what the rules say, and what they compute is what the plain ones compute."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from test_refmodel_blocks import BLOCKS, twin_of
from test_refmodel_models import DTYPES, MODELS, SOURCE, B, T, block, decoder
from torch.testing._internal.distributed.fake_pg import FakeStore

from blockcalc import Step, widths
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.mlp import GatedMLP
from blockcalc.blocks.moe import MoE
from blockcalc.blocks.norm import RMSNorm
from blockcalc.blocks.position import Rotary
from blockcalc.model import Embedding, LMHead, trace
from blockcalc.plan.layout import Layout
from blockcalc.plan.shard import shard
from blockcalc.refmodel import measure, moe
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.refmodel.fused import fuse_norms
from blockcalc.refmodel.parallel.build import parallel
from blockcalc.refmodel.parallel.model import cross_entropy
from blockcalc.refmodel.parallel.moe import evenly
from blockcalc.refmodel.parallel.ranks import groups
from blockcalc.tensor import Kernels

torch.set_num_threads(1)

NAMES = ("Llama", "Mixtral with a dense first layer", "DeepSeek", "Gemma 2", "nanochat", "BERT", "BERT, classes", "T5")
WITHOUT_FLASH = ("Gemma 2", "T5")
FUSED = {"gated": "fused", "loss": "fused"}
ROTARY = Attention(n=4, k=2, h=10, position=Rotary(r=10))
SMALL = decoder(
    (block(ROTARY, GatedMLP(f=26), before=RMSNorm()), 2),
    (block(ROTARY, MoE(e=4, a=2, expert=GatedMLP(f=14), shared=GatedMLP(f=26)), before=RMSNorm()), 2),
    embedding=Embedding(v=32, d=22), head=LMHead(v=32, tied=False),
)  # fmt: skip


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("which", [{"gated": "fused"}, {"loss": "fused"}, FUSED | {"norm": "fused"}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_fused_model_keeps_what_its_twin_keeps(name, dtype, which, recompute):
    torch.manual_seed(0)
    twin = build(MODELS[name]).to(DTYPES[dtype])
    asked = dict(which)
    attention = "math" if name in WITHOUT_FLASH else "flash"
    budget = MODELS[name].budget(Step.train(B, T, SOURCE), Kernels(attention=attention, **which), recompute)
    kept = budget.activations(widths(dtype))
    if asked.pop("norm", None):
        fuse_norms(twin)
    run = Run(kernel=attention, recompute=recompute, **asked)
    saved = measure.saved(measure.loss(twin, B, T, SOURCE), twin.parameters(), run)
    assert (kept.bytes, kept.per_layer, kept.buffers, kept.loss, kept.rest) == saved


GATED = [name for name in BLOCKS if name.startswith(("GatedMLP", "ClampedGatedMLP", "MoE"))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GATED)
def test_a_fused_gate_keeps_two_tensors_as_wide_as_f_and_their_product(name, dtype):
    twin, step = twin_of(BLOCKS[name], DTYPES[dtype])
    kept = trace(BLOCKS[name], Step.train(3, 7, 5), 22, Kernels(gated="fused")).activations(widths(dtype))
    assert kept.bytes == measure.saved(step, twin.parameters(), Run(gated="fused")).bytes


def gradients(twin, step, run):
    twin.zero_grad()
    torch.manual_seed(3)
    out = step(run)
    out.square().sum().backward()
    return [out, *(weight.grad for weight in twin.parameters())]


@pytest.mark.parametrize("name", GATED)
def test_a_fused_gate_computes_what_a_plain_one_does(name):
    twin, step = twin_of(BLOCKS[name], torch.float64)
    plain, fused = (gradients(twin, step, Run(gated=kind)) for kind in ("plain", "fused"))
    torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_fused_model_computes_what_a_plain_one_does(name):
    torch.manual_seed(0)
    twin = build(MODELS[name])
    step = measure.loss(twin, B, T, SOURCE)
    plain, fused = (gradients(twin, step, Run(**how)) for how in ({}, FUSED))
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(fuse_norms(twin), step, Run(**FUSED)), plain, rtol=1e-4, atol=1e-5)


# -- one rank of several -----------------------------------------------------------------------------------------------

LAYOUTS = {
    "tp": Layout(tp=2),
    "tp, sequence": Layout(tp=2, sequence=True),
    "ep": Layout(ep=2, dp=2),
}


@pytest.fixture
def rank(request, monkeypatch):
    """The first rank of a layout, whose collectives send nothing: sizes are all that is asked of it."""
    layout = LAYOUTS[request.param]
    monkeypatch.setattr(moe.MoE, "route", evenly)
    dist.init_process_group("fake", rank=0, world_size=layout.devices, store=FakeStore())
    yield layout
    dist.destroy_process_group()


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", LAYOUTS, indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_a_rank_keeps_what_its_twin_keeps(rank, dtype, recompute):
    """A dense and a mixture layer, a vocabulary, and positions that divide by two."""
    model = replace(SMALL, stack=replace(SMALL.stack, layers=SMALL.stack.layers[: 2 if rank.ep > 1 else 1]))
    ranks = groups(rank)
    twin = parallel(model, 0, ranks).to(DTYPES[dtype])
    ids, targets = torch.randint(32, (2, 8)), torch.randint(32, (16,))

    def step(run):
        logits = twin(ids, run).flatten(0, 1)
        run.places.append("loss")
        return cross_entropy(logits, targets, ranks.tp, run)

    whole = model.budget(Step.train(2, 8), Kernels(attention="flash", **FUSED), recompute)
    kept = shard(whole, rank).activations(widths(dtype))
    saved = measure.saved(step, twin.parameters(), Run(kernel="flash", recompute=recompute, **FUSED))
    assert (kept.bytes, kept.per_layer, kept.buffers, kept.loss, kept.rest) == saved
