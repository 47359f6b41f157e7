"""What a forward pass carries besides x: which kernels run, the tensors that layers share, and the caches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Policy: TypeAlias = Literal["minimal", "transformers", "unified"]
Kind: TypeAlias = Literal["full", "window", "latent", "cross", "state"]


@dataclass
class Caches:
    """What decoding keeps of the positions gone by, a module's tensors (b s …) under the module.

    A window layer keeps its last w positions (``minimal``), the w − 1 that the next query can see (``transformers``),
    or all of them (``unified``). Where transformers caches all positions of all query heads, so does its policy here.
    """

    policy: Policy = "minimal"
    length: int = 0  # positions gone by
    held: dict[nn.Module, tuple[Tensor, ...]] = field(default_factory=dict)
    kinds: dict[nn.Module, Kind] = field(default_factory=dict)

    def extend(
        self, owner: nn.Module, kind: Kind, new: tuple[Tensor, ...], window: int | None, heads: int | None
    ) -> tuple[Tensor, ...]:
        """What the new queries can see: at most w − 1 earlier positions, then the new ones. Keeps what the policy says.

        *heads* are those that transformers expands keys and values to before it caches them, at all positions.
        """
        self.kinds[owner] = "window" if window else kind
        expand = heads is not None and self.policy == "transformers"
        if heads is not None and expand:
            new = tuple(x.repeat_interleave(heads // x.size(2), dim=2) for x in new)
        old = self.held.get(owner, tuple(x[:, :0] for x in new))
        whole = tuple(torch.cat(pair, dim=1) for pair in zip(old, new, strict=True))
        if window is None or expand:
            self.held[owner] = whole
            return whole
        keep = {"minimal": window, "transformers": window - 1, "unified": 0}[self.policy]
        self.held[owner] = tuple(x[:, -keep:].clone() for x in whole)  # x[:, -0:] is all of x
        first = max(0, old[0].size(1) - (window - 1))
        return tuple(x[:, first:] for x in whole)


@dataclass
class Run:
    """One forward pass. ``places`` are the layers that ran so far, for those who measure."""

    DROPPED: ClassVar[float] = 0.1

    kernel: Literal["math", "flash", "fused"] = "math"
    recompute: Literal["none", "selective", "full"] = "none"
    gated: Literal["plain", "fused"] = "plain"
    loss: Literal["plain", "fused"] = "plain"
    dropout: Literal["none", "noise", "mask"] = "none"
    caches: Caches | None = None
    memory: Tensor | None = None  # b m d, the encoder's output
    tokens: Tensor | None = None  # b t, what the embedding looked up
    entered: Tensor | None = None  # b t d, the stream before the first layer
    middle: Tensor | None = None  # b t d, the stream behind layer ⌊l/2⌋, counted from 0
    layer_inputs: Tensor | None = None  # b t l i, what the embedding made for each layer
    lent: dict[int | None, tuple[Tensor, Tensor]] = field(default_factory=dict)  # b s k h, keys and values by their window
    buffers: dict[Hashable, Tensor] = field(default_factory=dict)  # rotary tables and masks, of the whole model
    biases: dict[nn.Module, Tensor] = field(default_factory=dict)  # n t s, T5's position biases, of one stack
    places: list[str] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The position of the first new token."""
        return 0 if self.caches is None else self.caches.length

    def buffer(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """A constant that the whole model shares."""
        if key not in self.buffers:
            self.buffers[key] = make()
        return self.buffers[key]

    def remember(
        self, owner: nn.Module, kind: Kind, *new: Tensor, window: int | None = None, heads: int | None = None
    ) -> tuple[Tensor, ...]:
        """The cached positions of *owner* with the new ones behind them; without a cache, the new ones."""
        return new if self.caches is None else self.caches.extend(owner, kind, new, window, heads)

    def again(self, mode: Literal["selective", "full"], function: Callable[..., Tensor], *inputs: Tensor | None) -> Tensor:
        """function(*inputs), of which only the inputs are kept, and which runs again backward, if *mode* is recomputed."""
        if self.recompute != mode:
            return function(*inputs)
        out: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
        return out

    def drop(self, x: Tensor) -> Tensor:
        """x with a tenth of its entries set to 0 and the others scaled up: by noise as wide as x, or by a boolean mask."""
        if self.dropout == "none":
            return x
        return torch.native_dropout(x, self.DROPPED, True)[0] if self.dropout == "mask" else F.dropout(x, self.DROPPED)

    def last(self, owner: nn.Module, x: Tensor) -> Tensor | None:
        """The vector (b 1 d) before x (b t d) that *owner* left in the cache, if there is one; x's last takes its place."""
        if self.caches is None:
            return None
        before = self.caches.held.get(owner, (None,))[0]
        self.caches.held[owner], self.caches.kinds[owner] = (x[:, -1:].clone(),), "state"
        return before

    def tail(self, owner: nn.Module, x: Tensor, length: int) -> Tensor:
        """x (b t d) behind the last *length* positions that *owner* left in the cache, if there are any; else filled up with
        noughts before it to so many. The last of these take their place. Without a cache, x."""
        if self.caches is None:
            return x
        before = self.caches.held.get(owner, (x.new_zeros(x.size(0), max(0, length - x.size(1)), x.size(2)),))[0]
        whole = torch.cat((before, x), dim=1)
        self.caches.held[owner], self.caches.kinds[owner] = (whole[:, -length:].clone(),), "state"
        return whole

    def closed_over(self, layer: nn.Module) -> tuple[Tensor, ...]:
        """The tensors that a layer reads besides x, and that stay alive because of it: modules say so in ``reads``, and in
        ``borrows`` the window of the keys and values."""
        inside = set(layer.modules())
        names = sorted({name for module in inside for name in getattr(module, "reads", ())})
        biases = (bias for owner, bias in self.biases.items() if owner in inside)
        windows = dict.fromkeys(window for module in inside for window in getattr(module, "borrows", ()))
        lent = (x for window in windows for x in self.lent.get(window, ()))
        return tuple(x for x in (*biases, *lent, *(getattr(self, name) for name in names)) if x is not None)

    def of_source(self) -> Run:
        """The encoder's pass: without caches, with biases of its own; the buffers are the model's."""
        return replace(self, caches=None, memory=None, biases={}, entered=None, middle=None)
