"""Normalisation over the last axis."""

from __future__ import annotations

from dataclasses import dataclass

from ..tape import Tape
from ..tensor import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNorm:
    """(x − mean)/std · gain + bias. Ba, Kiros and Hinton 2016, arXiv:1607.06450, equation 3. Parameters 2d."""

    gain: bool = True
    bias: bool = True

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return tape.layer_norm("norm", x, gain=self.gain, bias=self.bias)


@dataclass(frozen=True, kw_only=True, slots=True)
class RMSNorm:
    """x/rms · gain. Zhang and Sennrich 2019, arXiv:1910.07467, equation 4. Parameters d, or none without a gain."""

    gain: bool = True

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        return tape.rms_norm("norm", x, gain=self.gain)
