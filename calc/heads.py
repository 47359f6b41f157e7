"""Heads besides the language model's: classes, answers, pooled vectors, masked tokens."""

from __future__ import annotations

from .blocks.mlp import Activation, gelu, tanh
from .blocks.norm import LayerNorm, RMSNorm
from .declare import declaration
from .dims import Dim, check_sizes
from .errors import InputError
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
    bias: bool = True  # of the dense layer

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        hidden = tape.linear("transform", x, "b t d -> b t e", e=table["d"], bias=self.bias)
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
    """A linear layer on every position, on the first, or on their mean: classes, or the two ends of an answer.

    With ``act``, a dense layer as wide as its input, this activation and perhaps a norm come first: Clark et al. 2020
    (ELECTRA), arXiv:2003.10555; Warner et al. 2024 (ModernBERT), arXiv:2412.13663.
    """

    v: Dim  # classes
    bias: bool
    first: bool = False  # of the first position alone
    mean: bool = False  # of the mean over the positions
    act: Activation | None = None
    norm: LayerNorm | RMSNorm | None = None
    hidden_bias: bool = True  # of the dense layer

    def __post_init__(self) -> None:
        check_sizes("Classifier", v=self.v)
        if self.first and self.mean:
            raise InputError("Classifier: of the first position or of the mean, not of both")
        if self.norm is not None and self.act is None:
            raise InputError("Classifier: a norm stands behind a dense layer and its activation")

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v), or to (b v)."""
        if self.mean:
            x = tape.reduce("mean", x, "t")
        elif self.first:
            x = _first(tape, x)
        if self.act is not None:
            x = self._hidden(tape, x, self.act)
        return tape.linear("classifier", x, _to(x, "o"), o=self.v, bias=self.bias)

    def _hidden(self, tape: Tape, x: Tensor, act: Activation) -> Tensor:
        hidden = tape.linear("transform", x, _to(x, "e"), e=x["d"], bias=self.hidden_bias)
        hidden = act.trace(tape, tape.view(hidden, x.axes, hidden.sizes))
        return hidden if self.norm is None else tape.call("transform", self.norm, hidden)


def _to(x: Tensor, axis: str) -> str:
    """The axes of x, and those with another for the last."""
    return f"{' '.join(x.axes)} -> {' '.join((*x.axes[:-1], axis))}"


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


@declaration
class NormedFirst:
    """A norm of the first position, and a linear layer on it. Radford et al. 2021 (CLIP), arXiv:2103.00020, section 2.4."""

    norm: LayerNorm | RMSNorm = LayerNorm()
    v: Dim | None = None  # width of the linear layer's output; none: the normed vector itself

    def __post_init__(self) -> None:
        check_sizes("NormedFirst", v=self.v)

    def trace(self, tape: Tape, x: Tensor, table: Tensor | None) -> Tensor:
        """x (b t d) to (b d), or to (b v)."""
        first = tape.call("norm", self.norm, _first(tape, x))
        return first if self.v is None else tape.linear("projection", first, "b d -> b o", o=self.v)


@declaration
class Contrastive:
    """How alike each text and each image are: one position of both, the image's normed, made i wide and of one length,
    multiplied, and scaled by a trained number. Radford et al. 2021 (CLIP), arXiv:2103.00020, figure 3.

    The images are what the model's encoder makes. The loss behind it is that of the rows, one of CLIP's two.
    """

    i: Dim  # width in which they are compared
    norm: LayerNorm | RMSNorm = LayerNorm()

    def __post_init__(self) -> None:
        check_sizes("Contrastive", i=self.i)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """The texts x (b t d) and the tape's memory (b m d), the images, to their similarities (b c), c = b."""
        image = tape.call("norm", self.norm, _first(tape, tape.source(x)))
        text, image = self._unit(tape, "text", _first(tape, x)), self._unit(tape, "image", image)
        image = tape.view(image, ("c", "i"), image.sizes)
        return tape.scale("temperature", tape.product("similarity", text, image, "b c"), tape.weight((), (), "vector"))

    def _unit(self, tape: Tape, name: str, x: Tensor) -> Tensor:
        """x (b d) projected to (b i), and divided by its root mean square: of length √i."""
        projected = tape.linear(f"{name}_projection", x, "b d -> b i", i=self.i)
        unit: Tensor = tape.call(f"{name}_unit", RMSNorm(gain=False), projected)
        return unit


def _first(tape: Tape, x: Tensor) -> Tensor:
    """The first position (b d) of x (b t d)."""
    return tape.view(x, ("b", "d"), (x["b"], x["d"]))
