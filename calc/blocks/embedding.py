"""Inputs that are not tokens: images and spectrograms, each of which sets the length of the sequence that it makes; and
tokens looked up once more, as values or for each layer."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .mixer import check_entries
from .mlp import Activation, gelu, gelu_tanh
from .norm import LayerNorm, RMSNorm


@declaration
class Patches:
    """An image in m patches, each mapped to d, a class token before them, a trained vector a position.

    Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1. Parameters yxd + d for the patches, d + (m + 1)d for the rest,
    which MLP-Mixer does without: Tolstikhin et al. 2021, arXiv:2105.01601, section 2. CLIP norms the sum and has no bias:
    Radford et al. 2021, arXiv:2103.00020, section 2.4.
    """

    d: Dim  # width
    m: Dim  # patches
    y: Dim  # pixels of a patch
    x: Dim  # channels
    z: Dim | None = None  # pixels of the image, my unless the patches leave a margin
    bias: bool = True
    class_token: bool = True
    positions: bool = True  # a trained vector each
    reserved: int = 0  # rows of their table that no position has, such as what stands for hidden patches
    norm: LayerNorm | RMSNorm | None = None

    def __post_init__(self) -> None:
        check_sizes("Patches", d=self.d, m=self.m, y=self.y, x=self.x, z=self.z)

    @property
    def length(self) -> Dim:
        """The positions, that of the class token included."""
        return self.m + 1 if self.class_token else self.m

    def table(self, tape: Tape) -> None:
        """No token table."""

    def trace(self, tape: Tape, table: None) -> Tensor:
        """The vectors (b t d) of the step's images, t = m or, with a class token, m + 1."""
        pixels = self.m * self.y if self.z is None else self.z
        image = tape.tensor(("b", "z", "c"), (tape.step.b, pixels, self.x), grad=False)
        x = tape.convolution("patch", image, t=self.m, taps=self.y, d=self.d, bias=self.bias)
        if self.class_token:
            x = tape.prepend("class", x, tape.weight(("d",), (self.d,), "vector"))
        if self.positions:
            x = tape.shift("position", x, tape.weight(("m", "d"), (self.length + self.reserved, self.d), "table"))
        return x if self.norm is None else tape.call("norm", self.norm, x)


@declaration
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


@declaration
class ValueEmbedding:
    """Values plus 3σ(x[:i] W_g) times the layer's own vectors of the tokens, a gate a key-value head.

    Parameters vkh + ik. nanochat, github.com/karpathy/nanochat, nanochat/gpt.py: value_embeds and ve_gate, which reads i = 12
    entries; after Zhou et al. 2024 (ResFormer), arXiv:2410.17897.
    """

    v: Dim  # vocabulary
    i: Dim = 12  # entries of x that the gate reads

    def __post_init__(self) -> None:
        check_sizes("ValueEmbedding", v=self.v, i=self.i)

    def trace(self, tape: Tape, x: Tensor, values: Tensor) -> Tensor:
        """The values (b t k h) of x (b t d), with what is looked up for its tokens."""
        check_entries("ValueEmbedding", self.i, x)
        k, h = values.sizes[-2:]
        rows = tape.lookup("table", tape.ids(x), tape.weight(("v", "k", "h"), (self.v, k, h), "table"))
        read = tape.view(x, ("b", "t", "i"), (x["b"], x["t"], self.i))
        gate = tape.act("sigmoid", tape.linear("gate", read, "b t i -> b t k", k=k), "output")
        return tape.add("add", values, tape.mul("mul", rows, tape.scale("triple", gate)))


@declaration
class LayerEmbedding:
    """An input of i entries for each token and each of l layers: looked up in a second table, plus a normed projection of the
    token's vector. :class:`LayerInput` reads it. Parameters vli + dli + i.

    Gemma 3n and 4, per-layer embeddings: github.com/huggingface/transformers, modeling_gemma3n.py and modeling_gemma4.py.
    """

    v: Dim  # rows of the table
    l: Dim  # layers
    i: Dim  # entries
    norm: RMSNorm = RMSNorm()

    def __post_init__(self) -> None:
        check_sizes("LayerEmbedding", v=self.v, l=self.l, i=self.i)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """The inputs (b t l i) of the vectors x (b t d) of the step's tokens."""
        rows = tape.lookup("table", tape.ids(x), tape.weight(("v", "l", "i"), (self.v, self.l, self.i), "table"))
        own = tape.linear("projection", x, "b t d -> b t l i", l=self.l, i=self.i)
        return tape.add("sum", tape.call("norm", self.norm, own), rows)


@declaration
class LayerInput:
    """(act(x W_narrow) ⊙ the layer's own input) W_widen, a branch of the layer. Parameters 2di.

    Gemma 3n and 4, per-layer embeddings: github.com/huggingface/transformers, modeling_gemma3n.py and modeling_gemma4.py.
    """

    i: Dim  # entries
    act: Activation = gelu_tanh

    def __post_init__(self) -> None:
        check_sizes("LayerInput", i=self.i)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        gate = tape.linear("narrow", x, "b t d -> b t i", i=self.i)
        read = tape.mul("mul", self.act.trace(tape, gate), tape.layer_input(x, self.i))
        return tape.linear("widen", read, "b t i -> b t d", d=x["d"])
