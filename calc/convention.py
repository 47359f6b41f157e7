"""From a budget to FLOPs: each published way of counting is one named function, and says what it counts.

A convention that is not defined for a model (Megatron's formula for latent attention, say) raises UndefinedError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from .budget import Budget
from .dims import Dim, smaller
from .errors import InputError, UndefinedError
from .tensor import Line


class Flops(NamedTuple):
    """FLOPs of a step under a convention. ``backward`` is None unless training; ``macs`` the multiply-adds in the total."""

    forward: Dim
    backward: Dim | None
    recompute: Dim
    macs: Dim

    @property
    def total(self) -> Dim:
        """Forward, backward and what is run again."""
        return self.forward + (0 if self.backward is None else self.backward) + self.recompute


class Convention(NamedTuple):
    """A way of counting: its formula as its authors write it, what it leaves out or in, where it is published."""

    name: str
    formula: str
    counts: str
    source: str
    flops: Callable[[Budget], Flops]


def _of_work(budget: Budget, forward: Dim, backward: Dim, recompute: Dim) -> Flops:
    """Two FLOPs a multiply-add."""
    total = forward + recompute + (backward if budget.step.training else 0)
    return Flops(2 * forward, 2 * backward if budget.step.training else None, 2 * recompute, total)


def _torch(budget: Budget) -> Flops:
    work = budget.work()
    return _of_work(budget, work.forward, work.backward, work.recompute)


def _exact(budget: Budget) -> Flops:
    work = budget.work(visible=True)
    return _of_work(budget, work.forward, work.backward, work.recompute)


def _megatron_lm(budget: Budget) -> Flops:
    """Three forwards; a causal line of attention at half, whatever its window; no router."""
    _one_stack(budget, "megatron-lm")
    forward: Dim = 0
    for line in budget.lines:
        if line.kind == "attention":
            # Both products of a causal row stand for half of their pairs: 2 · half = the pairs themselves.
            share = 1 if line.causal else 2
            forward += share * line.copies * line.pairs * line.forward
        elif line.kind != "router":
            forward += 2 * line.copies * line.forward
    macs = forward * (3 if budget.step.training else 1)
    return Flops(forward, 2 * forward if budget.step.training else None, 0, _halved(macs))


def _per_token(budget: Budget, forward_per_token: Dim) -> Flops:
    """2 forward and 4 backward of what the authors count with 6; each is two FLOPs a multiply-add."""
    forward = budget.step.b * budget.step.t * forward_per_token
    training = budget.step.training
    return Flops(forward, 2 * forward if training else None, 0, _halved(forward * (3 if training else 1)))


def _palm(budget: Budget) -> Flops:
    _dense(budget, "palm")
    return _per_token(budget, 2 * budget.parameters().total + 2 * _equal_widths(budget, "palm") * budget.step.s)


def _nanogpt(budget: Budget) -> Flops:
    _dense(budget, "nanogpt")
    positions = sum((w.numel for line in budget.lines for w in line.weights if w.axes[:1] == ("m",) and w.role == "table"), 0)
    weights = budget.parameters().total - positions
    return _per_token(budget, 2 * weights + 2 * _equal_widths(budget, "nanogpt") * budget.step.s)


def _kaplan(budget: Budget) -> Flops:
    _dense(budget, "kaplan")
    return _per_token(budget, 2 * budget.parameters().non_embedding)


def _torchtitan(budget: Budget) -> Flops:
    _one_stack(budget, "torchtitan")
    attention: Dim = 0
    for line in _attention(budget):
        seen = budget.step.s if line.window is None else smaller(budget.step.s, line.window)
        attention += line.copies * _width(budget, line) * seen
    return _per_token(budget, 2 * budget.parameters().active_without_input + 2 * attention)


def _chinchilla(budget: Budget) -> Flops:
    shape = _gpt(budget, "chinchilla")
    b, t, s = budget.step.b, budget.step.t, budget.step.s
    softmax = sum((3 * line.copies * line.heads * b * t * s for line in _attention(budget) if _is_scores(line)), 0)
    products = 2 * budget.work().forward + 2 * b * t * shape.v * shape.d
    forward, training = products + softmax, budget.step.training
    return Flops(forward, 2 * forward if training else None, 0, _halved(products * (3 if training else 1)))


def _megatron_2021(budget: Budget) -> Flops:
    layers, logits = _megatron_terms(budget, "megatron-2021")
    training = budget.step.training
    macs = (4 * layers + 3 * logits) if training else layers + logits
    return Flops(layers + logits, 2 * (layers + logits) if training else None, layers if training else 0, _halved(macs))


def _megatron_2022(budget: Budget) -> Flops:
    layers, logits = _megatron_terms(budget, "megatron-2022")
    again = 2 * budget.work().recompute
    forward, training = layers + logits, budget.step.training
    return Flops(forward, 2 * forward if training else None, again, _halved(forward * (3 if training else 1) + again))


def _megatron_terms(budget: Budget, name: str) -> tuple[Dim, Dim]:
    """One forward of the layers, 24·b·s·l·d² + 4·b·s²·l·d, and of the logits, 2·b·s·d·v."""
    shape = _gpt(budget, name)
    if shape.f != 4 * shape.d or shape.width != shape.d:
        raise UndefinedError(f"{name}: defined for f = 4d and n·h = d; here d = {shape.d}, f = {shape.f}, n·h = {shape.width}")
    tokens, d = budget.step.b * budget.step.t, shape.d
    return tokens * shape.l * (24 * d * d + 4 * budget.step.s * d), 2 * tokens * d * shape.v


# -- what the formulas need of a budget, and what they are not defined for ----------------------------------------------


class _Gpt(NamedTuple):
    v: Dim
    d: Dim
    l: Dim
    f: Dim
    width: Dim


def _gpt(budget: Budget, name: str) -> _Gpt:
    """The sizes of a stack of multi-head attention and two-matrix feed-forwards, which is all these papers count."""
    _dense(budget, name)
    table = next((line.weights[0] for line in budget.lines if line.path == "embedding.token"), None)
    if table is None:
        raise UndefinedError(f"{name}: defined for models of tokens")
    found: dict[str, Line] = {}
    l: Dim = 0
    for line in budget.lines:
        if line.kind == "linear" and line.layer is not None:
            part = line.path.rpartition(".")[2]
            if part not in ("q", "k", "v", "o", "up", "down"):
                raise UndefinedError(f"{name}: defined for multi-head attention and two-matrix feed-forwards, not {line.path}")
            found[part] = line
            l += line.copies if part == "q" else 0
    q, k = found["q"].weights[0], found["k"].weights[0]
    if q.sizes != k.sizes:
        raise UndefinedError(f"{name}: defined for multi-head attention; here keys have {k['k']} heads and queries {q['n']}")
    return _Gpt(table["v"], table["d"], l, found["up"].weights[0]["f"], q["n"] * q["h"])


def _one_stack(budget: Budget, name: str) -> None:
    if len({line.layer.partition(".")[0] for line in budget.lines if line.layer is not None}) != 1:
        raise UndefinedError(f"{name}: defined for one stack of layers, not for an encoder-decoder or a block alone")


def _dense(budget: Budget, name: str) -> None:
    _one_stack(budget, name)
    if any(line.kind == "router" for line in budget.lines):
        raise UndefinedError(f"{name}: defined for dense models; its N does not say which experts run (torchtitan's does)")


def _attention(budget: Budget) -> list[Line]:
    return [line for line in budget.lines if line.kind == "attention"]


def _is_scores(line: Line) -> bool:
    return not line.path.endswith("mix")


def _width(budget: Budget, line: Line) -> Dim:
    """n times the widths that this line multiplies: n·h of the scores, n·u of the values, both of a fused kernel."""
    return line.forward if budget.step.b == 1 else _exact_quotient(line.forward, budget.step.b)


def _equal_widths(budget: Budget, name: str) -> Dim:
    """Σ n·(h + u) over the layers, which the papers write 2·l·n·h: keys and values must be equally wide."""
    lines = _attention(budget)
    scores = sum((line.copies * line.forward for line in lines if _is_scores(line)), 0)
    values = sum((line.copies * line.forward for line in lines if not _is_scores(line)), 0)
    if budget.kernels.attention == "math" and scores != values:
        raise UndefinedError(f"{name}: defined where keys and values are equally wide, which latent attention's are not")
    return _exact_quotient(scores + values, budget.step.b)


def _exact_quotient(a: Dim, b: Dim) -> Dim:
    if type(a) is int and type(b) is int:
        assert a % b == 0, (a, b)
        return a // b
    return a / b


def _halved(flops: Dim) -> Dim:
    return _exact_quotient(flops, 2)


CONVENTIONS: Mapping[str, Convention] = MappingProxyType({c.name: c for c in (
    Convention(
        "torch", "2 × multiply-adds",
        "linears, matmuls and convolutions; full attention squares; the head on every position; look-ups, norms, softmax"
        " and other elementwise work 0", "torch.utils.flop_counter.FlopCounterMode", _torch,
    ),
    Convention(
        "exact", "2 × multiply-adds over visible pairs", "as torch, but only query-key pairs that the mask lets through",
        "derived", _exact,
    ),
    Convention(
        "palm", "6N + 12·l·n·h·s a token", "all parameters; full attention squares; no recomputation",
        "Chowdhery et al. 2022, arXiv:2204.02311, appendix B", _palm,
    ),
    Convention(
        "kaplan", "6(N − embeddings) a token", "no embeddings, no head, no attention scores",
        "Kaplan et al. 2020, arXiv:2001.08361, section 2.1", _kaplan,
    ),
    Convention(
        "chinchilla", "appendix F's list, backward 2 ×",
        "embeddings as a product 2·s·v·d, linears, full attention squares, softmax 3·n·s², logits",
        "Hoffmann et al. 2022, arXiv:2203.15556, appendix F", _chinchilla,
    ),
    Convention(
        "megatron-2021", "96·b·s·l·d²(1 + s/6d + v/16ld)", "full attention squares; every layer run again in the backward pass",
        "Narayanan et al. 2021, arXiv:2104.04473, equation 3", _megatron_2021,
    ),
    Convention(
        "megatron-2022", "72·b·l·s·d²(1 + s/6d + v/12ld)", "full attention squares; what a checkpoint runs again apart",
        "Korthikanti et al. 2022, arXiv:2205.05198, appendix A", _megatron_2022,
    ),
    Convention(
        "megatron-lm", "3 × forward", "core attention at half when causal; the router left out",
        "Megatron-LM, megatron/training/training.py", _megatron_lm,
    ),
    Convention(
        "torchtitan", "6(N_active − input table) + 6·Σ n(h_qk + h_v)·min(s, w) a token",
        "active parameters; full attention squares, a window at its width",
        "torchtitan, torchtitan/models/utils.py", _torchtitan,
    ),
    Convention(
        "nanogpt", "6(N − position table) + 12·l·n·h·s a token",
        "all parameters but the position table; full attention squares",
        "nanoGPT, model.py: estimate_mfu", _nanogpt,
    ),
)})  # fmt: skip


def flops(budget: Budget, convention: str = "torch") -> Flops:
    """The FLOPs of a budget under a named convention. Raises InputError for an unknown name, UndefinedError where the
    convention is not defined for the model."""
    return named(convention).flops(budget)


def named(convention: str) -> Convention:
    """The convention of that name. Raises InputError for an unknown one."""
    if convention not in CONVENTIONS:
        raise InputError(f"convention {convention!r} is not one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[convention]
