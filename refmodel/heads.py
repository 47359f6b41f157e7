"""Heads that are not a language model's. Twins of ``blockcalc.heads``."""

from __future__ import annotations

from torch import Tensor, nn

from .mlp import Function
from .model import LMHead


class MaskedLMHead(nn.Module):
    """A dense layer, an activation and a norm before the logits. Devlin et al. 2018, arXiv:1810.04805, section 3.1."""

    def __init__(self, d: int, i: int, act: Function, norm: nn.Module, output: LMHead) -> None:
        super().__init__()
        self.transform = nn.Linear(d, i)
        self.act, self.norm, self.output = act, norm, output

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        logits: Tensor = self.output(self.norm(self.act(self.transform(x))), table)  # b t v
        return logits


class Pooler(nn.Module):
    """A dense layer on the first position and its activation, and classes of it where there are any. Devlin et al. 2018."""

    def __init__(self, d: int, i: int, v: int | None, act: Function) -> None:
        super().__init__()
        self.pooler = nn.Linear(d, i)
        self.act = act
        self.classifier = None if v is None else nn.Linear(i, v)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b i), or to (b v)."""
        pooled = self.act(self.pooler(x[:, 0]))  # b i
        return pooled if self.classifier is None else self.classifier(pooled)


class Classifier(nn.Module):
    """A linear layer on every position, or on the first."""

    def __init__(self, d: int, v: int, *, bias: bool, first: bool = False) -> None:
        super().__init__()
        self.first = first
        self.classifier = nn.Linear(d, v, bias=bias)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b t v), or to (b v)."""
        logits: Tensor = self.classifier(x[:, 0] if self.first else x)  # b t v
        return logits


class MeanHead(nn.Module):
    """A linear layer on the mean over the positions. Tolstikhin et al. 2021 (MLP-Mixer), arXiv:2105.01601, section 2."""

    def __init__(self, d: int, v: int | None) -> None:
        super().__init__()
        self.classifier = None if v is None else nn.Linear(d, v)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b v), or to (b d)."""
        mean = x.mean(1)  # b d
        return mean if self.classifier is None else self.classifier(mean)
