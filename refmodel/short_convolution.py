"""Convolutions over the last few positions. Twins of ``blockcalc.blocks.short_convolution``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run


class CausalConvolution(nn.Module):
    """Each channel under a kernel of its own over its last *taps* positions."""

    def __init__(self, d: int, taps: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d, taps) * taps**-0.5)  # d taps
        self.bias = nn.Parameter(torch.zeros(d)) if bias else None  # d

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). The cache holds the last *taps* positions of x."""
        d, taps = self.weight.shape
        t, behind = x.size(1), run.caches is not None and self in run.caches.held
        whole = run.tail(self, x, taps)  # b t d, or with those before
        padding = 0 if behind and t == 1 else taps - 1
        out = F.conv1d(whole.transpose(1, 2), self.weight[:, None], self.bias, padding=padding, groups=d)  # b d places
        first = whole.size(1) - t - (taps - 1 - padding)
        return out[..., first : first + t].transpose(1, 2)  # b t d


class ShortConvolution(nn.Module):
    """(C ⊙ conv(B ⊙ X)) W_O. LFM2, arXiv:2511.23404."""

    def __init__(self, d: int, taps: int, *, bias: bool = False) -> None:
        super().__init__()
        self.b, self.c, self.x, self.o = (nn.Linear(d, d, bias=bias) for _ in range(4))
        self.convolution = CausalConvolution(d, taps, bias=bias)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        out = self.c(x) * self.convolution(self.b(x) * self.x(x), run)  # b t d
        out = self.o(out)  # b t d
        return out
