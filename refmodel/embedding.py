"""Inputs that are not tokens, and tokens looked up as values or for each layer. Twins of ``blockcalc.blocks.embedding``."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .position import sinusoids


class Patches(nn.Module):
    """An image in m patches of y pixels, a class token before them. Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1.

    MLP-Mixer has neither class token nor positions: Tolstikhin et al. 2021, arXiv:2105.01601. The z pixels come in a row,
    patch by patch, and those that no patch covers last.
    """

    def __init__(
        self, d: int, m: int, y: int, x: int, z: int | None = None, *, bias: bool = True, class_token: bool = True,
        positions: bool = True, reserved: int = 0, norm: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.m, self.y, self.shape = m, y, (x, m * y if z is None else z)
        self.patch = nn.Conv1d(x, d, kernel_size=y, stride=y, bias=bias)
        self.first = nn.Parameter(torch.randn(d) * 0.02) if class_token else None  # d
        self.position = nn.Parameter(torch.randn(reserved + m + class_token, d) * 0.02) if positions else None  # t d
        self.norm = norm

    def draw(self, b: int, t: int) -> Tensor:
        """Random images (b x z)."""
        return torch.randn(b, *self.shape, dtype=self.patch.weight.dtype)

    def forward(self, image: Tensor, run: Run) -> Tensor:
        """The vectors (b t d) of images (b x z), t = m or, with a class token, m + 1."""
        x = self.patch(image[..., : self.m * self.y]).transpose(1, 2).contiguous()  # b m d
        if self.first is not None:
            x = torch.cat((self.first.expand(len(x), 1, -1), x), dim=1)  # b m+1 d
        x = x if self.position is None else x + self.position[-x.size(1) :]
        return x if self.norm is None else self.norm(x)


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


class ValueEmbedding(nn.Module):
    """Values plus 3σ(x[:i] W_g) times the layer's own vectors of the tokens, a gate a key-value head.

    nanochat, github.com/karpathy/nanochat, nanochat/gpt.py, after Zhou et al. 2024 (ResFormer), arXiv:2410.17897.
    """

    reads = ("tokens",)

    def __init__(self, v: int, k: int, h: int, i: int) -> None:
        super().__init__()
        self.i = i
        self.table = nn.Parameter(torch.randn(v, k * h) * 0.02)  # v k·h
        self.gate = nn.Linear(i, k, bias=False)

    def forward(self, x: Tensor, values: Tensor, run: Run) -> Tensor:
        """The values (b t k h) of x (b t d), with what is looked up for its tokens."""
        assert run.tokens is not None
        rows = F.embedding(run.tokens, self.table).view_as(values)  # b t k h
        gate = 3 * torch.sigmoid(self.gate(x[..., : self.i]))  # b t k
        return values + rows * gate[..., None]


class LayerEmbedding(nn.Module):
    """An input for each token and layer: rows of a second table, plus a normed projection of the token's vector.

    Gemma 3n and 4, per-layer embeddings.
    """

    def __init__(self, d: int, v: int, l: int, i: int, norm: nn.Module) -> None:
        super().__init__()
        self.l = l
        self.table = nn.Parameter(torch.randn(v, l * i) * 0.02)  # v l·i
        self.projection = nn.Linear(d, l * i, bias=False)
        self.norm = norm  # i wide

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """The inputs (b t l i) of the vectors x (b t d) of the run's tokens."""
        assert run.tokens is not None
        rows = F.embedding(run.tokens, self.table).unflatten(-1, (self.l, -1))  # b t l i
        own: Tensor = self.norm(self.projection(x).unflatten(-1, (self.l, -1)))  # b t l i
        return own + rows


class LayerInput(nn.Module):
    """(act(x W_narrow) ⊙ the layer's own input) W_widen. Gemma 3n and 4, per-layer embeddings."""

    reads = ("layer_inputs",)

    def __init__(self, d: int, i: int, act: Callable[[Tensor], Tensor], layer: int = 0) -> None:
        super().__init__()
        self.layer, self.act = layer, act
        self.narrow = nn.Linear(d, i, bias=False)
        self.widen = nn.Linear(i, d, bias=False)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). A layer alone draws its input."""
        gate = self.act(self.narrow(x))  # b t i
        if run.layer_inputs is None:
            run.layer_inputs = torch.randn_like(gate)[:, :, None].requires_grad_()  # b t 1 i
        out: Tensor = self.widen(gate * run.layer_inputs[:, :, self.layer])  # b t d
        return out
