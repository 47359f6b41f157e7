"""Whole models: an embedding, one or two stacks of blocks, and a head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .blocks.norm import LayerNorm, RMSNorm
from .blocks.position import LearnedPositions, Sinusoidal
from .budget import Budget
from .declare import declaration
from .dims import Dim, check_sizes
from .errors import InputError, UndefinedError
from .recorder import Recompute
from .tape import Tape
from .tensor import Adapters, Kernels, Role, Step, Tensor

if TYPE_CHECKING:
    from .blocks.embedding import Frames, LayerEmbedding, Patches
    from .blocks.prediction import MultiTokenPrediction


@runtime_checkable
class Component(Protocol):
    """Anything that can be traced: a frozen dataclass of sizes and other components."""

    def trace(self, tape: Tape, x: Tensor, /) -> Tensor:
        """Write the forward pass of x on the tape; return its result."""


@declaration
class Embedding:
    """Token vectors, plus positions and token types where there are such tables, then a norm.

    A token table that is narrower than the model is vi + id parameters instead of vd: ALBERT, Lan et al. 2020,
    arXiv:1909.11942, section 3.1.
    """

    v: Dim  # vocabulary
    d: Dim  # width
    i: Dim | None = None  # width of the token table, whose vectors are projected to d: OPT 350M
    all_narrow: bool = False  # all tables are i wide, and the normed sum is projected, with a bias: ALBERT
    position: LearnedPositions | Sinusoidal | None = None
    types: Dim | None = None  # rows of the token-type table
    norm: LayerNorm | RMSNorm | None = None
    smear: Any = None  # a component behind the norm: nanochat
    layers: LayerEmbedding | None = None  # makes an input for each layer besides: Gemma 3n, Gemma 4

    def __post_init__(self) -> None:
        check_sizes("Embedding", v=self.v, d=self.d, i=self.i, types=self.types)

    @property
    def length(self) -> None:
        """The step's own: as many positions as tokens."""

    def table(self, tape: Tape) -> Tensor:
        """The token table (v d), which a tied head multiplies with."""
        return tape.weight(("v", "d"), (self.v, self.d if self.i is None else self.i), "table")

    def trace(self, tape: Tape, table: Tensor) -> Tensor:
        """The vectors (b t d) of the step's tokens."""
        step = tape.step
        tape.tokens = ids = tape.tensor(("b", "t"), (step.b, step.t), "index", grad=False)
        x = tape.lookup("token", ids, table)
        if self.i is not None and not self.all_narrow:
            x = widened(tape, x, self.d)
        terms = [x]
        if self.position is not None:
            terms.append(self.position.trace(tape, x))
        if self.types is not None:
            kinds = tape.tensor(("b", "t"), (step.b, step.t), "index", grad=False)
            terms.append(tape.lookup("type", kinds, tape.weight(("y", "d"), (self.types, x["d"]), "table")))
        if len(terms) > 1:
            x = tape.add("sum", *terms)
        x = x if self.norm is None else tape.call("norm", self.norm, x)
        x = x if self.smear is None else tape.call("smear", self.smear, x)
        if self.layers is not None:
            tape.layer_inputs = tape.call("layers", self.layers, x)
        return tape.dropout("dropout", widened(tape, x, self.d, bias=True) if self.all_narrow else x)


def widened(tape: Tape, x: Tensor, d: Dim, bias: bool = False) -> Tensor:
    """x (b t d) projected to another width d."""
    out = tape.linear("project", x, "b t d -> b t e", e=d, bias=bias)
    return tape.view(out, x.axes, out.sizes)


@declaration
class Layer:
    """A distinct block and how many layers are of it."""

    block: Any  # a component
    l: Dim  # layers
    name: str = "layer"
    j: Dim | None = None  # sets of weights that they share, one a layer unless given: ALBERT

    def __post_init__(self) -> None:
        check_sizes("Layer", l=self.l, j=self.j)


@declaration
class Stack:
    """Distinct layers with their multiplicities and a norm behind the last.

    ``order`` is the layers' names in the order in which they run, as runs (name, how many); it matters only to what is
    printed a layer, and is the layers one after the other unless given.
    """

    name: str
    layers: tuple[Layer, ...]
    norm: LayerNorm | RMSNorm | None = None
    i: Dim | None = None  # width that the output is projected to: OPT 350M
    enter: Any = None  # a component before the first layer: Gemma 3n
    exit: Any = None  # a component between the last layer and the norm: nanochat, Gemma 3n
    order: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        if len(set(names)) != len(names) or (self.order and list(dict.fromkeys(name for name, _ in self.order)) != names):
            raise InputError(f"Stack: layers {names} must have names of their own, in the order in which each first runs")
        check_sizes("Stack", i=self.i)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        tape.entry = x
        x = x if self.enter is None else tape.call("enter", self.enter, x)
        for layer in self.layers:
            x = tape.repeat(layer.name, layer.l, x, layer.block, sets=layer.j)
        x = x if self.exit is None else tape.call("exit", self.exit, x)
        x = x if self.norm is None else tape.call("norm", self.norm, x)
        return x if self.i is None else widened(tape, x, self.i)

    def runs(self) -> tuple[tuple[str, Dim], ...]:
        """The order, by the layers' full names."""
        order = self.order or tuple((layer.name, layer.l) for layer in self.layers)
        return tuple((f"{self.name}.{name}", count) for name, count in order)


