"""By which terms one run is slower than another."""

from __future__ import annotations

from collections.abc import Mapping

from ..timing.serving import Tokens
from ..timing.training import StepTime

NOTHING = 1e-9
"""The share of a time below which a difference is none."""


def terms(step: StepTime, microbatches: int) -> dict[str, float]:
    """Seconds of a step by what they are waited for; their sum is the estimate."""
    waits = {str(name): microbatches * seconds for name, seconds in step.microbatch.waits().items()}
    return waits | {"pipeline bubble": step.bubble, "data ranks": step.data, "optimizer": step.optimizer}


def longer(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """How much longer the terms of the other are, the worst first; those left out that are not."""
    least = NOTHING * sum(other.values())
    found = {name: seconds - one.get(name, 0.0) for name, seconds in other.items()}
    return dict(sorted(((name, more) for name, more in found.items() if more > least), key=lambda pair: -pair[1]))


def slower(best: StepTime, other: StepTime, microbatches: int, others: int) -> dict[str, float]:
    """By what a step is slower than the best, the worst first."""
    return longer(terms(best, microbatches), terms(other, others))


def longer_wait(best: Tokens, other: Tokens) -> dict[str, float]:
    """By what an output token takes longer."""
    return longer(_waits(best, 1.0), _waits(other, 1.0))


def longer_share(best: Tokens, other: Tokens) -> dict[str, float]:
    """By what one of all tokens takes more of the devices' time: waits over the tokens that share them."""
    return longer(*(_waits(found, found.seconds * found.per_second) for found in (best, other)))


def _waits(found: Tokens, tokens: float) -> dict[str, float]:
    return {str(name): wait / tokens for name, wait in found.time.waits().items()}
