"""A checkpoint held against a model: tensors by shape, because each family has its own names for them.

What a checkpoint stores together (queries, keys and values; a bank of experts) is taken apart where sizes say how.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement
from math import prod
from typing import NamedTuple, TypeAlias

from ..model import Model
from ..tensor import Step
from .packed import Parameters
from .weights import Weight, weights

Shape: TypeAlias = tuple[int, ...]


class Difference(NamedTuple):
    """What model and checkpoint have unequally often: a shape of the model's, one of the checkpoint's, or one for the other.

    ``tensors`` of them; ``params`` is what the checkpoint has more; ``paths`` are lines of the model, ``names`` tensors of the
    checkpoint with ``*`` for numbers, those that are missing where the numbers of the others tell.
    """

    kind: str  # missing, extra, other size
    model: Shape | None
    checkpoint: Shape | None
    tensors: int
    params: int
    paths: tuple[str, ...]
    names: tuple[str, ...]


class Comparison(NamedTuple):
    """Parameters of the model, of the checkpoint, and wherein they differ."""

    model: int
    checkpoint: int
    differences: tuple[Difference, ...]

    @property
    def difference(self) -> int:
        """Parameters that the checkpoint has more."""
        return self.checkpoint - self.model

    @property
    def equal(self) -> bool:
        """Is every tensor where it should be?"""
        return not self.difference and not self.differences


def compare(parameters: Parameters, model: Model) -> Comparison:
    """Tensor by tensor, by shape."""
    budget = model.budget(Step.forward(1, 1))
    paths: dict[Shape, Counter[str]] = {}
    for weight in weights(budget):
        paths.setdefault(_shape_of(weight), Counter())[weight.path] += weight.tensor.copies
    names: dict[Shape, list[str]] = {}
    for parameter in parameters.each:
        names.setdefault(_folded(parameter.shape), []).append(parameter.name)
    surplus = Counter({shape: sum(found.values()) for shape, found in paths.items()})
    surplus.subtract({shape: len(found) for shape, found in names.items()})
    _take_apart(surplus)
    differences = tuple(_differences(surplus, paths, names))
    return Comparison(budget.parameters().total, parameters.total, differences)


def compare_counts(parameters: Parameters, model: Model) -> Comparison:
    """The totals alone: a converter may fuse, split and permute."""
    found = model.budget(Step.forward(1, 1)).parameters().total
    return Comparison(found, parameters.total, ())


# -- shapes without an order -------------------------------------------------------------------------------------------


def _sorted(sizes: Iterable[int]) -> Shape:
    """Sizes above 1, smallest first: a matrix may be stored transposed, a vector with axes of 1 about it."""
    return tuple(sorted(size for size in sizes if size != 1))


def _shape_of(weight: Weight) -> Shape:
    sizes = weight.tensor.sizes if weight.kind == "kernel" else (weight.matrices, weight.rows, weight.columns)
    return _sorted(sizes)


def _folded(shape: Shape) -> Shape:
    """A kernel's places as one size."""
    return _sorted((*shape[:2], prod(shape[2:])) if len(shape) == 4 else shape)


# -- what is stored together -------------------------------------------------------------------------------------------


def _take_apart(surplus: Counter[Shape]) -> None:
    """Cancel each extra shape with missing ones that it can be the stack or the concatenation of."""
    for shape in sorted((shape for shape, count in surplus.items() if count < 0), key=prod, reverse=True):
        for parts in _partitions(shape, surplus):
            if all(surplus[part] >= -surplus[shape] * times for part, times in parts.items()):
                for part, times in parts.items():
                    surplus[part] += surplus[shape] * times
                surplus[shape] = 0
                break


def _partitions(shape: Shape, surplus: Counter[Shape]) -> Iterator[Counter[Shape]]:
    """Ways to see a shape as two or three joined along an axis, or as a stack of equal ones, each whole or joined."""
    missing = [part for part, count in surplus.items() if count > 0]
    yield from _joined(shape, missing)
    for axis, times in enumerate(shape if len(shape) > 1 else ()):
        one = shape[:axis] + shape[axis + 1 :]
        stacked = ([Counter({one: 1})] if one in missing else []) + list(_joined(one, missing))
        yield from (Counter({part: times * count for part, count in parts.items()}) for parts in stacked)


def _joined(shape: Shape, missing: list[Shape]) -> Iterator[Counter[Shape]]:
    for axis, length in enumerate(shape):
        rest = Counter(shape[:axis] + shape[axis + 1 :])
        sizes = {}
        for part in missing:
            left = Counter(part)
            left.subtract(rest)
            if len(part) == len(shape) and min(left.values()) >= 0:
                sizes[next(left.elements())] = part
        for number in (2, 3):
            for chosen in combinations_with_replacement(sorted(sizes), number):
                if sum(chosen) == length:
                    yield Counter(sizes[size] for size in chosen)


# -- what is said of the rest ------------------------------------------------------------------------------------------


def _differences(
    surplus: Counter[Shape], paths: dict[Shape, Counter[str]], names: dict[Shape, list[str]]
) -> Iterator[Difference]:
    missing = {shape: count for shape, count in surplus.items() if count > 0}
    extra = {shape: -count for shape, count in surplus.items() if count < 0}
    for shape, count in missing.items():
        whose = tuple(paths[shape])
        other = _partner(shape, missing, extra)
        if other is not None:
            params = count * (prod(other) - prod(shape))
            yield Difference("other size", shape, other, count, params, whose, _patterns(names[other]))
            del extra[other]
        else:
            gaps = _gaps(names.get(shape, []), names)
            shown = gaps if len(gaps) == count else ()
            yield Difference("missing", shape, None, count, -count * prod(shape), whose, shown)
    for shape, count in extra.items():
        yield Difference("extra", None, shape, count, count * prod(shape), (), _patterns(names[shape]))


def _partner(shape: Shape, missing: dict[Shape, int], extra: dict[Shape, int]) -> Shape | None:
    """The one extra shape that differs from a missing one in one size, and is as often there, if none other is missing so."""

    def near(a: Shape, b: Shape) -> bool:
        return len(a) == len(b) and sum((Counter(a) - Counter(b)).values()) == 1

    found = [other for other, count in extra.items() if count == missing[shape] and near(shape, other)]
    if len(found) != 1 or sum(near(other, found[0]) and missing[other] == missing[shape] for other in missing) != 1:
        return None
    return found[0]


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def _patterns(names: Iterable[str]) -> tuple[str, ...]:
    """Names with ``*`` for numbers between dots, each once."""
    return tuple(dict.fromkeys(_NUMBER.sub("*", name) for name in names))


def _gaps(names: list[str], everything: dict[Shape, list[str]]) -> tuple[str, ...]:
    """Names that the numbers of their layers leave out, where other tensors of these layers are there."""
    layers: dict[str, set[str]] = {}
    for found in everything.values():
        for name in found:
            if match := _NUMBER.search(name):
                layers.setdefault(name[: match.start()], set()).add(match[0])
    present: dict[tuple[str, str], set[str]] = {}
    for name in names:
        if match := _NUMBER.search(name):
            present.setdefault((name[: match.start()], name[match.end() :]), set()).add(match[0])
    return tuple(
        f"{before}{number}{after}"
        for (before, after), numbers in present.items()
        for number in sorted(layers[before] - numbers, key=int)
    )
