"""Heads besides the language model's: classes, answers, pooled vectors, masked tokens."""

from __future__ import annotations

from .blocks.mlp import Activation, gelu, tanh
from .blocks.norm import LayerNorm, RMSNorm
from .declare import declaration
from .dims import Dim, check_sizes
from .model import LMHead
from .tape import Tape
from .tensor import Tensor


@declaration
class MaskedLMHead:
    """A dense layer, an activation and a norm before the logits. Devlin et al. 2018, arXiv:1810.04805, section 3.1.

    The dense layer is as wide as the token table.
    """

    output: LMHead
    act: Activation = gelu
    norm: LayerNorm | RMSNorm = LayerNorm()

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        hidden = tape.linear("transform", x, "b t d -> b t e", e=table["d"], bias=True)
        hidden = tape.view(hidden, x.axes, hidden.sizes)
        hidden = tape.call("transform", self.norm, self.act.trace(tape, hidden))
        return self.output.trace(tape, hidden, table)


@declaration
class Pooler:
    """tanh of a dense layer on the first position, and classes of it where there are any.

    Devlin et al. 2018, arXiv:1810.04805.
    """

    v: Dim | None = None  # classes
    i: Dim | None = None  # width of the dense layer, that of its input unless given
    act: Activation = tanh

    def __post_init__(self) -> None:
        check_sizes("Pooler", v=self.v, i=self.i)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b e), e = i, or to (b v)."""
        width = x["d"] if self.i is None else self.i
        pooled = tape.linear("pooler", _first(tape, x), "b d -> b e", e=width, bias=True)
        pooled = self.act.trace(tape, pooled)
        if self.v is None:
            return pooled
        return tape.linear("classifier", pooled, "b e -> b o", o=self.v, bias=True)


@declaration
class Classifier:
    """A linear layer on every position, or on the first: classes, or the two ends of an answer."""

    v: Dim  # classes
    bias: bool
    first: bool = False  # of the first position alone

    def __post_init__(self) -> None:
        check_sizes("Classifier", v=self.v)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v), or to (b v)."""
        if self.first:
            return tape.linear("classifier", _first(tape, x), "b d -> b o", o=self.v, bias=self.bias)
        return tape.linear("classifier", x, "b t d -> b t o", o=self.v, bias=self.bias)


@declaration
class MeanHead:
    """A linear layer on the mean over the positions. Tolstikhin et al. 2021 (MLP-Mixer), arXiv:2105.01601, section 2."""

    v: Dim | None = None  # classes; none: the mean itself

    def __post_init__(self) -> None:
        check_sizes("MeanHead", v=self.v)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b v), or to (b d)."""
        mean = tape.reduce("mean", x, "t")
        return mean if self.v is None else tape.linear("classifier", mean, "b d -> b o", o=self.v, bias=True)


def _first(tape: Tape, x: Tensor) -> Tensor:
    """The first position (b d) of x (b t d)."""
    return tape.view(x, ("b", "d"), (x["b"], x["d"]))
