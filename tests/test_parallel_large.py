"""Ranks that are only imagined: torch's fake process group, which sends nothing, so that one process counts for any rank.

Every block and model on every layout, in cost; large models on the meta device; torch's own orders of pipelined stages.
"""

from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, product

import pytest
import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # collectives on the meta device
from parallel_blocks import BLOCKS, EXPERTS, LAYOUTS, MODELS, WITHOUT_FLASH, WITHOUT_RING, latent, model
from parallel_cases import Case, budget_of, costs, even_routing, expected
from parallel_cases import block as whole_and_part
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import BACKWARD_INPUT, FORWARD, FULL_BACKWARD
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from blockcalc import Step, load, widths
from blockcalc.blocks.attention import Attention
from blockcalc.errors import BlockcalcError
from blockcalc.heads import MeanHead, Pooler
from blockcalc.model import LMHead, trace
from blockcalc.parallel.collectives import collectives, ends
from blockcalc.parallel.layout import Layout
from blockcalc.parallel.shard import shard
from blockcalc.parallel.stages import in_flight, padded, stages
from blockcalc.refmodel import measure
from blockcalc.refmodel.context import Caches, Run
from blockcalc.refmodel.parallel.build import parallel
from blockcalc.refmodel.parallel.measure import traffic
from blockcalc.refmodel.parallel.ranks import groups, of_one_head

torch.set_num_threads(1)

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's, about names of its own that it is about to change


