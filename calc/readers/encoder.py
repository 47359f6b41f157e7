"""From a reading of an encoder alone, of tokens or of images, to a Model."""

from __future__ import annotations

from typing import Any

from ..blocks.attention import Attention
from ..blocks.embedding import Patches
from ..heads import Classifier, MaskedLMHead, Pooler
from ..model import Embedding, Layer, LMHead, Model, Stack
from .config import Reading
from .decoder import feed_forward
from .heads import class_of, labels


def encoder(r: Reading) -> Model:
    """Layers that see in both directions, over tokens, positions and types."""
    embedding = Embedding(
        v=r.v, d=r.d, i=r.narrow, all_narrow=r.narrow is not None, position=r.position, types=r.types, norm=r.norm
    )
    return Model(name=r.where, embedding=embedding, stack=_stack(r), head=_head(r))


def vision(r: Reading) -> Model:
    """Layers that see in both directions, over the patches of an image."""
    (height, width), (tall, wide) = r.image, r.patch
    patches = (height // tall) * (width // wide)
    if not patches:
        raise r.refuse("patch_size", f"at most the {height} × {width} pixels of image_size")
    margin = height % tall or width % wide
    embedding = Patches(d=r.d, m=patches, y=tall * wide, x=r.channels, z=height * width if margin else None)
    return Model(name=r.where, embedding=embedding, stack=_stack(r), head=_head(r))


def _stack(r: Reading) -> Stack:
    """Equal layers, each with its weights or in groups that share theirs."""
    attention = Attention(n=r.n, k=r.n, h=r.h, causal=False, qkv_bias=r.qkv_bias, o_bias=True)
    layer = Layer(block=r.wiring(r, attention, feed_forward(r, r.f)), l=r.l, j=r.sets)
    return Stack(name="encoder", layers=(layer,), norm=r.final_norm)


def _head(r: Reading) -> Any:
    kind = class_of(r)
    if kind == "ForMaskedLM":
        if not r.tied:
            raise r.refuse("tie_word_embeddings", "true: untied, transformers stores a second output bias that nothing reads")
        return MaskedLMHead(output=LMHead(v=r.v, tied=True, bias=True), act=r.head_act, norm=r.norm)
    if kind == "ForTokenClassification":
        return Classifier(v=labels(r), bias=True)
    if kind == "ForImageClassification":
        return Classifier(v=labels(r), bias=True, first=True)
    if kind == "ForQuestionAnswering":
        if labels(r) != 2:
            raise r.refuse("num_labels", "2, the two ends of an answer")
        return Classifier(v=2, bias=True)
    return Pooler(v=labels(r) if kind == "ForSequenceClassification" else None, i=r.pooled, act=r.pooled_act)
