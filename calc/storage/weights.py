"""What a weight is to a format and to an optimizer: which of its axes are summed over, and of what kind it is."""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple, TypeAlias, get_args

from ..budget import Budget
from ..dims import Dim
from ..errors import InputError
from ..tensor import Line, Tensor

Kind: TypeAlias = Literal[
    "linear",  # a matrix of a linear map
    "expert",  # the same, one an expert of a bank
    "router",  # the matrix that chooses the experts
    "head",  # the untied output matrix
    "table",  # vectors of tokens, looked up; a tied table is no head
    "position",  # vectors or biases of positions, token types, distances
    "kernel",  # a convolution's
    "vector",  # gains, biases, sinks, scales: what no matrix is
]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Weight(NamedTuple):
    """A weight Tensor, the axes that its product sums over, those that it has a matrix of its own for, and where it stands.

    As frameworks store it, it is ``matrices`` times ``rows`` (outputs) by ``columns`` (inputs); a vector is one row, and a
    table has a row an entry. Its sizes are those of one copy.
    """

    tensor: Tensor
    kind: Kind = "linear"
    inputs: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    path: str = ""

    @classmethod
    def of(cls, weight: Weight | Tensor) -> Weight:
        """A weight Tensor by itself, where its role and axes say enough: a vector, a table, a matrix (inputs, outputs).

        Raises InputError where more than two axes leave open which are summed over; ``weights`` knows them all.
        """
        if isinstance(weight, Weight):
            return weight
        axes = weight.axes
        if weight.role == "vector" or len(axes) < 2:
            return cls(weight, "vector", axes)
        if weight.role == "table":
            return cls(weight, "table" if "v" in axes else "position", axes[1:])
        if len(axes) > 2:
            raise InputError(f"a weight {weight}: say which axes are summed over, as in Weight(tensor, 'linear', {axes[:1]})")
        return cls(weight, "head" if weight.role == "head" else "linear", axes[:1])

    @classmethod
    def used(cls, tensor: Tensor, line: Line) -> Weight:
        """A weight as *line* uses it."""
        axes = tensor.axes
        if tensor.role == "vector" or len(axes) < 2:
            return cls(tensor, "vector", axes, (), line.path)
        if line.kind == "convolution":
            return cls(tensor, "kernel", axes[:-1], (), line.path)
        if tensor.role == "table" or line.kind == "lookup":
            return cls(tensor, "table" if "v" in axes else "position", axes[1:], (), line.path)
        (x, *_), (out, *_) = line.read, line.written
        inputs = tuple(axis for axis in axes if axis in x.axes and axis not in out.axes)
        each = tuple(axis for axis in axes if axis in x.axes and axis in out.axes)
        kind: Kind = "head" if tensor.role == "head" else "router" if line.kind == "router" else "linear"
        return cls(tensor, "expert" if kind == "linear" and line.bank != 1 else kind, inputs, each, line.path)

    def _over(self, axes: tuple[str, ...]) -> Dim:
        return prod(self.tensor[axis] for axis in axes)

    @property
    def matrices(self) -> Dim:
        """How many matrices one copy is: 1 but for block-diagonal ones."""
        return self._over(self.each)

    @property
    def columns(self) -> Dim:
        """The length of a row, along which blocks run."""
        return self._over(self.inputs)

    @property
    def rows(self) -> Dim:
        """Rows of each matrix."""
        return self._over(tuple(axis for axis in self.tensor.axes if axis not in self.inputs + self.each))


def weights(budget: Budget) -> tuple[Weight, ...]:
    """Every weight once, as its first user has it: so a table that is a head too is a table."""
    found: dict[Tensor, Weight] = {}
    for line in budget.lines:
        for tensor in line.weights:
            if tensor not in found:
                found[tensor] = Weight.used(tensor, line)
    return tuple(found.values())
