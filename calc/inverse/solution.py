"""What solves an equation, and why there is no other answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .answers import Answer
from .closed import Closed
from .grammar import Equation

ROOTS = "no other: every real root was isolated"
LOOKED = "the sides differ by ever more, or ever less, at all {} sizes that were looked at; not proved between them"


class Solution(NamedTuple):
    """What solves an equation.

    ``left`` and ``right`` are both sides in the unknown and the sizes that are free, ``held`` the sizes that are not.
    ``closed`` is the unknown as closed forms; ``answers`` are whole numbers, where no size is free. Without either,
    ``reason`` says why there is none. ``proved`` says why there is no other.
    """

    equation: Equation
    unknown: str
    unit: str
    left: str
    right: str
    closed: tuple[Closed, ...]
    answers: tuple[Answer, ...]
    reason: str | None
    proved: str
    held: Mapping[str, str]

    @property
    def answer(self) -> int | None:
        """The whole number, where there is exactly one answer."""
        return self.answers[0].at if len(self.answers) == 1 else None
