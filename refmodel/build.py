"""A declaration's twin: ``build(component, d)`` for one on an input of width d, ``build(model)`` for a whole model."""

from __future__ import annotations

from torch import nn

from .. import heads as outputs
from .. import model as whole
from ..blocks import embedding as embeddings
from . import attention, branches, embedding, heads, mlp, model, position
from .dispatch import ALONE, CAP, Given, build, linear, maybe, table

__all__ = ["Given", "branches", "build"]


@build.register
def _(c: embeddings.Patches, d: int = 0, given: Given = ALONE) -> embedding.Patches:
    return embedding.Patches(
        c.d,
        c.m,
        c.y,
        c.x,
        c.z,
        bias=c.bias,
        class_token=c.class_token,
        positions=c.positions,
        reserved=c.reserved,
        norm=maybe(c.norm, c.d),
    )


@build.register
def _(c: embeddings.Frames, d: int = 0, given: Given = ALONE) -> embedding.Frames:
    return embedding.Frames(c.d, c.m, c.x)


@build.register
def _(c: whole.Embedding, d: int = 0, given: Given = ALONE) -> model.Embedding:
    return embed(c, table(c.v, c.d if c.i is None else c.i))


def embed(c: whole.Embedding, token: nn.Parameter) -> model.Embedding:
    """An embedding's twin around a token table."""
    inner = token.size(1) if c.all_narrow else c.d  # the width of the sum
    return model.Embedding(
        token, project=linear(token.size(1), None if c.i is None else c.d, bias=c.all_narrow),
        project_last=c.all_narrow, position=maybe(c.position, inner),
        types=None if c.types is None else table(c.types, inner), norm=maybe(c.norm, inner), smear=maybe(c.smear, inner),
        layers=maybe(c.layers, c.d),
    )  # fmt: skip


@build.register
def _(c: whole.Stack, d: int, given: Given = ALONE) -> model.Stack:
    sets = {
        f"{c.name}.{layer.name}": [build(layer.block, d, given) for _ in range(layer.l if layer.j is None else layer.j)]
        for layer in c.layers
    }
    total = {f"{c.name}.{layer.name}": layer.l for layer in c.layers}
    seen, layers = dict.fromkeys(sets, 0), []
    for name in (name for name, count in c.runs() for _ in range(count)):
        layers.append(sets[name][seen[name] * len(sets[name]) // total[name]])  # neighbours share a set
        seen[name] += 1
    for number, layer in enumerate(layers):
        for module in layer.modules():
            if isinstance(module, embedding.LayerInput):
                module.layer = number
    return model.Stack(
        c.name,
        layers,
        norm=maybe(c.norm, d),
        project=linear(d, c.i),
        enter=maybe(c.enter, d),
        exit=maybe(c.exit, d, given._replace(j=getattr(c.enter, "j", 1))),
        biases=share_biases(layers),
    )


def share_biases(layers: list[nn.Module]) -> list[position.RelativeBias]:
    """Let equal relative biases of a stack be one table; these tables."""
    tables: dict[tuple[int, int], position.RelativeBias] = {}
    for module in (module for layer in layers for module in layer.modules()):
        if isinstance(module, attention.Attention) and isinstance(module.position, position.RelativeBias):
            own = module.position
            module.position = own if own.each_layer else tables.setdefault((own.m, own.n), own)
    return list(tables.values())


@build.register
def _(c: whole.LMHead, d: int, given: Given = ALONE) -> model.LMHead:
    return model.LMHead(d, c.v, tied=c.tied, bias=c.bias, cap=CAP if c.softcap else None, used=c.used, wide=c.wide)


@build.register
def _(c: outputs.MaskedLMHead, d: int, given: Given = ALONE) -> nn.Module:
    i = d if given.table is None else given.table
    return heads.MaskedLMHead(d, i, mlp.FUNCTIONS[c.act.name], build(c.norm, i), build(c.output, i), bias=c.bias)


@build.register
def _(c: outputs.Pooler, d: int, given: Given = ALONE) -> nn.Module:
    return heads.Pooler(d, d if c.i is None else c.i, c.v, mlp.FUNCTIONS[c.act.name])


@build.register
def _(c: outputs.Classifier, d: int, given: Given = ALONE) -> nn.Module:
    act = None if c.act is None else mlp.FUNCTIONS[c.act.name]
    return heads.Classifier(
        d, c.v, bias=c.bias, first=c.first, mean=c.mean, act=act, norm=maybe(c.norm, d), hidden_bias=c.hidden_bias
    )


@build.register
def _(c: outputs.NormedFirst, d: int, given: Given = ALONE) -> nn.Module:
    return heads.NormedFirst(d, build(c.norm, d), c.v)


@build.register
def _(c: outputs.Contrastive, d: int, given: Given = ALONE) -> nn.Module:
    source = given.source or d
    return heads.Contrastive(d, source, c.i, build(c.norm, source))


@build.register
def _(c: outputs.MeanHead, d: int, given: Given = ALONE) -> nn.Module:
    return heads.MeanHead(d, c.v)


@build.register
def _(c: whole.Model, d: int = 0, given: Given = ALONE) -> model.Model:
    inputs, d = build(c.embedding), c.embedding.d
    token = inputs.token if isinstance(inputs, model.Embedding) else None
    source = d if c.encoder_embedding is None else c.encoder_embedding.d
    given = Given(source, None if token is None else token.size(1), c.embedding.length or 1)
    stack, head = build(c.stack, d, given), maybe(c.head, d if c.stack.i is None else c.stack.i, given)
    predictors = [build(predictor, d, given) for predictor in c.predictors]
    if c.encoder is None:
        return model.Model(inputs, stack, head, predictors=predictors)
    outer = maybe(c.encoder_embedding, 0)
    if isinstance(c.embedding, whole.Embedding) and token is not None and outer is None:
        outer = embed(c.embedding, token)  # the same token table
    return model.Model(inputs, stack, head, outer, build(c.encoder, source), predictors)
