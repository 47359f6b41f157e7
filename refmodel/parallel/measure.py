"""What one rank sends, measured as torch sends it: every collective of c10d, with the bytes of the whole tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .attention import Attention, CrossAttention
from .ranks import Group, Ranks

c10d = torch.ops.c10d


class Sent(NamedTuple):
    """One collective: bytes of the whole tensor (gathered, or before it is reduced), of an all-to-all and a send the rank's."""

    kind: str
    group: str
    bytes: int


def size(x: Any) -> int:
    """Bytes of a tensor, or of all in a list of such lists."""
    return x.nbytes if isinstance(x, Tensor) else sum(map(size, x))


class Op(NamedTuple):
    """What a torch operation is called here, which of its arguments is the whole tensor, and which the group."""

    kind: str
    whole: int
    group: int


OPS = {
    c10d.allreduce_.default: Op("all-reduce", 0, 1),
    c10d.allgather_.default: Op("all-gather", 0, 2),
    c10d._allgather_base_.default: Op("all-gather", 0, 2),
    c10d.reduce_scatter_.default: Op("reduce-scatter", 1, 2),
    c10d._reduce_scatter_base_.default: Op("reduce-scatter", 1, 2),
    c10d.alltoall_base_.default: Op("all-to-all", 1, 2),
    c10d.send.default: Op("send", 0, 1),
}


def groups_of(ranks: Ranks, part: nn.Module) -> Iterator[tuple[str, Group]]:
    """All groups of a rank by name, those of its key-value heads too."""
    yield from vars(ranks).items()
    yield from (("heads", module.same) for module in part.modules() if isinstance(module, Attention | CrossAttention))


class Traffic(TorchDispatchMode):
    """Counts what is sent while it is on, by kind, group and bytes."""

    def __init__(self, ranks: Ranks, part: nn.Module) -> None:
        super().__init__()
        self.sent: Counter[Sent] = Counter()
        self.names = {group.process.group_name: name for name, group in groups_of(ranks, part) if group.process is not None}

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func in OPS:
            op = OPS[func]
            name = dist.ProcessGroup.unbox(args[op.group]).group_name
            self.sent[Sent(op.kind, self.names[name], size(args[op.whole]))] += 1
        elif func.namespace in ("c10d", "_c10d_functional") and func is not c10d.recv_.default:
            raise NotImplementedError(f"{func} is a collective that is not counted")
        return func(*args, **(kwargs or {}))


def traffic(ranks: Ranks, part: nn.Module, function: Callable[[], Any]) -> tuple[Any, Counter[Sent]]:
    """What *function* returns, and what this rank sends in it."""
    with Traffic(ranks, part) as mode:
        result = function()
    return result, mode.sent
