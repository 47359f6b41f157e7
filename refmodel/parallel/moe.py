"""A mixture whose experts lie on different ranks. Twin of ``blockcalc.blocks.moe`` on several ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import moe
from ..context import Run
from .ranks import Ranks
from .regions import enter, exchange, leave


class Down(nn.Module):
    """The last matrix of an expert, summed over a part of its hidden units; the bank adds the bias."""

    def __init__(self, local: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = local.weight, local.bias  # d f/etp, d

    def forward(self, x: Tensor) -> Tensor:
        """x (rows f/etp) to (rows d)."""
        return F.linear(x, self.weight)


class MoE(moe.MoE):
    """Rows go to the ranks that have their experts, and come back. Lepikhin et al. 2020, GShard, arXiv:2006.16668, section 3.2.

    Every expert gets as many rows: what is routed unevenly has no shape to compare. Where experts are split too, all rows of
    a rank enter and leave them at once, as Megatron-LM's dispatcher gathers and scatters them.
    """

    def __init__(self, whole: moe.MoE, shared: nn.Module | None, ranks: Ranks) -> None:
        super().__init__(
            whole.router, list(whole.experts), whole.a, shared=shared, shared_gate=whole.shared_gate, score=whole.score,
            renormalise=whole.renormalise, choice_bias=whole.choice_bias is not None,
        )  # fmt: skip
        self.ranks = ranks
        for expert in self.experts:
            expert.down = Down(expert.down)  # type: ignore[arg-type]

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both."""
        chosen, weights = self.route(x)  # b t a
        order = chosen.flatten().argsort(stable=True)  # b·t·a, by expert
        tokens = order // self.a  # b·t·a
        rows = self.bank(x.flatten(0, 1)[tokens], run) * weights.flatten()[order, None]  # b·t·a d
        out = torch.zeros_like(x).flatten(0, 1).index_add(0, tokens, rows).view_as(x)  # b t d
        if self.shared is None:
            return out
        shared = self.shared(x, run)  # b t d
        return out + (shared if self.shared_gate is None else shared * torch.sigmoid(self.shared_gate(x)))

    def bank(self, rows: Tensor, run: Run | None) -> Tensor:
        """The rows (b·t·a d, by expert) through the experts of all ranks."""
        ep, etp = self.ranks.ep, self.ranks.etp
        own = len(self.experts)
        rows = exchange(rows, ep).unflatten(0, (ep.size, own, -1))  # ep e/ep rows d
        rows = enter(rows.transpose(0, 1).flatten(1, 2), etp)  # e/ep ep·rows d
        done = leave(torch.stack([expert(part, run) for expert, part in zip(self.experts, rows, strict=True)]), etp)
        biases: list[Tensor] = [p for name, p in self.experts.named_parameters() if name.endswith("down.bias")]  # e/ep of d
        if biases:
            done = done + torch.stack(biases)[:, None]
        return exchange(done.unflatten(1, (ep.size, -1)).transpose(0, 1).flatten(0, 2), ep)  # b·t·a d

    def expert(self) -> Iterator[nn.Parameter]:
        """Weights that only the ranks with these experts have."""
        return self.experts.parameters()

    def owned(self) -> Iterator[nn.Parameter]:
        """An expert's hidden units are split over the ranks of *etp*."""
        for expert in self.experts if self.ranks.etp.size > 1 else ():
            yield from (p for name, p in expert.named_parameters() if name != "down.bias")
