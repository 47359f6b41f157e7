"""Experiments on attention scores and on positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ...blocks.attention import Attention
from ...blocks.norm import RMSNorm
from ...blocks.position import ALiBi, LearnedPositions, RelativeBias, Rotary, Sinusoidal
from .. import measure, position
from ..build import build
from ..context import Run
from ..position import sinusoids


def scores(module: Any, x: Tensor) -> Tensor:
    """The scores (n t t) of one sequence x (1 t d), before mask and softmax, by the twin's own projections."""
    run = Run()
    q, k, _ = module.projections(x)  # 1 t n h
    q, k = module.normed(q, k)
    if isinstance(module.position, position.Rotary):
        q, k = module.position(q, run), module.position(k, run)
    found = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1))[0] * module.h**-0.5  # n t t
    bias = module.bias(q, k, run)
    return found if bias is None else found + bias


def skew(x: Tensor) -> float:
    """The largest difference of x (… t t) and its transpose."""
    return float((x - x.mT).abs().max().detach())


def drift(x: Tensor) -> float:
    """The largest difference along a diagonal of x (… t t): 0 if it depends on the distance alone."""
    return float((x[..., 1:, 1:] - x[..., :-1, :-1]).abs().max().detach())


def twin(d: int = 12, n: int = 2, h: int = 6, **more: Any) -> Any:
    """The twin of a multi-head attention."""
    return build(Attention(n=n, k=n, h=h, **more), d)


def qkv_identity() -> tuple[float, ...]:
    """Outputs of attention without projections, as mixtures of fewer visible tokens than entries."""
    d, t = 16, 5
    module = twin(d, 1, d, projected=False)
    nn.init.eye_(module.o.weight)
    x = torch.randn(1, t, d)
    out, far, least = module(x, Run())[0], 0.0, 1.0
    for i in range(t):
        apart, weights = from_hull(x[0, : i + 1], out[i])
        far, least = max(far, apart), min(least, float(weights.min()))
    return far, least, from_hull(x[0], torch.randn(d))[0]


def from_hull(points: Tensor, x: Tensor) -> tuple[float, Tensor]:
    """The distance of x (d) from the affine hull of points (t d), and the weights of the nearest mixture."""
    system = torch.cat((points.T, torch.ones(1, len(points))))  # d+1 t: the weights add up to one
    target = torch.cat((x, torch.ones(1)))
    weights = torch.linalg.lstsq(system, target[:, None]).solution[:, 0]
    return float((system @ weights - target).norm().detach()), weights.detach()


def value_span() -> tuple[float, ...]:
    """How far a head's output is from the tokens' hull, with W_V the identity and with another."""
    d, t = 16, 5
    x = torch.randn(1, t, d)
    plain, valued = twin(d, 1, d), twin(d, 1, d)
    nn.init.eye_(plain.v.weight)
    for module in (plain, valued):
        nn.init.eye_(module.o.weight)
    return tuple(max(from_hull(x[0], row)[0] for row in module(x, Run())[0]) for module in (plain, valued))


def symmetric_score() -> tuple[float, ...]:
    """How far scores are from symmetric, tied and apart, and the weights that a softmax makes of the tied ones."""
    x = torch.randn(1, 9, 12)
    tied, apart = scores(twin(qk_tied=True), x), scores(twin(), x)
    return skew(tied), skew(apart), skew(tied.softmax(-1))


def freedom() -> tuple[float, ...]:
    """Ranks of the Jacobians of W_Q W_Kᵀ and W Wᵀ at a random point: a narrow head, then one as wide as the model."""
    return tuple(rank for d, h in ((7, 3), (5, 5)) for rank in (reach(d, h, tied=False), reach(d, h, tied=True)))


def reach(d: int, h: int, *, tied: bool) -> int:
    """The rank of the map from the weights (d h each) to the form (d d)."""
    if tied:
        return jacobian_rank(lambda w: w @ w.T, torch.randn(d, h))
    return jacobian_rank(lambda w: w[0] @ w[1].T, torch.randn(2, d, h))


