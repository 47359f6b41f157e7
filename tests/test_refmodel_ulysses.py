"""Context ranks that exchange positions for heads, on two processes: what they compute, keep and send."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from parallel_cases import Case, costs, truth

from blockcalc import Step
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.position import Rotary
from blockcalc.errors import InputError
from blockcalc.model import trace
from blockcalc.parallel.layout import Layout
from blockcalc.parallel.shard import shard
from blockcalc.refmodel.parallel.ranks import groups
from blockcalc.tensor import Kernels

TWO = Layout(cp=2, ulysses=True)
GROUPED = Attention(n=4, k=2, h=10, position=Rotary(r=10))
CASES = [
    Case(name, component, TWO, dtype, "flash", recompute)
    for name, component in (("grouped", GROUPED), ("latent", MLA(n=4, c=13, q=17, p=6, r=4, u=10)))
    for dtype, recompute in (("fp32", "none"), ("bf16", "selective"))
]  # fmt: skip


def differences(rank, file, found):
    """What one of the two ranks finds different."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    ranks = groups(TWO)
    for case in CASES:
        found.put((rank, case.name, case.dtype, costs(case, ranks) + truth(case, ranks)))
    dist.destroy_process_group()


@pytest.mark.skipif(os.name != "posix", reason="processes that share a file")
def test_two_ranks_compute_keep_and_send_what_the_engine_says(tmp_path):
    found = mp.get_context("spawn").SimpleQueue()
    mp.spawn(differences, (tmp_path / "store", found), 2)
    results = [found.get() for _ in range(2 * len(CASES))]
    assert [result for result in results if result[3]] == []


def test_heads_that_ranks_cannot_share_out_are_refused():
    budget = trace(GROUPED, Step.train(3, 32), 22, Kernels(attention="flash"))
    with pytest.raises(InputError, match=r"k = 2 .*tp·cp"):
        shard(budget, Layout(cp=4, ulysses=True))
