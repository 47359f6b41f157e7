"""Fused kernels: what their twins keep is what the rules say, and what they compute is what the plain ones compute."""

import os
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.distributed as dist
from parallel_cases import Case, costs, even_routing, truth
from test_refmodel_blocks import BLOCKS, twin_of
from test_refmodel_models import DTYPES, MODELS, SOURCE, B, T, block, decoder
from torch.testing._internal.distributed.fake_pg import FakeStore

from blockcalc import Step, widths
from blockcalc.blocks.attention import Attention, CrossAttention
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.mlp import GatedMLP
from blockcalc.blocks.moe import MoE
from blockcalc.blocks.norm import RMSNorm
from blockcalc.blocks.position import ALiBi, RelativeBias, Rotary
from blockcalc.errors import UndefinedError
from blockcalc.model import Embedding, LMHead, trace
from blockcalc.parallel.layout import Layout
from blockcalc.parallel.shard import shard
from blockcalc.refmodel import measure
from blockcalc.refmodel.attention import hidden_pairs, math
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.refmodel.fused import Attention as FusedAttention
from blockcalc.refmodel.fused import Scores, fuse_norms
from blockcalc.refmodel.parallel.build import parallel
from blockcalc.refmodel.parallel.model import cross_entropy
from blockcalc.refmodel.parallel.ranks import groups
from blockcalc.tensor import Kernels

torch.set_num_threads(1)

NAMES = ("Llama", "Mixtral with a dense first layer", "DeepSeek", "Gemma 2", "nanochat", "BERT", "BERT, classes", "T5")
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
    attention = "fused"
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
    even_routing(monkeypatch.setattr)
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


# -- attention ---------------------------------------------------------------------------------------------------------

CAPS, WINDOWS, DROPS = (None, 2.0), (None, 3), (0.0, 0.3)


def drawn(u, *more):
    """Queries (2 4 6 5), keys (2 6 2 5), values (2 6 2 u), and others, in fp64."""
    torch.manual_seed(0)
    sizes = (2, 4, 6, 5), (2, 6, 2, 5), (2, 6, 2, u), *more
    return [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]


@pytest.mark.parametrize("besides", ["", "bias", "sinks", "bias sinks"])
@pytest.mark.parametrize(("cap", "window", "drop"), list(product(CAPS, WINDOWS, DROPS)))
def test_fused_attention_has_the_values_and_gradients_of_the_scores_written_out(cap, window, drop, besides):
    """Keys are wider than values, and three query heads share one."""
    q, k, v, bias, sinks = drawn(3, (6, 4, 6), (6,))
    scores = Scores(0.4, cap, lambda: hidden_pairs(6, 4, 6, window=window), drop)
    given = q, k, v, bias if "bias" in besides else None, sinks if "sinks" in besides else None

    def fused(*given):
        torch.manual_seed(5)
        return FusedAttention.apply(scores, *given)

    def dropped(weights):
        torch.manual_seed(5)
        seed = torch.randint(2**62, (2,)) if drop else None
        return weights * scores.kept(weights.unflatten(1, (2, 3)), seed).flatten(1, 2) if drop else weights

    hidden = scores.hidden()
    written_out = math(*given[:4], None, None, mask=hidden, scale=0.4, cap=cap, sinks=given[4], drop=dropped)
    torch.testing.assert_close(fused(*given), written_out)
    assert torch.autograd.gradcheck(fused, given)


def test_a_seed_drops_its_share_and_always_the_same():
    weights, scores = torch.rand(4, 2, 3, 50, 50), Scores(1.0, drop=0.3)
    once, again, other = (scores.kept(weights, torch.tensor([seed, 0])) for seed in (1, 1, 2))
    assert torch.equal(once, again) and not torch.equal(once, other)
    assert once.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert abs((once == 0).float().mean().item() - 0.3) < 0.01


GROUPED = {"n": 4, "k": 2, "h": 10}
SPLIT = {
    "unequal widths": (MLA(n=4, c=13, q=17, p=6, r=4, u=7), "ring", "ulysses", "tp"),
    "soft cap": (Attention(**GROUPED, softcap=True), "ring", "ulysses", "tp"),
    "both directions": (Attention(**GROUPED, causal=False), "ring", "ulysses"),
    "sinks in a window": (Attention(**GROUPED, sinks=True, w=5), "tp"),
    "ALiBi": (Attention(**GROUPED, position=ALiBi(n=4)), "tp"),
    "relative bias": (Attention(n=4, k=4, h=10, position=RelativeBias(m=13, n=4)), "tp"),
    "cross-attention": (CrossAttention(**GROUPED), "tp"),
}  # fmt: skip
ACROSS = {"ring": Layout(cp=2), "ulysses": Layout(cp=2, ulysses=True), "tp": Layout(tp=2, sequence=True)}
CASES = {
    f"{name}, {layout}, {dtype}": Case(
        name=name, component=component, layout=ACROSS[layout], dtype=dtype, kernel="fused", recompute=recompute
    )
    for name, (component, *layouts) in SPLIT.items()
    for layout in layouts
    for dtype, recompute in (("fp32", "none"), ("bf16", "selective"))
}


def differences(rank, file, found):
    """What one of two ranks finds different."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    made = {layout: groups(layout) for layout in ACROSS.values()}
    for name, case in CASES.items():
        found.put((rank, name, costs(case, made[case.layout]) + truth(case, made[case.layout])))
    dist.destroy_process_group()


@pytest.mark.skipif(os.name != "posix", reason="processes that share a file")
def test_two_ranks_compute_keep_and_send_what_the_engine_says(tmp_path):
    found = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(differences, (tmp_path / "store", found), 2)
    results = [found.get() for _ in range(2 * len(CASES))]
    assert [result for result in results if result[2]] == []


@pytest.mark.parametrize(("attention", "dropout", "what"), [
    (Attention(**GROUPED, sinks=True), "none", "sinks"), (Attention(**GROUPED), "mask", "dropout"),
    (Attention(**GROUPED, position=ALiBi(n=4)), "none", "position bias"),
])  # fmt: skip
def test_what_no_ring_passes_on_is_refused(attention, dropout, what):
    budget = trace(attention, Step.train(3, 32), 22, Kernels(attention="fused", dropout=dropout))
    with pytest.raises(UndefinedError, match=what):
        shard(budget, ACROSS["ring"])
