"""Hypothesis: the same examples in every run, unless BLOCKCALC_EXAMPLES asks for a number of new ones. Exports: their cases."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

EXAMPLES = "BLOCKCALC_EXAMPLES"

settings.register_profile(
    "blockcalc",
    max_examples=int(os.environ.get(EXAMPLES, 20)),
    derandomize=EXAMPLES not in os.environ,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("blockcalc")


@pytest.fixture(scope="session")
def cases():
    import exported

    return exported.cases()


@pytest.fixture(scope="session")
def distinct(cases):
    """One case of each expression: a reading of the expression alone needs no more."""
    return list({case.formula.expr: case for case in cases}.values())
