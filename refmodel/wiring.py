"""How branches join the residual stream. Twins of ``blockcalc.blocks.wiring``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .context import Run


class Residual(nn.Module):
    """x + branch(x) with a norm before the branch, behind it, or behind the sum (post-norm: Vaswani et al. 2017).

    With α it is αx + branch(x): DeepNet, Wang et al. 2022, arXiv:2203.00555, section 3.2.
    """

    def __init__(
        self, branch: nn.Module, *, before: nn.Module | None, after: nn.Module | None, outer: nn.Module | None,
        alpha: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.before, self.branch, self.after, self.outer, self.alpha = before, branch, after, outer, alpha

    def inner(self, x: Tensor, run: Run) -> Tensor:
        """The branch of x (b t d), between its norms."""
        if self.before is not None:
            x = self.before(x)
        out: Tensor = self.branch(x, run)
        return out if self.after is None else self.after(out)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        x = (x if self.alpha is None else self.alpha * x) + run.drop(self.inner(x, run))
        return x if self.outer is None else self.outer(x)


class Laurel(nn.Module):
    """(x + branch(y) + y + norm(y W_left W_right))/√2 of y, the norm of x. Menghani, Kumar and Kumar 2024, arXiv:2411.07501,
    section 3.2, as Gemma 3n has it."""

    def __init__(self, d: int, c: int, branch: nn.Module, before: nn.Module, after: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.before, self.branch, self.after, self.norm = before, branch, after, norm
        self.left = nn.Linear(d, c, bias=False)
        self.right = nn.Linear(c, d, bias=False)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        y = self.before(x)  # b t d
        laurel = y + self.norm(self.right(self.left(y)))  # b t d
        out: Tensor = x + run.drop(self.after(self.branch(y, run))) + laurel
        return out * 0.5**0.5


class Block(nn.Module):
    """Residual branches one after the other."""

    def __init__(self, branches: list[Residual | Laurel]) -> None:
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
            out = out + run.drop(branch.inner(x if branch.before is not None else shared, run))
        return out


class Sum(nn.Module):
    """Σ branch(x), each branch between its norms. Gemma 4's feed-forward and mixture."""

    def __init__(self, branches: list[Residual]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        outs = [branch.inner(x, run) for branch in self.branches if isinstance(branch, Residual)]
        return sum(outs[1:], outs[0])


class Blended(nn.Module):
    """block(λx + λ₀x₀), x₀ the stream that entered the stack. nanochat, github.com/karpathy/nanochat, nanochat/gpt.py."""

    reads = ("entered",)

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.resid_lambda = nn.Parameter(torch.tensor(1.0))
        self.x0_lambda = nn.Parameter(torch.tensor(0.1))
        self.block = block

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        entered = x if run.entered is None else run.entered  # b t d
        out: Tensor = self.block(self.resid_lambda * x + self.x0_lambda * entered, run)  # b t d
        return out


class Backout(nn.Module):
    """x − λx′ behind the last layer, x′ the stream in the middle. nanochat, github.com/karpathy/nanochat, nanochat/gpt.py."""

    def __init__(self) -> None:
        super().__init__()
        self.backout_lambda = nn.Parameter(torch.tensor(0.2))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        return x - self.backout_lambda * (x if run.middle is None else run.middle)
