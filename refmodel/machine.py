"""What this machine does a second, measured on operations that stand alone: matrix products by rows and width, the products
of attention by queries, and every other kind of line by the bytes it moves. No block is run here, and nothing is fitted.

On a CPU a second is one of the process's own time on one thread, which other processes take little of; on CUDA it is the
clock's, between two synchronisations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from . import attention, norm, position
from .context import Run

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""Amounts, rising, and what was measured at each."""


class Cost(NamedTuple):
    """Seconds a unit (a FLOP or a byte), forward and backward, over an amount."""

    forward: Curve
    backward: Curve


class Machine(NamedTuple):
    """Measured costs: of a FLOP of x W by rows, for each width of W; of a FLOP of attention by queries; of a byte of each
    other kind of line by bytes; and the seconds that one operation takes at least."""

    device: str
    products: Mapping[int, Cost]
    attention: Mapping[str, Cost]
    moves: Mapping[str, Cost]
    overhead: float

    @property
    def rate(self) -> float:
        """FLOPs a second of the fastest product."""
        return 1 / min(cost for kind in self.products.values() for _, cost in kind.forward)

    @property
    def bandwidth(self) -> float:
        """Bytes a second of the largest copy, read and written."""
        return 1 / self.moves["copy"].forward[-1][1]


def at(curve: Curve, amount: float) -> float:
    """The curve at an amount: a line between measurements on logarithmic axes, level beyond both ends.

    >>> at(((1, 2.0), (4, 8.0)), 2), at(((1, 2.0), (4, 8.0)), 9)
    (4.0, 8.0)
    """
    for (low, first), (high, second) in zip(curve, curve[1:], strict=False):
        if amount < high:
            share = math.log(max(amount, low) / low) / math.log(high / low)
            return float(first ** (1 - share) * second**share)
    return curve[-1][1]


# -- the clock ------------------------------------------------------------------------------------------------------------


def seconds(device: str, call: Callable[[], object]) -> float:
    """How long a call takes."""
    if device == "cpu":
        start = process_time()
        call()
        return process_time() - start
    torch.cuda.synchronize()
    start = perf_counter()
    call()
    torch.cuda.synchronize()
    return perf_counter() - start


def both_ways(device: str, make: Callable[[], Tensor], rounds: int = 5) -> tuple[float, float]:
    """Median seconds of an operation's forward and backward pass, repeated within a round until they can be told."""
    gradient = torch.ones_like(make())
    once = seconds(device, make)
    times = max(1, min(64, int(5e-4 / max(once, 1e-6))))
    forward, backward = [], []
    for _ in range(rounds):
        outs: list[Tensor] = []
        forward.append(seconds(device, lambda: outs.extend(make() for _ in range(times))) / times)  # noqa: B023
        backward.append(seconds(device, lambda: [out.backward(gradient) for out in outs]) / times)  # noqa: B023
    return median(forward), median(backward)


# -- probes ---------------------------------------------------------------------------------------------------------------

ROWS = (1, 8, 32, 128, 512, 2048)
WIDTHS = (32, 128, 512, 1024)
QUERIES = (1, 64, 128, 256, 512)
BYTES = (2**14, 2**18, 2**21, 2**23, 2**25)


def _leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _unleaf(*tensors: Tensor) -> Callable[..., Tensor]:
    """Forget the gradients: they are made anew in every pass, as in a training step."""
    for tensor in tensors:
        tensor.grad = None
    return lambda out: out  # type: ignore[no-any-return]


def _product(rows: int, width: int) -> Callable[[], Tensor]:
    x, weight = _leaf(rows, width), _leaf(width, width)
    return lambda: _unleaf(x, weight)(F.linear(x, weight))


