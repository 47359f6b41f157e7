"""Whole models: an embedding, one or two stacks of blocks, and a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from .blocks.mlp import Activation, gelu
from .blocks.norm import LayerNorm, RMSNorm
from .blocks.position import LearnedPositions
from .budget import Budget
from .dims import Dim, check_sizes
from .recorder import Recompute
from .tape import Tape
from .tensor import Kernels, Step, Tensor


@runtime_checkable
class Component(Protocol):
    """Anything that can be traced: a frozen dataclass of sizes and other components."""

    def trace(self, tape: Tape, x: Tensor, /) -> Tensor:
        """Write the forward pass of x on the tape; return its result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedding:
    """Token vectors, plus positions and token types where there are such tables, then a norm."""

    v: Dim  # vocabulary
    d: Dim  # width
    position: LearnedPositions | None = None
    types: Dim | None = None  # rows of the token-type table
    norm: LayerNorm | RMSNorm | None = None

    def __post_init__(self) -> None:
        check_sizes("Embedding", v=self.v, d=self.d, types=self.types)

    def table(self, tape: Tape) -> Tensor:
        """The token table (v d), which a tied head multiplies with."""
        return tape.weight(("v", "d"), (self.v, self.d), "table")

    def trace(self, tape: Tape, table: Tensor) -> Tensor:
        """The vectors (b t d) of the step's tokens."""
        step = tape.step
        ids = tape.tensor(("b", "t"), (step.b, step.t), "index", grad=False)
        x = tape.lookup("token", ids, table)
        terms = [x]
        if self.position is not None:
            terms.append(self.position.trace(tape, x))
        if self.types is not None:
            kinds = tape.tensor(("b", "t"), (step.b, step.t), "index", grad=False)
            terms.append(tape.lookup("type", kinds, tape.weight(("v", "d"), (self.types, self.d), "table")))
        if len(terms) > 1:
            x = tape.add("sum", *terms)
        return x if self.norm is None else tape.call("norm", self.norm, x)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A distinct block and how many layers are of it."""

    block: Any  # a component
    l: Dim  # layers
    name: str = "layer"

    def __post_init__(self) -> None:
        check_sizes("Layer", l=self.l)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """Distinct layers with their multiplicities and a norm behind the last.

    ``order`` is the layers' names in the order in which they run, as runs (name, how many); it matters only to what is
    printed a layer, and is the layers one after the other unless given.
    """

    name: str
    layers: tuple[Layer, ...]
    norm: LayerNorm | RMSNorm | None = None
    order: tuple[tuple[str, int], ...] = ()

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        for layer in self.layers:
            x = tape.repeat(layer.name, layer.l, x, layer.block)
        return x if self.norm is None else tape.call("norm", self.norm, x)

    def runs(self) -> tuple[tuple[str, Dim], ...]:
        """The order, by the layers' full names."""
        order = self.order or tuple((layer.name, layer.l) for layer in self.layers)
        return tuple((f"{self.name}.{name}", count) for name, count in order)


@dataclass(frozen=True, kw_only=True, slots=True)
class LMHead:
    """Logits over v outputs. Tied, the token table is the matrix (Press and Wolf 2017, arXiv:1608.05859)."""

    v: Dim  # outputs
    tied: bool
    bias: bool = False
    softcap: bool = False  # soft-capped logits: keeps their tanh

    def __post_init__(self) -> None:
        check_sizes("LMHead", v=self.v)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        if self.tied:
            logits = tape.linear("output", x, "b t d -> b t v", v=self.v, bias=self.bias, weight=table)
        else:
            logits = tape.linear("output", x, "b t d -> b t v", v=self.v, bias=self.bias, role="head")
        return tape.act("softcap", logits, "output") if self.softcap else logits


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLMHead:
    """A dense layer, an activation and a norm before the logits. Devlin et al. 2018, arXiv:1810.04805, section 3.1."""

    output: LMHead
    act: Activation = gelu
    norm: LayerNorm | RMSNorm = LayerNorm()

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        hidden = tape.linear("transform", x, "b t d -> b t e", e=x["d"], bias=True)
        hidden = tape.view(hidden, x.axes, hidden.sizes)
        hidden = tape.call("transform", self.norm, self.act.trace(tape, hidden))
        return self.output.trace(tape, hidden, table)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooler:
    """tanh of a dense layer on the first position, and classes of it where there are any. Devlin et al. 2018."""

    v: Dim | None = None  # classes

    def __post_init__(self) -> None:
        check_sizes("Pooler", v=self.v)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b e), e = d, or to (b v)."""
        first = tape.view(x, ("b", "d"), (x["b"], x["d"]))
        pooled = tape.act("tanh", tape.linear("pooler", first, "b d -> b e", e=x["d"], bias=True), "output")
        if self.v is None:
            return pooled
        return tape.linear("classifier", pooled, "b e -> b v", v=self.v, bias=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Classifier:
    """A linear layer on every position: token or sequence classes, or the two ends of an answer."""

    v: Dim  # classes
    bias: bool

    def __post_init__(self) -> None:
        check_sizes("Classifier", v=self.v)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        return tape.linear("classifier", x, "b t d -> b t v", v=self.v, bias=self.bias)


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """An embedding, a stack, a head; an encoder-decoder has a second stack whose output the first attends to."""

    name: str
    embedding: Embedding
    stack: Stack
    head: Any = None  # LMHead, MaskedLMHead, Pooler, Classifier, or None
    encoder: Stack | None = None
    encoder_embedding: Embedding | None = None  # None: the encoder looks up the same token table

    def budget(self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none") -> Budget:
        """What the model costs in *step*. Raises UndefinedError where a kernel does not exist for it."""
        tape = Tape(step, kernels, recompute)
        self.trace(tape)
        order = (self.encoder.runs() if self.encoder else ()) + self.stack.runs()
        return Budget(tape.lines, tape.carries, tape.buffers, step, tape.kernels, recompute, order)

    def trace(self, tape: Tape) -> Tensor:
        """The logits (b t v), or what the last stack returns, on the tape; in training the loss too."""
        step, table = tape.step, self.embedding.table(tape)
        if self.encoder is not None:
            tape.step = step.of_source
            source = self.encoder_embedding
            inputs = (self.embedding, table) if source is None else (source, source.table(tape))
            memory = tape.call(self.encoder.name, self.encoder, tape.call("encoder_embedding", *inputs))
            tape.memory = tape.view(memory, ("b", "m", "d"), memory.sizes)
            tape.step = step
        x = tape.call(self.stack.name, self.stack, tape.call("embedding", self.embedding, table))
        if self.head is None:
            return x
        if step.head == "last":
            x = tape.view(x, x.axes, (step.b, 1, x["d"]))
        logits = tape.call("head", self.head, x, table)
        assert isinstance(logits, Tensor)
        return tape.cross_entropy("loss", logits) if step.training else logits

    @property
    def positions(self) -> Dim | None:
        """Rows of the learned position table that bound the length, if there is one."""
        return self.embedding.position.m if self.embedding.position is not None else None


def trace(
    component: Component, step: Step, d: Dim, kernels: Kernels | None = None, recompute: Recompute = "none"
) -> Budget:
    """What one component costs on an input (b t d) of width d."""
    tape = Tape(step, kernels, recompute)
    tape.call("", component, tape.tensor(("b", "t", "d"), (step.b, step.t, d)))
    return Budget(tape.lines, tape.carries, tape.buffers, step, tape.kernels, recompute)
