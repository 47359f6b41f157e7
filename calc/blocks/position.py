"""Where position enters: tables added to the embedding, rotations of queries and keys, biases on the scores."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_divides, check_sizes
from ..tape import Tape
from ..tensor import Tensor


@declaration
class LearnedPositions:
    """A trained vector a position. Gehring et al. 2017, arXiv:1705.03122, section 3.1. Parameters md."""

    m: Dim  # positions in the table, reserved rows included
    reserved: int = 0  # rows that no position has, such as the padding's

    def __post_init__(self) -> None:
        check_sizes("LearnedPositions", m=self.m)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to the vectors of its positions (t d)."""
        return _row_each(tape, x, tape.weight(("m", "d"), (self.m, x["d"]), "table"))


@declaration
class Sinusoidal:
    """Fixed sines and cosines of the position. Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    No parameters; a table (t d) is a buffer of the model. With m, the table (m d) is stored as a weight that does not train:
    Marian, Pegasus.
    """

    m: Dim | None = None  # positions in a stored table

    def __post_init__(self) -> None:
        check_sizes("Sinusoidal", m=self.m)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to the vectors of its positions (t d)."""
        if self.m is None:
            return tape.buffer("sinusoids", ("t", "d"), (x["t"], x["d"]), "activation")
        return _row_each(tape, x, tape.weight(("m", "d"), (self.m, x["d"]), "table", trains=False))


def _row_each(tape: Tape, x: Tensor, table: Tensor) -> Tensor:
    """The rows (t d) of a table for the positions of x (b t d)."""
    return tape.lookup("position", tape.tensor(("t",), (x["t"],), "index", grad=False), table)


@declaration
class Rotary:
    """Rotates pairs of a head's entries by an angle of the position. Su et al. 2021, arXiv:2104.09864, equation 34.

    No parameters. The tables of cosines and sines (t × r/2 each) are buffers of the whole model.
    """

    r: Dim  # rotated entries of a head
    local: bool = False  # with frequencies of its own, besides those of the other layers: Gemma 3, arXiv:2503.19786

    def __post_init__(self) -> None:
        check_sizes("Rotary", r=self.r)
        check_divides("Rotary", "r", self.r, "the pair", 2)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t n h) to (b t n h)."""
        return tape.rotate("rotate", x, self.r, local=self.local)


@declaration
class RelativeKeys:
    """A trained vector a distance, −c to c, that all heads of the layer add to their keys, and another to their values.

    Shaw, Uszkoreit and Vaswani 2018, arXiv:1803.02155, equations 3 and 4. Parameters mh each, m = 2c + 1.
    """

    m: Dim  # distances
    values: bool = True

    def __post_init__(self) -> None:
        check_sizes("RelativeKeys", m=self.m)

    def trace(self, tape: Tape, keys: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """The vectors (t s h) of the pairs of these keys (b s k h) and queries (b t n h), and those for their values."""
        distances = tape.tensor(("t", "s"), (queries["t"], keys["s"]), "index", grad=False)
        tape.record("distances", "index", distances)
        table = ("m", "h"), (self.m, keys.sizes[-1])
        rows = tape.lookup("relative_keys", distances, tape.weight(*table))
        return rows, tape.lookup("relative_values", distances, tape.weight(*table)) if self.values else None


@declaration
class ALiBi:
    """−slope·distance added to the scores, a slope a head. Press, Smith and Lewis 2022, arXiv:2108.12409, section 3.

    No parameters. The softmax does not see what is added to a whole row, so that slope·key (n × s) does: one buffer, of which
    the fused kernel needs the slopes alone.
    """

    n: Dim  # heads

    def __post_init__(self) -> None:
        check_sizes("ALiBi", n=self.n)

    def trace(self, tape: Tape, keys: Tensor, queries: Tensor) -> Tensor:
        """The bias (n s), or its slopes (n), for these keys (b s k h)."""
        return tape.slopes(self.n, keys["s"])


@declaration
class RelativeBias:
    """A trained number a bucket of distances and head, added to the scores: one table a stack, shared by its layers.

    Raffel et al. 2019, arXiv:1910.10683, section 2.1. Parameters mn, once a stack; with a table in each layer (Liu et al.
    2021, Swin, arXiv:2103.14030, equation 4, m = (2w − 1)²) once a layer.
    """

    m: Dim  # buckets
    n: Dim  # heads
    each_layer: bool = False

    def __post_init__(self) -> None:
        check_sizes("RelativeBias", m=self.m, n=self.n)

    def trace(self, tape: Tape, keys: Tensor, queries: Tensor) -> Tensor:
        """The bias (n t s) for these keys (b s k h) and queries (b t n h)."""

        def make() -> Tensor:
            buckets = tape.tensor(("t", "s"), (queries["t"], keys["s"]), "index", grad=False)
            tape.record("buckets", "index", buckets)
            return tape.lookup("relative_bias", buckets, tape.weight(("m", "n"), (self.m, self.n)))

        return make() if self.each_layer else tape.once(self, make)
