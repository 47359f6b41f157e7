"""What a sweep is asked, in plain text: it travels to a cluster as it is, and its hash is the grid's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, get_args, get_type_hints

from ..breakdown import quantity
from ..budget import Policy
from ..convention import CONVENTIONS
from ..errors import InputError
from ..inverse.sides import is_free
from ..readers import find
from ..recorder import Recompute
from ..tables import presets
from ..tensor import Kernels

OPTIONS: Mapping[str, Sequence[str]] = {
    "dtype": ("fp32", "bf16", "fp16", "fp8", "int8"),
    "convention": tuple(CONVENTIONS),
    "policy": get_args(Policy),
    "attention": get_args(get_type_hints(Kernels)["attention"]),
    "recompute": get_args(Recompute),
}
"""How a quantity is counted. Each may be an axis."""

USUAL = {"dtype": "bf16", "convention": "torch", "policy": "minimal", "attention": "math", "recompute": "none"}

POINTS = 2**18
"""Points of a block, which is what is written, or lost, at once."""


class Spec(NamedTuple):
    """Models by name, with their configs where they are no presets, blocks or families; all else as it was given."""

    models: tuple[tuple[str, Any], ...]
    over: tuple[str, ...]
    quantities: tuple[str, ...] = ("params",)
    ties: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    valid: bool = False  # are refused rows left out
    block: int = POINTS

    @property
    def hash(self) -> str:
        """Of the grid: other rows have another."""
        from .. import __version__

        configs = [presets()[name]["config"] if name in presets() else config for name, config in self.models]
        return sha256(json.dumps([__version__, self, configs], sort_keys=True).encode()).hexdigest()


def spec(
    models: Sequence[str],
    over: Sequence[str],
    quantities: Sequence[str] = ("params",),
    *,
    ties: Sequence[str] = (),
    where: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    valid: bool = False,
    block: int = POINTS,
) -> Spec:
    """Gather what is asked. Raises InputError for an unknown model, quantity or option, and for one that stands twice."""
    for what, given in (("model", models), ("--quantity", quantities)):
        for one in given:
            if given.count(one) > 1:
                raise InputError(f"{what} {one}: named twice")
    for name in quantities:
        quantity(name)
    for option, value in (options or {}).items():
        check_option(option, value)
    if not 1 <= block <= 2**24:
        raise InputError(f"--block {block}: expected from 1 to 2^24 points")
    found = tuple((name, None if name in presets() or is_free(name) else find(name)[1]) for name in models)
    return Spec(
        found, tuple(over), tuple(quantities), tuple(ties), tuple(where), tuple(sorted((options or {}).items())), valid, block
    )


def check_option(name: str, value: Any) -> None:
    """Refuse what is no such option."""
    if value not in OPTIONS[name]:
        raise InputError(f"{name} {value}: not one of {', '.join(OPTIONS[name])}")
