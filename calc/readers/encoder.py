"""From a reading of an encoder alone, of tokens or of images, to a Model."""

from __future__ import annotations

from typing import Any

from ..blocks.attention import Attention
from ..blocks.embedding import Patches
from ..blocks.norm import LayerScale
from ..blocks.position import Rotary
from ..blocks.wiring import Block, Residual
from ..heads import Classifier, MaskedLMHead, Pooler
from ..model import Embedding, Layer, LMHead, Model, Stack
from .config import Reading
from .decoder import feed_forward, stack
from .heads import class_of, labels


def encoder(r: Reading) -> Model:
    """Layers that see in both directions, over tokens, positions and types."""
    embedding = Embedding(
        v=r.v, d=r.d, i=r.narrow, all_narrow=r.narrow is not None, position=r.position, types=r.types, norm=r.embedding_norm
    )
    return Model(name=r.where, embedding=embedding, stack=r.layers(r), head=r.head(r))


def vision(r: Reading) -> Model:
    """Layers that see in both directions, over the patches of an image."""
    return Model(name=r.where, embedding=patches(r), stack=r.layers(r), head=r.head(r))


def patches(r: Reading) -> Patches:
    """The patches of an image, of which those that are no whole ones are left out."""
    (height, width), (tall, wide) = r.image, r.patch
    count = (height // tall) * (width // wide)
    if not count:
        raise r.refuse("patch_size", f"at most the {height} × {width} pixels of image_size")
    margin = height % tall or width % wide
    pixels = height * width if margin else None
    return Patches(
        d=r.d, m=count, y=tall * wide, x=r.channels, z=pixels, bias=r.patch_bias, reserved=int(r.mask_token), norm=r.patch_norm
    )


def scaled_branches(r: Reading, attention: Any, mlp: Any) -> Block:
    """Norms before the branches, and a trained number an entry behind them: DINOv2's."""
    return Block(branches=(
        Residual(name="attention", branch=attention, before=r.norm, after=LayerScale()),
        Residual(name="mlp", branch=mlp, before=r.norm, after=LayerScale()),
    ))  # fmt: skip


def equal_layers(r: Reading) -> Stack:
    """Equal layers, each with its weights or in groups that share theirs."""
    attention = Attention(
        n=r.n, k=r.n, h=r.h, causal=r.causal, cached=not r.causal, position=r.inner, qkv_bias=r.qkv_bias, o_bias=r.o_bias
    )
    layer = Layer(block=r.wiring(r, attention, feed_forward(r, r.f)), l=r.l, j=r.sets)
    return Stack(name=r.stack, layers=(layer,), norm=r.final_norm)


def windows_and_full(r: Reading) -> Stack:
    """Layers of which some see a window, all but the first with a norm before attention: ModernBERT's."""
    kinds = [(window, not i) for i, window in enumerate(r.windows)]
    names = {kind: ("first_" if kind[1] else "") + ("full" if kind[0] is None else "window") for kind in kinds}
    blocks = {kind: _rotated_block(r, *kind) for kind in names}
    return stack("encoder", kinds, blocks, lambda kind: names[kind], r.final_norm)


def _rotated_block(r: Reading, window: int | None, first: bool) -> Block:
    attention = Attention(
        n=r.n, k=r.n, h=r.h, w=window, causal=False, position=Rotary(r=r.h, local=window is not None), qkv_bias=r.qkv_bias,
        o_bias=r.qkv_bias,
    )  # fmt: skip
    return Block(branches=(
        Residual(name="attention", branch=attention, before=None if first else r.norm),
        Residual(name="mlp", branch=feed_forward(r, r.f), before=r.norm),
    ))  # fmt: skip


def usual_head(r: Reading) -> Any:
    """BERT's heads."""
    kind = class_of(r)
    if kind == "ForMaskedLM":
        if r.second_bias and not r.tied:
            raise r.refuse("tie_word_embeddings", "true: untied, transformers stores a second output bias that nothing reads")
        output = LMHead(v=r.v, tied=r.tied, bias=r.head_bias)
        return MaskedLMHead(output=output, act=r.head_act, norm=r.norm, bias=r.hidden_bias)
    if kind == "ForPreTraining":
        return Classifier(v=1, bias=True, act=r.act)
    if kind == "ForTokenClassification":
        return Classifier(v=labels(r), bias=True, **r.hidden)
    if kind == "ForImageClassification":
        return Classifier(v=labels(r), bias=True, first=True)
    if kind == "ForQuestionAnswering":
        if labels(r) != 2:
            raise r.refuse("num_labels", "2, the two ends of an answer")
        return Classifier(v=2, bias=True, **r.hidden)
    if kind == "ForSequenceClassification" and r.hidden:
        return Classifier(v=labels(r), bias=True, first=not r.mean, mean=r.mean, **r.hidden)
    if kind == "ForSequenceClassification":
        return Pooler(v=labels(r), i=r.pooled, act=r.class_act)
    return Pooler(i=r.pooled, act=r.pooled_act) if r.pooler else None
