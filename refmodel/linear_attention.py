"""Attention without a softmax over pairs. Twin of ``blockcalc.blocks.linear_attention``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .context import Run


class LinearAttention(nn.Module):
    """φ(Q)(φ(K)ᵀV) / φ(Q)Σφ(K) in both directions. Choromanski et al. 2021, arXiv:2009.14794, equation 4."""

    def __init__(self, d: int, n: int, h: int, m: int) -> None:
        super().__init__()
        self.n, self.m, self.h = n, m, h
        self.q = nn.Linear(d, n * h, bias=False)
        self.k = nn.Linear(d, n * h, bias=False)
        self.v = nn.Linear(d, n * h, bias=False)
        self.o = nn.Linear(n * h, d, bias=False)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        q, k, v = (part(x).unflatten(-1, (self.n, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))  # b n t h
        q, k = self.features(q, run), self.features(k, run)  # b n t m
        state = k.transpose(2, 3) @ v  # b n m h
        out = (q @ state) / (q @ k.sum(2)[..., None])  # b n t h
        out = self.o(out.transpose(1, 2).flatten(2))  # b t d
        return out

    def features(self, x: Tensor, run: Run) -> Tensor:
        """exp(x W − |x|²/2), x (b n t h) to (b n t m). The random matrix is a buffer of the whole model."""
        matrix = run.buffer(("features", self.m, self.h), lambda: torch.randn(self.m, self.h, dtype=x.dtype))  # m h
        return torch.exp(x @ matrix.T - x.square().sum(-1, keepdim=True) / 2)  # b n t m
