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
    alone: Mixtral, arXiv:2401.04088, section 2.1. A bias for the choice alone: arXiv:2408.15664, equation 3. Norms of what the
    router and the experts read, and a factor an expert: Gemma 4.
    """

    def __init__(
        self, router: nn.Linear, experts: list[nn.Module], a: int, *, shared: nn.Module | None = None,
        shared_gate: nn.Linear | None = None, score: Score = "softmax", renormalise: bool = True,
        router_norm: nn.Module | None = None, expert_norm: nn.Module | None = None, expert_scale: bool = False,
        choice_bias: bool = False, latent: tuple[nn.Linear, nn.Linear] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.latent_down = None if latent is None else latent[0]  # d i
        self.latent_up = None if latent is None else latent[1]  # i d
        self.a, self.score, self.renormalise = a, score, renormalise
        self.router = router  # d e
        self.experts = nn.ModuleList(experts)
        self.shared = shared
        self.shared_gate = shared_gate  # d 1
        self.router_norm, self.expert_norm = router_norm, expert_norm
        self.choice_bias = nn.Parameter(torch.zeros(router.out_features), requires_grad=False) if choice_bias else None  # e
        self.expert_scale = nn.Parameter(torch.ones(len(experts))) if expert_scale else None  # e

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The a chosen experts of each token and their weights (b t a)."""
        logits = self.router(x if self.router_norm is None else self.router_norm(x)).float()  # b t e
        if self.score == "softmax_of_chosen":
            best, chosen = logits.topk(self.a)  # b t a
            weights = best.softmax(-1)  # b t a
        else:
            scores = logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()
            ranked = scores.detach() if self.choice_bias is None else scores.detach() + self.choice_bias  # b t e
            chosen = ranked.topk(self.a).indices  # b t a
            weights = scores.gather(-1, chosen)  # b t a
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.expert_scale is not None:
            weights = weights * self.expert_scale[chosen]
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
        read = x if self.expert_norm is None else self.expert_norm(x)  # b t d
        read = read if self.latent_down is None else self.latent_down(read)  # b t i
        parts = read.flatten(0, 1)[tokens].split(counts)  # e of (rows, d)
        done = [expert(part, run) for expert, part in zip(self.experts, parts, strict=True) if len(part)]
        rows = torch.cat(done) * weights.flatten()[order, None]  # b·t·a d
        out = torch.zeros_like(read).flatten(0, 1).index_add(0, tokens, rows).view_as(read)  # b t d
        out = out if self.latent_up is None else self.latent_up(out)
        if self.shared is None:
            return out
        shared = self.shared(x, run)  # b t d
        return out + (shared if self.shared_gate is None else shared * torch.sigmoid(self.shared_gate(x)))


class DenseMoE(nn.Module):
    """Every expert on every token, each on x times the sigmoid of its logit, which is 0 but for the a best; and a shared one.

    Llama 4, as transformers runs it.
    """

    def __init__(self, router: nn.Linear, experts: list[nn.Module], a: int, *, shared: nn.Module | None = None) -> None:
        super().__init__()
        self.a = a
        self.router = router  # d e
        self.experts = nn.ModuleList(experts)
        self.shared = shared

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d)."""
        logits = self.router(x)  # b t e
        best, chosen = logits.topk(self.a)  # b t a
        weights = best.float().sigmoid().to(x.dtype)  # b t a
        scores = torch.zeros_like(logits).scatter(-1, chosen, weights)  # b t e
        rows = scores.movedim(-1, 0)[..., None] * x  # e b t d
        done = [expert(part, run) for expert, part in zip(self.experts, rows.unbind(), strict=True)]
        out = torch.stack(done).sum(0)  # b t d
        return out if self.shared is None else out + self.shared(x, run)
