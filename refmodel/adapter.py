"""Low-rank adapters on a frozen twin. Twin of ``blockcalc.tensor.Adapters``."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor, nn

from .mla import MLA


class Adapted(nn.Module):
    """W x + B A x with W frozen. Hu et al. 2021, arXiv:2106.09685, equation 3."""

    def __init__(self, base: nn.Linear, r: int) -> None:
        super().__init__()
        self.base = base
        self.A = nn.Linear(base.in_features, r, bias=False)
        self.B = nn.Linear(r, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (… in) to (… out)."""
        out: Tensor = self.base(x) + self.B(self.A(x))  # … out
        return out


def adapt(model: nn.Module, r: int, targets: Collection[str]) -> nn.Module:
    """The model with all its weights frozen and an adapter of rank r on every linear of a name in *targets*."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        names = MLA.LETTERS if isinstance(module, MLA) else {}
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and names.get(name, name) in targets:
                setattr(module, name, Adapted(child, r))
    return model
