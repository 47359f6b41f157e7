"""An encoder, a decoder, and both, of the same sizes."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

from ..blocks.attention import Attention, CrossAttention
from ..blocks.mlp import MLP
from ..blocks.norm import LayerNorm
from ..blocks.wiring import Block, Residual
from ..budget import widths
from ..convention import flops
from ..dims import Dim, divide
from ..model import Embedding, Layer, LMHead, Model, Stack
from ..tables.table import Table
from ..tensor import Step
from .comparison import Alone, Asked, Comparison, Quantity, tabulate


class Paradigm(NamedTuple):
    """A row: the model, and the block of the stack that gives its output."""

    model: Model
    block: Alone


def _block(z: SimpleNamespace, causal: bool, cross: bool) -> Block:
    h = divide(z.d, z.n, "d", "n")
    branches: list[tuple[str, Any]] = [("attention", Attention(n=z.n, k=z.n, h=h, causal=causal))]
    if cross:
        branches.append(("cross_attention", CrossAttention(n=z.n, k=z.n, h=h)))
    branches.append(("mlp", MLP(f=z.f)))
    return Block(branches=tuple(Residual(name=name, branch=branch, before=LayerNorm()) for name, branch in branches))


def _stack(name: str, block: Block, l: Dim) -> Stack:
    return Stack(name=name, layers=(Layer(block=block, l=l),), norm=LayerNorm())


def _model(z: SimpleNamespace, stack: Stack, encoder: Stack | None = None) -> Model:
    """Over one token table, which is the head's matrix too."""
    return Model(
        name="", embedding=Embedding(v=z.v, d=z.d), stack=stack, head=LMHead(v=z.v, tied=True), encoder=encoder
    )  # fmt: skip


def paradigms(z: SimpleNamespace) -> Iterable[tuple[str, Paradigm]]:
    """Pre-norm blocks without biases in all of them."""
    both_ways, causal, crossed = _block(z, False, False), _block(z, True, False), _block(z, True, True)
    encoder = _stack("encoder", both_ways, z.l)
    yield "encoder (BERT)", Paradigm(_model(z, encoder), Alone(both_ways, z.d))
    yield "decoder (GPT)", Paradigm(_model(z, _stack("decoder", causal, z.l)), Alone(causal, z.d))
    yield "decoder, twice the blocks", Paradigm(_model(z, _stack("decoder", causal, 2 * z.l)), Alone(causal, z.d))
    seq2seq = _model(z, _stack("decoder", crossed, z.l), encoder)
    yield "encoder-decoder (Transformer, T5)", Paradigm(seq2seq, Alone(crossed, z.d))


def draw(asked: Asked) -> tuple[Table, ...]:
    """All of them in the same steps."""
    z, b, t, s, roles = asked.letters, asked.batch, asked.seq or 0, asked.context, widths(asked.dtype or "")

    def parameters(one: Any) -> Any:
        return one.budget(Step.forward(b, t)).parameters().total

    quantities = (
        Quantity("parameters", "count", lambda x: parameters(x.model)),
        Quantity("a block's", "count", lambda x: parameters(x.block)),
        Quantity("FLOPs", "flops", lambda x: flops(x.model.budget(Step.forward(b, t))).forward),
        Quantity("FLOPs, visible pairs", "flops", lambda x: flops(x.model.budget(Step.forward(b, t)), "exact").forward),
        Quantity("FLOPs to decode", "flops", lambda x: flops(x.model.budget(Step.decode(b, s))).forward),
        Quantity("cache", "bytes", lambda x: sum(x.model.budget(Step.prefill(b, s)).cache(roles).values())),
        Quantity("one more token", "bytes", lambda x: x.model.budget(Step.prefill(b, s)).cache_per_token(roles)),
        Quantity("kept", "bytes", lambda x: x.model.budget(Step.train(b, t)).activations(roles).bytes),
    )  # fmt: skip
    sizes = ", ".join(f"{letter} {size:,}" for letter, size in asked.sizes.items())
    notes = (
        f"{sizes}, l blocks a stack; pre-norm, without biases, positions or token types, one table tied to the head",
        "a block's: that of the stack which gives the output; an encoder-decoder's is the decoder's, with cross-attention",
        f"batch {b}, seq {t:,} in each stream; decoding one token that sees {s:,}, the source as long and encoded before;"
        f" {asked.dtype}; attention math",
    )
    return (tabulate("encoder, decoder, encoder-decoder", "paradigm", paradigms(z), quantities, notes),)


COMPARISON = Comparison(
    Asked(contexts=(512,), batches=(1,), seq=512, dtype="bf16", sizes={"d": 512, "n": 8, "f": 2048, "l": 6, "v": 37000}), draw
)
