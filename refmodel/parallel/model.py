"""Embedding, stack, head and loss on several ranks: the vocabulary (v) is split. Shoeybi et al. 2019, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from .. import fused, model
from ..context import Run
from ..position import Sinusoidal
from .linear import maps
from .ranks import Group, Ranks
from .regions import leave, total


def own(ids: Tensor, rows: int, group: Group) -> tuple[Tensor, Tensor]:
    """Which of the rank's *rows* each id is, and whether it is one of them."""
    local = ids - group.rank * rows
    inside = (local >= 0) & (local < rows)
    return local.clamp(0, rows - 1), inside


class Lookup(Function):
    """The rows (b t i) of those ids (b t) that the rank's part of a table has, zeros for the others. Keeps the ids."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, group: Group) -> Tensor:
        ctx.group, ctx.shape = group, table.shape
        ctx.save_for_backward(ids)
        local, inside = own(ids, len(table), group)
        return table[local] * inside[..., None]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        local, inside = own(ctx.saved_tensors[0], ctx.shape[0], ctx.group)
        rows = (grad * inside[..., None]).flatten(0, -2)
        return None, grad.new_zeros(ctx.shape).index_add(0, local.flatten(), rows), None


class Embedding(model.Embedding):
    """Vectors of tokens of which each rank looks up those that it has."""

    ranks: Ranks

    def forward(self, ids: Tensor, run: Run) -> Tensor:
        """The vectors (b t d) of the tokens ids (b t), of the rank's part of the sequence."""
        run.tokens, tp, t = ids, self.ranks.tp, ids.size(1)
        x = self.look_up(ids)  # b t i
        if self.project is not None and not self.project_last:
            x = self.project(x)  # b t d
        if isinstance(self.position, Sinusoidal):
            x = x + self.position(t, x, run)
        elif self.position is not None:
            x = x + self.position(t, run)
        if self.types is not None:
            x = x + F.embedding(tp.rows(torch.zeros_like(ids), 1), self.types)
        if self.norm is not None:
            x = self.norm(x)
        return self.project(x) if self.project is not None and self.project_last else x

    def look_up(self, ids: Tensor) -> Tensor:
        """The rows (b t i) of the whole table, of the rank's part of the sequence."""
        return leave(Lookup.apply(ids, self.token, self.ranks.tp), self.ranks.tp)

    def owned(self) -> Iterator[nn.Parameter]:
        """Rows of the token table."""
        yield self.token


class Stack(model.Stack):
    """Layers one after the other. A position bias is of whole sequences, and so is made before them."""

    ranks: Ranks

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both."""
        t = x.size(1) * (self.ranks.tp.size if self.ranks.tp.sequence else 1)
        for bias in self.biases:
            bias(t, t, run)
        return super().forward(x, run)


class LMHead(model.LMHead):
    """Logits over the rank's v/tp outputs."""

    ranks: Ranks

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d), the rank's positions, to (b t v/tp), all of them."""
        (logits,) = maps(x, self.ranks.tp, table if self.matrix is None else self.matrix, self.bias)
        logits = logits.float() if self.wide else logits
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def owned(self) -> Iterator[nn.Parameter]:
        """The matrix and the bias, where it has them."""
        return self.parameters()


class CrossEntropy(Function):
    """The mean of −log softmax at the targets, of which each rank has v/tp outputs. Shoeybi et al. 2019, section 3.

    Three sums over ranks, of a number a row: its maximum, its target's logit, its exponentials. Keeps the log-probabilities,
    the targets and the weight of a row; fused, the gradient, written over the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, group: Group, fused: bool) -> Tensor:
        """logits (rows v/tp), targets (rows)."""
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        highest = wide.amax(-1)  # rows
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=group.process)
        shifted = wide - highest[:, None]
        local, inside = own(targets, logits.size(-1), group)
        hit = total(shifted.gather(1, local[:, None])[:, 0] * inside, group)  # rows
        norm = total(shifted.exp().sum(-1), group).log()  # rows
        ctx.group, weight = group, logits.new_tensor(1 / len(targets))
        logs, loss = (shifted - norm[:, None]).to(logits.dtype), (norm - hit).mean().to(logits.dtype)
        if fused:
            ctx.save_for_backward(logits.detach().copy_(CrossEntropy.gradient(logs, targets, group) * weight))
        else:
            ctx.save_for_backward(logs, targets, weight)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        first, *rest = ctx.saved_tensors
        if rest:
            targets, weight = rest
            return CrossEntropy.gradient(first, targets, ctx.group) * (grad * weight), None, None, None
        return first * grad, None, None, None

    @staticmethod
    def gradient(logs: Tensor, targets: Tensor, group: Group) -> Tensor:
        """That of the sum of the rows' losses, from log-probabilities (rows v/tp)."""
        local, inside = own(targets, logs.size(-1), group)
        return logs.exp().scatter_add(1, local[:, None], -inside[:, None].to(logs.dtype))


def cross_entropy(logits: Tensor, targets: Tensor, group: Group, run: Run | None = None) -> Tensor:
    """The loss of logits (rows v/tp) at whole targets (rows), equal on every rank, by the kernel of the run."""
    written_out = run is None or run.loss == "plain"
    if group.size > 1:
        return CrossEntropy.apply(logits, targets, group, not written_out)
    return F.cross_entropy(logits, targets) if written_out else fused.CrossEntropy.apply(logits, targets)
