"""From a reading of an encoder-decoder to a Model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..blocks.attention import Attention, CrossAttention
from ..blocks.embedding import Frames
from ..blocks.position import RelativeBias
from ..blocks.wiring import Block, Residual
from ..heads import Classifier, Pooler
from ..model import Embedding, Layer, LMHead, Model, Stack
from .config import Reading
from .decoder import feed_forward
from .heads import class_of, labels


def relative_encoder_decoder(r: Reading) -> Model:
    """Two pre-norm stacks over one token table, a bias by distance in each."""
    embedding = Embedding(v=r.v, d=r.d)
    encoder = Stack(name="encoder", layers=(Layer(block=_relative_block(r, decodes=False), l=r.l),), norm=r.norm)
    kind = class_of(r)
    if kind == "EncoderModel":
        return Model(name=r.where, embedding=embedding, stack=encoder)
    head = LMHead(v=r.v, tied=r.tied) if kind == "ForConditionalGeneration" else None
    decoder = Stack(name="decoder", layers=(Layer(block=_relative_block(r, decodes=True), l=r.l_decoder),), norm=r.norm)
    return Model(name=r.where, embedding=embedding, stack=decoder, head=head, encoder=encoder)


def _relative_block(r: Reading, decodes: bool) -> Block:
    position = RelativeBias(m=r.buckets, n=r.n, each_layer=r.each_layer)
    attention = Attention(n=r.n, k=r.n, h=r.h, causal=decodes, position=position)
    branches: list[tuple[str, Any]] = [("attention", attention)]
    if decodes:
        branches.append(("cross_attention", CrossAttention(n=r.n, k=r.n, h=r.h)))
    branches.append(("mlp", feed_forward(r, r.f)))
    return Block(branches=tuple(Residual(name=name, branch=branch, before=r.norm) for name, branch in branches))


def biased_encoder_decoder(r: Reading) -> Model:
    """Two stacks with biases, each with its sizes, over tokens and positions or, in the encoder, over frames."""
    r.check_divides("d", "n")
    r.check_divides("d", "n_decoder")
    embedding = Embedding(v=r.v_decoder, d=r.d, position=r.position, norm=r.embedding_norm)
    encoder = Stack(name="encoder", layers=(Layer(block=_biased_block(r, r.n, r.f, decodes=False), l=r.l),), norm=r.final_norm)
    block = _biased_block(r, r.n_decoder, r.f_decoder, decodes=True)
    decoder = Stack(name="decoder", layers=(Layer(block=block, l=r.l_decoder),), norm=r.final_norm)
    source = r.source(r, embedding)
    return Model(name=r.where, embedding=embedding, stack=decoder, head=_head(r), encoder=encoder, encoder_embedding=source)


def same_tokens(r: Reading, embedding: Embedding) -> None:
    """The encoder's input is tokens, of the decoder's table."""


def own_tokens(r: Reading, embedding: Embedding) -> Embedding | None:
    """Tokens, of the encoder's own table unless both share one: Marian's."""
    if not r.shared:
        return replace(embedding, v=r.v)
    if not r.tied:
        raise r.refuse("tie_word_embeddings", "true: untied, transformers stores a fourth token table that nothing reads")
    return None


def frames(r: Reading, embedding: Embedding) -> Frames:
    """Frames of a spectrogram: Whisper's."""
    if r.d % 2:
        raise r.refuse(r.field_of("d"), "an even number: half of it sines, half cosines")
    return Frames(d=r.d, m=r.frames, x=r.channels)


def _biased_block(r: Reading, n: int, f: int, decodes: bool) -> Block:
    h = r.d // n
    attention = Attention(n=n, k=n, h=h, causal=decodes, qkv_bias=True, k_bias=r.k_bias, o_bias=True)
    branches: list[tuple[str, Any]] = [("attention", attention)]
    if decodes:
        cross = CrossAttention(n=n, k=n, h=h, q_bias=True, k_bias=r.k_bias, v_bias=True, o_bias=True)
        branches.append(("cross_attention", cross))
    branches.append(("mlp", feed_forward(r, f)))
    return Block(branches=tuple(r.residual(r, name, branch) for name, branch in branches))


def norm_before(r: Reading, name: str, branch: Any) -> Residual:
    """Whisper's."""
    return Residual(name=name, branch=branch, before=r.norm)


def norm_behind(r: Reading, name: str, branch: Any) -> Residual:
    """BART's."""
    return Residual(name=name, branch=branch, outer=r.norm)


def _head(r: Reading) -> Any:
    kind = class_of(r)
    if kind in ("ForConditionalGeneration", "MTModel"):
        return LMHead(v=r.v_decoder, tied=r.tied)
    if kind == "ForSequenceClassification":
        return Pooler(v=labels(r, r.usual_labels))
    return Classifier(v=2, bias=True) if kind == "ForQuestionAnswering" else None
