"""A grid cut into boxes: each a run of consecutive points in row order, the last axis fastest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeAlias

Box: TypeAlias = tuple[range, ...]
"""The indices of each axis that it spans."""


class Boxes(NamedTuple):
    """The boxes of a grid of *shape*: whole in the axes behind *axis*, *step* indices of it, single ones of those before."""

    shape: tuple[int, ...]
    axis: int
    step: int

    @classmethod
    def of(cls, shape: Sequence[int], most: int) -> Boxes:
        """Boxes of at most *most* points, those of an axis as equal as can be."""
        axis, behind = len(shape) - 1, 1
        while axis > 0 and behind * shape[axis] <= most:
            behind *= shape[axis]
            axis -= 1
        pieces = -(-shape[axis] // max(most // behind, 1))
        return cls(tuple(shape), axis, -(-shape[axis] // pieces))

    @property
    def pieces(self) -> int:
        """How many share the indices of all axes before."""
        return -(-self.shape[self.axis] // self.step)

    @property
    def total(self) -> int:
        """All of them."""
        return prod(self.shape[: self.axis]) * self.pieces

    @property
    def points(self) -> int:
        """Of the largest."""
        return self.step * prod(self.shape[self.axis + 1 :])

    def box(self, number: int) -> Box:
        """The box of that number, in row order."""
        before, piece = divmod(number, self.pieces)
        start = piece * self.step
        found = [range(start, min(start + self.step, self.shape[self.axis]))]
        for size in reversed(self.shape[: self.axis]):
            before, index = divmod(before, size)
            found.append(range(index, index + 1))
        return (*reversed(found), *(range(size) for size in self.shape[self.axis + 1 :]))

    def first(self, number: int) -> int:
        """The number of the box's first point; of the number behind the last box, how many points there are."""
        if number == self.total:
            return prod(self.shape)
        point = 0
        for indices, size in zip(self.box(number), self.shape, strict=True):
            point = point * size + indices.start
        return point
