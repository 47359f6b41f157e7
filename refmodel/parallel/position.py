"""Where position enters, on several ranks: each makes what stands for its own positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import position
from ..context import Run
from .ranks import Ranks


class Rotary(position.Rotary):
    """Rotates by the angles of the rank's positions."""

    ranks: Ranks

    def tables(self, t: int, x: Tensor, run: Run) -> tuple[Tensor, Tensor]:
        """Cosines and sines (t r/2) of the rank's positions, in x's type: buffers of the whole model."""
        frequencies = self.base ** (-torch.arange(0, self.r, 2) / self.r)  # r/2
        angles = (run.start + self.ranks.positions(t))[:, None] * frequencies  # t r/2
        cos = run.buffer(("cos", run.start, t, self.r, self.base), lambda: angles.cos().to(x.dtype))
        sin = run.buffer(("sin", run.start, t, self.r, self.base), lambda: angles.sin().to(x.dtype))
        return cos, sin


class LearnedPositions(position.LearnedPositions):
    """A trained vector a position; each rank has all of them."""

    ranks: Ranks

    def forward(self, t: int, run: Run) -> Tensor:
        """The vectors (t d) of the rank's positions, of its part of the sequence."""
        rows = self.ranks.positions(t) + run.start + self.reserved  # t
        return F.embedding(self.ranks.tp.rows(rows, 0), self.table)


class Sinusoidal(position.Sinusoidal):
    """Fixed sines and cosines of the position."""

    ranks: Ranks

    def forward(self, t: int, x: Tensor, run: Run) -> Tensor:
        """The vectors (t d) of the rank's positions, of its part of the sequence: rows of the stored table or of a buffer."""
        positions, d = self.ranks.positions(t), x.size(-1)
        if self.table is not None:
            return F.embedding(self.ranks.tp.rows(positions + run.start, 0), self.table)

        def make() -> Tensor:
            return position.sinusoids(0, t * self.ranks.cp.size, d)[positions].to(x.dtype)

        return self.ranks.tp.rows(run.buffer(("sinusoids", t, d), make), 0)
