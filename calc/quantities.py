"""What can be asked of a budget: each quantity with its unit, the step that it is asked of, and what its meaning depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from .budget import Budget, Policy, Widths
from .convention import flops
from .dims import Dim
from .tensor import Step

MEANINGS: Mapping[str, str] = MappingProxyType({
    "b": "sequences in the batch", "t": "new tokens a sequence", "s": "visible tokens, the new ones included",
    "d": "model width", "f": "hidden width of the feed-forward", "n": "query heads", "k": "key-value heads",
    "h": "head width", "w": "window", "e": "experts", "a": "active experts a token",
    "c": "key-value latent width, or rank of a residual",
    "q": "query latent width", "p": "position-free head width", "r": "rotary width", "u": "value head width",
    "g": "taps of a convolution over positions", "v": "vocabulary", "l": "layers", "m": "rows of a position table",
    "types": "token types",
    "chunk": "positions that linear attention runs at once, or that are seen of one block",
    "i": "width of a narrower token table, a pooled vector or a layer's input; entries that a gate, experts or Δ are made of",
    "j": "sets of weights that layers share, or streams beside the first",
    "used": "outputs that are kept, the others filling the matrix up",
    "x": "input channels: colours, or mel bins", "y": "pixels of a patch", "z": "pixels of an image",
})  # fmt: skip
"""What each letter means, by the letter."""

UNITS: Mapping[str, str] = MappingProxyType({
    **dict.fromkeys("tswg", "tokens"), **dict.fromkeys("dfhcqprui", "elements"), **dict.fromkeys("nk", "heads"),
    **dict.fromkeys("ea", "experts"), **dict.fromkeys(("m", "types"), "rows"), **dict.fromkeys("yz", "pixels"),
    "b": "sequences", "v": "entries", "l": "layers", "j": "sets", "used": "outputs", "x": "channels", "chunk": "tokens",
})  # fmt: skip
"""What each letter counts, by the letter."""


class Read(Protocol):
    """Reads the quantity off a budget, under widths, a convention and a cache policy."""

    def __call__(self, budget: Budget, w: Widths, convention: str, policy: Policy = "minimal", /) -> Dim:
        """The number, or the closed form where the budget's sizes are symbols."""


class Quantity(NamedTuple):
    """What is asked of a budget: its unit, the step it is asked of, how it is read off, and the options that change it."""

    unit: str
    meaning: str
    step: Callable[[Dim, Dim, Dim], Step]
    read: Read
    depends: tuple[str, ...] = ()


def _forward(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.forward(b, t)


def _train(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.train(b, t)


def _prefill(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.prefill(b, t, s)


def _filled(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.prefill(b, s)


def _decode(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.decode(b, s)


def _counted(meaning: str, field: str) -> Quantity:
    """A field of the parameter counts."""
    read: Read = lambda x, w, c, p="minimal": getattr(x.parameters(), field)  # noqa: E731
    return Quantity("parameters", meaning, _forward, read)


def _worked(meaning: str, step: Callable[[Dim, Dim, Dim], Step], field: str, *depends: str) -> Quantity:
    """A field of the FLOPs under a convention."""
    unit = "multiply-adds" if field == "macs" else "FLOPs"
    read: Read = lambda x, w, c, p="minimal": getattr(flops(x, c), field)  # noqa: E731
    return Quantity(unit, meaning, step, read, ("convention", "attention", *depends))


QUANTITIES: Mapping[str, Quantity] = MappingProxyType({
    "params": _counted("all parameters, a tied one once", "total"),
    "active": _counted("parameters that one token uses", "active"),
    "active_without_input": _counted("parameters that one token uses, the token table left out", "active_without_input"),
    "embedding": _counted("parameters of the look-up tables: tokens, positions, types", "embedding"),
    "head": _counted("parameters of the untied output matrix", "head"),
    "non_embedding": _counted("parameters without look-up tables and output matrix", "non_embedding"),
    "macs": _worked("multiply-adds of a forward pass", _forward, "macs"),
    "flops": _worked("a forward pass", _forward, "forward"),
    "backward_flops": _worked("the backward pass of a training step", _train, "backward"),
    "train_flops": _worked("a training step: forward, backward and what is run again", _train, "total", "recompute"),
    "prefill_flops": _worked("T new tokens a sequence into a cache that then holds S", _prefill, "forward"),
    "decode_flops": _worked("one new token a sequence at S visible", _decode, "forward"),
    "kv": Quantity(
        "bytes", "the cache at S visible tokens", _filled,
        lambda x, w, c, p="minimal": sum(x.cache(w, p).values()), ("dtype", "policy"),
    ),
    "kv_per_token": Quantity(
        "bytes", "what one more token of one sequence adds to the cache at S visible", _filled,
        lambda x, w, c, p="minimal": x.cache_per_token(w, p), ("dtype", "policy"),
    ),
    "activations": Quantity(
        "bytes", "what autograd keeps of a training step", _train, lambda x, w, c, p="minimal": x.activations(w).bytes,
        ("dtype", "attention", "recompute"),
    ),
})  # fmt: skip


def by_path(quantity: str, budget: Budget, w: Widths, convention: str, policy: Policy = "minimal") -> dict[str, Dim]:
    """The quantity of each operation, which sum to the whole: a tied weight is its first user's, as is a storage kept twice.

    A sum is read off the lines up to each operation, so that what counts once counts where it first stands.
    """
    if quantity == "activations":
        kept = budget.activations(w)
        return {**kept.paths, "buffers": kept.buffers}
    read = QUANTITIES[quantity].read
    found: dict[str, Dim] = {}
    before: Dim = 0
    for end, line in enumerate(budget.lines, 1):
        upto = Budget(budget.lines[:end], (), (), budget.step, budget.kernels, budget.recompute)
        after = read(upto, w, convention, policy)
        found[line.path] = found.get(line.path, 0) + after - before
        before = after
    return found
