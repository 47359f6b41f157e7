"""Mixing without attention: across positions by a feed-forward, across channels by a gate of their means."""

from __future__ import annotations

from dataclasses import dataclass

from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .mlp import Activation, gelu, relu, sigmoid


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenMixing:
    """A feed-forward over the positions of each channel. Tolstikhin et al. 2021 (MLP-Mixer), arXiv:2105.01601, equation 1.

    Parameters 2tf + t + f: they depend on the length, which is fixed for good.
    """

    f: Dim  # hidden width
    act: Activation = gelu

    def __post_init__(self) -> None:
        check_sizes("TokenMixing", f=self.f)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        tape.check_whole()
        hidden = tape.linear("up", x, "b t d -> b f d", f=self.f, bias=True)
        return tape.linear("down", self.act.trace(tape, hidden), "b f d -> b t d", t=x["t"], bias=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class SqueezeExcitation:
    """x times a gate a channel, made of the channels' means. Hu, Shen and Sun 2018, arXiv:1709.01507, equations 2 to 4.

    Parameters 2df.
    """

    f: Dim  # width of the bottleneck

    def __post_init__(self) -> None:
        check_sizes("SqueezeExcitation", f=self.f)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        tape.check_whole()
        means = tape.reduce("squeeze", x, "t")
        hidden = relu.trace(tape, tape.linear("down", means, "b d -> b f", f=self.f))
        return tape.mul("scale", x, sigmoid.trace(tape, tape.linear("up", hidden, "b f -> b d", d=x["d"])))
