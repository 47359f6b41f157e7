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
