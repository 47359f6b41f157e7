"""The closed forms of one rank: polynomials in letters, and what a row is refused without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..breakdown import ADDITIVE, How, budget_of, measure, quantity, step_of
from ..budget import Budget
from ..dims import Dim, ceiling, check_at_most, product, symbol
from ..errors import BlockcalcError, InputError, UndefinedError
from ..parallel.layout import Layout
from ..parallel.shard import fully_sharded, shard
from ..parallel.stages import Stage
from ..symbolic import tidy
from .exact import Boxed, Real
from .ledger import Condition, Ledger, Noted, needed

RANKS = ("tp", "cp", "dp", "ep", "etp")
"""The letters of a layout that a closed form may have; pipeline stages are traced each by itself."""

_WHOLE_BANK = ("active", "active_without_input")
_STEP = (symbol("B"), symbol("T"), symbol("S"))
ENCODER = symbol("T_encoder")


class Forms(NamedTuple):
    """Closed forms, the conditions in the order in which their letters can be made, and which of them a quantity has."""

    closed: Boxed | Real | None
    names: tuple[str, ...]  # of the quantities that it gives
    conditions: tuple[Condition, ...]
    of: Mapping[str, tuple[int, ...]]
    refused: Mapping[str, str]  # by quantity
    symbols: frozenset[str]  # the letters that numbers are needed for


class Rank:
    """One rank of *component*, a model, a stage or a block on symbols, a block's input *width* wide. What is traced is kept.

    *split* are those of RANKS that are more than one, *cut* is ZeRO 3, *encoder* a length of its own.
    """

    def __init__(
        self, component: Any, width: Any, split: frozenset[str], *, sequence: bool = False, cut: bool = False,
        encoder: bool = False,
    ) -> None:  # fmt: skip
        self.component, self.width, self.encoder = component, width, encoder
        self.split = split
        ranks = {rank: symbol(rank) for rank in (*split, "dp")}
        self.layout = Layout(sequence=sequence, zero=3 if cut else 0, **ranks)
        self._ledger = Ledger()
        self._budgets: dict[Any, tuple[Budget, Noted]] = {}
        self._found: dict[Any, tuple[Any, Noted]] = {}

    def forms(self, quantities: Sequence[str], how: How) -> Forms:
        """The closed forms of these quantities."""
        found, refused, of = {}, {}, {}
        for name in quantities:
            try:
                found[name], of[name] = self._closed(name, how)
            except BlockcalcError as error:
                refused[name] = str(error)
        return compiled(found, of, refused, self._ledger)

    def _closed(self, name: str, how: How) -> tuple[Any, Noted]:
        """The quantity on symbols, and what it takes for granted. What it does not depend on is as usual."""
        depends = quantity(name).depends
        rest = {option: getattr(how, option) for option in ("dtype", "convention", "policy", "recompute") if option in depends}
        how = How(kernels=how.kernels, **rest)
        if (name, how) not in self._found:
            budget, noted = self._budget(name, how)
            with self._ledger.noting(noted) as all_noted:
                self._found[name, how] = tidy(self._read(budget, name, how)), all_noted
        return self._found[name, how]

    def _budget(self, name: str, how: How) -> tuple[Budget, Noted]:
        """What the quantity's step costs the rank."""
        step = step_of(name, *_STEP, ENCODER if self.encoder else None)
        careful = how.policy == "transformers"
        key = step, how.kernels, how.recompute, careful
        if key not in self._budgets:
            with self._ledger.noting({}) as noted:
                recheck((step, self.component), careful=careful)
                if isinstance(self.component, Stage):
                    whole = self.component.budget(step, how.kernels, how.recompute)
                else:
                    whole = budget_of(self.component, step, how, self.width)
                self._budgets[key] = shard(whole, self.layout), noted
        return self._budgets[key]

    def _read(self, part: Budget, name: str, how: How) -> Dim:
        split = isinstance(self.component, Stage) or self.split
        if split and "convention" in quantity(name).depends and how.convention not in ADDITIVE:
            raise UndefinedError(f"convention {how.convention}: a formula of the whole model, not of a rank")
        if "ep" in self.split and name in _WHOLE_BANK:
            raise UndefinedError("the experts of one token lie on several ranks")
        if self.layout.zero != 3 or quantity(name).unit != "parameters":
            return measure(part, name, how)
        if name != "params":
            raise UndefinedError("ZeRO 3 cuts every weight: params alone says what a rank holds")
        return _cut_params(part, self.layout)


def compiled(found: dict[str, Any], of: Mapping[str, Noted], refused: dict[str, str], ledger: Ledger) -> Forms:
    """The expressions as functions of letters, each with what it takes for granted. What cannot be compiled is refused."""
    closed = Real(list(found.values())) if ledger.real and found else _whole(found, refused)
    wanted = {key for name in found for key in of[name]}
    conditions = {key: one for key, one in ledger.conditions.items() if key in wanted}  # each behind its letters
    places = {key: index for index, key in enumerate(conditions)}
    made, by_name = tuple(conditions.values()), {name: tuple(places[key] for key in of[name]) for name in found}
    return Forms(closed, tuple(found), made, by_name, refused, needed(closed, made))


def _whole(found: dict[str, Any], refused: dict[str, str]) -> Boxed | None:
    """All that can be compiled, as one function; what cannot is refused."""
    try:
        return Boxed(list(found.values())) if found else None
    except InputError:
        for name in tuple(found):
            try:
                Boxed([found[name]])
            except InputError as error:
                refused[name] = str(error)
                del found[name]
    return _whole(found, refused)


def recheck(component: Any, *, careful: bool = False) -> None:
    """Have every declaration in it check its sizes, now that someone listens."""
    if isinstance(component, tuple):
        for item in component:
            recheck(item, careful=careful)
    elif hasattr(component, "__dataclass_fields__"):
        for name in component.__dataclass_fields__:
            recheck(getattr(component, name), careful=careful)
        if hasattr(component, "__post_init__"):
            component.__post_init__()
        if careful and getattr(component, "w", None) is not None:
            check_at_most(2, component.w, "policy transformers caches a window of 1 whole, which is another closed form")


def _cut_params(part: Budget, layout: Layout) -> Dim:
    """Parameters that one rank holds under ZeRO 3: of every weight its run of rows, filled up."""
    seen: dict[Any, Any] = {}
    for line in part.lines:
        for weight in line.weights:
            seen.setdefault(weight, line)
    total: Dim = 0
    for weight, line in seen.items():
        ranks = layout.expert_replicas if line.bank != 1 else layout.replicas
        rows, *rest = fully_sharded(line, weight, 1).sizes
        total += weight.copies * ceiling(rows, ranks) * product(rest)
    return total
