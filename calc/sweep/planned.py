"""Closed forms of plans: a model on a layout of numbers, with letters for the sizes that a grid gives and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from ..errors import BlockcalcError
from .closed import Forms, compiled, recheck
from .ledger import Ledger, Noted
from .plans import PLANS, Place


def forms(place: Place, quantities: Sequence[str]) -> tuple[Forms, ...]:
    """The closed forms of these quantities: of bytes in whole numbers, of all else in floating-point ones."""
    found = []
    for timed in (False, True):
        names = [name for name in quantities if PLANS[name].timed == timed]
        if names:
            found.append(_Forms(place, Ledger(real=timed, lines=True)).of(names))
    return tuple(found)


class _Forms:
    """Those of one ledger. What several quantities are read off is made once."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self.place, self.ledger = place, ledger
        self._made: dict[Callable[..., Any], tuple[Any, Noted]] = {}

    def of(self, names: Sequence[str]) -> Forms:
        """The forms of these quantities."""
        found, noted, refused = {}, {}, {}
        for name in names:
            try:
                found[name], noted[name] = self._closed(name)
            except BlockcalcError as error:
                refused[name] = str(error)
        return compiled(found, noted, refused, self.ledger)

    def _closed(self, name: str) -> tuple[Any, Noted]:
        plan = PLANS[name]
        if plan.make not in self._made:
            with self.ledger.noting({}) as noted:
                recheck(self.place.model, careful=self.place.run.policy == "transformers")
                self._made[plan.make] = plan.make(self.place), noted
        made, before = self._made[plan.make]
        with self.ledger.noting(before) as noted:
            return sympy.sympify(plan.read(made, self.place)), noted
