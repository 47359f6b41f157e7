"""Norms by themselves, and stacks that differ in where the norms stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from ..blocks.attention import Attention
from ..blocks.mlp import MLP, gelu
from ..blocks.norm import LayerNorm, RMSNorm
from ..blocks.wiring import Block, Parallel, Residual
from ..budget import Widths, widths
from ..dims import divide
from ..model import Layer, Stack
from ..tables.table import Table
from ..tensor import Kernels, Step
from .comparison import Alone, Asked, Comparison, Quantity, tabulate

Norm = LayerNorm | RMSNorm

NORMS: Mapping[str, Norm] = MappingProxyType({
    "LayerNorm": LayerNorm(), "LayerNorm without bias": LayerNorm(bias=False), "RMSNorm": RMSNorm(),
    "RMSNorm without gain": RMSNorm(gain=False),
})  # fmt: skip


def _block(z: SimpleNamespace, **norms: Any) -> Block:
    return Block(branches=_branches(z, **norms))


def _branches(z: SimpleNamespace, **norms: Any) -> tuple[Residual, ...]:
    attention = Attention(n=z.n, k=z.n, h=divide(z.d, z.n, "d", "n"))
    parts = (("attention", attention), ("mlp", MLP(f=z.f, act=gelu)))
    return tuple(Residual(name=name, branch=branch, **norms) for name, branch in parts)


WIRINGS: Mapping[str, tuple[Callable[[SimpleNamespace, Norm], Any], bool]] = MappingProxyType({
    "post-norm (Transformer)": (lambda z, norm: _block(z, outer=norm), False),
    "pre-norm (GPT-2, Llama)": (lambda z, norm: _block(z, before=norm), True),
    "sandwich (Gemma 2)": (lambda z, norm: _block(z, before=norm, after=norm), True),
    "behind the branches (OLMo 2)": (lambda z, norm: _block(z, after=norm), True),
    "parallel, one norm (GPT-J)": (lambda z, norm: Parallel(branches=_branches(z), norm=norm), True),
    "parallel, two norms (GPT-NeoX)": (lambda z, norm: Parallel(branches=_branches(z, before=norm)), True),
})  # fmt: skip
"""What makes a block of its sizes and a norm, and whether the stack needs a norm behind its last block."""


class Setting(NamedTuple):
    """A row: a norm or a stack, what it is beside, and the step."""

    own: Alone
    bare: Alone
    b: int
    t: int
    widths: Widths

    @property
    def parameters(self) -> int:
        """All of them."""
        return int(self.own.budget(Step.forward(self.b, self.t)).parameters().total)

    @property
    def of_norms(self) -> int:
        """Those that the bare stack has not."""
        return self.parameters - self._replace(own=self.bare).parameters

    def kept(self, kernels: Kernels) -> int:
        """Bytes that autograd keeps."""
        return int(self.own.budget(Step.train(self.b, self.t), kernels).activations(self.widths).bytes)


COMPOSED, FUSED = Kernels(norm="composed"), Kernels(norm="fused")
KEPT = (
    Quantity("kept", "bytes", lambda x: x.kept(COMPOSED)),
    Quantity("kept, fused", "bytes", lambda x: x.kept(FUSED)),
)  # fmt: skip
PARAMETERS = Quantity("parameters", "count", lambda x: x.parameters)
OF_NORMS = (
    Quantity("of the norms", "count", lambda x: x.of_norms),
    Quantity("over all", "ratio", lambda x: Fraction(x.of_norms, x.parameters)),
)  # fmt: skip


def _norms(d: int, **step: Any) -> Iterable[tuple[str, Setting]]:
    return ((name, Setting(Alone(norm, d), Alone(norm, d), **step)) for name, norm in NORMS.items())


def _stacks(z: SimpleNamespace, **step: Any) -> Iterable[tuple[str, Setting]]:
    """A stack without norms, and each wiring with either norm."""
    bare = Alone(Stack(name="stack", layers=(Layer(block=_block(z), l=z.l),)), z.d)
    yield "none", Setting(bare, bare, **step)
    for wiring, (make, final) in WIRINGS.items():
        for name in ("LayerNorm", "RMSNorm"):
            norm = NORMS[name]
            stack = Stack(name="stack", layers=(Layer(block=make(z, norm), l=z.l),), norm=norm if final else None)
            yield f"{wiring}, {name}", Setting(Alone(stack, z.d), bare, **step)


def draw(asked: Asked) -> tuple[Table, ...]:
    """The norms on one input, and l blocks of the same branches in every wiring."""
    z, b, t = asked.letters, asked.batch, asked.seq or 0
    step = {"b": b, "t": t, "widths": widths(asked.dtype or "")}
    at = f"batch {b}, seq {t:,}; {asked.dtype}; RMSNorm out of elementary operations (CPU), and fused in one kernel (CUDA)"
    blocks = f"{z.l} blocks of multi-head attention and a GELU feed-forward without biases, d {z.d:,}, n {z.n}, f {z.f:,}"
    final = "a final norm behind the last block is counted in every wiring but post-norm; kept: attention math"
    return (
        tabulate("norms of one input", "norm", _norms(z.d, **step), (PARAMETERS, *KEPT), (f"d {z.d:,}; {at}",)),
        tabulate("norms in a stack", "wiring", _stacks(z, **step), (PARAMETERS, *OF_NORMS, *KEPT), (blocks, final, at)),
    )


COMPARISON = Comparison(Asked(batches=(1,), seq=1024, dtype="bf16", sizes={"d": 768, "n": 12, "f": 3072, "l": 12}), draw)
