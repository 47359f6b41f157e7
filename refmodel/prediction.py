"""Predicting more than the next token. Twin of ``blockcalc.blocks.prediction``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .context import Run


class MultiTokenPrediction(nn.Module):
    """block([norm(x); norm(Emb(tokens one further on))] M). DeepSeek-V3, arXiv:2412.19437, equations 21 and 22."""

    def __init__(self, d: int, block: nn.Module, stream_norm: nn.Module, token_norm: nn.Module, last: nn.Module | None) -> None:
        super().__init__()
        self.stream_norm, self.token_norm = stream_norm, token_norm
        self.project = nn.Linear(2 * d, d, bias=False)
        self.block = block
        self.last = last

    def forward(self, x: Tensor, ahead: Tensor, run: Run) -> Tensor:
        """x (b t d), beside the vectors of the tokens ahead (b t d), to (b t d)."""
        both = torch.cat((self.stream_norm(x), self.token_norm(ahead)), dim=-1)  # b t 2d
        x = self.block(self.project(both), run)  # b t d
        return x if self.last is None else self.last(x)