def jacobian_rank(function: Callable[[Tensor], Tensor], at: Tensor) -> int:
    """The rank of a function's Jacobian."""
    found = torch.autograd.functional.jacobian(function, at)
    return int(torch.linalg.matrix_rank(found.reshape(-1, at.numel())))


def definite() -> tuple[float, ...]:
    """The least eigenvalue of W Wᵀ, and how far a random symmetric form is from the nearest that has none below 0."""
    w, a = torch.randn(8, 8), torch.randn(8, 8)
    negative = torch.linalg.eigvalsh(a + a.T).clamp(max=0)
    return float(torch.linalg.eigvalsh(w @ w.T).min()), float(negative.norm())


def products() -> tuple[float, ...]:
    """Swapping two vectors in their product, and in their difference."""
    a, b = torch.randn(2, 12)
    return float((a * b - b * a).abs().max()), float(((a - b) - (b - a)).abs().max())


def position_symmetry() -> tuple[float, ...]:
    """How far tied scores are from symmetric under each way of telling positions apart."""
    t, d, n, h = 9, 12, 2, 6
    x, tied, run = torch.randn(1, t, d), dict(qk_tied=True), Run()
    plain = twin(**tied)
    learned, fixed = build(LearnedPositions(m=t), d)(t, run), build(Sinusoidal(), d)(t, x, run)
    slopes = torch.tensor(build(ALiBi(n=n), d).slopes)[:, None, None]
    distance = (torch.arange(t)[:, None] - torch.arange(t)).abs()
    vectors = torch.randn(2 * t - 1, h)[torch.arange(t)[:, None] - torch.arange(t) + t - 1]  # t t h
    q = plain.projections(x)[0].transpose(1, 2)[0]  # n t h
    return (
        skew(scores(plain, x + learned)), skew(scores(plain, x + fixed)), skew(scores(twin(position=Rotary(r=h), **tied), x)),
        skew(scores(plain, x) - slopes * distance),
        skew(scores(twin(position=RelativeBias(m=32, n=n), causal=False, **tied), x)),
        skew(scores(plain, x) + torch.einsum("nth,tsh->nts", q, vectors)),
    )  # fmt: skip


def pair_score() -> tuple[float, ...]:
    """The score of one ordered pair of tokens in two sentences of the same three, and of both orders of a pair."""
    a, b, c = torch.randn(3, 12)
    first, second = torch.stack((a, b, c))[None], torch.stack((c, b, a))[None]
    plain, turned = twin(), twin(position=Rotary(r=6))
    one, two = (scores(module, first)[:, 0, 1] - scores(module, second)[:, 2, 1] for module in (plain, turned))
    directions = scores(plain, first)[:, 0, 1] - scores(plain, first)[:, 1, 0]
    return tuple(float(found.abs().max().detach()) for found in (one, directions, two))


def normed_asymmetry() -> tuple[float, ...]:
    """How far normed scores are from symmetric, with separate and with tied projections."""
    x, norm = torch.randn(1, 9, 12), RMSNorm(gain=False)
    return skew(scores(twin(qk_norm=norm), x)), skew(scores(twin(qk_norm=norm, qk_tied=True), x))


