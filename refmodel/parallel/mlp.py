"""Feed-forward networks whose hidden units (f) are split. Shoeybi et al. 2019, arXiv:1909.08053, figure 3a."""

from __future__ import annotations

from torch import Tensor, nn

from .. import mlp
from ..context import Run
from .linear import ColumnParallel, RowParallel, columns
from .ranks import Group


class MLP(nn.Module):
    """act(x W_up) W_down of the rank's hidden units, summed over the ranks."""

    def __init__(self, local: mlp.MLP, group: Group) -> None:
        super().__init__()
        self.group, self.act = group, local.act
        self.up, self.down = ColumnParallel(local.up), RowParallel(local.down, group)  # d f/tp, f/tp d

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both."""
        (up,) = columns(x, self.group, self.up)  # b t f/tp
        return self.down(self.act(up))


class GatedMLP(nn.Module):
    """The product of x W_gate and x W_up that the plain twin takes, and W_down, of the rank's hidden units."""

    def __init__(self, local: mlp.GatedMLP | mlp.ClampedGatedMLP, group: Group) -> None:
        super().__init__()
        self.group, self.product = group, local.product
        self.gate, self.up = ColumnParallel(local.gate), ColumnParallel(local.up)  # d f/tp
        self.down = RowParallel(local.down, group)  # f/tp d

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both."""
        gate, up = columns(x, self.group, self.gate, self.up)  # b t f/tp
        return self.down(mlp.gated(run, self.product, gate, up))
