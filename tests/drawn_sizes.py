"""The sizes of a drawn config, and what its fields are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

ABSENT = object()
"""The field is left out of the config."""


class Sizes(NamedTuple):
    """One draw of all letters. Names ending in ``_2`` are another stack's."""

    k: int  # key-value heads
    g: int  # query heads a key-value head
    h: int  # head width
    wide: bool  # the head width stands in its own field, and is not d / n
    x: int  # d / n when it is not the head width
    f: int
    f_2: int
    f_expert: int
    v: int
    m: int
    m_2: int
    l: int
    l_2: int
    groups: int  # groups of experts
    e_group: int  # experts a group
    choice: int  # decides how many are active
    w: int
    c: int
    q: int
    p: int
    r: int
    u: int

    n = property(lambda self: self.g * self.k)
    d = property(lambda self: self.n * (self.x if self.wide else self.h))
    e = property(lambda self: self.groups * self.e_group)
    a = property(lambda self: 1 + self.choice % self.e)


def of(*values: Any) -> Any:
    return st.sampled_from(values)


SIZES = dict(
    k=of(1, 2, 3), g=of(1, 2, 3, 5), h=of(6, 10, 14, 22), x=of(7, 11, 13), f=of(47, 53, 59), f_2=of(61, 67, 71),
    f_expert=of(17, 19, 23), v=of(101, 103, 107, 109), m=of(73, 79), m_2=of(83, 89), l=of(1, 2, 3, 4), l_2=of(1, 2, 3, 4),
    groups=of(1, 2), e_group=of(3, 4, 5), choice=st.integers(0, 9), w=st.integers(1, 17), c=of(29, 31), q=of(37, 41),
    p=of(9, 15, 21), r=of(4, 12, 20), u=of(5, 7, 11),
)  # fmt: skip

Draw = Callable[[Any], Any]
"""Hypothesis's ``draw``."""

yes_or_no = st.booleans()


def maybe(strategy: Any) -> Any:
    """What is drawn, or the field is left out."""
    return st.just(ABSENT) | strategy


def null_or(letter: str) -> Callable[..., Any]:
    """null, or the letter."""
    return lambda draw, s, config: getattr(s, letter) if draw(yes_or_no) else None
