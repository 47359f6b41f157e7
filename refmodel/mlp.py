"""Feed-forward networks. Twins of ``blockcalc.blocks.mlp``."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .fused import Gate

Function = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """Hendrycks and Gimpel 2016, arXiv:1606.08415, the approximation in section 2."""
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Tensor) -> Tensor:
    """x·σ(1.702x). Hendrycks and Gimpel 2016, arXiv:1606.08415, the other approximation in section 2."""
    return F.silu(1.702 * x) / 1.702


def relu_squared(x: Tensor) -> Tensor:
    """So et al. 2021, Primer, arXiv:2109.08668, section 4."""
    return torch.relu(x).square()


FUNCTIONS: dict[str, Function] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu_squared": relu_squared,
}


def gated(run: Run | None, product: Callable[[Tensor, Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
    """product(gate, up) by the kernel of the run."""
    out: Tensor = product(gate, up) if run is None or run.gated == "plain" else Gate.apply(product, gate, up)
    return out


class MLP(nn.Module):
    """act(x W_up) W_down. Vaswani et al. 2017, arXiv:1706.03762, equation 2."""

    def __init__(self, d: int, f: int, act: Function, *, bias: bool = False) -> None:
        super().__init__()
        self.act = act
        self.up = nn.Linear(d, f, bias=bias)
        self.down = nn.Linear(f, d, bias=bias)

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (… d) to (… d)."""
        hidden = self.act(self.up(x))  # … f
        out: Tensor = self.down(hidden)  # … d
        return out


class GatedMLP(nn.Module):
    """(act(x W_gate) ⊙ x W_up) W_down. Shazeer 2020, arXiv:2002.05202, section 2."""

    def __init__(self, d: int, f: int, act: Function, *, bias: bool = False) -> None:
        super().__init__()
        self.act = act
        self.gate = nn.Linear(d, f, bias=bias)
        self.up = nn.Linear(d, f, bias=bias)
        self.down = nn.Linear(f, d, bias=bias)

    def product(self, gate: Tensor, up: Tensor) -> Tensor:
        """act(gate) ⊙ up (… f)."""
        return self.act(gate) * up

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (… d) to (… d)."""
        if run is None or run.gated == "plain":
            hidden = self.act(self.gate(x)) * self.up(x)  # … f
        else:
            hidden = Gate.apply(self.product, self.gate(x), self.up(x))  # … f
        out: Tensor = self.down(hidden)  # … d
        return out


class SparseGatedMLP(nn.Module):
    """(act(g′) ⊙ x W_up) W_down, g′ = relu(g − mean − cσ) of g = x W_gate. You et al. 2025, arXiv:2506.06644."""

    def __init__(self, d: int, f: int, act: Function, *, c: float = 1.0) -> None:
        super().__init__()
        self.act, self.c = act, c
        self.gate = nn.Linear(d, f, bias=False)
        self.up = nn.Linear(d, f, bias=False)
        self.down = nn.Linear(f, d, bias=False)

    def product(self, gate: Tensor, up: Tensor) -> Tensor:
        """act(gate) ⊙ up (… f)."""
        return self.act(gate) * up

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (… d) to (… d)."""
        gate = self.gate(x)  # … f
        threshold = gate.mean(-1, keepdim=True) + gate.std(-1, keepdim=True, correction=0) * self.c  # … 1
        hidden = gated(run, self.product, torch.relu(gate - threshold), self.up(x))  # … f
        out: Tensor = self.down(hidden)  # … d
        return out


class ClampedGatedMLP(nn.Module):
    """((u + 1) ⊙ g σ(αg)) W_down of the clamped g = x W_gate and u = x W_up. gpt-oss, arXiv:2508.10925, section 2."""

    def __init__(self, d: int, f: int, *, bias: bool = True, alpha: float = 1.702, limit: float = 7.0) -> None:
        super().__init__()
        self.alpha, self.limit = alpha, limit
        self.gate = nn.Linear(d, f, bias=bias)
        self.up = nn.Linear(d, f, bias=bias)
        self.down = nn.Linear(f, d, bias=bias)

    def product(self, gate: Tensor, up: Tensor) -> Tensor:
        """(u + 1) ⊙ g σ(αg) of what is clamped (… f)."""
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return (up + 1) * (gate * torch.sigmoid(self.alpha * gate))

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (… d) to (… d)."""
        hidden = gated(run, self.product, self.gate(x), self.up(x))  # … f
        out: Tensor = self.down(hidden)  # … d
        return out
