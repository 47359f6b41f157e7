"""Experiments for the ledger of claims: small, seeded, in fp64 on the CPU."""

from __future__ import annotations

import torch

from . import attention, depth, feed_forward, models, scores

EXPERIMENTS = {
    **scores.EXPERIMENTS, **attention.EXPERIMENTS, **feed_forward.EXPERIMENTS, **depth.EXPERIMENTS, **models.EXPERIMENTS,
}  # fmt: skip
"""What torch measures, by the claim's id: the values in the order in which the claim lists them."""


def measure(name: str) -> tuple[float, ...]:
    """What torch finds for one claim, from the same random numbers in every run."""
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return tuple(map(float, EXPERIMENTS[name]()))
    finally:
        torch.set_default_dtype(before)
        torch.set_num_threads(threads)