def _attention(t: int, which: str) -> tuple[Callable[[], Tensor], int]:
    """One of the products of attention as a twin has it, t queries and max(t, 256) keys, 8 heads of 64, and its FLOPs."""
    b, s, n, h = max(1, 256 // t) if t > 1 else 16, max(t, 256), 8, 64
    q, k = _leaf(b, t, n, h), _leaf(b, s, n, h)
    if which == "scores":
        return lambda: _unleaf(q, k)((q.transpose(1, 2) @ k.transpose(1, 2).transpose(2, 3)) * 0.125), 2 * b * n * t * s * h
    if which == "mix":
        weights = _leaf(b, n, t, s)
        return (
            lambda: _unleaf(weights, k)((weights @ k.transpose(1, 2)).transpose(1, 2).flatten(2)), 2 * b * n * t * s * h
        )  # fmt: skip
    return (
        lambda: _unleaf(q, k)(attention.flash(q, k, k, mask=None, scale=0.125, causal=False).flatten(2)), 4 * b * n * t * s * h
    )  # fmt: skip


def _moves(size: int) -> Iterator[tuple[str, Callable[[], Tensor], float]]:
    """Each kind of line on x (2 t d) of *size* bytes: its pass, and how many x the ledger says it moves."""
    d = min(512, size // 64)
    t = size // 8 // d
    x, y = _leaf(2, t, d), _leaf(2, t, d)
    heads = _leaf(2, t, d // 64 or 1, min(d, 64))
    square = _leaf(2, t, d)
    mask = torch.rand(t, d) < 0.5
    layer, rms, rotary, run = norm.LayerNorm(d), norm.RMSNorm(d), position.Rotary(heads.size(-1)), Run()
    order = torch.randperm(2 * t)
    rows = x.detach().flatten(0, 1).requires_grad_()
    zero = torch.zeros(2 * t, d)
    new = _leaf(2, 1, d)
    probes: dict[str, tuple[Callable[[], Tensor], float]] = {
        "copy": (lambda: x.clone(), 2),
        "add": (lambda: x + y, 3),
        "mul": (lambda: x * y, 3),
        "div": (lambda: x / y, 3),
        "scale": (lambda: x * 1.5, 2),
        "act input": (lambda: F.gelu(x), 2),
        "act output": (lambda: torch.relu(x), 2),
        "softmax": (lambda: square.softmax(-1), 2),
        "layer norm": (lambda: layer(x), 2),
        "rms norm": (lambda: rms(x), 2),
        "rotate": (lambda: rotary(heads, run), 2),
        "mask": (lambda: square.masked_fill(mask, 0.0), 2),
        "concat": (lambda: torch.cat((x, y), dim=-1), 4),
        "reduce": (lambda: x.mean(1), 1),
        "gather": (lambda: rows[order], 2),
        "scatter": (lambda: zero.index_add(0, order, torch.cat((rows,)) * 1.5), 2),
        "cache": (lambda: torch.cat((x, new), dim=1), 1),
    }
    leaves = (x, y, heads, square, rows, new, *layer.parameters(), *rms.parameters())
    for name, (make, moved) in probes.items():
        yield name, lambda make=make: _unleaf(*leaves)(make()), moved  # type: ignore[misc]


# -- all of it ------------------------------------------------------------------------------------------------------------


def measured(device: str = "cpu", tell: Callable[[float], object] = lambda share: None) -> Machine:
    """Measure this machine; *tell* hears which share of it is done."""
    with torch.device(device):
        products = {}
        for index, width in enumerate(WIDTHS):
            points = [(rows, both_ways(device, _product(rows, width)), 2 * rows * width * width) for rows in ROWS]
            products[width] = _cost([(rows, times, (work, 2 * work)) for rows, times, work in points])
            tell((index + 1) / len(WIDTHS) / 3)
        kinds = ("scores", "mix", "flash")
        found: dict[str, Cost] = {}
        for index, kind in enumerate(kinds):
            probes = [(t, *_attention(t, kind)) for t in QUERIES]
            found[kind] = _cost([(t, both_ways(device, make), (work, work)) for t, make, work in probes])
            tell((1 + (index + 1) / len(kinds)) / 3)
        moves: dict[str, list[tuple[float, tuple[float, float], tuple[float, float]]]] = {}
        for index, size in enumerate(BYTES):
            for name, make, moved in _moves(size):
                moves.setdefault(name, []).append((moved * size, both_ways(device, make), (moved * size, moved * size)))
            tell((2 + (index + 1) / len(BYTES)) / 3)
        tiny = torch.ones(16)
        overhead = both_ways(device, lambda: tiny.clone().requires_grad_() + 1.0)[0] / 2
    return Machine(device, products, found, {name: _cost(points) for name, points in moves.items()}, overhead)


def _cost(points: list[Any]) -> Cost:
    """From (amount, seconds both ways, units both ways) to seconds a unit."""
    return Cost(*(tuple((float(amount), times[way] / units[way]) for amount, times, units in points) for way in (0, 1)))
