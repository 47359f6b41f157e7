"""Several streams side by side, of which each layer runs on one: what makes them, a layer of them, and what merges them."""

from __future__ import annotations

from typing import Any

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .wiring import Residual


@declaration
class Streams:
    """x and j projections of it, each as large as x: j + 1 streams. Parameters jd².

    Baykal et al. 2023 (AltUp), arXiv:2301.13310, section 3; of unlike streams: Gemma 3n, github.com/huggingface/transformers,
    modeling_gemma3n.py.
    """

    j: Dim  # streams beside the first

    def __post_init__(self) -> None:
        check_sizes("Streams", j=self.j)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t j+1 d)."""
        others = tape.linear("project", x, "b t d -> b t j e", j=self.j, e=x["d"])
        return _beside(tape, x, tape.view(others, ("b", "t", "j", "d"), others.sizes))


@declaration
class Merged:
    """The mean of the first stream and a projection of each of the j others, as large as the first. Parameters jd².

    Gemma 3n, after Baykal et al. 2023 (AltUp), arXiv:2301.13310: github.com/huggingface/transformers, modeling_gemma3n.py.
    """

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t j+1 d) to (b t d)."""
        b, t, streams, d = x.sizes
        rest = tape.view(x, x.axes, (b, t, streams - 1, d))
        others = tape.linear("project", rest, "b t j d -> b t j e", each=("j",), j=streams - 1, e=d)
        return tape.reduce("mean", _beside(tape, first(tape, x), tape.view(others, x.axes, others.sizes)), "j")


@declaration
class AltUp:
    """All streams are predicted, the block runs on the first, and what it found corrects all. Parameters d + dz + z³ + z²
    for z = j + 1 streams besides the block's, and d with a branch.

    Baykal et al. 2023, arXiv:2301.13310, algorithm 1, with coefficients of the token: Gemma 3n,
    github.com/huggingface/transformers, modeling_gemma3n.py. What a branch finds of the first stream is then added to the
    others.
    """

    j: Dim  # streams beside the first
    block: Any  # a component
    branch: Residual | None = None  # reads the corrected first stream, times a trained number an entry

    def __post_init__(self) -> None:
        check_sizes("AltUp", j=self.j)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t j+1 d) to (b t j+1 d)."""
        j, d = x.sizes[-2:]
        gain, matrix = tape.weight(("d",), (d,), "vector"), tape.weight(("d", "j"), (d, j))

        def modalities(name: str, stream: Tensor) -> Tensor:
            normed = tape.rms_norm(f"{name}_norm", stream, weight=gain)
            routed = tape.linear(f"{name}_router", normed, "b t d -> b t j", j=j, weight=matrix)
            return tape.act(f"{name}_tanh", routed, "output")

        predicting = tape.linear("predict", modalities("predict", first(tape, x)), "b t j -> b t o i", o=j, i=j)
        states = tape.view(x, ("b", "t", "i", "d"), x.sizes)
        moved = tape.product("predicted", states, predicting, "b t o d")
        predicted = tape.add("predict_add", x, tape.view(moved, x.axes, moved.sizes))
        active = first(tape, predicted)
        found: Tensor = tape.call("", self.block, active)
        correcting = tape.linear("correct", modalities("correct", found), "b t j -> b t o", o=j)
        innovation = tape.add("innovation", found, active)
        each = tape.view(innovation, x.axes, x.sizes)
        corrected = tape.add("correct_add", predicted, tape.mul("corrected", each, correcting))
        if self.branch is None:
            return corrected
        read = tape.scale("copy", first(tape, corrected))
        read = tape.scale("scale", read, tape.weight(("d",), (d,), "vector"))
        return tape.add("others", corrected, self.branch.inner(tape, read))


def first(tape: Tape, x: Tensor) -> Tensor:
    """The first stream (b t d) of x (b t j+1 d)."""
    return tape.view(x, ("b", "t", "d"), (x["b"], x["t"], x["d"]))


def _beside(tape: Tape, x: Tensor, others: Tensor) -> Tensor:
    """x (b t d) and the others (b t j d), which are made as large as x, in one (b t j+1 d)."""
    size = tape.act("root", tape.reduce("mean_square", tape.mul("square", x, x), "d"), "output")
    others = tape.mul("resize", tape.rms_norm("norm", others, gain=False), size)
    b, t, j, d = others.sizes
    out = tape.tensor(others.axes, (b, t, j + 1, d), grad=x.grad or others.grad)
    tape.record("concat", "concat", out, (x, others))
    return out
