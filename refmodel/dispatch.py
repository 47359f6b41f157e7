"""From a declaration to its twin: the dispatch on types, which :mod:`.branches` and :mod:`.build` fill."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import nn

CAP, CLIP, SCALE = 30.0, 6.0, 1.2
"""Where scores and logits are capped, where q, k and v are clipped, and what a norm or a residual is multiplied by. A
declaration says only whether they are, for that is what costs."""

BASE, LOCAL_BASE = 10000.0, 1000.0
"""Of the rotary frequencies; those of local layers are others, for that is two more tables."""


class Given(NamedTuple):
    """Sizes that a component has from around it: the encoder's and the token table's width (its own unless given), the
    length of the sequence for what depends on it, the key-value heads of an attention for what is inside it, and the streams
    beside the first that a stack hands on."""

    source: int | None = None
    table: int | None = None
    t: int = 1
    k: int = 1
    j: int = 1


ALONE = Given()


@singledispatch
def build(component: Any, d: int = 0, given: Given = ALONE) -> Any:
    """The twin of *component*, weights drawn at random."""
    raise NotImplementedError(f"{type(component).__name__} has no twin")


def maybe(component: Any, d: int, given: Given = ALONE) -> Any:
    """The twin of what may be absent."""
    return None if component is None else build(component, d, given)


def linear(width: int, made: int | None, *, bias: bool = False) -> Any:
    """A linear layer, unless it is absent."""
    return None if made is None else nn.Linear(width, made, bias=bias)


def table(rows: int, width: int) -> nn.Parameter:
    """A look-up table of random vectors."""
    return nn.Parameter(torch.randn(rows, width) * 0.02)