@contextmanager
def imagined(layout, rank):
    """The groups of one rank of a layout."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=layout.devices)
    try:
        yield groups(layout)
    finally:
        of_one_head.cache_clear()
        dist.destroy_process_group()


@pytest.fixture(autouse=True)
def routed(monkeypatch):
    """Every expert gets as many rows."""
    even_routing(monkeypatch.setattr)


def grid():
    """Blocks and models on layouts on which they are split, experts on all, the rest on half, each in another way to run it."""
    ways = cycle(product(("fp32", "bf16"), ("math", "flash"), ("none", "selective")))
    of_models = cycle(product(("math", "flash"), ("full", "none", "selective"), ("bf16", "fp32")))
    for row, (name, layout) in enumerate(LAYOUTS.items()):
        for column, (which, component) in enumerate((BLOCKS | MODELS).items()):
            split = layout.tp != 1 or layout.cp != 1 or layout.ep != 1
            if not split or (layout.ep != 1 and which not in EXPERTS) or (which not in EXPERTS and (row + column) % 2):
                continue
            if which in MODELS:
                kernel, again, dtype = next(of_models)
            else:
                dtype, kernel, again = next(ways)
            if layout.cp != 1 and which in WITHOUT_RING:
                continue
            kernel = "flash" if layout.cp != 1 else "math" if which in WITHOUT_FLASH else kernel
            case = Case(which, component, layout, dtype, kernel, again)
            yield pytest.param(case, id=f"{which} on {name}, {dtype}, {kernel}, {again}")


@pytest.mark.parametrize("case", list(grid()))
def test_a_rank_costs_what_the_twin_on_it_costs(case):
    with imagined(case.layout, case.layout.devices - 1) as ranks:
        assert costs(case, ranks) == []


def test_torch_counts_as_many_collectives():
    case = Case("MoE", BLOCKS["MoE"], LAYOUTS["ep 2, etp 2 of tp 4"])
    with imagined(case.layout, 0) as ranks:
        pair = whole_and_part(case, ranks, torch.float32)
        with CommDebugMode() as mode:
            pair.step(Run()).backward(pair.grad)
    assert mode.get_total_counts() == sum(one.copies for one in collectives(budget_of(case), case.layout))


@pytest.mark.parametrize("which", ["GQA, k = 2", "MQA", "norm of heads", "MLA", "MLA without a query latent", "pre-norm"])
def test_what_a_rank_caches_and_sends_when_it_decodes(which):
    layout, b, t, d = Layout(tp=4), 3, 7, 22
    with imagined(layout, 1) as ranks, torch.no_grad():
        part, caches = parallel(BLOCKS[which], d, ranks), Caches()
        for new, step in ((t, Step.prefill(b, t)), (1, Step.decode(b, t + 1))):
            budget = trace(BLOCKS[which], step, d)
            _, sent = traffic(ranks, part, lambda new=new: part(torch.zeros(b, new, d), Run(caches=caches)))
            caches.length += new
            assert measure.cache_bytes(caches) == shard(budget, layout).cache(widths("fp32"))
            assert sent == expected(collectives(budget, layout), "fp32", "forward")


# -- large ----------------------------------------------------------------------------------------------------------------


def shallow(name, *layers):
    """A known model with so many layers of each kind."""
    whole = load(name)
    kinds = tuple(replace(kind, l=l) for kind, l in zip(whole.stack.layers, layers, strict=True))
    return replace(whole, stack=replace(whole.stack, layers=kinds, order=()))


LARGE = [
    Case("Llama 3.1 8B, tp 8", shallow("llama-3.1-8b", 3), Layout(tp=8), b=2, t=512),
    Case("Llama 3.1 8B, sequence", shallow("llama-3.1-8b", 3), Layout(tp=8, sequence=True), "bf16", recompute="full", t=512),
    Case("Llama 3.1 8B, tp 16 of 8 key-value heads", shallow("llama-3.1-8b", 3), Layout(tp=16, sequence=True), t=512),
    Case("Mixtral 8x7B, ep 8 of dp 8", shallow("mixtral-8x7b", 2), Layout(dp=8, ep=8), t=512),
    Case(
        "Mixtral 8x7B, ep 8 of tp 4, dp 4", shallow("mixtral-8x7b", 2), Layout(tp=4, dp=4, ep=8, etp=1, sequence=True),
        "bf16", t=512,
    ),
    Case(
        "Mixtral 8x7B, ep 4, etp 2 of tp 8, dp 2", shallow("mixtral-8x7b", 2), Layout(tp=8, dp=2, ep=4, etp=2, sequence=True),
        recompute="selective", t=512,
    ),
    Case(
        "DeepSeek-V3, ep 16 of tp 4, dp 4", shallow("deepseek-v3", 1, 1), Layout(tp=4, dp=4, ep=16, etp=1, sequence=True),
        "bf16", recompute="full", t=512,
    ),
    Case("GPT-2, padded, tp 4", padded(shallow("gpt2", 4), 128), Layout(tp=4), t=512),
]  # fmt: skip


@pytest.mark.parametrize("case", LARGE, ids=[case.name for case in LARGE])
def test_large_models_on_many_ranks(case):
    with imagined(case.layout, 1) as ranks, torch.device("meta"):
        assert costs(case, ranks) == []


@pytest.mark.parametrize("name, layout", [
    ("llama-3.1-8b", Layout(pp=4, tp=4, sequence=True)),
    ("llama-3.1-8b", Layout(pp=4, stages=(3, 4, 4, 1))),
    ("gpt2", Layout(pp=4)),
])  # fmt: skip
def test_stages_of_large_models(name, layout):
    for rank, one in enumerate(stages(shallow(name, 12), layout)):
        with imagined(layout, rank * layout.tp) as ranks, torch.device("meta"):
            assert costs(Case(name, one, layout, t=512), ranks) == []


def test_both_ends_hold_a_tied_table_and_add_up_its_gradients():
    layout = Layout(pp=4, tp=2)
    whole = padded(shallow("gpt2", 12), 128)
    first, *_, last = (one.budget(Step.train(1, 8)) for one in stages(whole, layout))
    (found,) = ends(last, layout)
    assert (found.kind, found.ranks, found.elements) == ("all-reduce", 2, whole.embedding.v // 2 * 768)
    assert ends(first, layout) == ()
    untied = stages(shallow("llama-3.1-8b", 4), layout)[-1].budget(Step.train(1, 8))
    assert ends(untied, layout) == ()


# -- schedules ------------------------------------------------------------------------------------------------------------


def held_by_torch(pp, chunks, microbatches, rank):
    """The pieces of which torch's schedule holds a microbatch, at each forward."""
    with imagined(Layout(pp=pp), rank):
        x = torch.zeros(1, 1, requires_grad=True)
        pieces = [
            PipelineStage(torch.nn.Linear(1, 1), rank + i * pp, pp * chunks, torch.device("cpu"), x, x) for i in range(chunks)
        ]
        runner = Schedule1F1B(pieces[0], microbatches) if chunks == 1 else ScheduleInterleaved1F1B(pieces, microbatches)
        held, moments = [], []
        for action in runner.pipeline_order[rank]:
            if action is not None and action.computation_type == FORWARD:
                held.append(action.stage_index // pp)
                moments.append(sorted(held))
            elif action is not None and action.computation_type in (FULL_BACKWARD, BACKWARD_INPUT):
                held.remove(action.stage_index // pp)
    return moments


@pytest.mark.parametrize("pp, chunks, microbatches", [
    (2, 1, 2), (2, 1, 5), (4, 1, 4), (4, 1, 9), (8, 1, 16), (2, 2, 2), (2, 3, 6), (4, 2, 4), (4, 2, 8), (4, 3, 12), (3, 5, 9),
])  # fmt: skip
def test_a_rank_holds_the_pieces_that_it_holds_in_torchs_schedule(pp, chunks, microbatches):
    for rank in range(pp):
        found = [sorted(moment) for moment in in_flight(Layout(pp=pp, chunks=chunks), rank, microbatches)]
        theirs = held_by_torch(pp, chunks, microbatches, rank)
        assert found == theirs[: len(found)]
        assert max(map(len, found)) == max(map(len, theirs))


# -- refusals -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("which", sorted(WITHOUT_RING))
def test_what_does_not_go_round_a_ring_is_refused(which):
    with pytest.raises(BlockcalcError):
        case = Case(which, (BLOCKS | MODELS)[which], Layout(cp=2), kernel="flash")
        shard(budget_of(case), case.layout)


@pytest.mark.parametrize("component, layout, why", [
    (BLOCKS["window"], Layout(cp=2), "a window layer"),
    (BLOCKS["GQA"], Layout(cp=2), "set attention flash"),
    (BLOCKS["linear attention"], Layout(cp=2), "linear attention"),
    (BLOCKS["cross-attention"], Layout(cp=2), "an encoder beside a decoder"),
    (Attention(n=8, k=8, h=2, projected=False), Layout(tp=2), "views of what each tensor-parallel rank has whole"),
    (latent(absorbed=True), Layout(tp=2), "views of what each tensor-parallel rank has whole"),
    (model((BLOCKS["pre-norm"], 1), head=LMHead(v=36, tied=True, used=32)), Layout(tp=2), "a part of the logits"),
    (model((BLOCKS["pre-norm"], 1), head=Pooler(v=4)), Layout(tp=2, sequence=True), "one vector of a whole sequence"),
    (model((BLOCKS["pre-norm"], 1), head=MeanHead(v=4)), Layout(tp=2, sequence=True), "one vector of a whole sequence"),
    (BLOCKS["MoE"], Layout(tp=2, ep=2, etp=1), "set it, or set etp = tp"),
    (BLOCKS["GQA"], Layout(tp=3), "is not divisible by tp = 3"),
    (BLOCKS["GQA"], Layout(dp=2, ep=2), "no bank of experts"),
])  # fmt: skip
def test_what_has_no_declared_way_to_be_split_is_refused(component, layout, why):
    case = Case(why, component, layout, d=16)
    with pytest.raises(BlockcalcError, match=why):
        shard(budget_of(case), layout)


def test_a_causal_ring_needs_two_pieces_a_rank():
    case = Case("ring", BLOCKS["GQA"], Layout(cp=4), kernel="flash", t=12)
    with pytest.raises(BlockcalcError, match="t = 12 is not divisible by 2·cp"):
        shard(budget_of(case), case.layout)
