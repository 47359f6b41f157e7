"""From a reading of T5 and its like to a Model."""

from __future__ import annotations

from typing import Any

from ..blocks.attention import Attention, CrossAttention
from ..blocks.position import RelativeBias
from ..blocks.wiring import Block, Residual
from ..model import Embedding, Layer, LMHead, Model, Stack
from .config import Reading
from .decoder import feed_forward
from .heads import class_of


def relative_encoder_decoder(r: Reading) -> Model:
    """Two pre-norm stacks over one token table, a bias by distance in each."""
    embedding = Embedding(v=r.v, d=r.d)
    encoder = Stack(name="encoder", layers=(Layer(block=_block(r, decodes=False), l=r.l),), norm=r.norm)
    kind = class_of(r)
    if kind == "EncoderModel":
        return Model(name=r.where, embedding=embedding, stack=encoder)
    head = LMHead(v=r.v, tied=r.tied) if kind == "ForConditionalGeneration" else None
    decoder = Stack(name="decoder", layers=(Layer(block=_block(r, decodes=True), l=r.l_decoder),), norm=r.norm)
    return Model(name=r.where, embedding=embedding, stack=decoder, head=head, encoder=encoder)


def _block(r: Reading, decodes: bool) -> Block:
    position = RelativeBias(m=r.buckets, n=r.n)
    attention = Attention(n=r.n, k=r.n, h=r.h, causal=decodes, position=position)
    branches: list[tuple[str, Any]] = [("attention", attention)]
    if decodes:
        branches.append(("cross_attention", CrossAttention(n=r.n, k=r.n, h=r.h)))
    branches.append(("mlp", feed_forward(r, r.f)))
    return Block(branches=tuple(Residual(name=name, branch=branch, before=r.norm) for name, branch in branches))
