"""How branches join the residual stream."""

from __future__ import annotations

from typing import Any

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..errors import InputError
from ..tape import Tape
from ..tensor import Tensor
from .norm import LayerNorm, LayerScale, RMSNorm


@declaration
class Residual:
    """x + branch(x), with a norm before the branch, behind it, or behind the sum.

    ``before`` alone is pre-norm (Xiong et al. 2020, arXiv:2002.04745), ``outer`` alone post-norm (Vaswani et al. 2017),
    ``before`` and ``after`` the sandwich (Ding et al. 2021, arXiv:2105.13290; Gemma 2), ``after`` alone OLMo 2's
    (arXiv:2501.00656, section 2.1). ``outer`` and ``scaled`` are DeepNet's: αx + branch(x), α a constant of the depth and no
    parameter (Wang et al. 2022, arXiv:2203.00555, section 3.2).
    """

    name: str
    branch: Any  # a component
    before: LayerNorm | RMSNorm | None = None
    after: LayerNorm | RMSNorm | LayerScale | None = None
    outer: LayerNorm | RMSNorm | None = None
    scaled: bool = False  # x is multiplied by a constant before the sum

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        inner = tape.dropout(f"{self.name}_dropout", self.inner(tape, x))
        x = tape.scale(f"{self.name}_scale", x) if self.scaled else x
        out = tape.add(f"{self.name}_residual", x, inner)
        return out if self.outer is None else tape.call(f"{self.name}_norm", self.outer, out)

    def inner(self, tape: Tape, x: Tensor) -> Tensor:
        """The branch of x (b t d), between its norms."""
        x = x if self.before is None else tape.call(f"{self.name}_norm", self.before, x)
        out: Tensor = tape.call(self.name, self.branch, x)
        behind = "layer_scale" if isinstance(self.after, LayerScale) else "post_norm"
        return out if self.after is None else tape.call(f"{self.name}_{behind}", self.after, out)


@declaration
class Laurel:
    """(x + branch(y) + y + norm(y W_left W_right))/√2 of y, the norm of x. Parameters 2dc + d besides the branch's and its
    norms'.

    Menghani, Kumar and Kumar 2024, arXiv:2411.07501, section 3.2, the low-rank variant, as Gemma 3n has it.
    """

    name: str
    branch: Any  # a component
    c: Dim  # rank
    before: RMSNorm = RMSNorm()
    after: RMSNorm = RMSNorm()
    norm: RMSNorm = RMSNorm()

    def __post_init__(self) -> None:
        check_sizes("Laurel", c=self.c)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        y = tape.call(f"{self.name}_norm", self.before, x)
        low = tape.linear("laurel_left", y, "b t d -> b t c", c=self.c)
        high = tape.linear("laurel_right", low, "b t c -> b t d", d=x["d"])
        laurel = tape.add("laurel_residual", y, tape.call("laurel_norm", self.norm, high))
        out = tape.call(f"{self.name}_post_norm", self.after, tape.call(self.name, self.branch, y))
        out = tape.add(f"{self.name}_residual", x, tape.dropout(f"{self.name}_dropout", out))
        return tape.scale("laurel_scale", tape.add("laurel_add", out, laurel))


@declaration
class Block:
    """Residual branches one after the other: attention and feed-forward, and cross-attention between them in a decoder.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.1; the residual connection: He et al. 2015, arXiv:1512.03385, equation 1.
    """

    branches: tuple[Residual | Laurel, ...]

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        for branch in self.branches:
            x = branch.trace(tape, x)
        return x


@declaration
class Parallel:
    """x + Σ branch(norm(x)): the branches read the same x. Wang and Komatsuzaki 2021, GPT-J; PaLM, arXiv:2204.02311, section 2.

    With ``norm`` one norm serves all; without, each branch has its own ``before``.
    """

    branches: tuple[Residual, ...]
    norm: LayerNorm | RMSNorm | None = None

    def __post_init__(self) -> None:
        if any(branch.after is not None or branch.outer is not None or branch.scaled for branch in self.branches):
            raise InputError("Parallel: its branches may have a norm before them, not behind, and no scaled residual")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        shared = x if self.norm is None else tape.call("norm", self.norm, x)
        sums = [x]
        for branch in self.branches:
            inner = shared if branch.before is None else tape.call(f"{branch.name}_norm", branch.before, x)
            sums.append(tape.dropout(f"{branch.name}_dropout", tape.call(branch.name, branch.branch, inner)))
        return tape.add("residual", *sums)


@declaration
class Sum:
    """Σ branch(x), each branch between its norms: several in the place of one.

    Gemma 4's feed-forward and mixture: github.com/huggingface/transformers, modeling_gemma4.py.
    """

    branches: tuple[Residual, ...]

    def __post_init__(self) -> None:
        if any(branch.outer is not None or branch.scaled for branch in self.branches):
            raise InputError("Sum: its branches may have norms before and behind them, and are no residuals")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        return tape.add("sum", *(branch.inner(tape, x) for branch in self.branches))


@declaration
class Blended:
    """block(λx + λ₀x₀), x₀ the stream that entered the stack. Parameters 2 besides the block's.

    nanochat, github.com/karpathy/nanochat, nanochat/gpt.py: resid_lambdas and x0_lambdas.
    """

    block: Any  # a component

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        kept = tape.scale("resid_lambda", x, tape.weight((), (), "vector"))
        entered = tape.scale("x0_lambda", tape.entered(x), tape.weight((), (), "vector"))
        out: Tensor = tape.call("", self.block, tape.add("blend", kept, entered))
        return out


@declaration
class Backout:
    """x − λx′ behind the last layer, x′ the stream behind layer ⌊l/2⌋, counted from 0. Parameters 1.

    nanochat, github.com/karpathy/nanochat, nanochat/gpt.py: backout_lambda. A later layer keeps x′ in any case.
    """

    last: bool = False  # x′ is x itself: stacks of one or two layers

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        middle = x if self.last else tape.midway(x)
        return tape.add("subtract", x, tape.scale("backout_lambda", middle, tape.weight((), (), "vector")))
