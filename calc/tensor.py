"""What a trace is made of: tensors with named axes, the lines that use them, and the step that is traced.

Nothing here knows a byte width, a cost rule or a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from .declare import declaration
from .dims import Dim, check_at_most, check_sizes
from .errors import InputError

Role: TypeAlias = Literal[
    "activation",  # in the compute type
    "statistic",  # kept in fp32 whatever the compute type
    "mask",  # boolean
    "index",  # int64
    "key_value",  # held by a cache
    "state",  # a recurrent state
    "matrix",  # weight that is multiplied
    "vector",  # weight that is added or scales: bias, gain
    "table",  # weight that is looked up
    "head",  # the untied output matrix and its bias
]


class Tensor:
    """A shape: named axes with sizes, and what the storage behind it is.

    ``base`` is the tensor it is a view of, ``cast_of`` the tensor it is a copy of in another role. ``copies`` says how
    many equal ones there are (the layers of a loop, the experts of a bank), ``active`` how many of them one token uses,
    ``numel`` the elements of one. ``grad``: does a gradient flow to it.
    """

    __slots__ = ("active", "axes", "base", "cast_of", "copies", "grad", "numel", "role", "sizes")

    def __init__(
        self,
        axes: tuple[str, ...],
        sizes: tuple[Dim, ...],
        role: Role = "activation",
        copies: Dim = 1,
        active: Dim = 1,
        grad: bool = True,
        base: Tensor | None = None,
        cast_of: Tensor | None = None,
    ) -> None:
        self.axes = axes
        self.sizes = sizes
        self.role = role
        self.copies = copies
        self.active = active
        self.grad = grad
        self.base = base
        self.cast_of = cast_of
        self.numel: Dim = prod(sizes)

    def __getitem__(self, axis: str) -> Dim:
        try:
            return self.sizes[self.axes.index(axis)]
        except ValueError:
            raise InputError(f"a tensor {self} has no axis {axis!r}") from None

    @property
    def storage(self) -> Tensor:
        """The tensor that owns the memory: itself, or what it is a view of."""
        tensor = self
        while tensor.base is not None:
            tensor = tensor.base
        return tensor

    def __repr__(self) -> str:
        shape = " ".join(f"{axis}={size}" for axis, size in zip(self.axes, self.sizes, strict=True))
        return f"({shape})"


class Cached(NamedTuple):
    """A cache entry: ``tensor`` holds one layer's positions along its axis ``s``; a window layer needs only the last ``w``.

    ``expanded`` heads, at all positions, are what transformers' own code caches where that is more than is needed.
    """

    tensor: Tensor
    kind: Literal["full", "window", "latent", "cross", "state"]
    window: Dim | None
    expanded: Dim | None = None


class Line:
    """One operation, as a recorder writes it down. Multiply-adds are per pair: of a query with a key in attention, else there
    is one pair."""

    path: str
    kind: str
    copies: Dim
    layer: str | None  # the distinct block it stands in
    origin: type | None  # the type of component that wrote it
    bank: Dim  # how many equal experts its weights are those of
    written: tuple[Tensor, ...]
    read: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    saved: tuple[Tensor, ...]
    cached: tuple[Cached, ...]
    forward: Dim  # multiply-adds of the forward pass
    dinput: Dim  # of the inputs' gradients
    dweight: Dim  # of the weights' gradients
    pairs: Dim  # those computed
    visible: Dim  # those that the mask lets through
    heads: Dim  # 1 where it is not attention
    window: Dim | None  # the most keys that a query of it sees
    causal: bool
    recomputed: bool  # run again in the backward pass

    __slots__ = (
        "bank", "cached", "causal", "copies", "dinput", "dweight", "forward", "heads", "kind", "layer", "origin", "pairs",
        "path", "read", "recomputed", "saved", "visible", "weights", "window", "written",
    )  # fmt: skip

    def __repr__(self) -> str:
        return f"Line({self.path}: {self.kind} x {self.copies})"

    @property
    def dense(self) -> bool:
        """Does every expert of its bank run on every token?"""
        return self.bank != 1 and "e" in self.read[0].axes


@declaration(kw_only=False)
class Step:
    """What is run: ``b`` sequences, ``t`` new tokens each, of which the last sees ``s`` (the new ones included).

    For an encoder-decoder these are the decoder's; ``source`` is the encoder's length and ``source_new`` how many of
    its tokens are run now (0 when decoding). Training is s = t, decoding is t = 1: one formula, several substitutions.
    """

    b: Dim
    t: Dim
    s: Dim
    source: Dim = 1
    source_new: Dim = 0
    training: bool = False
    cache: bool = False
    head: Literal["all", "last"] = "all"

    def __post_init__(self) -> None:
        check_sizes("the step", batch=self.b, seq=self.t or 1, context=self.s, encoder_seq=self.source)
        check_at_most(self.t, self.s, "the step: context {1} is shorter than the {0} new tokens that it includes")

    @property
    def of_source(self) -> Step:
        """The encoder's own step: all of the source at once, or nothing of it."""
        return Step(self.b, self.source_new, self.source, training=self.training)

    @classmethod
    def train(cls, b: Dim, t: Dim, source: Dim | None = None) -> Step:
        """A training step: forward, loss and backward over t tokens. ``source`` is the encoder's length, t unless given."""
        source = t if source is None else source
        return cls(b, t, t, source, source, training=True)

    @classmethod
    def forward(cls, b: Dim, t: Dim, source: Dim | None = None) -> Step:
        """A forward pass that keeps nothing."""
        source = t if source is None else source
        return cls(b, t, t, source, source)

    @classmethod
    def prefill(cls, b: Dim, t: Dim, s: Dim | None = None, source: Dim | None = None) -> Step:
        """t new tokens into a cache that then holds s."""
        source = t if source is None else source
        return cls(b, t, t if s is None else s, source, source, cache=True)

    @classmethod
    def decode(cls, b: Dim, s: Dim, source: Dim | None = None) -> Step:
        """One new token that sees s, itself included."""
        return cls(b, 1, s, s if source is None else source, 0, cache=True)


