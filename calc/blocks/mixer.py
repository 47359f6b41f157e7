"""Mixing without attention: across positions by a feed-forward or from one to the next, across channels by a gate."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_at_most, check_sizes, smaller
from ..tape import Tape
from ..tensor import Tensor
from .mlp import Activation, gelu, relu, sigmoid


@declaration
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


@declaration
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


@declaration
class Smear:
    """x plus λσ(g · x[:i]) times the vector of the position before. Parameters i + 1.

    nanochat, github.com/karpathy/nanochat, nanochat/gpt.py: smear_gate, which reads i = 24 entries, and smear_lambda. The
    cache holds the last vector.
    """

    i: Dim = 24  # entries of x that the gate reads

    def __post_init__(self) -> None:
        check_sizes("Smear", i=self.i)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d). All positions have one before them but the sequence's first."""
        check_entries("Smear", self.i, x)
        tape.remember("last", ("b", "d"), (x["b"], x["d"]))
        step = tape.step
        moved = x["t"] - 1 + smaller(1, step.s - step.t)
        read = tape.tensor(("b", "t", "i"), (x["b"], moved, self.i), grad=x.grad)
        # several rows of several sequences are no one matrix, and are copied; else they are a view
        read.copies *= smaller(1, x["b"] - 1) * smaller(1, moved - 1)
        tape.record("slice", "copy", read, (x,))
        gate = tape.act("sigmoid", tape.linear("gate", read, "b t i -> b t o", o=1), "output")
        gate = tape.scale("smear_lambda", gate, tape.weight((), (), "vector"))
        before = tape.view(x, x.axes, (x["b"], moved, x["d"]))
        return tape.add("add", x, tape.mul("mul", before, gate))


def check_entries(owner: str, i: Dim, x: Tensor) -> None:
    """Refuse a gate that would read more entries than there are; symbols pass."""
    check_at_most(i, x["d"], owner + ": its gate reads i = {} entries of x, which is only d = {} wide")
