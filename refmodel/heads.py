"""Heads that are not a language model's. Twins of ``blockcalc.heads``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .mlp import Function
from .model import LMHead
from .norm import RMSNorm


class MaskedLMHead(nn.Module):
    """A dense layer, an activation and a norm before the logits. Devlin et al. 2018, arXiv:1810.04805, section 3.1."""

    def __init__(self, d: int, i: int, act: Function, norm: nn.Module, output: LMHead, *, bias: bool = True) -> None:
        super().__init__()
        self.transform = nn.Linear(d, i, bias=bias)
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
    """A linear layer on every position, on the first, or on their mean, behind a dense layer where there is an activation."""

    def __init__(
        self, d: int, v: int, *, bias: bool, first: bool = False, mean: bool = False, act: Function | None = None,
        norm: nn.Module | None = None, hidden_bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.first, self.mean, self.act, self.norm = first, mean, act, norm
        self.transform = None if act is None else nn.Linear(d, d, bias=hidden_bias)
        self.classifier = nn.Linear(d, v, bias=bias)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b t v), or to (b v)."""
        x = x[:, 0] if self.first else x.mean(1) if self.mean else x  # b t d, or b d
        if self.transform is not None and self.act is not None:
            x = self.act(self.transform(x))
            x = x if self.norm is None else self.norm(x)
        logits: Tensor = self.classifier(x)  # b t v, or b v
        return logits


class NormedFirst(nn.Module):
    """A norm of the first position, and a linear layer on it. Radford et al. 2021 (CLIP), arXiv:2103.00020, section 2.4."""

    def __init__(self, d: int, norm: nn.Module, v: int | None) -> None:
        super().__init__()
        self.norm = norm
        self.projection = None if v is None else nn.Linear(d, v, bias=False)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b d), or to (b v)."""
        first: Tensor = self.norm(x[:, 0])  # b d
        return first if self.projection is None else self.projection(first)


class Contrastive(nn.Module):
    """How alike texts and images are. Radford et al. 2021 (CLIP), arXiv:2103.00020, figure 3."""

    reads = ("memory",)

    def __init__(self, d: int, source: int, i: int, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.text, self.image = nn.Linear(d, i, bias=False), nn.Linear(source, i, bias=False)
        self.unit = RMSNorm(i, gain=False)
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor, images: Tensor) -> Tensor:
        """Texts x (b t d) and images (b m d) to their similarities (b b)."""
        text = self.unit(self.text(x[:, 0]))  # b i
        image = self.unit(self.image(self.norm(images[:, 0])))  # b i
        return text @ image.mT * self.temperature


class MeanHead(nn.Module):
    """A linear layer on the mean over the positions. Tolstikhin et al. 2021 (MLP-Mixer), arXiv:2105.01601, section 2."""

    def __init__(self, d: int, v: int | None) -> None:
        super().__init__()
        self.classifier = None if v is None else nn.Linear(d, v)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b v), or to (b d)."""
        mean = x.mean(1)  # b d
        return mean if self.classifier is None else self.classifier(mean)
