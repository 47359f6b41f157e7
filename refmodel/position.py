"""Where position enters. Twins of ``blockcalc.blocks.position``."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run


class LearnedPositions(nn.Module):
    """A trained vector a position. Gehring et al. 2017, arXiv:1705.03122, section 3.1."""

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(m, d) * 0.02)  # m d

    def forward(self, t: int, run: Run) -> Tensor:
        """The vectors (t d) of the t new positions."""
        return F.embedding(torch.arange(run.start, run.start + t), self.table)  # t d


class Rotary(nn.Module):
    """Rotates pairs of a head's first r entries. Su et al. 2021, arXiv:2104.09864, equation 34, the pairs half apart."""

    def __init__(self, r: int) -> None:
        super().__init__()
        self.r = r

    def tables(self, t: int, x: Tensor, run: Run) -> tuple[Tensor, Tensor]:
        """Cosines and sines (t r/2) of the new positions, in x's type: buffers of the whole model."""
        frequencies = 10000.0 ** (-torch.arange(0, self.r, 2) / self.r)  # r/2
        angles = torch.arange(run.start, run.start + t)[:, None] * frequencies  # t r/2
        cos = run.buffer(("cos", run.start, t, self.r), lambda: angles.cos().to(x.dtype))
        sin = run.buffer(("sin", run.start, t, self.r), lambda: angles.sin().to(x.dtype))
        return cos, sin

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t n h) to (b t n h)."""
        cos, sin = (table[:, None] for table in self.tables(x.size(1), x, run))  # t 1 r/2
        first, second, rest = x.split((self.r // 2, self.r // 2, x.size(-1) - self.r), dim=-1)  # b t n r/2, the same, h−r
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)  # b t n h


class RelativeBias(nn.Module):
    """A trained number a bucket of distances and head. Raffel et al. 2019, arXiv:1910.10683, section 2.1.

    Half of the buckets are for exact distances, the others grow logarithmically up to 128; without a causal mask the
    keys behind and ahead of the query have half of the buckets each.
    """

    def __init__(self, m: int, n: int, *, causal: bool) -> None:
        super().__init__()
        self.m, self.n, self.causal = m, n, causal
        self.table = nn.Parameter(torch.randn(m, n) * 0.02)  # m n

    def buckets(self, t: int, s: int) -> Tensor:
        """The bucket (t s) of each query's distance to each key, the last query standing at the last key."""
        distance = torch.arange(s - t, s)[:, None] - torch.arange(s)  # t s
        m = self.m if self.causal else self.m // 2
        ahead = torch.zeros_like(distance) if self.causal else (distance < 0) * m
        distance = distance.clamp(min=0) if self.causal else distance.abs()
        exact = max(1, m // 2)
        ratio = (distance.clamp(min=1) / exact).log() / math.log(128 / exact)
        far = (exact + (ratio * (m - exact)).long()).clamp(max=m - 1)
        return ahead + torch.where(distance < exact, distance, far)  # t s

    def forward(self, t: int, s: int, run: Run) -> Tensor:
        """The bias (n t s), made once for all layers of a stack."""
        if self not in run.biases:
            run.biases[self] = F.embedding(self.buckets(t, s), self.table).permute(2, 0, 1)  # n t s
        return run.biases[self]
