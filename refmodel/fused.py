"""Fused kernels by what they keep: attention, the gate of a feed-forward, cross entropy, RMSNorm. On the CPU nothing is faster
for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from .norm import OffsetRMSNorm, RMSNorm

# -- attention ------------------------------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """What becomes of q kᵀ: scaled, capped, hidden (t s) where True, and so much of the softmax dropped."""

    scale: float
    cap: float | None = None
    hidden: Callable[[], Tensor] | None = None
    drop: float = 0.0

    def of(self, q: Tensor, k: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """The scores (b k g t s) of q (b k g t h) and k (b k 1 s h), and their slope over q kᵀ. A bias is of each pair (n t s),
        or of each head (n) a slope over the keys."""
        scores = q @ k.mT * self.scale
        slope = scores.new_tensor(self.scale)
        if self.cap is not None:
            bent = torch.tanh(scores / self.cap)
            scores, slope = bent * self.cap, self.scale * (1 - bent.square())
        if bias is not None:
            added = bias[:, None, None] * torch.arange(k.size(-2), device=k.device) if bias.dim() == 1 else bias  # n 1 s, n t s
            scores = scores + added.unflatten(0, q.shape[1:3])
        return scores if self.hidden is None else scores.masked_fill(self.hidden().to(q.device), -torch.inf), slope

    def kept(self, weights: Tensor, seed: Tensor | None) -> Tensor:
        """The softmax's share that the seed leaves, scaled up: the same whenever it is asked for."""
        if seed is None:
            return torch.ones((), dtype=weights.dtype, device=weights.device)
        left = torch.rand(weights.shape, generator=torch.Generator().manual_seed(int(seed[0]))) >= self.drop
        return left.to(weights.dtype) / (1 - self.drop)


