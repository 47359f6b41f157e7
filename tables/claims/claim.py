"""What an entry of the ledger is before anything is counted: the statement, where it stands, what torch must find."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["holds", "holds if", "corrected", "not testable here"]
Says: TypeAlias = Literal["for", "against", "condition", "broken", "aside"]
"""What a finding says of the claim: for or against it; for or against it under the named condition; nothing by itself."""


class Measured(NamedTuple):
    """A number that torch must find, and what it says of the claim.

    ``sign``: equal (no tolerance), about (``within`` of it, absolutely), at most, at least, or only shown.
    """

    what: str
    sign: Literal["=", "≈", "≤", "≥", "shown"]
    bound: float = 0
    says: Says = "for"
    within: float = 0

    def agrees(self, value: float) -> bool:
        """Whether a measured value is what is expected."""
        return {
            "=": value == self.bound, "≈": abs(value - self.bound) <= self.within, "≤": value <= self.bound,
            "≥": value >= self.bound, "shown": True,
        }[self.sign]  # fmt: skip

    @property
    def expected(self) -> str:
        """The expectation in words."""
        if self.sign == "shown":
            return "shown"
        return f"{self.sign} {self.bound:g}" + (f" ± {self.within:g}" if self.within else "")


def equal(what: str, bound: float, says: Says = "for") -> Measured:
    """A count, or a truth as 0 or 1: no tolerance."""
    return Measured(what, "=", bound, says)


def about(what: str, bound: float, within: float, says: Says = "for") -> Measured:
    """A number and how far from it torch may be."""
    return Measured(what, "≈", bound, says, within)


def at_most(what: str, bound: float, says: Says = "for") -> Measured:
    """An upper bound."""
    return Measured(what, "≤", bound, says)


def at_least(what: str, bound: float, says: Says = "for") -> Measured:
    """A lower bound."""
    return Measured(what, "≥", bound, says)


def shown(what: str) -> Measured:
    """A number of this machine, which nothing is held against."""
    return Measured(what, "shown", says="aside")


class Claim(NamedTuple):
    """A statement of an article, in our words.

    ``verdict`` is what its reason was written for; the one that is printed follows from what the engine counts and what
    torch measures, and a difference is an error. ``condition`` names what a verdict ``holds if`` depends on.
    """

    id: str
    where: str
    statement: str
    verdict: Verdict
    reason: str
    condition: str = ""
    measured: tuple[Measured, ...] = ()


class Article(NamedTuple):
    """One of the texts that the claims are from, as it gives its own title, author and date."""

    name: str
    title: str
    english: str
    author: str
    date: str


ARTICLES = (
    Article(
        "D1", "Transformer Block 设计哲学：从『看似冗余』到『刚好够用』",
        "The design philosophy of the Transformer block: from seemingly redundant to just enough", "kailfrong",
        "2026-06-25, updated 2026-10-12",
    ),
    Article(
        "D2", "一个 Transformer Block：多头、残差、归一化与 FFN",
        "A Transformer block: multiple heads, residuals, normalisation and FFN", "not named", "first draft 2026-10",
    ),
    Article(
        "D3", "一层里的六步 — 6×768 进去,6×768 出来,所以能反复堆 12 次",
        "Six steps in one layer: 6×768 in, 6×768 out, so that it can be stacked 12 times", "not named", "not dated",
    ),
)  # fmt: skip
