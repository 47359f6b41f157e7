"""Attention whose heads (n, k) are split: Shoeybi et al. 2019, arXiv:1909.08053, figure 3b; over the sequence, a ring."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from .. import attention, linear_attention
from ..attention import attend
from ..context import Run
from ..norm import LayerNormOfEachHead
from ..position import RelativeBias, Rotary
from .linear import ColumnParallel, RowParallel, columns
from .ranks import Group, Ranks
from .ring import Kernel, ring
from .ulysses import ulysses


def maybe(local: nn.Linear | None) -> ColumnParallel | None:
    """The columns of what may be absent."""
    return None if local is None else ColumnParallel(local)


def same_head(ranks: Group, *matrices: nn.Module | None) -> dict[nn.Parameter, Group]:
    """The weights of a key-value head that several ranks have, and those ranks."""
    return {weight: ranks for one in matrices if one is not None and ranks.size > 1 for weight in one.parameters()}


class Attention(attention.Attention):
    """softmax(QKᵀ/√h + bias)V W_O of the rank's n/tp query heads, summed over the ranks.

    Of fewer key-value heads than ranks each rank has one, the ranks of *same* have the same.
    """

    def __init__(self, local: attention.Attention, ranks: Ranks, same: Group) -> None:
        matrices = *map(maybe, (local.q, local.k, local.v)), RowParallel(local.o, ranks.tp)  # d n/tp·h, d k/tp·h, …, n/tp·h d
        super().__init__(
            local.h, *matrices, gate=maybe(local.gate), w=local.w, chunk=local.chunk, causal=local.causal,  # type: ignore[arg-type]
            position=local.position, q_norm=local.q_norm, k_norm=local.k_norm, norm_last=local.norm_last, clip=local.clip,
            cap=local.cap,
        )  # fmt: skip
        self.sinks = local.sinks
        self.ranks, self.same = ranks, same

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both."""
        made = iter(columns(x, self.ranks.tp, self.q, self.k, self.v, self.gate))  # type: ignore[arg-type]
        q = next(made).unflatten(-1, (-1, self.h))  # b t n/tp h
        k = q if self.k is None else next(made).unflatten(-1, (-1, self.h))  # b t k/tp h
        v = k if self.v is None else next(made).unflatten(-1, (-1, self.h))  # b t k/tp h
        if not self.norm_last:
            q, k = self.normed(q, k)
        if self.clip is not None:
            q, k, v = (part.clamp(-self.clip, self.clip) for part in (q, k, v))
        if isinstance(self.position, Rotary):
            q, k = self.position(q, run), self.position(k, run)
        if self.norm_last:
            q, k = self.normed(q, k)
        out = self.mixed(q, k, v, run).flatten(2)  # b t n/tp·h
        return self.o(out if self.gate is None else out * torch.sigmoid(next(made)))

    def mixed(self, q: Tensor, k: Tensor, v: Tensor, run: Run) -> Tensor:
        """What the rank's heads mix (b t n/tp h), of the positions at hand or of those that go round the ring."""
        if self.ranks.cp.size > 1:
            across = ulysses if self.ranks.cp.ulysses else ring
            kernel = Kernel.of(run, self.h, self.cap)
            return run.again("selective", partial(across, kernel=kernel, group=self.ranks.cp, causal=self.causal), q, k, v)
        if self.causal:
            k, v = self.seen(k, v, run)  # b s k/tp h
        return attend(
            q, k, v, run, causal=self.causal, window=self.w, chunk=self.chunk, bias=self.bias(q, k, run), cap=self.cap,
            sinks=self.sinks,
        )  # fmt: skip

    def owned(self) -> Iterator[nn.Parameter]:
        """The rank's part of what is one number, or one vector, a head."""
        for part in (self.q_norm, self.k_norm):
            if isinstance(part, LayerNormOfEachHead):
                yield from part.parameters()
        if isinstance(self.position, RelativeBias):
            yield self.position.table
        if self.sinks is not None:
            yield self.sinks

    def partial(self) -> Iterator[nn.Parameter]:
        """What each rank has whole, but uses on its own heads alone: norms that all heads share."""
        for part in (self.q_norm, self.k_norm):
            if part is not None and not isinstance(part, LayerNormOfEachHead):
                yield from part.parameters()

    def doubled(self) -> dict[nn.Parameter, Group]:
        """What several ranks have the same part of, and which: the key-value head of too few."""
        return same_head(self.same, self.k, self.v)


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder's output, of the rank's heads."""

    reads = ("memory",)

    def __init__(self, local: attention.CrossAttention, ranks: Ranks, same: Group) -> None:
        super().__init__()
        self.ranks, self.same, self.h = ranks, same, local.h
        self.q, self.k, self.v = ColumnParallel(local.q), ColumnParallel(local.k), ColumnParallel(local.v)
        self.o = RowParallel(local.o, ranks.tp)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), attending to the run's memory (b m d), the rank's positions of all three."""
        assert run.memory is not None
        made = (*columns(x, self.ranks.tp, self.q), *columns(run.memory, self.ranks.tp, self.k, self.v))
        q, k, v = (part.unflatten(-1, (-1, self.h)) for part in made)  # b t n/tp h, b m k/tp h, b m k/tp h
        return self.o(attend(q, k, v, run, causal=False).flatten(2))

    def doubled(self) -> dict[nn.Parameter, Group]:
        """What several ranks have the same part of, and which: the key-value head of too few."""
        return same_head(self.same, self.k, self.v)


class LinearAttention(nn.Module):
    """Attention without a softmax over pairs, of the rank's heads."""

    def __init__(self, local: linear_attention.LinearAttention, ranks: Ranks) -> None:
        super().__init__()
        self.n, self.features, self.ranks = local.n, local.features, ranks
        self.q, self.k, self.v = ColumnParallel(local.q), ColumnParallel(local.k), ColumnParallel(local.v)
        self.o = RowParallel(local.o, ranks.tp)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both."""
        made = columns(x, self.ranks.tp, self.q, self.k, self.v)
        q, k, v = (part.unflatten(-1, (self.n, -1)).transpose(1, 2) for part in made)  # b n/tp t h
        q, k = self.features(q, run), self.features(k, run)  # b n/tp t m
        out = (q @ (k.transpose(2, 3) @ v)) / (q @ k.sum(2)[..., None])  # b n/tp t h
        return self.o(out.transpose(1, 2).flatten(2))  # b t d
