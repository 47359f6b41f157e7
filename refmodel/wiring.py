"""How branches join the residual stream. Twins of ``blockcalc.blocks.wiring``."""

from __future__ import annotations

from torch import Tensor, nn

from .context import Run


class Residual(nn.Module):
    """x + branch(x) with a norm before the branch, behind it, or behind the sum (post-norm: Vaswani et al. 2017)."""

    def __init__(
        self, branch: nn.Module, *, before: nn.Module | None, after: nn.Module | None, outer: nn.Module | None
    ) -> None:
        super().__init__()
        self.before, self.branch, self.after, self.outer = before, branch, after, outer

    def inner(self, x: Tensor, run: Run) -> Tensor:
        """The branch of x (b t d), between its norms."""
        if self.before is not None:
            x = self.before(x)
        x = self.branch(x, run)
        return x if self.after is None else self.after(x)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        x = x + self.inner(x, run)
        return x if self.outer is None else self.outer(x)


class Block(nn.Module):
    """Residual branches one after the other."""

    def __init__(self, branches: list[Residual]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        for branch in self.branches:
            x = branch(x, run)
        return x


class Parallel(nn.Module):
    """x + Σ branch(norm(x)). Wang and Komatsuzaki 2021, GPT-J; PaLM, arXiv:2204.02311, section 2."""

    def __init__(self, branches: list[Residual], norm: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d): a branch with its own norm reads x, the others the shared norm of x."""
        shared, out = x if self.norm is None else self.norm(x), x
        for branch in self.branches:
            assert isinstance(branch, Residual)
            out = out + branch.inner(x if branch.before is not None else shared, run)
        return out