def causal_pairs() -> tuple[float, ...]:
    """Pairs that torch counts in both products of a causal attention of 7 tokens."""
    b, t, d = 3, 7, 12
    module, x = twin(d), torch.randn(b, t, d)
    work = measure.flops(lambda run: module(x, run), training=False).forward // 2
    return ((work - 4 * b * t * d * d) // (2 * b * d),)


def positions() -> tuple[float, ...]:
    """How far scores of equal tokens are from depending on the distance alone."""
    t, n, h = 9, 2, 6
    x = torch.randn(12).expand(1, t, 12)
    turned, biased = twin(position=Rotary(r=h)), twin(position=RelativeBias(m=32, n=n))
    slopes, plain = build(ALiBi(n=n), 12), twin()
    row = torch.tensor(slopes.slopes)[:, None, None] * torch.arange(t)[:, None]  # n t 1, which a softmax does not see
    sloped = scores(plain, x) + slopes(t, x, Run()) - row
    table = build(LearnedPositions(m=t), 12)(t, Run()) * 50
    return drift(scores(turned, x)), drift(scores(biased, x)), drift(sloped), drift(scores(plain, x + table))


def beyond_table() -> tuple[float, ...]:
    """Whether position 9 of 8 is refused: by a table, by sinusoids."""

    def refused(module: Any, *inputs: Any) -> float:
        try:
            module(*inputs)
        except IndexError:
            return 1
        return 0

    learned, fixed, x = build(LearnedPositions(m=8), 12), build(Sinusoidal(), 12), torch.randn(1, 9, 12)
    return refused(learned, 9, Run()), refused(fixed, 9, x, Run())


def rotation() -> tuple[float, ...]:
    """The two lines against the twin; pairs half apart against neighbours, with permuted entries and without."""
    t, h = 9, 6
    x, y, run = torch.randn(1, t, 1, h), torch.randn(1, t, 1, h), Run()
    module = build(Rotary(r=h), h)
    cos, sin = (torch.cat((table, table), dim=-1)[:, None] for table in module.tables(t, x, run))  # t 1 h

    def half(z: Tensor) -> Tensor:
        return torch.cat((-z[..., h // 2 :], z[..., : h // 2]), dim=-1)

    def neighbours(z: Tensor) -> Tensor:
        turned = torch.view_as_complex(z.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(cos, sin)[..., : h // 2]
        return torch.view_as_real(turned).flatten(-2)

    order = torch.arange(h).unflatten(0, (2, -1)).T.flatten()  # 0 h/2 1 h/2+1 …
    apart = module(x, run)[0, :, 0] @ module(y, run)[0, :, 0].T  # t t
    same, other = (neighbours(a)[0, :, 0] @ neighbours(b)[0, :, 0].T for a, b in ((x[..., order], y[..., order]), (x, y)))
    lines = (x * cos + half(x) * sin - module(x, run)).abs().max()
    return tuple(float(found) for found in (lines, (same - apart).abs().max(), (other - apart).abs().max()))


def sines() -> tuple[float, ...]:
    """The largest entry, the squared norm, and how far products depend on more than the distance, plain and projected."""
    d, t = 64, 50
    table = sinusoids(0, t, d)
    a, b = torch.randn(2, d, d) / d**0.5
    norms = table.square().sum(-1)
    drifts = drift(table @ table.T), drift((table @ a) @ (table @ b).T)
    return float(table.abs().max()), float(norms.min()), float(norms.max()), *drifts


def uniform_channels() -> tuple[float, ...]:
    """How far the weights of an output's channels differ, with one head and with four."""
    t, d, found = 7, 12, []
    for n in (1, 4):
        weights = scores(twin(d, n, d // n), torch.randn(1, t, d)).softmax(-1)  # n t t
        found.append(float((weights.max(0).values - weights.min(0).values).max().detach()))
    return tuple(found)


EXPERIMENTS: Mapping[str, Callable[[], tuple[float, ...]]] = MappingProxyType({
    "qkv-identity": qkv_identity, "value-span": value_span, "symmetric-score": symmetric_score, "asymmetric-dof": freedom,
    "symmetric-psd": definite, "hadamard": products, "position-symmetry": position_symmetry, "pair-score": pair_score,
    "qk-norm-asymmetry": normed_asymmetry, "causal-half": causal_pairs, "positions": positions,
    "learned-extrapolation": beyond_table, "rope-two-lines": rotation, "sin-bounded": sines,
    "uniform-channels": uniform_channels,
})  # fmt: skip
