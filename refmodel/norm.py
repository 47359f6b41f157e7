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


class LayerNormOfEachHead(nn.Module):
    """A layer norm over each head's width, with a gain and a bias of its own."""

    def __init__(self, n: int, h: int, *, gain: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.norms = nn.ModuleList(LayerNorm(h, gain=gain, bias=bias) for _ in range(n))  # n of h

    def forward(self, x: Tensor) -> Tensor:
        """x (b t n h) to (b t n h)."""
        return torch.stack([norm(head) for norm, head in zip(self.norms, x.unbind(-2), strict=True)], dim=-2)


class RMSNorm(nn.Module):
    """x/rms · gain. Zhang and Sennrich 2019, arXiv:1910.07467, equation 4."""

    def __init__(self, d: int, *, gain: bool = True) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d)) if gain else None  # d

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return F.rms_norm(x, x.shape[-1:], self.gain, eps=1e-6)


class OffsetRMSNorm(nn.Module):
    """x/rms · (1 + w) in fp32. Gemma, arXiv:2403.08295, as its code has it."""

    def __init__(self, d: int, *, gain: bool = True) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(d)) if gain else None  # d

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (normed if self.w is None else normed * (1.0 + self.w.float())).to(x.dtype)


class Scaled(nn.Module):
    """A norm times a constant, as nanochat's of queries and keys."""

    def __init__(self, norm: nn.Module, factor: float) -> None:
        super().__init__()
        self.norm, self.factor = norm, factor

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        out: Tensor = self.norm(x) * self.factor
        return out


class HeadsNorm(nn.Module):
    """One norm over all heads at once. OLMo 2, arXiv:2501.00656, section 2.1."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm  # n·h wide

    def forward(self, x: Tensor) -> Tensor:
        """x (b t n h) to (b t n h)."""
        out: Tensor = self.norm(x.flatten(-2)).view_as(x)
        return out


class LayerScale(nn.Module):
    """λ·x, a trained λ for each entry of x. Touvron et al. 2021 (CaiT), arXiv:2103.17239, section 2."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d))  # d

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return self.gain * x
