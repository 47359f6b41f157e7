"""Every family by its ``model_type``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import articles, bidirectional, gpt, llama, mixtures, seq2seq
from .family import Family

FAMILIES: Mapping[str, Family] = MappingProxyType(
    dict(sorted({
        **articles.FAMILIES, **bidirectional.FAMILIES, **gpt.FAMILIES, **llama.FAMILIES, **mixtures.FAMILIES,
        **seq2seq.FAMILIES,
    }.items()))
)  # fmt: skip
