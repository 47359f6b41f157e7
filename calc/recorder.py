"""The mechanics of a trace: where a line stands, how often it runs, what is shared, what is run again.

Loops over equal layers are traced once. What is made inside such a loop exists once per layer, what is closed over
(rotary tables, masks, the encoder's output, T5's bias) once in all; the carry from layer to layer is accounted for by
:class:`Carry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

from .dims import Dim
from .errors import UndefinedError
from .tensor import Adapters, Cached, Kernels, Line, Role, Step, Tensor

Recompute: TypeAlias = Literal["none", "selective", "full"]
"""What a checkpoint drops and runs again: nothing, the core attention, or each whole layer."""


_NO_CHECKPOINT = nullcontext()


class Carry(NamedTuple):
    """The tensor handed from layer to layer: before the loop, as a layer receives and returns it, after the loop."""

    before: Tensor
    received: Tensor
    returned: Tensor
    after: Tensor
    layer: str


class Recorder:
    """Lines in the order in which they run, and the scopes they stand in. :class:`~blockcalc.tape.Tape` adds the rules."""

    def __init__(
        self, step: Step, kernels: Kernels | None = None, recompute: Recompute = "none", adapters: Adapters | None = None
    ) -> None:
        self.step = step
        self.kernels = kernels or Kernels()
        self.recompute = recompute
        self.adapters = adapters
        self.memory: Tensor | None = None
        self.tokens: Tensor | None = None
        self.entry: Tensor | None = None
        self.layer_inputs: Tensor | None = None
        self._lent: dict[Dim | None, tuple[Tensor, Tensor]] = {}
        self.lines: list[Line] = []
        self.carries: list[Carry] = []
        self.buffers: list[Tensor] = []
        self._prefix = ""
        self._layer: str | None = None
        self._origin: type | None = None
        self._copies: Dim = 1
        self._stored: Dim = 1
        self._active: Dim = 1
        self._bank: Dim = 1
        self._once: dict[Any, Tensor] = {}

    # -- where a line stands ------------------------------------------------------------------------------------------

    def call(self, name: str, component: Any, *inputs: Tensor) -> Any:
        """``component.trace(self, *inputs)``, its lines named ``name.…``."""
        outer, origin = self._prefix, self._origin
        self._prefix, self._origin = f"{outer}{name}." if name else outer, type(component)
        try:
            return component.trace(self, *inputs)
        finally:
            self._prefix, self._origin = outer, origin

    def record(
        self,
        name: str,
        kind: str,
        written: Tensor | tuple[Tensor, ...],
        read: tuple[Tensor, ...] = (),
        weights: tuple[Tensor, ...] = (),
        saved: tuple[Tensor, ...] = (),
        cached: tuple[Cached, ...] = (),
        forward: Dim = 0,
        dinput: Dim = 0,
        dweight: Dim = 0,
        pairs: Dim = 1,
        visible: Dim = 1,
        heads: Dim = 1,
        window: Dim | None = None,
        causal: bool = False,
    ) -> None:
        """Write one line at the present place; without a name it is the component's only one.

        Nothing is saved for a result that no gradient flows to.
        """
        results: tuple[Tensor, ...] = written if type(written) is tuple else (written,)  # type: ignore[assignment]
        if saved and results and not results[0].grad and not any(result.grad for result in results):
            saved = ()
        path = self._prefix + name if name else self._prefix[:-1] or kind
        line = Line()
        line.path, line.kind, line.bank = path, kind, self._bank
        line.copies, line.layer, line.origin = self._copies, self._layer, self._origin
        line.written, line.read, line.weights = results, read, weights
        line.saved, line.cached, line.recomputed = saved, cached, False
        line.forward, line.dinput, line.dweight = forward, dinput, dweight
        line.pairs, line.visible = pairs, visible
        line.heads, line.window, line.causal = heads, window, causal
        self.lines.append(line)

    # -- tensors ------------------------------------------------------------------------------------------------------

    def tensor(
        self, axes: tuple[str, ...], sizes: tuple[Dim, ...], role: Role = "activation", grad: bool = True
    ) -> Tensor:
        """A tensor made here: one a layer inside a loop."""
        return Tensor(axes, sizes, role, self._copies, self._copies, grad)

    def weight(
        self, axes: tuple[str, ...], sizes: tuple[Dim, ...], role: Role = "matrix", trains: bool = True
    ) -> Tensor:
        """A parameter made here: one a layer, and one an expert inside a bank. Beside adapters all others are frozen."""
        return Tensor(axes, sizes, role, self._stored, self._active, trains and self.adapters is None)

    def like(self, x: Tensor, role: Role | None = None) -> Tensor:
        """A new tensor of x's shape, in the compute type unless x is fp32 or *role* says otherwise."""
        role = role or ("statistic" if x.role == "statistic" else "activation")
        return Tensor(x.axes, x.sizes, role, self._copies, self._copies, x.grad)

    def view(self, x: Tensor, axes: tuple[str, ...], sizes: tuple[Dim, ...]) -> Tensor:
        """The storage of x under other axes."""
        return Tensor(axes, sizes, x.role, x.copies, x.active, x.grad, x)

    def buffer(self, key: str, axes: tuple[str, ...], sizes: tuple[Dim, ...], role: Role) -> Tensor:
        """A constant that the whole model shares, such as a rotary table or a mask. Alive whether saved or not."""
        found = self._once.get((key, sizes))
        if found is None:
            found = self._once[key, sizes] = Tensor(axes, sizes, role, 1, 1, False)
            self.buffers.append(found)
        return found

    def once(self, key: Any, make: Callable[[], Tensor]) -> Tensor:
        """What *make* traces, run once per stack however many layers ask for it, and outside their loop."""
        scope = (self._prefix.partition(".")[0], key)
        if scope not in self._once:
            outer = self._move(f"{scope[0]}." if scope[0] else "", None, 1, 1, 1, 1)
            try:
                self._once[scope] = make()
            finally:
                self._move(*outer)
        return self._once[scope]

    def shared(self, key: str, make: Callable[[], Tensor]) -> Tensor:
        """A weight that several places of the model multiply with, made by the first of them."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def source(self, x: Tensor) -> Tensor:
        """What cross-attention reads: the encoder's output (b m d), as wide as x when a block is traced alone."""
        if self.memory is None:
            self.memory = Tensor(("b", "m", "d"), (self.step.b, self.step.source_new, x["d"]))
        return self.memory

    def ids(self, x: Tensor) -> Tensor:
        """The tokens (b t), int64, that the embedding looked up, and that another table is asked by; some for a block alone."""
        if self.tokens is None:
            self.tokens = Tensor(("b", "t"), (x["b"], x["t"]), "index", grad=False)
        return self.tokens

    def entered(self, x: Tensor) -> Tensor:
        """The stream (b t d) as it entered the stack, x itself when a block is traced alone."""
        return x if self.entry is None else self.entry

    def midway(self, x: Tensor) -> Tensor:
        """The stream (b t d) as a layer of the stack before the last handed it on, one like x where there is no stack."""
        return self.carries[-1].received if self.carries else self.like(x)

    def layer_input(self, x: Tensor, i: Dim) -> Tensor:
        """A layer's entries (b t i) of those that the embedding made for all layers (b t l i); some for a block alone."""
        if self.layer_inputs is None:
            if self.entry is not None:
                raise UndefinedError("a layer's own input: the embedding that makes it does not stand before, in this stage")
            self.layer_inputs = Tensor(("b", "t", "l", "i"), (x["b"], x["t"], 1, i))
        return self.view(self.layer_inputs, ("b", "t", "i"), (x["b"], x["t"], i))

    def lend(self, window: Dim | None, k: Tensor, v: Tensor) -> None:
        """Leave keys and values (b s k h) to the later layers of the same window."""
        self._lent[window] = k, v

    def borrowed(self, window: Dim | None) -> tuple[Tensor, Tensor]:
        """The keys and values that the last layer of the same window left."""
        if window not in self._lent:
            raise UndefinedError("borrowed keys and values: the layer that lends them does not stand before, in this stage")
        return self._lent[window]

    # -- how often ----------------------------------------------------------------------------------------------------

    def _move(
        self, prefix: str, layer: str | None, copies: Dim, stored: Dim, active: Dim, bank: Dim
    ) -> tuple[str, str | None, Dim, Dim, Dim, Dim]:
        """Stand elsewhere from now on. Returns the place that it was, to move back to."""
        outer = self._prefix, self._layer, self._copies, self._stored, self._active, self._bank
        self._prefix, self._layer, self._copies = prefix, layer, copies
        self._stored, self._active, self._bank = stored, active, bank
        return outer

    def repeat(self, name: str, copies: Dim, x: Tensor, layer: Any, *, sets: Dim | None = None) -> Tensor:
        """A loop of *copies* equal layers over the carry x, with weights of their own or (ALBERT) *sets* of weights in all.

        The first layer is traced apart where its input needs no gradient and its output does: adapters on a frozen model.
        """
        if not x.grad:
            if sets is not None:
                raise UndefinedError("adapters on layers that share their weights are not declared")
            x, copies = self._loop(name, 1, x, layer, None, " (first)"), copies - 1
            if type(copies) is int and copies == 0:
                return x
        return self._loop(name, copies, x, layer, sets, "")

    def _loop(self, name: str, copies: Dim, x: Tensor, layer: Any, sets: Dim | None, which: str) -> Tensor:
        prefix, before = f"{self._prefix}{name}." if name else self._prefix, x
        received = Tensor(x.axes, x.sizes, x.role, self._copies * (copies - 1), 1, x.grad)
        stored = self._stored * (copies if sets is None else sets)
        label = prefix[:-1] + which
        outer = self._move(prefix, label, self._copies * copies, stored, stored, self._bank)
        try:
            with self.checkpoint("full"):
                returned = self.call("", layer, received)
        finally:
            self._move(*outer)
        after = self.like(returned)
        self.carries.append(Carry(before.storage, received, returned.storage, after, label))
        return after

    @contextmanager
    def choose(self, copies: Dim, active: Dim) -> Iterator[None]:
        """A bank of *copies* equal experts of which each token uses *active*: weights made inside exist once an expert."""
        stored, active = self._stored * copies, self._active * active
        outer = self._move(self._prefix, self._layer, self._copies, stored, active, copies)
        try:
            yield
        finally:
            self._move(*outer)

    # -- what is run again --------------------------------------------------------------------------------------------

    def checkpoint(self, mode: Recompute) -> AbstractContextManager[None]:
        """Under the recompute *mode*, drop what is saved inside, keep what came in, and run the lines again backward if a
        gradient comes by."""
        return self._checkpoint() if self.recompute == mode else _NO_CHECKPOINT

    @contextmanager
    def _checkpoint(self) -> Iterator[None]:
        start = len(self.lines)
        yield
        lines = [line for line in self.lines[start:] if line.layer == self._layer]
        inside = {tensor.storage for line in lines for tensor in line.written}
        kept: dict[Tensor, None] = {}
        again = any(tensor.grad for line in lines for tensor in line.written)
        for line in lines:
            kept.update((t, None) for t in line.read if t.storage not in inside and t.storage not in self.buffers)
            line.saved, line.recomputed = (), again
        self.record("checkpoint", "checkpoint", (), saved=tuple(kept))
