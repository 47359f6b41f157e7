"""What a sweep is asked, in plain text: it travels to a cluster as it is, and its hash is the grid's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, get_args, get_type_hints

from ..budget import Policy
from ..convention import CONVENTIONS
from ..dims import check_sizes
from ..errors import InputError
from ..inverse.sides import is_free
from ..quantities import QUANTITIES
from ..readers import find
from ..recorder import Recompute
from ..storage.formats import Format
from ..storage.optimizers import OPTIMIZERS
from ..storage.precision import named
from ..tables import presets
from ..tensor import Kernels
from ..timing.efficiency import PROFILES
from ..timing.machine import Machine, Peaks, machine
from .axes import axis
from .plans import PLANS
from .rows import as_text


def _one_of(*known: str) -> Callable[[Any], object]:
    def check(value: Any) -> None:
        if value not in known:
            raise InputError(f"not one of {', '.join(known)}")

    return check


def _format(value: Any) -> Format:
    return named(as_text(value))


OPTIONS: Mapping[str, Callable[[Any], object]] = {
    "dtype": _one_of("fp32", "bf16", "fp16", "fp8", "int8"),
    "convention": _one_of(*CONVENTIONS),
    "policy": _one_of(*get_args(Policy)),
    "attention": _one_of(*get_args(get_type_hints(Kernels)["attention"])),
    "recompute": _one_of(*get_args(Recompute)),
    "gpu": machine,
    "quant": _format,
    "kv_dtype": lambda value: _format(value).width,
    "optimizer": _one_of(*OPTIMIZERS),
    "microbatches": lambda value: check_sizes("training", microbatches=value),
    "efficiency": _one_of(*PROFILES),
    "products": _one_of(*Peaks._fields),
}
"""How a quantity is counted, and on what: each with what refuses a value that it does not have. Each may be an axis; those
from ``gpu`` on are of plans. Attention is math unless given, of plans fused."""

POINTS = 2**18
"""Points of a block, which is what is written, or lost, at once."""


class Spec(NamedTuple):
    """Models by name, with their configs (JSON) where they are no presets, blocks or families; all else as it was given."""

    models: tuple[tuple[str, str | None], ...]
    over: tuple[str, ...]
    quantities: tuple[str, ...] = ("params",)
    ties: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    machines: tuple[tuple[str, Machine], ...] = ()  # by the names under which they are asked for
    valid: bool = False  # are refused rows left out
    block: int = POINTS

    @property
    def hash(self) -> str:
        """Of the grid: other rows have another."""
        from .. import __version__

        configs = [presets()[name]["config"] if name in presets() else config for name, config in self.models]
        return sha256(json.dumps([__version__, self, configs], sort_keys=True, default=repr).encode()).hexdigest()

    @property
    def budgets(self) -> tuple[str, ...]:
        """The quantities that a budget has."""
        return tuple(name for name in self.quantities if name not in PLANS)

    @property
    def plans(self) -> tuple[str, ...]:
        """Those that take devices."""
        return tuple(name for name in self.quantities if name in PLANS)


def spec(
    models: Sequence[str],
    over: Sequence[str],
    quantities: Sequence[str] = ("params",),
    *,
    ties: Sequence[str] = (),
    where: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    valid: bool = False,
    block: int = POINTS,
) -> Spec:
    """Gather what is asked. Raises InputError for an unknown model, quantity or option, and for one that stands twice."""
    for what, given in (("model", models), ("--quantity", quantities)):
        for one in given:
            if given.count(one) > 1:
                raise InputError(f"{what} {one}: named twice")
    for name in quantities:
        if name not in (*QUANTITIES, *PLANS):
            raise InputError(f"quantity {name!r} is not one of {', '.join((*QUANTITIES, *PLANS))}")
    for option, value in (options or {}).items():
        check_option(option, value)
    if not 1 <= block <= 2**24:
        raise InputError(f"--block {block}: expected from 1 to 2^24 points")
    found = tuple((name, None if name in presets() or is_free(name) else json.dumps(find(name)[1])) for name in models)
    names = [as_text(value) for one in map(axis, over) if one.name == "gpu" for value in one]
    names += [options["gpu"]] if options and "gpu" in options else []
    machines = tuple((name, machine(name)) for name in names)
    return Spec(
        found, tuple(over), tuple(quantities), tuple(ties), tuple(where), tuple(sorted((options or {}).items())), machines,
        valid, block,
    )  # fmt: skip


def check_option(name: str, value: Any) -> None:
    """Refuse what is no such option."""
    try:
        OPTIONS[name](value)
    except InputError as error:
        raise InputError(f"{name} {as_text(value)}: {error}") from None
