"""Selective state spaces: a state of fixed size that every position scales down, adds to, and reads."""

from __future__ import annotations

from typing import Literal

from ..declare import declaration
from ..dims import Dim, check_divides, check_sizes, divide
from ..tape import Tape
from ..tensor import Tensor
from .mlp import Activation, silu
from .norm import RMSNorm


@declaration
class Mamba:
    """(y ⊙ silu(x W_Z)) W_O, y what f channels read of their states, h wide.

    Gu and Dao 2023, arXiv:2312.00752, algorithm 2 and figure 3. The channels pass a convolution over their last g positions
    and an activation; B, C and the i numbers that Δ is made of are linear in them. Norms of these three: Jamba,
    arXiv:2403.19887, and Falcon Mamba, arXiv:2410.05355. Parameters 3df + 2fi + 3fh + gf + 2f, and f biases of the
    convolution. The cache holds the states (f h), fp32, and g positions of the convolution.
    """

    f: Dim  # channels
    h: Dim  # state width
    i: Dim  # width of what Δ is made of
    g: Dim = 4  # taps of the convolution
    act: Activation = silu
    bias: bool = False  # of the projections from d and to d
    conv_bias: bool = True
    norm: RMSNorm | None = None  # of B, C and what Δ is made of

    def __post_init__(self) -> None:
        check_sizes("Mamba", f=self.f, h=self.h, i=self.i, g=self.g)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        z, inner = (tape.linear(name, x, "b t d -> b t f", f=self.f, bias=self.bias) for name in "zx")
        mixed = tape.causal_convolution("x_convolution", inner, self.g, bias=self.conv_bias)
        inner = tape.call("x", self.act, mixed)
        low = self._normed(tape, "dt_norm", tape.linear("dt_down", inner, "b t f -> b t i", i=self.i))
        b, c = (
            self._normed(tape, f"{name}_norm", tape.linear(name, inner, "b t f -> b t h", h=self.h)) for name in "bc"
        )
        pace = tape.pace("dt", tape.linear("dt_up", low, "b t i -> b t f", f=self.f))
        out = tape.selective_scan(inner, pace, b, c)
        out = tape.mul("gate_mul", out, tape.act("gate_silu", z, "input"))
        return tape.linear("o", out, "b t f -> b t d", d=x["d"], bias=self.bias)

    def _normed(self, tape: Tape, name: str, x: Tensor) -> Tensor:
        return x if self.norm is None else tape.call(name, self.norm, x)


@declaration
class Mamba2:
    """norm(y ⊙ silu(x W_Z)) W_O, y what n heads, u wide, read of their states (h u), which k groups write and read alike.

    Dao and Gu 2024, arXiv:2405.21060, section 7. Inputs, B and C pass a convolution over their last g positions and an
    activation. Parameters 3dnu + 2dkh + dn + g(nu + 2kh) + 3n + nu, and nu + 2kh biases of the convolution. The cache holds
    the state (n u h), fp32, and g positions of the convolution.
    """

    n: Dim  # heads
    k: Dim  # groups of heads that share B and C
    h: Dim  # state width
    u: Dim  # head width
    g: Dim = 4  # taps of the convolution
    chunk: Dim = 256  # positions that run at once
    act: Activation = silu
    bias: bool = False  # of the projections of x
    o_bias: bool = False
    conv_bias: bool = True
    norm: Literal["gated", "before the gate"] | None = "gated"  # in k groups; none: the gate alone

    def __post_init__(self) -> None:
        check_sizes("Mamba2", n=self.n, k=self.k, h=self.h, u=self.u, g=self.g, chunk=self.chunk)
        check_divides("Mamba2", "n", self.n, "k", self.k)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        z, inner = (tape.linear(name, x, "b t d -> b t n u", n=self.n, u=self.u, bias=self.bias) for name in "zx")
        b, c = (tape.linear(name, x, "b t d -> b t k h", k=self.k, h=self.h, bias=self.bias) for name in "bc")
        pace = tape.pace("dt", tape.linear("dt", x, "b t d -> b t n", n=self.n, bias=self.bias))
        inner, b, c = (self._mixed(tape, name, part) for name, part in (("x", inner), ("b", b), ("c", c)))
        out = tape.state_space(inner, pace, tape.forget("decay", pace), b, c, self.chunk)
        if self.norm == "before the gate":
            out = self._normed(tape, out)
        out = tape.mul("gate_mul", out, tape.act("gate_silu", z, "input"))
        if self.norm == "gated":
            out = self._normed(tape, out)
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"], bias=self.o_bias)

    def _mixed(self, tape: Tape, name: str, x: Tensor) -> Tensor:
        """x convolved, and its activation."""
        mixed = tape.causal_convolution(f"{name}_convolution", x, self.g, bias=self.conv_bias)
        out: Tensor = tape.call(name, self.act, mixed)
        return out

    def _normed(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t n u), each group normed, and a gain for each entry."""
        width = divide(self.n, self.k, "n", "k") * self.u
        groups = tape.view(x, ("b", "t", "k", "i"), (*x.sizes[:2], self.k, width))
        normed = tape.view(tape.call("norm", RMSNorm(gain=False), groups), x.axes, x.sizes)
        return tape.scale("norm_gain", normed, tape.weight(x.axes[2:], x.sizes[2:], "vector"))
