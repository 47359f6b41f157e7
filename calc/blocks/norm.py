"""Normalisation over the last axis, and what stands where a norm may."""

from __future__ import annotations

from ..declare import declaration
from ..errors import InputError
from ..tape import Tape
from ..tensor import Tensor


@declaration
class LayerNorm:
    """(x − mean)/std · gain + bias. Ba, Kiros and Hinton 2016, arXiv:1607.06450, equation 3. Parameters 2d."""

    gain: bool = True
    bias: bool = True
    heads: bool = False  # over a head's width, each head with a gain of its own: nh parameters

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return tape.layer_norm("", x, gain=self.gain, bias=self.bias, heads=self.heads)


@declaration
class RMSNorm:
    """x/rms · gain. Zhang and Sennrich 2019, arXiv:1910.07467, equation 4. Parameters d, or none without a gain."""

    gain: bool = True
    offset: bool = False  # the gain is 1 + w, multiplied in fp32: Gemma, arXiv:2403.08295
    scaled: bool = False  # times a constant besides: nanochat's queries and keys

    def __post_init__(self) -> None:
        if self.offset and not self.gain:
            raise InputError("RMSNorm: an offset is of a gain, and there is none")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        normed = tape.rms_norm("", x, gain=self.gain, offset=self.offset)
        return tape.scale("scale", normed) if self.scaled else normed


@declaration
class HeadsNorm:
    """One norm over all heads of x (b t n h) at once, as wide as nh. OLMo 2, arXiv:2501.00656, section 2.1; parameters nh."""

    norm: LayerNorm | RMSNorm = RMSNorm()

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t n h) to (b t n h)."""
        flat = tape.view(x, (*x.axes[:-2], "d"), (*x.sizes[:-2], x.sizes[-2] * x.sizes[-1]))
        return tape.view(self.norm.trace(tape, flat), x.axes, x.sizes)


@declaration
class LayerScale:
    """λ·x, a trained λ for each entry of x. Touvron et al. 2021 (CaiT), arXiv:2103.17239, section 2. Parameters d."""

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return tape.scale("", x, tape.weight(x.axes[-1:], x.sizes[-1:], "vector"))
