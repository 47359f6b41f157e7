"""Normalisation over the last axis. Twins of ``blockcalc.blocks.norm``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """(x − mean)/std · gain + bias. Ba, Kiros and Hinton 2016, arXiv:1607.06450, equation 3."""

    def __init__(self, d: int, *, gain: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d)) if gain else None  # d
        self.bias = nn.Parameter(torch.zeros(d)) if bias else None  # d

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return F.layer_norm(x, x.shape[-1:], self.gain, self.bias)


class RMSNorm(nn.Module):
    """x/rms · gain. Zhang and Sennrich 2019, arXiv:1910.07467, equation 4."""

    def __init__(self, d: int, *, gain: bool = True) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d)) if gain else None  # d

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return F.rms_norm(x, x.shape[-1:], self.gain, eps=1e-6)
