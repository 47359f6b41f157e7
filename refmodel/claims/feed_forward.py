"""Experiments on the feed-forward network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

from ...blocks.attention import Attention
from ...blocks.mixer import SqueezeExcitation, TokenMixing
from ...blocks.mlp import MLP, GatedMLP, gelu, relu, sigmoid, silu
from .. import measure
from ..build import build
from ..context import Run
from ..dispatch import Given
from .attention import apart


def collapse() -> tuple[float, ...]:
    """The rank of W_up W_down, how far the network is from additive without an activation, and with one."""
    module, x, y = build(MLP(f=24, act=relu), 6), torch.randn(9, 6), torch.randn(9, 6)
    errors = []
    for act in (lambda z: z, torch.relu):
        module.act = act
        errors.append(apart(module(x + y), module(x) + module(y)))
    return float(torch.linalg.matrix_rank(module.down.weight @ module.up.weight)), *errors


def kept() -> tuple[float, ...]:
    """Elements a token that autograd keeps besides the input, d = 24: ReLU and GELU at 4d, SwiGLU at 8d/3."""
    b, t, d = 2, 5, 24
    found = []
    for component in (MLP(f=4 * d, act=relu), MLP(f=4 * d, act=gelu), GatedMLP(f=8 * d // 3, act=silu)):
        module, x = build(component, d), torch.randn(b, t, d, requires_grad=True)
        saved = measure.saved(lambda run, module=module, x=x: module(x, run), module.parameters())  # type: ignore[misc]
        found.append((saved.bytes - x.untyped_storage().nbytes()) / x.element_size() / (b * t))
    return tuple(found)


def swish() -> tuple[float, ...]:
    """The least value of SiLU on a fine grid, and its slope at 0."""
    zero = torch.zeros((), requires_grad=True)
    F.silu(zero).backward()
    assert zero.grad is not None
    return float(F.silu(torch.linspace(-2, 0, 200001)).min()), float(zero.grad)


def one_function() -> tuple[float, ...]:
    """SiLU against x·σ(x)."""
    x = torch.linspace(-20, 20, 4001)
    return (apart(F.silu(x), x * torch.sigmoid(x)),)


def gates() -> tuple[float, ...]:
    """The least and the greatest gate by a sigmoid, the least by SiLU, and SiLU's share of a large x."""
    x = torch.linspace(-8, 8, 4001)
    return float(torch.sigmoid(x).min()), float(torch.sigmoid(x).max()), float(F.silu(x).min()), float(F.silu(x[-1]) / x[-1])


def other_gate() -> tuple[float, ...]:
    """How far GLU and SwiGLU of the same weights differ."""
    one, two = (build(GatedMLP(f=16, act=act), 6) for act in (silu, sigmoid))
    two.load_state_dict(one.state_dict())
    x = torch.randn(9, 6)
    return (apart(one(x), two(x)),)


def moved(module: Any, d: int, t: int = 7) -> float:
    """How much the other positions' outputs change with the last one's input."""
    x, y = torch.randn(1, t, d), torch.randn(1, t, d)
    y[:, :-1] = x[:, :-1]
    return apart(module(x, Run())[:, :-1], module(y, Run())[:, :-1])


def channel_gates() -> tuple[float, ...]:
    """The same of a gated feed-forward, and of squeeze and excitation."""
    return moved(build(GatedMLP(f=16, act=silu), 6), 6), moved(build(SqueezeExcitation(f=5), 6), 6)


def each_position() -> tuple[float, ...]:
    """The same of a plain feed-forward, and of attention in both directions."""
    return moved(build(MLP(f=24, act=relu), 6), 6), moved(build(Attention(n=2, k=2, h=3, causal=False), 6), 6)


def other_length() -> tuple[float, ...]:
    """Whether a module made for 7 positions refuses 8: token mixing, attention."""

    def refused(module: Any) -> float:
        try:
            module(torch.randn(1, 8, 6), Run())
        except RuntimeError:
            return 1
        return 0

    return refused(build(TokenMixing(f=5), 6, Given(t=7))), refused(build(Attention(n=2, k=2, h=3), 6, Given(t=7)))


EXPERIMENTS: Mapping[str, Callable[[], tuple[float, ...]]] = MappingProxyType({
    "ffn-collapse": collapse, "swiglu-activation": kept, "silu-min": swish, "activations": one_function,
    "sigmoid-gate": gates, "glu-not-swiglu": other_gate, "se-net": channel_gates, "per-position": each_position,
    "mixer": other_length,
})  # fmt: skip
