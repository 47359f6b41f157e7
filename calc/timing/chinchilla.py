"""Compute-optimal training: how a budget of FLOPs divides into parameters N and tokens D, with C = 6·N·D."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, sqrt
from types import MappingProxyType
from typing import NamedTuple

from ..errors import InputError


class Law(NamedTuple):
    """Loss L(N, D) = E + A/N^alpha + B/D^beta, fitted to training runs."""

    name: str
    E: float
    A: float
    B: float
    alpha: float
    beta: float
    source: str

    def loss(self, n: float, d: float) -> float:
        """Nats a token of n parameters trained on d tokens."""
        return float(self.E + self.A / n**self.alpha + self.B / d**self.beta)


LAWS: Mapping[str, Law] = MappingProxyType({law.name: law for law in (
    Law("hoffmann", exp(0.5267228), exp(6.0073404), exp(6.0179186), 0.33917084, 0.2849083,
        "Hoffmann et al. 2022, arXiv:2203.15556, the unrounded fit in its TeX source, as Besiroglu et al. 2024 quote it"),
    Law("hoffmann-rounded", 1.69, 406.4, 410.7, 0.34, 0.28,
        "Hoffmann et al. 2022, arXiv:2203.15556, equation 10; rounding alone moves its optimum"),
    Law("besiroglu", 1.8172, 482.01, 2085.43, 0.3478, 0.3658,
        "Besiroglu et al. 2024, arXiv:2404.10102: the same runs, fitted until it converged"),
)})  # fmt: skip
"""The three published parameter sets. The corrected one agrees with the paper's other two approaches, and with 20 tokens a
parameter; the first two do not."""


class Optimum(NamedTuple):
    """Parameters and tokens, the loss if a law gives one, and where it comes from."""

    n: float
    d: float
    loss: float | None
    source: str

    @property
    def tokens_per_parameter(self) -> float:
        """D/N."""
        return self.d / self.n


def twenty(flops: float, ratio: float = 20.0) -> Optimum:
    """The rule of thumb: *ratio* tokens a parameter, so that N = √(C/6/ratio)."""
    _check(flops, ratio)
    n = sqrt(flops / 6 / ratio)
    return Optimum(n, ratio * n, None, f"{ratio:g} tokens a parameter: Hoffmann et al. 2022, arXiv:2203.15556, table A3")


def optimal(flops: float, law: str = "besiroglu") -> Optimum:
    """The least loss for a budget: N = G·(C/6)^(β/(α+β)), D = (C/6)/N, G = (αA/βB)^(1/(α+β)); their equation 4."""
    _check(flops, 1.0)
    if law not in LAWS:
        raise InputError(f"law {law!r} is not one of {', '.join(LAWS)}")
    fit = LAWS[law]
    total = fit.alpha + fit.beta
    n = (fit.alpha * fit.A / (fit.beta * fit.B)) ** (1 / total) * (flops / 6) ** (fit.beta / total)
    d = flops / 6 / n
    return Optimum(n, d, fit.loss(n, d), fit.source)


def _check(flops: float, ratio: float) -> None:
    if not (0 < flops < 1e60 and 0 < ratio < 1e30):
        raise InputError(f"a budget of {flops!r} FLOPs at {ratio!r} tokens a parameter: both are above 0")


class Compute(NamedTuple):
    """FLOPs of training on so many tokens: 6·N·D, and what the traced step counts."""

    six_nd: int
    exact: int

    @property
    def ratio(self) -> float:
        """Exact over 6·N·D."""
        return self.exact / self.six_nd


def compute(n: int, tokens: int, flops_per_step: int, tokens_per_step: int) -> Compute:
    """6·N·D beside the count of a step (``flops(budget, convention).total``), as often as the tokens need it."""
    return Compute(6 * n * tokens, flops_per_step * tokens // tokens_per_step)
