"""The memory that is alive while torch runs, tracked storage by storage: on any device, without an allocator's rounding."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Bytes of the storages that operations made and that still live, and the most there were. Those of *known* tensors are
    not counted."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.bytes = self.most = 0
        self._seen = weakref.WeakSet(x.untyped_storage() for x in known)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self._add(x)
        self.most = max(self.most, self.bytes)
        return out

    def _add(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        if storage not in self._seen:
            self._seen.add(storage)
            self.bytes += storage.nbytes()
            weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size: int) -> None:
        self.bytes -= size


def peak(function: Callable[[], Any], known: Iterable[Tensor] = ()) -> int:
    """The most bytes that *function* has alive at once, those of *known* tensors left out."""
    with Live(known) as mode:
        function()
    return mode.most
