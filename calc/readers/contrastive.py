"""CLIP: an encoder of texts and one of images, together or each alone."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import LayerNorm
from ..heads import Classifier, Contrastive, NormedFirst
from ..model import Embedding, Model
from . import decoder as d
from .bidirectional import BERT, VIT
from .config import Reading, Rule, derived, layers, size, word
from .encoder import patches, vision
from .family import ACTIVATIONS, Family, split_head
from .heads import class_of


def _text(r: Reading) -> Model:
    """Causal layers over tokens and positions; of the output one position counts, that where the text ends."""
    return Model(name=r.where, embedding=_embedding(r), stack=r.layers(r), head=_text_head(r))


def _embedding(r: Reading) -> Embedding:
    return Embedding(v=r.v, d=r.d, position=r.position)


def _text_head(r: Reading) -> Classifier | None:
    return Classifier(v=r.projection, bias=False, first=True) if class_of(r) == "ModelWithProjection" else None


def _image_head(r: Reading) -> NormedFirst:
    return NormedFirst(norm=r.norm, v=r.projection if class_of(r) == "ModelWithProjection" else None)


def _both(r: Reading) -> Model:
    """Texts and images, compared."""
    class_of(r)
    text, image = r.texts, r.images
    return Model(
        name=r.where, embedding=_embedding(text), stack=text.layers(text), head=Contrastive(i=r.projection, norm=image.norm),
        encoder=image.layers(image), encoder_embedding=patches(image),
    )  # fmt: skip


def _part(field: str, kind: str, family: Family) -> Rule:
    """An object of the config, read as a config of *kind*. Its older name, with ``_dict`` behind, goes before it."""

    def read(r: Reading) -> Reading:
        from . import refuse_unread

        name = field if r.config.get(f"{field}_dict") is None else f"{field}_dict"
        inner = r.config.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise r.refuse(name, "an object or null")
        part = Reading(family.knobs, {"model_type": kind, **(inner or {})}, f"{r.where}: {name}")
        if part.config["model_type"] != kind:
            raise part.refuse("model_type", f'"{kind}"')
        refuse_unread(part)
        return part

    return Rule((field, f"{field}_dict"), read)


CLIP_TEXT = Family(_text, BERT.knobs).but(
    prefix="CLIPText", classes=("Model", "ModelWithProjection"), also=("tie_word_embeddings",), wiring=d.pre_norm, stack="text",
    causal=True, v=size("vocab_size", 49408), d=size("hidden_size", 512), n=size("num_attention_heads", 8),
    f=size("intermediate_size", 2048), act=word("hidden_act", "quick_gelu", ACTIVATIONS), m=size("max_position_embeddings", 77),
    final_norm=LayerNorm(), projection=size("projection_dim", 512),
    types=None, tied=None, one_way=None, alone=None, absolute=None,
)  # fmt: skip

CLIP_VISION = Family(vision, VIT.knobs).but(
    prefix="CLIPVision", classes=("Model", "ModelWithProjection"), head=_image_head, l=layers("num_hidden_layers", 12),
    act=word("hidden_act", "quick_gelu", ACTIVATIONS), h=derived(split_head), qkv_bias=True, final_norm=None,
    side=size("image_size", 224), image=derived(lambda r: (r.side, r.side)), patch_side=size("patch_size", 32),
    patch=derived(lambda r: (r.patch_side, r.patch_side)), patch_bias=False, patch_norm=LayerNorm(),
    projection=size("projection_dim", 512), pooled_width=None, pooled=None, pooled_act=None,
)  # fmt: skip

CLIP = Family(_both, MappingProxyType(dict(
    prefix="CLIP", classes=("Model",), also=("tie_word_embeddings",), projection=size("projection_dim", 512),
    texts=_part("text_config", "clip_text_model", CLIP_TEXT), images=_part("vision_config", "clip_vision_model", CLIP_VISION),
)))  # fmt: skip

FAMILIES = {"clip": CLIP, "clip_text_model": CLIP_TEXT, "clip_vision_model": CLIP_VISION}
