"""Several streams side by side, of which each layer runs on one. Twins of ``blockcalc.blocks.altup``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .norm import RMSNorm
from .wiring import Residual


def beside(x: Tensor, others: Tensor) -> Tensor:
    """x (b t d) and the others (b t j d), which are made as large as x, in one (b t j+1 d)."""
    size = x.square().mean(-1, keepdim=True).sqrt()  # b t 1
    others = F.rms_norm(others, others.shape[-1:], eps=1e-12) * size[:, :, None]  # b t j d
    return torch.cat((x[:, :, None], others), dim=2)


class Streams(nn.Module):
    """x and j projections of it, each as large as x. Baykal et al. 2023, arXiv:2301.13310, section 3; Gemma 3n."""

    def __init__(self, d: int, j: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(j))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t j+1 d)."""
        return beside(x, torch.stack([project(x) for project in self.projections], dim=2))


class Merged(nn.Module):
    """The mean of the first stream and a projection of each of the others, as large as the first. Gemma 3n."""

    def __init__(self, d: int, j: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(j))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t j+1 d) to (b t d)."""
        others = [project(x[:, :, i]) for i, project in enumerate(self.projections, 1)]
        return beside(x[:, :, 0], torch.stack(others, dim=2)).mean(2)


class AltUp(nn.Module):
    """All streams are predicted, the block runs on the first, and what it found corrects all. Baykal et al. 2023,
    arXiv:2301.13310, algorithm 1, with coefficients of the token, as Gemma 3n has it."""

    def __init__(self, d: int, j: int, block: nn.Module, branch: Residual | None) -> None:
        super().__init__()
        streams, self.block, self.branch = j + 1, block, branch
        self.norm = RMSNorm(d)
        self.router = nn.Linear(d, streams, bias=False)
        self.predict = nn.Linear(streams, streams**2, bias=False)
        self.correct = nn.Linear(streams, streams, bias=False)
        self.scale = None if branch is None else nn.Parameter(torch.ones(d))  # d

    def modalities(self, x: Tensor) -> Tensor:
        """What the router says of x (b t d), a number a stream (b t j+1)."""
        return torch.tanh(self.router(self.norm(x)))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t j+1 d) to (b t j+1 d)."""
        predicting = self.predict(self.modalities(x[:, :, 0])).unflatten(-1, x.shape[2:3] * 2)  # b t o i
        predicted = x + torch.einsum("btid,btoi->btod", x, predicting)
        active = predicted[:, :, 0]
        found = self.block(active, run)  # b t d
        correcting = self.correct(self.modalities(found)) + 1  # b t j+1
        corrected = predicted + (found - active)[:, :, None] * correcting[..., None]
        if self.branch is None:
            return corrected
        read = corrected[:, :, 0].clone() * self.scale  # b t d
        others = corrected[:, :, 1:] + self.branch.inner(read, run)[:, :, None]  # b t j d
        return torch.cat((corrected[:, :, :1], others), dim=2)
