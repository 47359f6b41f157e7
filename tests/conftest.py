"""Hypothesis: the same examples in every run, unless BLOCKCALC_EXAMPLES asks for a number of new ones."""

from __future__ import annotations

import os

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
