"""Ways of telling positions apart, each in the same decoder, beside that decoder without positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from ..blocks.attention import Attention
from ..blocks.mlp import MLP, gelu
from ..blocks.norm import LayerNorm
from ..blocks.position import ALiBi, LearnedPositions, RelativeBias, RelativeKeys, Rotary, Sinusoidal
from ..blocks.wiring import Block, Residual
from ..budget import Budget, widths
from ..convention import flops
from ..dims import divide
from ..model import Embedding, Layer, LMHead, Model, Stack
from ..tables.table import Table
from ..tensor import Kernels, Step
from .comparison import Asked, Comparison, Quantity, beyond, tabulate

Made = Callable[[SimpleNamespace], Any]


class Way(NamedTuple):
    """What is added to the embedding, and what to the attention."""

    embedding: Made = lambda z: None
    attention: Made = lambda z: None


WAYS: Mapping[str, Way] = MappingProxyType({
    "none": Way(),
    "sinusoidal": Way(embedding=lambda z: Sinusoidal()),
    "learned": Way(embedding=lambda z: LearnedPositions(m=z.m)),
    "relative keys and values (Shaw)": Way(attention=lambda z: RelativeKeys(m=2 * z.clip + 1)),
    "bias by bucket, once a stack (T5)": Way(attention=lambda z: RelativeBias(m=z.buckets, n=z.n)),
    "bias by bucket, in each layer": Way(attention=lambda z: RelativeBias(m=z.buckets, n=z.n, each_layer=True)),
    "ALiBi": Way(attention=lambda z: ALiBi(n=z.n)),
    "rotary": Way(attention=lambda z: Rotary(r=_head(z))),
})  # fmt: skip


def _head(z: SimpleNamespace) -> int:
    return int(divide(z.d, z.n, "d", "n"))


def decoder(z: SimpleNamespace, way: Way) -> Model:
    """A GPT-2 without biases that tells positions apart in this way."""
    attention = Attention(n=z.n, k=z.n, h=_head(z), position=way.attention(z))
    block = Block(branches=(
        Residual(name="attention", branch=attention, before=LayerNorm()),
        Residual(name="mlp", branch=MLP(f=z.f, act=gelu), before=LayerNorm()),
    ))  # fmt: skip
    return Model(
        name="decoder", embedding=Embedding(v=z.v, d=z.d, position=way.embedding(z)),
        stack=Stack(name="decoder", layers=(Layer(block=block, l=z.l),), norm=LayerNorm()), head=LMHead(v=z.v, tied=True),
    )  # fmt: skip


def _more(of: Callable[[Model], Any], bare: Model) -> Callable[[Model], Any]:
    return lambda model: of(model) - of(bare)


def draw(asked: Asked) -> tuple[Table, ...]:
    """What each way adds."""
    z, b, t, roles = asked.letters, asked.batch, asked.seq or 0, widths(asked.dtype or "")
    models = [(name, decoder(z, way)) for name, way in WAYS.items()]
    bare = models[0][1]

    def run(model: Model, kernel: Any = "math") -> Budget:
        return model.budget(Step.train(b, t), Kernels(attention=kernel))

    quantities = (
        Quantity("parameters", "count", _more(lambda model: run(model).parameters().total, bare)),
        Quantity("buffers", "bytes", _more(lambda model: run(model).activations(roles).buffers, bare)),
        Quantity("FLOPs", "flops", _more(lambda model: flops(run(model)).forward, bare)),
        Quantity("kept, math", "bytes", _more(lambda model: run(model).activations(roles).bytes, bare)),
        Quantity("kept, flash", "bytes", _more(lambda model: run(model, "flash").activations(roles).bytes, bare)),
        Quantity("kept, fused", "bytes", _more(lambda model: run(model, "fused").activations(roles).bytes, bare)),
        Quantity("longest", "size", lambda model: model.positions),
    )  # fmt: skip
    sizes = ", ".join(f"{letter} {size:,}" for letter, size in asked.sizes.items())
    notes = (
        f"added to a decoder of pre-norm blocks without biases: {sizes}; distances clipped at ±{z.clip}",
        f"batch {b}, seq {t:,}, a training step; {asked.dtype}; kept: buffers included; flash takes ALiBi as a mask of a number"
        " a pair and head, fused as a slope a head",
        "forward FLOPs are two a multiply-add of matrix products: look-ups, additions and rotations count 0",
        "longest: positions in the table; blank where none bounds them",
    )
    return (tabulate("what telling positions apart adds", "positions", models, quantities, (*notes, *beyond(models, t))),)


COMPARISON = Comparison(
    Asked(
        batches=(1,), seq=1024, dtype="bf16",
        sizes={"d": 768, "n": 12, "f": 3072, "l": 12, "v": 50257, "m": 1024, "buckets": 32, "clip": 16},
    ),
    draw,
)  # fmt: skip
