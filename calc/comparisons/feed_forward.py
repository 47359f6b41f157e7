"""Feed-forward networks side by side: two matrices or three, and what each keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from ..blocks.mlp import MLP, GatedMLP, gelu, relu, relu_squared, sigmoid, silu
from ..budget import Widths, widths
from ..convention import flops
from ..dims import Dim, symbol
from ..tables.table import Table
from ..tensor import Step
from .comparison import Alone, Asked, Comparison, Quantity, tabulate
from .forms import formulas

PLAIN: Mapping[str, Callable[[Dim], Any]] = MappingProxyType({
    "ReLU": lambda f: MLP(f=f, act=relu),
    "GELU": lambda f: MLP(f=f, act=gelu),
    "squared ReLU": lambda f: MLP(f=f, act=relu_squared),
})  # fmt: skip
GATED: Mapping[str, Callable[[Dim], Any]] = MappingProxyType({
    "GLU (sigmoid)": lambda f: GatedMLP(f=f, act=sigmoid),
    "ReGLU (ReLU)": lambda f: GatedMLP(f=f, act=relu),
    "GEGLU (GELU)": lambda f: GatedMLP(f=f, act=gelu),
    "SwiGLU (SiLU)": lambda f: GatedMLP(f=f, act=silu),
})  # fmt: skip


class Setting(NamedTuple):
    """A row: a feed-forward of width f, asked of one token. Sizes are numbers or symbols."""

    network: Alone
    f: Dim
    widths: Widths

    @property
    def parameters(self) -> Dim:
        """All of its matrices."""
        return self.network.budget(Step.forward(1, 1)).parameters().total


HIDDEN = (
    Quantity("hidden width f", "size", lambda x: x.f),
    Quantity("f/d", "ratio", lambda x: Fraction(x.f, x.network.d)),
    Quantity("parameters in d²", "ratio", lambda x: Fraction(x.parameters, x.network.d**2)),
)  # fmt: skip
QUANTITIES = (
    Quantity("parameters", "count", lambda x: x.parameters),
    Quantity("FLOPs of a token", "flops", lambda x: flops(x.network.budget(Step.forward(1, 1))).forward),
    Quantity("kept of a token", "bytes", lambda x: x.network.budget(Step.train(1, 1)).activations(x.widths).bytes),
)  # fmt: skip


def _rows(d: Dim, plain: Dim, gated: Dim, dtype: str) -> Iterable[tuple[str, Setting]]:
    for kinds, f in ((PLAIN, plain), (GATED, gated)):
        for name, make in kinds.items():
            yield name, Setting(Alone(make(f), d), f, widths(dtype))


def equal_width(d: int, f: int) -> Fraction:
    """The hidden width at which a gated network has the parameters of a plain one of width f."""
    plain, gated = (Setting(Alone(made, d), f, widths("bf16")).parameters for made in (MLP(f=f), GatedMLP(f=f)))
    return Fraction(f * plain, gated)


def draw(asked: Asked) -> tuple[Table, ...]:
    """The networks at one width, at one number of parameters, and as formulas."""
    z, dtype = asked.letters, asked.dtype or ""
    exact = equal_width(z.d, z.f)
    whole = -(-exact // z.multiple) * z.multiple
    token = f"d {z.d:,}, no biases; FLOPs two a multiply-add; kept: {dtype}, the input included"
    rounded = f"gated at the width of equal parameters, {exact.numerator:,}"
    rounded += f"/{exact.denominator:,}" if exact.denominator > 1 else ""
    return (
        tabulate("at equal width", "feed-forward", _rows(z.d, z.f, z.f, dtype), HIDDEN + QUANTITIES, (token,)),
        tabulate(
            "at equal parameters", "feed-forward", _rows(z.d, z.f, whole, dtype), HIDDEN + QUANTITIES,
            (f"{rounded}, rounded up to a multiple of {z.multiple:,}; {token}",),
        ),
        formulas("in closed form", "feed-forward", _rows(symbol("D"), symbol("F"), symbol("F"), dtype), QUANTITIES,
                 (f"bytes in {dtype}",)),
    )  # fmt: skip


COMPARISON = Comparison(Asked(dtype="bf16", sizes={"d": 4096, "f": 16384, "multiple": 256}), draw)
