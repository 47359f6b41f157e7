"""The rank's part of a whole twin's weights or gradients, and the sums of gradients that ranks owe each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from .ranks import Group, Ranks

# -- which part -----------------------------------------------------------------------------------------------------------


def pieces(whole: Mapping[str, Tensor], part: nn.Module, ranks: Ranks, first: int = 0) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Each weight of the rank, and its part of what *whole* has under the weight's name.

    A weight is cut along the axis that is shorter. An expert, or a head's norm, has another number; of a stage a layer too,
    *first* of which are on the stages before.
    """
    for name, weight in part.named_parameters():
        group = ranks.etp if ".experts." in f".{name}" else ranks.tp
        yield weight, cut(whole[numbered(name, part, ranks, first)], weight, group)


def cut(x: Tensor, like: Tensor, group: Group) -> Tensor:
    """The rank's part of x: along each axis, that of the parts that are as long as *like*, which several ranks may have."""
    for axis, (size, length) in enumerate(zip(x.shape, like.shape, strict=True)):
        x = x.narrow(axis, group.rank * (size // length) // group.size * length, length)
    return x


def numbered(name: str, part: nn.Module, ranks: Ranks, first: int) -> str:
    """The name that a weight of the rank has in the whole twin."""
    words: list[str] = []
    module: Any = part
    for word in name.split("."):
        before = {"experts": ranks.ep.rank, "norms": ranks.tp.rank}.get(words[-1], 0) * len(module) if word.isdigit() else 0
        before += first if words[-1:] == ["layers"] else 0
        module = getattr(module, word)
        words.append(str(int(word) + before) if word.isdigit() else word)
    return ".".join(words)


# -- sums over ranks ------------------------------------------------------------------------------------------------------


def sum_gradients(part: nn.Module, ranks: Ranks) -> None:
    """What ranks that have the same weight add up once a step.

    With sequence parallelism each rank's gradient of what it has whole is that of its positions (Megatron-LM's
    ``_allreduce_non_tensor_model_parallel_grads``); a norm that all heads share is always of its own heads; key-value heads
    that several ranks have, of the query heads of each. Then the replicas.
    """
    owned, partial, expert = (set(named(part, name)) for name in ("owned", "partial", "expert"))
    doubled = {weight: group for module in part.modules() for weight, group in getattr(module, "doubled", dict)().items()}
    for weight in part.parameters():
        if weight.grad is None:
            continue
        tensor = ranks.etp if weight in expert else ranks.tp
        if weight in partial or (weight not in owned and tensor.sequence):
            add_up(weight.grad, tensor)
        if weight in doubled:
            add_up(weight.grad, doubled[weight])
        add_up(weight.grad, ranks.edp if weight in expert else ranks.dp)


def named(part: nn.Module, which: str) -> Iterator[nn.Parameter]:
    """The weights of which some module of *part* says that they are so."""
    for module in part.modules():
        if hasattr(module, which):
            yield from getattr(module, which)()


def add_up(x: Tensor, group: Group) -> None:
    """x becomes the sum over the group."""
    if group.size > 1:
        dist.all_reduce(x, group=group.process)
