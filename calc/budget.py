"""A finished trace: sums over its lines. Sizes may be integers or symbols; bytes appear only where widths are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from .dims import Dim, smaller
from .errors import InputError
from .recorder import Carry, Recompute
from .tensor import Kernels, Line, Step, Tensor

Widths: TypeAlias = Mapping[str, int]
"""Bytes an element, by role."""

Policy: TypeAlias = Literal["minimal", "transformers", "static", "unified"]

_DTYPES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "fp8": 1, "int8": 1}


def widths(dtype: str) -> Widths:
    """Bytes an element by role when the model computes in *dtype*: statistics stay fp32, indices int64, masks one byte."""
    if dtype not in _DTYPES:
        raise InputError(f"dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
    width = _DTYPES[dtype]
    roles = dict.fromkeys(("activation", "key_value", "state", "matrix", "vector", "table", "head"), width)
    return MappingProxyType(roles | {"statistic": 4, "mask": 1, "index": 8})


class Parameters(NamedTuple):
    """Counts of parameters, a tied one once.

    ``active`` is what one token's forward uses (routed experts × a/e, all else in full), ``active_without_input`` the
    same without the token table. ``embedding`` are the look-up tables (tokens, positions, types), ``head`` the untied
    output matrix with its bias, else 0, ``non_embedding`` the rest, and ``trainable`` those that a gradient flows to.
    """

    total: Dim
    active: Dim
    active_without_input: Dim
    embedding: Dim
    head: Dim
    non_embedding: Dim
    trainable: Dim


class Component(NamedTuple):
    """One leaf of the parameter count."""

    path: str
    params: Dim
    active: Dim


class Work(NamedTuple):
    """Multiply-adds of a step: forward, gradients of inputs and of weights, and what a checkpoint runs again."""

    forward: Dim
    dinput: Dim
    dweight: Dim
    recompute: Dim

    @property
    def backward(self) -> Dim:
        """Both kinds of gradient."""
        return self.dinput + self.dweight


class LayerBytes(NamedTuple):
    """What one distinct layer keeps: its first copy (with what it saves for others too) and each further one."""

    layer: str
    first: Dim
    further: Dim


class Activations(NamedTuple):
    """Bytes alive after the forward pass of a training step, parameters excluded: ``bytes`` is all of it.

    ``layers`` the distinct layers, ``order`` how many of each run one after the other (encoder first), ``buffers`` the
    rotary tables and masks, ``loss`` what the loss keeps, ``rest`` what else stands outside the layers; ``roles`` and
    ``paths`` are all of it by role, and by the line that keeps it first.
    """

    bytes: Dim
    layers: tuple[LayerBytes, ...]
    order: Callable[[], tuple[tuple[str, Dim], ...]]
    buffers: Dim
    loss: Dim
    rest: Dim
    roles: Mapping[str, Dim]
    paths: Mapping[str, Dim]

    @property
    def per_layer(self) -> tuple[Dim, ...]:
        """One number a layer, encoder first; what layers share belongs to the first of them."""
        sizes = {layer.layer: layer for layer in self.layers}
        result: list[Dim] = []
        seen: set[str] = set()
        for name, count in self.order():
            if name not in seen:
                seen.add(name)
                result.append(sizes.get(f"{name} (first)", sizes.get(name)).first)  # type: ignore[union-attr]
                count -= 1
            result.extend([sizes[name].further] * count if count else ())
        return tuple(result)


class Budget:
    """What a component or a model costs in one step. Immutable; made by ``blockcalc.trace`` or ``Model.budget``."""

    def __init__(
        self,
        lines: Iterable[Line],
        carries: Iterable[Carry],
        buffers: Iterable[Tensor],
        step: Step,
        kernels: Kernels,
        recompute: Recompute,
        order: Callable[[], tuple[tuple[str, Dim], ...]] = tuple,
    ) -> None:
        self.lines = tuple(lines)
        self.carries = tuple(carries)
        self.buffers = tuple(buffers)
        self.step = step
        self.kernels = kernels
        self.recompute = recompute
        self.order = order
        """Gives the distinct layers' names in the order in which they run, as runs (name, how many), when it is asked."""

    # -- parameters ---------------------------------------------------------------------------------------------------

    def parameters(self) -> Parameters:
        """The parameter counts."""
        seen: set[Tensor] = set()
        total: Dim = 0
        active: Dim = 0
        tables: Dim = 0
        head: Dim = 0
        tokens: Dim = 0
        trainable: Dim = 0
        for line in self.lines:
            for weight in line.weights:
                if weight in seen:
                    continue
                seen.add(weight)
                numel = weight.numel
                count = numel * weight.copies
                total += count
                active += numel * weight.active
                if weight.grad:
                    trainable += count
                if weight.role == "table":
                    tables += count
                    if line.path.endswith("embedding.token"):
                        tokens += count
                elif weight.role == "head":
                    head += count
        return Parameters(total, active, active - tokens, tables, head, total - tables - head, trainable)

    def components(self) -> tuple[Component, ...]:
        """Disjoint leaves in the order of the forward pass; their sum is the total. A tied weight is its first user's."""
        seen: set[Tensor] = set()
        leaves: dict[str, tuple[Dim, Dim]] = {}
        for line in self.lines:
            for weight in line.weights:
                if weight not in seen:
                    seen.add(weight)
                    params, active = leaves.get(line.path, (0, 0))
                    numel = weight.numel
                    leaves[line.path] = params + numel * weight.copies, active + numel * weight.active
        return tuple(Component(path, *counts) for path, counts in leaves.items())

    # -- work ---------------------------------------------------------------------------------------------------------

    def work(self, *, visible: bool = False) -> Work:
        """Multiply-adds of all lines: over every pair that is computed, or only over those that the mask lets through."""
        forward: Dim = 0
        dinput: Dim = 0
        dweight: Dim = 0
        again: Dim = 0
        for line in self.lines:
            if line.forward or line.dinput:
                times = line.copies * (line.visible if visible else line.pairs)
                forward += times * line.forward
                dinput += times * line.dinput
                dweight += times * line.dweight
                if line.recomputed:
                    again += times * line.forward
        return Work(forward, dinput, dweight, again)

    # -- cache --------------------------------------------------------------------------------------------------------

    def cache(self, widths: Widths, policy: Policy = "minimal") -> dict[str, Dim]:
        """Bytes that the caches hold at the step's context, or would if decoding went on from it, by kind.

        A window layer holds min(S, w) positions (``minimal``; ``static`` in a cache allocated for S),
        min(S, w − 1) (``transformers``; all S when w = 1) or all S (``unified``).
        """
        per_sequence = self._cache_of_one(widths, policy, self.step.s)
        return {kind: self.step.b * size for kind, size in per_sequence.items()}

    def cache_per_token(self, widths: Widths, policy: Policy = "minimal") -> Dim:
        """Bytes that one more token of one sequence adds at this context: F(S + 1) − F(S), for windows make F bend."""
        after = self._cache_of_one(widths, policy, self.step.s + 1)
        return sum(after.values()) - sum(self._cache_of_one(widths, policy, self.step.s).values())

    def _cache_of_one(self, widths: Widths, policy: Policy, context: Dim) -> dict[str, Dim]:
        kinds: dict[str, Dim] = dict.fromkeys(("full", "window", "latent", "cross", "state"), 0)
        for line in self.lines:
            for tensor, kind, window, expanded in line.cached:
                size = tensor.copies * widths[tensor.role]
                whole = policy == "transformers" and expanded is not None
                for axis, extent in zip(tensor.axes, tensor.sizes, strict=True):
                    if axis == "s" and kind != "cross":
                        size *= context if whole else held(context, window, policy)
                    elif axis == "k" and whole:
                        size *= expanded
                    elif axis != "b":
                        size *= extent
                kinds[kind] += size
        return kinds

    # -- activations --------------------------------------------------------------------------------------------------

    def activations(self, widths: Widths) -> Activations:
        """Bytes that autograd keeps between forward and backward, each storage once."""
        kept, counts = self._kept(widths)
        handed = {tensor for c in self.carries for tensor in (c.before, c.received, c.returned)}
        inside: dict[str, Dim] = dict.fromkeys((carry.layer for carry in self.carries), 0)
        closed_over = inside.copy()
        roles: dict[str, Dim] = {}
        paths: dict[str, Dim] = {}
        loss: Dim = 0
        rest: Dim = 0
        for tensor, line in kept.items():
            role, copies, layer = tensor.role, tensor.copies, line.layer
            size = tensor.numel * widths[role]
            total = size * counts.get(tensor, copies)
            roles[role] = roles.get(role, 0) + total
            paths[line.path] = paths.get(line.path, 0) + total
            if layer is None or layer not in inside:
                if line.kind == "loss":
                    loss += total
                else:
                    rest += total
            elif tensor not in handed:
                if copies == line.copies:
                    inside[layer] += size
                else:
                    closed_over[layer] += total
        buffers: Dim = 0
        for buffer in self.buffers:
            size = buffer.numel * widths[buffer.role]
            buffers += size
            roles[buffer.role] = roles.get(buffer.role, 0) + size
        layers = tuple(self._layer(c, kept, widths, inside[c.layer], closed_over[c.layer]) for c in self.carries)
        total = sum(roles.values())
        return Activations(total, layers, self.order, buffers, loss, rest, MappingProxyType(roles), MappingProxyType(paths))

    def _kept(self, widths: Widths) -> tuple[dict[Tensor, Line], dict[Tensor, Dim]]:
        """Each storage kept, with the line that keeps it first, and how many of it there are where that is not its copies.

        A layer's input is the output of the layer before: L layers that save their input keep the L − 1 tensors handed
        on and the one that entered the loop.
        """
        kept: dict[Tensor, Line] = {}
        for line in self.lines:
            for tensor in line.saved:
                plain = tensor.base is None and tensor.cast_of is None
                kept.setdefault(tensor if plain else storage(tensor, widths), line)
        for buffer in self.buffers:
            kept.pop(buffer, None)
        counts: dict[Tensor, Dim] = {}
        for carry in reversed(self.carries):
            if carry.received in kept:
                here, there = kept[carry.received], kept.get(carry.before)
                if there is None or self.lines.index(here) < self.lines.index(there):
                    kept[carry.before] = here
            if carry.returned in kept:
                counts[carry.after] = 0
                if carry.received in kept:
                    counts[carry.returned] = carry.after.copies
        return kept, counts

    @staticmethod
    def _layer(carry: Carry, kept: dict[Tensor, Line], widths: Widths, inside: Dim, closed_over: Dim) -> LayerBytes:
        """A layer owns its input if it saves that and the layer before does not save its output; else its output."""
        handed_on = carry.received.numel * widths[carry.received.role]
        takes, gives = carry.received in kept, carry.returned in kept
        further = inside + (handed_on if takes or gives else 0)
        first = further + closed_over
        if takes:
            entered_here = kept[carry.before].layer == carry.layer
            first += handed_on * (entered_here - (not gives))
        return LayerBytes(carry.layer, first, further)

    # -- traffic ------------------------------------------------------------------------------------------------------

    def traffic(self, widths: Widths) -> Dim:
        """Bytes read and written in the forward pass with no fusion across lines; every stored weight is read once."""
        total: Dim = 0
        seen: set[Tensor] = set()
        for line in self.lines:
            for tensor in (*line.read, *line.written):
                total += line.copies * tensor.numel * widths[tensor.role]
            for weight in line.weights:
                if weight not in seen:
                    seen.add(weight)
                    total += weight.copies * weight.numel * widths[weight.role]
        return total


def held(context: Dim, window: Dim | None, policy: Policy) -> Dim:
    """Positions that one layer's cache holds."""
    if window is None or policy == "unified":
        return context
    if policy == "transformers":
        return context if window == 1 else smaller(context, window - 1)
    return smaller(context, window)


def storage(tensor: Tensor, widths: Widths) -> Tensor:
    """What owns the memory: views lead to their base, a cast to its source when both have one width."""
    while True:
        if tensor.base is not None:
            tensor = tensor.base
        elif tensor.cast_of is not None and widths[tensor.role] == widths[tensor.cast_of.role]:
            tensor = tensor.cast_of
        else:
            return tensor
