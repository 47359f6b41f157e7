"""Plain torch, written here from papers, and what a budget is held against: what autograd keeps, and torch's FLOPs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from blockcalc import widths


def measured(step: Callable[[], Tensor], module: nn.Module, *buffers: Tensor) -> tuple[int, int, int, int]:
    """Parameters, FLOPs forward and backward, and the bytes of what is kept, each storage once, *buffers* in any case."""
    weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}
    kept = {buffer.untyped_storage().data_ptr(): buffer.untyped_storage() for buffer in buffers}

    def pack(x: Tensor) -> Tensor:
        if x.untyped_storage().data_ptr() not in weights:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with FlopCounterMode(display=False) as forward, saved_tensors_hooks(pack, lambda x: x):
        out = step()
    saved = sum(storage.nbytes() for storage in kept.values())
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    parameters = sum(weight.numel() for weight in module.parameters())
    return parameters, forward.get_total_flops(), backward.get_total_flops(), saved


def declared(budget: Any, dtype: str = "fp32") -> tuple[int, int, int, int]:
    """The same of a budget."""
    work = budget.work()
    return budget.parameters().total, 2 * work.forward, 2 * work.backward, budget.activations(widths(dtype)).bytes


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * 0.1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q kᵀ/√h) v of q (b t n h), k and v (b s k h), written out; (b t n·h)."""
    k, v = (x.repeat_interleave(q.size(2) // x.size(2), dim=2) if x.size(2) < q.size(2) else x for x in (k, v))
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    scores = q @ k.transpose(2, 3) * q.size(-1) ** -0.5
    scores = scores if mask is None else scores.masked_fill(mask, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def hidden(t: int, window: int | None = None) -> Tensor:
    """True (t t) where a query must not see a key."""
    i = torch.arange(t)
    ahead = i > i[:, None]
    return ahead if window is None else ahead | (i <= i[:, None] - window)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (b t n h), its halves as pairs; cos and sin (t 1 h/2)."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def angles(t: int, h: int) -> tuple[Tensor, Tensor]:
    turn = torch.arange(t)[:, None, None] * 10000.0 ** (-torch.arange(0, h, 2) / h)
    return turn.cos(), turn.sin()


class Heads(nn.Module):
    """Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2."""

    def __init__(self, d: int, n: int, bias: bool) -> None:
        super().__init__()
        self.n = n
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=bias) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (linear(y).unflatten(-1, (self.n, -1)) for linear, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        return self.o(attend(q, k, v, mask))