@declaration(kw_only=False)
class Kernels:
    """Which implementation runs, and so what autograd keeps. Each rule was measured on a twin.

    ``attention``: ``math`` writes the scores out; one kernel keeps one log-sum-exp a row: ``flash`` as torch has it for the
    CPU, ``fused`` as GPUs have it, with unequal widths, windows, soft caps, sinks and dropout. ``norm``: ``composed`` is
    RMSNorm out of elementary operations (the CPU), ``fused`` one kernel (CUDA). ``gated``: a gated feed-forward's product
    written out, or ``fused``, one kernel that runs the activation again backward. ``loss``: cross entropy written out, or
    ``fused``, one kernel that writes the gradient over the logits. Fused both are as Transformer Engine and Liger Kernel have
    them (Hsu et al. 2024, arXiv:2410.10989, section 3). ``dropout``, in training: of the embeddings' sum, the attention
    weights and each branch's output, by scaled ``noise`` (the CPU) or a ``mask`` of one byte an element (CUDA); Srivastava
    et al. 2014, where Vaswani et al. 2017, section 5.4, and GPT-2 have it.
    """

    attention: Literal["math", "flash", "fused"] = "math"
    norm: Literal["composed", "fused"] = "composed"
    gated: Literal["plain", "fused"] = "plain"
    loss: Literal["plain", "fused"] = "plain"
    dropout: Literal["none", "noise", "mask"] = "none"


@declaration(kw_only=False)
class Adapters:
    """Low-rank adapters on frozen weights. Hu et al. 2021, arXiv:2106.09685, equation 3.

    Every linear of a name in *targets* (``q``, ``v``, ``up`` …) gets two trained matrices, r(in + out) parameters;
    everything else is frozen.
    """

    r: Dim
    targets: frozenset[str]

    def __post_init__(self) -> None:
        check_sizes("Adapters", r=self.r)
        if not self.targets:
            raise InputError("Adapters: no targets are named, such as q and v")


class Pattern(NamedTuple):
    """A parsed ``"b t d -> b t f"``: axes in, axes out, those summed over and those made. ``...`` is any leading axes."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    summed: tuple[str, ...]
    made: tuple[str, ...]
    leading: bool


@cache
def parse(pattern: str) -> Pattern:
    """Read a linear map's pattern. ``"... d -> ... f"`` leaves whatever leading axes there are alone."""
    left_text, arrow, right_text = pattern.partition("->")
    left, right = tuple(left_text.split()), tuple(right_text.split())
    if not arrow or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise InputError(f"pattern {pattern!r}: expected distinct axes on both sides of '->', as in 'b t d -> b t f'")
    leading = left[:1] == ("...",)
    if leading:
        if right[:1] != ("...",):
            raise InputError(f"pattern {pattern!r}: '...' must open both sides")
        left, right = left[1:], right[1:]
    summed = tuple(axis for axis in left if axis not in right)
    made = tuple(axis for axis in right if axis not in left)
    return Pattern(left, right, summed, made, leading)


Pick: TypeAlias = Callable[[tuple[Dim, ...]], tuple[Dim, ...]]
"""From the sizes of a tensor's axes, and those that a call gives behind them, to those of some axes."""


class Fitted(NamedTuple):
    """A pattern on a tensor's axes: the result's, those that the weight makes, and the weight's, each with what picks
    their sizes."""

    axes: tuple[str, ...]
    made: tuple[str, ...]
    weight: tuple[str, ...]
    sizes_of: Pick
    made_of: Pick
    weight_of: Pick


@cache
def fitted(pattern: str, axes: tuple[str, ...], given: tuple[str, ...], each: tuple[str, ...] = ()) -> Fitted | None:
    """A linear map's pattern on a tensor of these axes, none where they are others than it says.

    *given* are the axes whose sizes the call gives, *each* those that the weight has besides.
    """
    plan = parse(pattern)
    lead = len(axes) - len(plan.left)
    if axes[lead:] != plan.left or (lead and not plan.leading):
        return None
    weight = (*each, *plan.summed, *plan.made)
    places = {axis: lead + place for place, axis in enumerate(plan.left + given)}
    out, made, of = ([places[axis] for axis in names] for names in (plan.right, plan.made, weight))
    return Fitted(axes[:lead] + plan.right, plan.made, weight, *map(_pick, ([*range(lead), *out], made, of)))


def _pick(places: Sequence[int]) -> Pick:
    if len(places) > 1:
        return itemgetter(*places)
    first = places[0] if places else 0
    return itemgetter(slice(first, first + len(places)))  # an itemgetter of one place gives no tuple


@cache
def seen(axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes when their positions (t, or m of the encoder) are those that a query sees (s)."""
    return tuple("s" if axis in "tm" else axis for axis in axes)
