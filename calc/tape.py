"""The recorder with every cost rule: what a component's ``trace`` writes on.

Which weights, saved tensors, cached tensors, traffic and multiply-adds an operation has is said once, in
:mod:`blockcalc.rules`; the mechanics are in :mod:`blockcalc.recorder`.
"""

from __future__ import annotations

from .rules.attention import AttentionRules
from .rules.attention import visible_pairs as visible_pairs
from .rules.mixture import MixtureRules
from .rules.scan import ScanRules


class Tape(ScanRules, AttentionRules, MixtureRules):
    """Lines of operations on shapes: linear maps, elementwise operations, norms, attention, states, mixtures, the loss."""
