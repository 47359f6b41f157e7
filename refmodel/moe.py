"""Mixture of experts. Twin of ``blockcalc.blocks.moe``."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from .context import Run

Score: TypeAlias = Literal["softmax", "sigmoid", "softmax_of_chosen"]


class MoE(nn.Module):
    """Σ of a of e experts, weighted by the router, plus a shared expert. Shazeer et al. 2017, arXiv:1701.06538, equation 1.

    Dropless: the b·t·a routed rows are sorted by expert, run, weighed and added up by token. Shared: DeepSeekMoE,
    arXiv:2401.06066, equation 9. Sigmoid scores: DeepSeek-V3, arXiv:2412.19437, equation 15. Softmax of the chosen logits
    alone: Mixtral, arXiv:2401.04088, section 2.1.
    """

    def __init__(
        self, router: nn.Linear, experts: list[nn.Module], a: int, *, shared: nn.Module | None = None,
        shared_gate: nn.Linear | None = None, score: Score = "softmax", renormalise: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.a, self.score, self.renormalise = a, score, renormalise
        self.router = router  # d e
        self.experts = nn.ModuleList(experts)
        self.shared = shared
        self.shared_gate = shared_gate  # d 1

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The a chosen experts of each token and their weights (b t a)."""
        logits = self.router(x).float()  # b t e
        if self.score == "softmax_of_chosen":
            best, chosen = logits.topk(self.a)  # b t a
            weights = best.softmax(-1)  # b t a
        else:
            scores = logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()
            chosen = scores.detach().topk(self.a).indices  # b t a
            weights = scores.gather(-1, chosen)  # b t a
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return chosen, weights.to(x.dtype)

    def rows_of(self, chosen: Tensor) -> list[int]:
        """How many rows each expert gets; on the meta device, which holds no values, as equal a share as there can be."""
        e, rows = len(self.experts), chosen.numel()
        if chosen.is_meta:
            return [rows // e + (i < rows % e) for i in range(e)]
        found: list[int] = chosen.flatten().bincount(minlength=e).tolist()
        return found

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d)."""
        chosen, weights = self.route(x)  # b t a
        order = chosen.flatten().argsort(stable=True)  # b·t·a, by expert
        tokens = order // self.a  # b·t·a
        counts = self.rows_of(chosen)
        parts = x.flatten(0, 1)[tokens].split(counts)  # e of (rows, d)
        done = [expert(part, run) for expert, part in zip(self.experts, parts, strict=True) if len(part)]
        rows = torch.cat(done) * weights.flatten()[order, None]  # b·t·a d
        out = torch.zeros_like(x).flatten(0, 1).index_add(0, tokens, rows).view_as(x)  # b t d
        if self.shared is None:
            return out
        shared = self.shared(x, run)  # b t d
        return out + (shared if self.shared_gate is None else shared * torch.sigmoid(self.shared_gate(x)))
