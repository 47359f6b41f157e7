"""Statements of three articles on the transformer block, as data: what each says, where, and the reason of its verdict.

``ARTICLES`` says what D1, D2 and D3 are: title, author and date as the texts give them. The numbers are counted by
``blockcalc.claims`` and measured by ``blockcalc.refmodel.claims``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import attention, depth, feed_forward, models, scores
from .claim import ARTICLES, Article, Claim, Measured, Verdict

__all__ = ["ARTICLES", "CLAIMS", "Article", "Claim", "Measured", "Verdict"]

CLAIMS: Mapping[str, Claim] = MappingProxyType({
    claim.id: claim
    for part in (scores, attention, feed_forward, depth, models)
    for claim in part.CLAIMS
})  # fmt: skip
