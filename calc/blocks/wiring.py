"""How branches join the residual stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..tape import Tape
from ..tensor import Tensor
from .norm import LayerNorm, RMSNorm


@dataclass(frozen=True, kw_only=True, slots=True)
class Residual:
    """x + branch(x), with a norm before the branch, behind it, or behind the sum.

    ``before`` alone is pre-norm (Xiong et al. 2020, arXiv:2002.04745), ``outer`` alone post-norm (Vaswani et al. 2017),
    ``before`` and ``after`` the sandwich (Ding et al. 2021, arXiv:2105.13290; Gemma 2), ``after`` alone OLMo 2's
    (arXiv:2501.00656, section 2.1).
    """

    name: str
    branch: Any  # a component
    before: LayerNorm | RMSNorm | None = None
    after: LayerNorm | RMSNorm | None = None
    outer: LayerNorm | RMSNorm | None = None

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        inner = x if self.before is None else tape.call(f"{self.name}_norm", self.before, x)
        inner = tape.call(self.name, self.branch, inner)
        if self.after is not None:
            inner = tape.call(f"{self.name}_post_norm", self.after, inner)
        out = tape.add(f"{self.name}_residual", x, inner)
        return out if self.outer is None else tape.call(f"{self.name}_norm", self.outer, out)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Residual branches one after the other: attention and feed-forward, and cross-attention between them in a decoder."""

    branches: tuple[Residual, ...]

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        for branch in self.branches:
            x = branch.trace(tape, x)
        return x


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """x + Σ branch(norm(x)): the branches read the same x. Wang and Komatsuzaki 2021, GPT-J; PaLM, arXiv:2204.02311, section 2.

    With ``norm`` one norm serves all; without, each branch has its own ``before``.
    """

    branches: tuple[Residual, ...]
    norm: LayerNorm | RMSNorm | None = None

    def __post_init__(self) -> None:
        if any(branch.after is not None or branch.outer is not None for branch in self.branches):
            raise InputError("Parallel: its branches may have a norm before them, not behind")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        shared = x if self.norm is None else tape.call("norm", self.norm, x)
        sums = [x]
        for branch in self.branches:
            inner = shared if branch.before is None else tape.call(f"{branch.name}_norm", branch.before, x)
            sums.append(tape.call(branch.name, branch.branch, inner))
        return tape.add("residual", *sums)
