"""Feed-forward networks: plain and gated, with any activation."""

from __future__ import annotations

from functools import partial
from typing import Literal

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor


@declaration(kw_only=False)
class Activation:
    """An elementwise function and what autograd keeps of it: its input, its output, or (``square``) its ReLU twice used.

    GELU: Hendrycks and Gimpel 2016, arXiv:1606.08415. SiLU: Ramachandran, Zoph and Le 2017, arXiv:1710.05941. Squared ReLU:
    So et al. 2021, arXiv:2109.08668.
    """

    name: str
    keeps: Literal["input", "output", "square"]

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x to its activation, of the same shape."""
        if self.keeps == "square":
            return tape.mul("square", *(tape.act("act", x, "output"),) * 2)
        return tape.act("act", x, self.keeps)


relu = Activation("relu", "output")
gelu = Activation("gelu", "input")
gelu_tanh = Activation("gelu_tanh", "input")
quick_gelu = Activation("quick_gelu", "input")
silu = Activation("silu", "input")
tanh = Activation("tanh", "output")
sigmoid = Activation("sigmoid", "output")
relu_squared = Activation("relu_squared", "square")

ACTIVATIONS = (relu, gelu, gelu_tanh, quick_gelu, silu, tanh, sigmoid, relu_squared)


@declaration
class MLP:
    """act(x W_up) W_down. Vaswani et al. 2017, arXiv:1706.03762, equation 2. Parameters 2df, 8d² at f = 4d."""

    f: Dim  # hidden width
    act: Activation = relu
    bias: bool = False

    def __post_init__(self) -> None:
        check_sizes("MLP", f=self.f)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        hidden = tape.linear("up", x, "... d -> ... f", f=self.f, bias=self.bias)
        hidden = self.act.trace(tape, hidden)
        return tape.linear("down", hidden, "... f -> ... d", d=x["d"], bias=self.bias)


@declaration
class GatedMLP:
    """(act(x W_gate) ⊙ x W_up) W_down. Shazeer 2020, arXiv:2002.05202, section 2. Parameters 3df, 8d² at f = 8d/3."""

    f: Dim  # hidden width
    act: Activation = silu
    bias: bool = False

    def __post_init__(self) -> None:
        check_sizes("GatedMLP", f=self.f)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        gate = tape.linear("gate", x, "... d -> ... f", f=self.f, bias=self.bias)
        up = tape.linear("up", x, "... d -> ... f", f=self.f, bias=self.bias)
        hidden = tape.gated("mul", gate, up, lambda gate, up: tape.mul("mul", self.act.trace(tape, gate), up))
        return tape.linear("down", hidden, "... f -> ... d", d=x["d"], bias=self.bias)


@declaration
class SparseGatedMLP:
    """(act(g′) ⊙ x W_up) W_down, g′ = relu(g − mean − cσ) of the gate's g = x W_gate: what is not far above the mean is 0.

    You et al. 2025 (Spark Transformer), arXiv:2506.06644: statistical top-k; Gemma 3n. Parameters 3df.
    """

    f: Dim  # hidden width
    act: Activation = gelu_tanh

    def __post_init__(self) -> None:
        check_sizes("SparseGatedMLP", f=self.f)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        gate = tape.linear("gate", x, "... d -> ... f", f=self.f)
        threshold = tape.add("threshold", tape.reduce("mean", gate, "f"), tape.deviation("deviation", gate))
        gate = tape.act("sparse", tape.add("subtract", gate, threshold), "output")
        up = tape.linear("up", x, "... d -> ... f", f=self.f)
        hidden = tape.gated("mul", gate, up, lambda gate, up: tape.mul("mul", self.act.trace(tape, gate), up))
        return tape.linear("down", hidden, "... f -> ... d", d=x["d"])


@declaration
class ClampedGatedMLP:
    """((u + 1) ⊙ g σ(αg)) W_down of the clamped g = x W_gate and u = x W_up. gpt-oss, arXiv:2508.10925, section 2.

    Parameters 3df + 2f + d with biases.
    """

    f: Dim  # hidden width
    bias: bool = True

    def __post_init__(self) -> None:
        check_sizes("ClampedGatedMLP", f=self.f)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        gate = tape.linear("gate", x, "... d -> ... f", f=self.f, bias=self.bias)
        up = tape.linear("up", x, "... d -> ... f", f=self.f, bias=self.bias)
        hidden = tape.gated("mul", gate, up, partial(self._product, tape))
        return tape.linear("down", hidden, "... f -> ... d", d=x["d"], bias=self.bias)

    @staticmethod
    def _product(tape: Tape, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = tape.act("gate_clamp", gate, "input"), tape.act("up_clamp", up, "input")
        swish = tape.mul("swish", gate, tape.act("sigmoid", gate, "output"))
        return tape.mul("mul", tape.add("plus_one", up), swish)
