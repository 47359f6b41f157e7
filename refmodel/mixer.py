"""Mixing without attention. Twins of ``blockcalc.blocks.mixer``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .context import Run
from .mlp import Function


class TokenMixing(nn.Module):
    """A feed-forward over the t positions of each channel. Tolstikhin et al. 2021, arXiv:2105.01601, equation 1."""

    def __init__(self, t: int, f: int, act: Function) -> None:
        super().__init__()
        self.act = act
        self.up = nn.Linear(t, f)
        self.down = nn.Linear(f, t)

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d)."""
        hidden = self.act(self.up(x.transpose(1, 2)))  # b d f
        out: Tensor = self.down(hidden).transpose(1, 2)  # b t d
        return out


class SqueezeExcitation(nn.Module):
    """x times a gate a channel, made of the channels' means. Hu, Shen and Sun 2018, arXiv:1709.01507, equations 2 to 4."""

    def __init__(self, d: int, f: int) -> None:
        super().__init__()
        self.down = nn.Linear(d, f, bias=False)
        self.up = nn.Linear(f, d, bias=False)

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d)."""
        hidden = torch.relu(self.down(x.mean(1)))  # b f
        return x * torch.sigmoid(self.up(hidden))[:, None]  # b t d


class Smear(nn.Module):
    """x plus λσ(g · x[:i]) times the vector of the position before. nanochat, github.com/karpathy/nanochat, nanochat/gpt.py."""

    def __init__(self, i: int) -> None:
        super().__init__()
        self.i = i
        self.gate = nn.Linear(i, 1, bias=False)
        self.smear_lambda = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). The cache holds the last vector."""
        last = run.last(self, x)  # b 1 d
        before = x[:, :-1] if last is None else torch.cat((last, x[:, :-1]), dim=1)  # b t−1 d, or b t d
        moved = x[:, x.size(1) - before.size(1) :]  # the same
        gate = self.smear_lambda * torch.sigmoid(self.gate(moved[..., : self.i]))  # b t−1 1
        moved = moved + gate * before
        return moved if last is not None else torch.cat((x[:, :1], moved), dim=1)  # b t d
