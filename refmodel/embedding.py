"""Inputs that are not tokens. Twins of ``blockcalc.blocks.embedding``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .position import sinusoids


class Patches(nn.Module):
    """An image in m patches of y pixels, a class token before them. Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1.

    The z pixels come in a row, patch by patch, and those that no patch covers last.
    """

    def __init__(self, d: int, m: int, y: int, x: int, z: int | None = None) -> None:
        super().__init__()
        self.m, self.y, self.shape = m, y, (x, m * y if z is None else z)
        self.patch = nn.Conv1d(x, d, kernel_size=y, stride=y)
        self.first = nn.Parameter(torch.randn(d) * 0.02)  # d, the class token
        self.position = nn.Parameter(torch.randn(m + 1, d) * 0.02)  # m+1 d

    def draw(self, b: int, t: int) -> Tensor:
        """Random images (b x z)."""
        return torch.randn(b, *self.shape, dtype=self.first.dtype)

    def forward(self, image: Tensor, run: Run) -> Tensor:
        """The vectors (b m+1 d) of images (b x z)."""
        patches = self.patch(image[..., : self.m * self.y]).transpose(1, 2)  # b m d
        return torch.cat((self.first.expand(len(image), 1, -1), patches), dim=1) + self.position  # b m+1 d


class Frames(nn.Module):
    """2m frames under two convolutions, plus sinusoids. Radford et al. 2022 (Whisper), arXiv:2212.04356, section 2.2."""

    def __init__(self, d: int, m: int, x: int) -> None:
        super().__init__()
        self.shape = (x, 2 * m)
        self.first = nn.Conv1d(x, d, kernel_size=3, padding=1)
        self.second = nn.Conv1d(d, d, kernel_size=3, stride=2, padding=1)
        self.position = nn.Parameter(sinusoids(0, m, d), requires_grad=False)  # m d

    def draw(self, b: int, t: int) -> Tensor:
        """Random spectrograms (b x 2m)."""
        return torch.randn(b, *self.shape, dtype=self.position.dtype)

    def forward(self, frames: Tensor, run: Run) -> Tensor:
        """The vectors (b m d) of spectrograms (b x 2m)."""
        x = F.gelu(self.first(frames))  # b d 2m
        x = F.gelu(self.second(x))  # b d m
        return x.transpose(1, 2).contiguous() + self.position  # b m d