def grouped(q: Tensor, k: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """q (b n t h), and what is like it, as (b k g t h); k (b k s h) and others as (b k 1 s h); in fp32 or wider."""
    wide, heads = torch.promote_types(q.dtype, torch.float32), (k.size(1), -1)
    return q.to(wide).unflatten(1, heads), *(x.to(wide)[:, :, None] for x in (k, *values))


def forth(
    scores: Scores, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, sinks: Tensor | None = None,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The output (b n t u) and each row's log-sum-exp (b n t), of q (b n t h), k (b k s h), v (b k s u): two products.

    *sinks* (n) are scores of no key. Milakov and Gimelshein 2018, arXiv:1805.02867, and Dao et al. 2022, algorithm 1.
    """
    queries, keys, values = grouped(q, k, v)
    found, _ = scores.of(queries, keys, bias)  # b k g t s
    rows = found.logsumexp(-1)  # b k g t
    if sinks is not None:
        rows = torch.logaddexp(rows, sinks.unflatten(0, rows.shape[1:3])[..., None])
    weights = (found - rows[..., None]).exp()
    out = (weights * scores.kept(weights, seed)) @ values  # b k g t u
    return out.flatten(1, 2).to(q.dtype), rows.flatten(1, 2)


def back(
    scores: Scores, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, rows: Tensor, bias: Tensor | None = None,
    sinks: Tensor | None = None, seed: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of q, k, v, the bias and the sinks: five products, the scores again among them. Dao 2023,
    arXiv:2307.08691, algorithm 2."""
    queries, keys, values = grouped(q, k, v)
    grads, outs = (grouped(x, k)[0] for x in (grad, out))  # b k g t u
    sums = rows.unflatten(1, queries.shape[1:3])[..., None]  # b k g t 1
    found, slope = scores.of(queries, keys, bias)
    weights = (found - sums).exp()  # b k g t s
    kept, through = scores.kept(weights, seed), (grads * outs).sum(-1, keepdim=True)  # b k g t s, b k g t 1
    dv = ((weights * kept).mT @ grads).sum(2)  # b k s u
    dscores = weights * (grads @ values.mT * kept - through)
    dbias = dscores.sum(0).flatten(0, 1).to(bias.dtype) if bias is not None and bias.dim() == 3 else None  # n t s
    dsinks = None
    if sinks is not None:
        none = (sinks.unflatten(0, sums.shape[1:3])[..., None, None] - sums).exp()  # b k g t 1
        dsinks = -(none * through).sum((0, 3)).flatten().to(sinks.dtype)  # n
    dscores = dscores * slope
    dq, dk = (dscores @ keys).flatten(1, 2), (dscores.mT @ queries).sum(2)  # b n t h, b k s h
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dbias, dsinks


class Attention(Function):
    """Attention of q (b t n h), k (b s k h), v (b s k u), as *scores* says: keeps these, the output, one number a row and head,
    a bias, and with dropout a seed of two numbers."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sinks: Tensor | None
    ) -> Tensor:
        """The output (b t n u)."""
        seed = torch.randint(2**62, (2,)) if scores.drop else None
        out, rows = forth(scores, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias, sinks, seed)
        out = out.transpose(1, 2).contiguous()
        ctx.scores = scores
        ctx.save_for_backward(q, k, v, out, rows, bias, sinks, seed)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *saved, rows, bias, sinks, seed = ctx.saved_tensors
        q, k, v, out = (x.transpose(1, 2) for x in saved)
        *parts, dbias, dsinks = back(ctx.scores, grad.transpose(1, 2), q, k, v, out, rows, bias, sinks, seed)
        return None, *(part.transpose(1, 2) for part in parts), dbias, dsinks


# -- the others -----------------------------------------------------------------------------------------------------------


class Gate(Function):
    """A product of gate and up, of any shape: keeps both, and runs *product* again backward.

    As Transformer Engine's SwiGLU and Liger Kernel's; Hsu et al. 2024, arXiv:2410.10989, section 3.2.
    """

    @staticmethod
    def forward(ctx: Any, product: Callable[[Tensor, Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
        ctx.product = product
        ctx.save_for_backward(gate, up)
        return product(gate, up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            kept = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            found = torch.autograd.grad(ctx.product(*kept), kept, grad)
        return None, *found


class CrossEntropy(Function):
    """The mean of −log softmax of logits (rows v) at the targets (rows): writes its gradient over the logits, and keeps that.

    As Liger Kernel's and Transformer Engine's; Hsu et al. 2024, section 3.2.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        wide = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        loss = F.nll_loss(wide, targets)
        hits = torch.zeros_like(wide).scatter_(1, targets[:, None], 1.0)
        logits.copy_((wide.exp() - hits) / len(targets))
        ctx.save_for_backward(logits.detach())
        return loss.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None


class Norm(Function):
    """x/rms · gain over the last axis of x (… d), in fp32: keeps x and 1/rms of each row, as torch's kernel for CUDA."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None) -> Tensor:
        wide = x.float()
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)  # … 1
        ctx.save_for_backward(x, inverse, gain)
        normed = wide * inverse
        return (normed if gain is None else normed * gain).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        x, inverse, gain = ctx.saved_tensors
        normed, wide = x.float() * inverse, grad.float()
        scaled = wide if gain is None else wide * gain
        dx = inverse * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))
        return dx.to(x.dtype), None if gain is None else (wide * normed).flatten(0, -2).sum(0).to(gain.dtype)


class FusedRMSNorm(RMSNorm):
    """RMSNorm in one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        out: Tensor = Norm.apply(x, self.gain)
        return out


class FusedOffsetRMSNorm(OffsetRMSNorm):
    """The same, of a gain 1 + w."""

    def forward(self, x: Tensor) -> Tensor:
        """x (… d) to (… d)."""
        out: Tensor = Norm.apply(x, None if self.w is None else 1.0 + self.w)
        return out


FUSED: dict[type, type] = {RMSNorm: FusedRMSNorm, OffsetRMSNorm: FusedOffsetRMSNorm}


def fuse_norms(module: nn.Module) -> nn.Module:
    """The module, each RMSNorm in it fused from now on."""
    for part in module.modules():
        part.__class__ = FUSED.get(type(part), type(part))
    return module
