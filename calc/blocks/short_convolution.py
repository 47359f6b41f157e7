"""Convolutions over the last few positions, which stand where attention does or before a state-space model."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor


@declaration
class ShortConvolution:
    """(C ⊙ conv(B ⊙ X)) W_O, B, C and X linear in x, each channel of B ⊙ X convolved over its last g positions.

    LFM2, arXiv:2511.23404. Parameters 4d² + gd. The cache holds the last g positions of B ⊙ X.
    """

    g: Dim  # taps
    bias: bool = False  # of the convolution and of the projections

    def __post_init__(self) -> None:
        check_sizes("ShortConvolution", g=self.g)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        b, c, inner = (tape.view(self._linear(tape, name, x, x["d"]), x.axes, x.sizes) for name in "bcx")
        mixed = tape.causal_convolution("convolution", tape.mul("gate_in", b, inner), self.g, bias=self.bias)
        out = tape.mul("gate_out", c, mixed)
        return tape.view(self._linear(tape, "o", out, x["d"]), x.axes, x.sizes)

    def _linear(self, tape: Tape, name: str, x: Tensor, d: Dim) -> Tensor:
        return tape.linear(name, x, "b t d -> b t o", o=d, bias=self.bias)
