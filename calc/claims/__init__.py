"""The ledger of claims: what three articles on the transformer block say, beside what the engine counts.

The statements, and what torch must measure, are data (``blockcalc.tables.claims``). Here are the closed forms and values,
and the verdict that follows from both: a wrong engine would change it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from ..errors import InputError
from ..tables.claims import CLAIMS, Claim, Verdict
from ..tables.claims.claim import Says
from . import attention, depth, feed_forward, models, scores
from .fact import Fact

FACTS = {**scores.FACTS, **attention.FACTS, **feed_forward.FACTS, **depth.FACTS, **models.FACTS}
"""What the engine counts, by the claim's id."""


class Entry(NamedTuple):
    """A claim with what was counted for it, and the verdict that follows."""

    claim: Claim
    facts: tuple[Fact, ...]
    verdict: Verdict

    def as_json(self, measured: tuple[float, ...] | None = None) -> dict[str, Any]:
        """The entry as one object; *measured* are torch's values where they were asked for."""
        claim, first = self.claim, self.facts[0] if self.facts else None
        values: Iterable[Any] = measured or (None,) * len(claim.measured)
        return {
            "id": claim.id, "where": claim.where, "statement": claim.statement, "verdict": self.verdict,
            "condition": claim.condition or None, "reason": claim.reason,
            "formula": first and first.formula, "value": first and plain(first.value),
            "facts": [fact._asdict() | {"value": plain(fact.value), "claimed": plain(fact.claimed)} for fact in self.facts],
            "measured": [
                {"what": one.what, "expected": one.expected, "says": one.says, "value": value,
                 "agrees": None if value is None else one.agrees(value)}
                for one, value in zip(claim.measured, values, strict=True)
            ],
        }  # fmt: skip


def plain(value: Any) -> Any:
    """A value as JSON has it: whole numbers exact, shares and printed decimals as numbers."""
    if value is None or type(value) in (int, bool, str, float):
        return value
    return float(value)


def shown(value: Any) -> Any:
    """A value as people read it: shares to four significant digits."""
    if isinstance(value, Fraction):
        return f"{float(value):.4g}" if abs(value) < 10**4 else f"{float(value):,.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if value is None or type(value) in (int, str) else f"{value:f}"


def judge(says: Iterable[Says], untestable: bool = False) -> Verdict:
    """The verdict of several findings.

    It holds if all agree; on a condition if only findings without it disagree; else it is corrected. Findings that say
    nothing by themselves have no say.
    """
    found = {one for one in says if one != "aside"}
    if untestable or not found:
        return "not testable here"
    if "condition" in found and "broken" not in found:
        return "holds if"
    return "corrected" if found & {"against", "broken"} else "holds"


def entry(name: str) -> Entry:
    """One claim, counted. Raises InputError for an unknown id."""
    if name not in CLAIMS:
        from difflib import get_close_matches

        near = get_close_matches(name, CLAIMS, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ";"
        raise InputError(f"{name}: no such claim{hint} 'blockcalc claims' lists them")
    claim = CLAIMS[name]
    facts = tuple(FACTS[name]()) if name in FACTS else ()
    votes = [*(fact.says for fact in facts), *(one.says for one in claim.measured)]
    return Entry(claim, facts, judge(votes, untestable=claim.verdict == "not testable here"))


def entries() -> list[Entry]:
    """The whole ledger, counted."""
    return [entry(name) for name in CLAIMS]
