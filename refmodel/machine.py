"""What this machine does a second, measured on operations that stand alone: matrix products by rows and width, the products
of attention by queries, and every other kind of line by the bytes it moves. No block is run here, and nothing is fitted.

On a CPU a second is one of the process's own time on one thread, which other processes lengthen less than the clock's; on
CUDA it is the clock's, between two synchronisations. Attention is measured as the math kernel has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from . import norm, position
from .context import Run

K = TypeVar("K")

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
    for (low, first), (high, second) in pairwise(curve):
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


def both_ways(device: str, make: Callable[[], Tensor], leaves: Sequence[Tensor], runs: int) -> tuple[float, float]:
    """Median seconds of an operation's forward and of its backward pass to the leaves. Before each the caches are filled
    with something else, as other lines of a block do. The gradients are made anew, and added to no others."""
    gradient, other = torch.ones_like(make()), torch.zeros(OTHER // 4)
    forward, backward = [], []
    for _ in range(runs + 1):
        outs: list[Tensor] = []
        other.add_(1.0)
        forward.append(seconds(device, lambda: outs.append(make())))  # noqa: B023
        other.add_(1.0)
        backward.append(seconds(device, lambda: _back(outs[0], leaves, gradient)))  # noqa: B023
    return median(forward[1:]), median(backward[1:])


def _back(out: Tensor, leaves: Sequence[Tensor], gradient: Tensor) -> None:
    torch.autograd.grad(out, leaves, gradient, allow_unused=True)


def keep_memory() -> None:
    """Let glibc keep what is freed. Else it hands large tensors back, and a pass pays for them page by page or does not, as
    the passes before it happen to have left the heap."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim, at_most = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX
        mallopt(trim, 2**31 - 1)
        mallopt(at_most, 0)


# -- probes ---------------------------------------------------------------------------------------------------------------

ROWS = (1, 8, 32, 128, 512, 2048)
WIDTHS = (32, 128, 512, 1024)
QUERIES = (1, 64, 128, 256, 512)
OTHER = 2**22
"""Bytes that go through the caches between two runs of a probe."""
BYTES = (2**14, 2**18, 2**21, 2**23, 2**25)


def _leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


Probe: TypeAlias = tuple[Callable[[], Tensor], Sequence[Tensor]]
"""An operation, and what it gives gradients to."""


def _product(rows: int, width: int) -> Probe:
    x, weight = _leaf(rows, width), _leaf(width, width)
    return lambda: F.linear(x, weight), (x, weight)


def _attention(t: int, which: str) -> tuple[Probe, int]:
    """One of the products of attention as a twin has it, t queries and max(t, 256) keys, 8 heads of 64, and its FLOPs."""
    b, s, n, h = max(1, 256 // t) if t > 1 else 16, max(t, 256), 8, 64
    q, k, weights, work = _leaf(b, t, n, h), _leaf(b, s, n, h), _leaf(b, n, t, s), 2 * b * n * t * s * h
    if which == "scores":
        return (lambda: (q.transpose(1, 2) @ k.transpose(1, 2).transpose(2, 3)) * 0.125, (q, k)), work
    return (lambda: (weights @ k.transpose(1, 2)).transpose(1, 2).flatten(2), (weights, k)), work


def _moves(size: int) -> Iterator[tuple[str, Probe, float]]:
    """Each kind of line on x (2 t d) of *size* bytes: its pass, and how many x the ledger says it moves."""
    d = min(512, size // 64)
    t = size // 8 // d
    x, y = _leaf(2, t, d), _leaf(2, t, d)
    heads = _leaf(2, t, d // 64 or 1, min(d, 64))
    square = _leaf(2, t, d)
    mask = torch.ones(t, d, dtype=torch.bool).triu(1)
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
        yield name, (make, leaves), moved


# -- all of it ------------------------------------------------------------------------------------------------------------


def measured(device: str = "cpu", runs: int = 7, tell: Callable[[float], object] = lambda share: None) -> Machine:
    """Measure this machine, each operation as the median of some runs; *tell* hears which share of it is done."""
    with torch.device(device):
        products, pairs, moves = dict[int, list[Any]](), dict[str, list[Any]](), dict[str, list[Any]]()
        for index, width in enumerate(WIDTHS):
            for rows in ROWS:
                work = 2 * rows * width * width
                products.setdefault(width, []).append((rows, both_ways(device, *_product(rows, width), runs), (work, 2 * work)))
            tell((index + 1) / len(WIDTHS) / 3)
        for index, t in enumerate(QUERIES):
            for kind in ("scores", "mix"):
                probe, work = _attention(t, kind)
                pairs.setdefault(kind, []).append((t, both_ways(device, *probe, runs), (work, work)))
            tell((1 + (index + 1) / len(QUERIES)) / 3)
        for index, size in enumerate(BYTES):
            for name, probe, moved in _moves(size):
                moves.setdefault(name, []).append((moved * size, both_ways(device, *probe, runs), (moved * size, moved * size)))
            tell((2 + (index + 1) / len(BYTES)) / 3)
        tiny, many = _leaf(16), 500
        overhead = median(seconds(device, lambda: [tiny + 1.0 for _ in range(many)]) / many for _ in range(runs))
    return Machine(device, _costs(products), _costs(pairs), _costs(moves), overhead)


def _costs(table: Mapping[K, list[Any]]) -> dict[K, Cost]:
    return {name: _cost(points) for name, points in table.items()}


def _cost(points: list[Any]) -> Cost:
    """From (amount, seconds both ways, units both ways) to seconds a unit."""
    return Cost(*(tuple((float(amount), times[way] / units[way]) for amount, times, units in points) for way in (0, 1)))