@declaration
class LMHead:
    """Logits over v outputs. Tied, the token table is the matrix (Press and Wolf 2017, arXiv:1608.05859)."""

    v: Dim  # outputs
    tied: bool
    bias: bool = False
    softcap: bool = False  # soft-capped logits: keeps their tanh
    used: Dim | None = None  # outputs that are kept, where the others fill the matrix up: nanochat
    wide: bool = False  # the logits are made fp32

    def __post_init__(self) -> None:
        check_sizes("LMHead", v=self.v, used=self.used)

    def trace(self, tape: Tape, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        role: Role = "matrix" if self.tied else "head"
        own = ("d", "v"), (x["d"], self.v), role
        matrix = table if self.tied else tape.shared("head", lambda: tape.weight(*own))
        logits = tape.linear("output", x, "b t d -> b t v", v=self.v, bias=self.bias, weight=matrix, role=role)
        if self.used is not None:
            logits = tape.view(logits, logits.axes, (*logits.sizes[:-1], self.used))
        if self.wide:
            logits = tape.widen("wide", logits)
        return tape.act("softcap", logits, "output") if self.softcap else logits


@declaration
class Model:
    """An embedding, a stack, a head; an encoder-decoder has a second stack whose output the first, or the head, reads."""

    name: str
    embedding: Embedding | Patches
    stack: Stack
    head: Any = None  # LMHead, one of ``heads``, or None
    encoder: Stack | None = None
    encoder_embedding: Embedding | Frames | Patches | None = None  # None: the encoder looks up the same token table
    predictors: tuple[MultiTokenPrediction, ...] = ()  # of further tokens, one behind the other: DeepSeek-V3

    def __post_init__(self) -> None:
        if self.predictors and not (isinstance(self.head, LMHead) and not self.head.bias):
            raise InputError("Model: predictors share the head, and are declared for a language model's without a bias")

    def budget(
        self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none", adapters: Adapters | None = None
    ) -> Budget:
        """What the model costs in *step*. Raises UndefinedError where a kernel does not exist for it."""
        step = self.fit(step)
        tape = Tape(step, kernels, recompute, adapters)
        self.trace(tape)
        check_targets(tape)
        return Budget(tape.lines, tape.carries, tape.buffers, step, tape.kernels, recompute, self.runs)

    def runs(self) -> tuple[tuple[str, Dim], ...]:
        """The distinct layers' names in the order in which they run, as runs (name, how many), encoder first."""
        return (self.encoder.runs() if self.encoder else ()) + self.stack.runs()

    def fit(self, step: Step) -> Step:
        """The step, at the lengths that the model sets itself: an image's patches, a spectrogram's frames.

        Raises UndefinedError for a step behind a cache, or of decoding, where the length is set: such a model has neither.
        """
        length, source = self.embedding.length, self.encoder_embedding and self.encoder_embedding.length
        if length is not None:
            if step.t != step.s or step.source_new == 0:
                raise UndefinedError(f"an input's {length} positions all run at once: nothing to decode from a cache")
            step = replace(step, t=length, s=length, source=length)
        if source is not None:
            step = replace(step, source=source, source_new=source if step.source_new != 0 else 0)
        return step

    def trace(self, tape: Tape) -> Tensor:
        """The logits (b t v), or what the last stack returns, on the tape; in training the loss too."""
        step = tape.step
        table: Any = self.embedding.table(tape)  # None where there are no tokens
        if self.encoder is not None:
            tape.step = step.of_source
            source = self.encoder_embedding
            inputs: Any = (self.embedding, table) if source is None else (source, source.table(tape))
            memory = tape.call(self.encoder.name, self.encoder, tape.call("encoder_embedding", *inputs))
            tape.memory = tape.view(memory, ("b", "m", "d"), memory.sizes)
            tape.step = step
        return self.output(tape, tape.call(self.stack.name, self.stack, tape.call("embedding", self.embedding, table)), table)

    def output(self, tape: Tape, x: Tensor, table: Any) -> Tensor:
        """What stands behind the stack: the head and the predictors, in training their losses too."""
        if self.head is None:
            return x
        out = self._output(tape, "", x, table)
        for number, predictor in enumerate(self.predictors, 1):
            x = tape.call(f"predictor{number}", predictor, x, table)
            self._output(tape, f"predictor{number}.", x, table)
        return out

    def _output(self, tape: Tape, prefix: str, x: Tensor, table: Any) -> Tensor:
        """The logits, of the last position alone where the step asks for no others; in training the loss."""
        if tape.step.head == "last":
            x = tape.view(x, x.axes, (tape.step.b, 1, x["d"]))
        logits: Tensor = tape.call(f"{prefix}head", self.head, x, table)
        return tape.cross_entropy(f"{prefix}loss", logits) if tape.step.training else logits

    @property
    def positions(self) -> Dim | None:
        """Rows of the learned position table that bound the length, if there is one."""
        position = self.embedding.position if isinstance(self.embedding, Embedding) else None
        return position.m - position.reserved if isinstance(position, LearnedPositions) else None


def check_targets(tape: Tape) -> None:
    """Refuse adapters on a name that no linear of the trace has."""
    if tape.adapters is None:
        return
    names = {line.path.rpartition(".")[2]: line for line in tape.lines if line.kind in ("linear", "router")}
    for target in sorted(tape.adapters.targets):
        if target not in names:
            known = sorted(name for name in names if not name.startswith("lora_"))
            raise InputError(f"adapters: no linear is named {target}; here are {', '.join(known)}")


def trace(
    component: Component,
    step: Step,
    d: Dim,
    kernels: Kernels | None = None,
    recompute: Recompute = "none",
    adapters: Adapters | None = None,
) -> Budget:
    """What one component costs on an input (b t d) of width d."""
    check_sizes("trace", d=d)
    tape = Tape(step, kernels, recompute, adapters)
    tape.call("", component, tape.tensor(("b", "t", "d"), (step.b, step.t, d)))
    check_targets(tape)
    return Budget(tape.lines, tape.carries, tape.buffers, step, tape.kernels, recompute)
