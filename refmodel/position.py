"""Where position enters. Twins of ``blockcalc.blocks.position``."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run


class LearnedPositions(nn.Module):
    """A trained vector a position. Gehring et al. 2017, arXiv:1705.03122, section 3.1."""

    def __init__(self, d: int, m: int, *, reserved: int = 0) -> None:
        super().__init__()
        self.reserved = reserved  # rows before that of the first position
        self.table = nn.Parameter(torch.randn(m, d) * 0.02)  # m d

    def forward(self, t: int, run: Run) -> Tensor:
        """The vectors (t d) of the t new positions."""
        first = run.start + self.reserved
        return F.embedding(torch.arange(first, first + t), self.table)  # t d


class Sinusoidal(nn.Module):
    """Fixed sines and cosines of the position. Vaswani et al. 2017, arXiv:1706.03762, section 3.5."""

    def __init__(self, d: int, m: int | None = None) -> None:
        super().__init__()
        self.table = None if m is None else nn.Parameter(sinusoids(0, m, d), requires_grad=False)  # m d

    def forward(self, t: int, x: Tensor, run: Run) -> Tensor:
        """The vectors (t d) of the new positions: rows of the stored table, else in x's type, a buffer of the whole model."""
        if self.table is not None:
            return F.embedding(torch.arange(run.start, run.start + t), self.table)  # t d
        key = ("sinusoids", run.start, t, x.size(-1))
        return run.buffer(key, lambda: sinusoids(run.start, t, x.size(-1)).to(x.dtype))


def sinusoids(start: int, t: int, d: int) -> Tensor:
    """Sines, then cosines (t d) of geometrically spaced frequencies, from position *start* on."""
    frequencies = 10000.0 ** (-torch.arange(0, d, 2) / d)  # ⌈d/2⌉
    angles = torch.arange(start, start + t)[:, None] * frequencies  # t ⌈d/2⌉
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :d]  # t d


class Rotary(nn.Module):
    """Rotates pairs of a head's first r entries. Su et al. 2021, arXiv:2104.09864, equation 34, the pairs half apart."""

    def __init__(self, r: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.r, self.base = r, base

    def tables(self, t: int, x: Tensor, run: Run) -> tuple[Tensor, Tensor]:
        """Cosines and sines (t r/2) of the new positions, in x's type: buffers of the whole model."""
        frequencies = self.base ** (-torch.arange(0, self.r, 2) / self.r)  # r/2
        angles = torch.arange(run.start, run.start + t)[:, None] * frequencies  # t r/2
        cos = run.buffer(("cos", run.start, t, self.r, self.base), lambda: angles.cos().to(x.dtype))
        sin = run.buffer(("sin", run.start, t, self.r, self.base), lambda: angles.sin().to(x.dtype))
        return cos, sin

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t n h) to (b t n h)."""
        cos, sin = (table[:, None] for table in self.tables(x.size(1), x, run))  # t 1 r/2
        first, second, rest = x.split((self.r // 2, self.r // 2, x.size(-1) - self.r), dim=-1)  # b t n r/2, the same, h−r
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)  # b t n h


class RelativeKeys(nn.Module):
    """A trained vector a distance, −c to c, of keys and of values. Shaw et al. 2018, arXiv:1803.02155, equations 3 and 4."""

    def __init__(self, m: int, h: int, *, values: bool = True) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(m, h) * 0.02)  # m h, m = 2c + 1
        self.values = nn.Parameter(torch.randn(m, h) * 0.02) if values else None  # m h

    def forward(self, t: int, s: int) -> tuple[Tensor, Tensor | None]:
        """The vectors (t s h) of each query and key, the last of both at one position; and those of the values."""
        c = (len(self.keys) - 1) // 2
        distance = torch.arange(s) - torch.arange(s - t, s)[:, None]  # t s
        rows = distance.clamp(-c, c) + c  # t s
        return F.embedding(rows, self.keys), None if self.values is None else F.embedding(rows, self.values)


class ALiBi(nn.Module):
    """−slope·distance added to the scores. Press, Smith and Lewis 2022, arXiv:2108.12409, section 3.

    Of n heads, a power of two, the i-th has the slope 2^(−8i/n); other n have those of the powers around them. A softmax
    does not see what is added to a whole row, so that slope·key is as good.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        below = 2 ** int(math.log2(n))
        slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
        between = [2 ** (-4 * i / below) for i in range(1, 2 * below, 2)]
        self.slopes = (slopes + between)[:n]

    def forward(self, s: int, x: Tensor, run: Run) -> Tensor:
        """The bias (n 1 s) for s keys, in x's type, or the slopes (n) that a fused kernel makes it of: a buffer of the whole
        model."""
        if run.kernel == "fused":
            return run.buffer(("slopes", len(self.slopes)), lambda: torch.tensor(self.slopes))
        slopes = torch.tensor(self.slopes)[:, None, None]  # n 1 1
        return run.buffer(("alibi", len(self.slopes), s), lambda: (slopes * torch.arange(s)).to(x.dtype))


class RelativeBias(nn.Module):
    """A trained number a bucket of distances and head. Raffel et al. 2019, arXiv:1910.10683, section 2.1.

    Half of the buckets are for exact distances, the others grow logarithmically up to 128; without a causal mask the
    keys behind and ahead of the query have half of the buckets each.
    """

    def __init__(self, m: int, n: int, *, causal: bool, each_layer: bool = False) -> None:
        super().__init__()
        self.m, self.n, self.causal, self.each_layer = m, n, causal, each_layer
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
        """The bias (n t s), made once for all layers of a stack unless each has its own."""
        if self in run.biases:
            return run.biases[self][..., -s:]
        bias = F.embedding(self.buckets(t, s), self.table).permute(2, 0, 1)  # n t s
        if not self.each_layer:
            run.biases[self] = bias
        return bias
