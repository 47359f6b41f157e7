"""Fused kernels by what they keep: the gate of a feed-forward, cross entropy, RMSNorm. On the CPU nothing is faster for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from .norm import OffsetRMSNorm, RMSNorm


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
