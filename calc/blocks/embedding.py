"""Inputs that are not tokens: images and spectrograms. Each sets the length of the sequence that it makes."""

from __future__ import annotations

from dataclasses import dataclass

from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .mlp import gelu


@dataclass(frozen=True, kw_only=True, slots=True)
class Patches:
    """An image in m patches, each mapped to d, a class token before them, a trained vector a position.

    Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1. Parameters yxd + d for the patches, d + (m + 1)d for the rest.
    """

    d: Dim  # width
    m: Dim  # patches
    y: Dim  # pixels of a patch
    x: Dim  # channels
    z: Dim | None = None  # pixels of the image, my unless the patches leave a margin

    def __post_init__(self) -> None:
        check_sizes("Patches", d=self.d, m=self.m, y=self.y, x=self.x, z=self.z)

    @property
    def length(self) -> Dim:
        """The positions, that of the class token included."""
        return self.m + 1

    def table(self, tape: Tape) -> None:
        """No token table."""

    def trace(self, tape: Tape, table: None) -> Tensor:
        """The vectors (b t d) of the step's images, t = m + 1."""
        pixels = self.m * self.y if self.z is None else self.z
        image = tape.tensor(("b", "z", "c"), (tape.step.b, pixels, self.x), grad=False)
        x = tape.convolution("patch", image, t=self.m, taps=self.y, d=self.d)
        x = tape.prepend("class", x, tape.weight(("d",), (self.d,), "vector"))
        return tape.shift("position", x, tape.weight(("m", "d"), (self.m + 1, self.d), "table"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Frames:
    """2m frames of a spectrogram under two convolutions of three places, the second of stride 2, plus fixed sinusoids.

    Radford et al. 2022 (Whisper), arXiv:2212.04356, section 2.2. The table of sinusoids is stored as a weight that does
    not train. Parameters 3xd + d, 3d² + d and md.
    """

    d: Dim  # width
    m: Dim  # positions
    x: Dim  # mel bins

    def __post_init__(self) -> None:
        check_sizes("Frames", d=self.d, m=self.m, x=self.x)

    @property
    def length(self) -> Dim:
        """The positions: half as many as frames."""
        return self.m

    def table(self, tape: Tape) -> None:
        """No token table."""

    def trace(self, tape: Tape, table: None) -> Tensor:
        """The vectors (b t d) of the step's frames, t = m, or 0 where they have been encoded before."""
        t = tape.step.t
        frames = tape.tensor(("b", "t", "c"), (tape.step.b, 2 * t, self.x), grad=False)
        x = tape.convolution("first", frames, t=2 * t, taps=3, d=self.d)
        x = tape.view(tape.call("first", gelu, x), ("b", "t", "c"), (tape.step.b, 2 * t, self.d))
        x = tape.call("second", gelu, tape.convolution("second", x, t=t, taps=3, d=self.d))
        return tape.shift("position", x, tape.weight(("m", "d"), (self.m, self.d), "table", trains=False))
