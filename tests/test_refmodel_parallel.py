"""Real processes: the twins on 2 and 4 ranks compute what the whole ones do, and the engine's rank costs what theirs does.

Each number of processes is started once and runs all of its cases; a test looks its result up.
"""

import json
import os
import sys
import traceback
import warnings
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from parallel_blocks import BLOCKS, EXPERTS, LAYOUTS, MODELS, WITHOUT_RING
from parallel_cases import Case, costs, even_routing, pipeline, pipelined_truth, sharded_weights, truth

from blockcalc.model import Embedding, LMHead, Model
from blockcalc.parallel.layout import Layout
from blockcalc.refmodel.parallel.ranks import groups

ALL = BLOCKS | MODELS
UNEVEN = Model(
    name="uneven", embedding=Embedding(v=37, d=23), head=LMHead(v=37, tied=True), stack=MODELS["GPT-2"].stack
)
"""Rows that 2 do not divide."""

SOME = ("GQA, k = 2", "norm of heads", "MLA", "MoE, biased, chosen first", "Llama", "GPT-2", "DeepSeek", "T5")
"""Compared in cost too, on real ranks; all are, on ranks that are only imagined, in test_parallel_large."""

DEAR = ("tp 2, sequence", "cp 2", "ep 2, etp 2 of tp 4")


def compared(which, layout):
    """Experts on every layout; the rest where it is split, but only some of it on four ranks."""
    if layout.cp != 1 and which in WITHOUT_RING:
        return False
    split = layout.tp != 1 or layout.cp != 1
    return which in EXPERTS or (layout.ep == 1 and split and (layout.devices == 2 or which in SOME))


PIPELINES = {
    "pp 2": (Layout(pp=2), 6),
    "pp 2, unequal": (Layout(pp=2, stages=(3, 1)), 3),
    "pp 2, interleaved": (Layout(pp=2, chunks=2), 4),
    "pp 4": (Layout(pp=4), 6),
    "pp 2, tp 2": (Layout(pp=2, tp=2, sequence=True), 4),
}


def jobs(size):
    """What so many processes run: (name, layout, function of a layout's ranks)."""
    for name, layout in LAYOUTS.items():
        for which, component in ALL.items() if layout.devices == size else ():
            if layout.cp > 1 and which in MODELS:  # whose tokens ahead are other ranks'
                component = replace(component, predictors=())
            case = Case(which, component, layout, kernel="math" if layout.cp == 1 else "flash")
            if not compared(which, layout):
                continue
            yield f"{which} on {name}", layout, partial(truth, case)
            for dtype, again in (("fp32", "none"), ("bf16", "selective")) if which in SOME and name in DEAR else ():
                dear = partial(costs, case._replace(dtype=dtype, recompute=again))
                yield f"{which} on {name}: cost in {dtype}, recomputing {again}", layout, dear
    for name, (layout, microbatches) in PIPELINES.items():
        for which in ("Llama", "GPT-2") if layout.devices == size else ():
            case = Case(which, MODELS[which], layout, b=2, t=8)
            yield f"{which} on {name}", layout, partial(pipelined_truth, case, microbatches=microbatches)
            for kernel, again in (("math", "none"), ("flash", "full")):
                dear = partial(pipeline, case._replace(kernel=kernel, recompute=again), microbatches=microbatches)
                yield f"{which} on {name}: cost with {kernel}, recomputing {again}", layout, dear
    if size == 2:
        layout = Layout(dp=2, zero=3)
        for name, component in {"uneven": UNEVEN, **{name: MODELS[name] for name in ("Llama", "GPT-2", "Mixtral")}}.items():
            for dtype, again in (("fp32", "none"), ("bf16", "full")):
                case = Case(name, component, layout, dtype, recompute=again)
                yield f"{name} fully sharded in {dtype}, recomputing {again}", layout, partial(sharded_weights, case)


def work(rank, size, folder):
    """One process: every job, its differences written down."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    even_routing()
    store = dist.FileStore(os.path.join(folder, f"store{size}"), size)  # noqa: PTH118
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    made, found = {}, {}
    for name, layout, job in jobs(size):
        if layout not in made:
            made[layout] = groups(layout)
        try:
            found[name] = job(ranks=made[layout])
        except Exception:
            found[name] = [traceback.format_exc()]
    with open(os.path.join(folder, f"{size}.{rank}.json"), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """What the ranks found, by the number of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    found = {}
    for size in (2, 4):
        torch.multiprocessing.spawn(work, (size, str(folder)), size)
        found[size] = [json.loads((folder / f"{size}.{rank}.json").read_text(encoding="utf-8")) for rank in range(size)]
    return found


@pytest.mark.parametrize("size, name", [(size, name) for size in (2, 4) for name, _, _ in jobs(size)])
def test_ranks_compute_what_one_does_and_cost_what_the_engine_says(results, size, name):
    for rank, found in enumerate(results[size]):
        assert found[name] == [], f"rank {rank}"


if __name__ == "__main__":
    import tempfile
    import time

    with tempfile.TemporaryDirectory() as place:
        for size in map(int, sys.argv[1:] or ("2", "4")):
            start = time.monotonic()
            torch.multiprocessing.spawn(work, (size, place), size)
            for rank in range(size):
                with open(f"{place}/{size}.{rank}.json", encoding="utf-8") as file:  # noqa: PTH123
                    found = json.load(file)
                for name, result in found.items():
                    if result:
                        print(rank, name, *result)
            print(size, len(found), time.monotonic() - start)
