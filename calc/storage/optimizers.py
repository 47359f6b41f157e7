"""Optimizers: every byte that training keeps a weight for, beside the activations.

A frozen weight has itself alone, in its own format: low-rank adapters on a quantised model fall out of ``Tensor.grad``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..budget import Budget
from ..declare import declaration
from ..dims import Dim, ceiling
from ..errors import InputError, UndefinedError
from ..tensor import Tensor
from .formats import BF16, FP32, Format
from .precision import Precision
from .weights import Weight, weights


def every(weight: Weight) -> Dim:
    """An item an element."""
    return weight.tensor.numel


def row_means(weight: Weight) -> Dim:
    """An item a row."""
    return weight.matrices * weight.rows


def column_means(weight: Weight) -> Dim:
    """An item a column."""
    return weight.matrices * weight.columns


def blocks(weight: Weight) -> Dim:
    """An item for each 256 elements, the last of them perhaps fewer."""
    return ceiling(weight.tensor.numel, 256)


def one(weight: Weight) -> Dim:
    """One item."""
    return 1


@declaration(kw_only=False)
class State:
    """A tensor that an optimizer keeps for a weight: its items, and bytes an item, those of the gradient unless given."""

    name: str
    items: Callable[[Weight], Dim]
    width: int | None = None


@declaration
class Optimizer:
    """What is kept for a weight that trains.

    *states* are those of the weights *which* says, of all unless given; *otherwise* those of the rest. *once* are bytes
    that all weights with these states share.
    """

    name: str
    source: str
    weight: Format = FP32
    gradient: Format = FP32
    accumulated: Format | None = None  # gradients of microbatches are added up in a buffer of this type, beside the gradient
    master: Format | None = None  # a copy of the weights that is updated in their place
    states: tuple[State, ...] = ()
    which: Callable[[Weight], bool] | None = None
    otherwise: tuple[State, ...] = ()
    once: tuple[tuple[str, int], ...] = ()

    def _states(self, weight: Weight) -> tuple[State, ...]:
        return self.states if self.which is None or self.which(weight) else self.otherwise

    def nbytes(self, weight: Weight | Tensor) -> dict[str, Dim]:
        """Bytes for one copy of a weight that trains: ``weights``, ``gradients``, ``accumulated``, ``master``, each state.

        Raises UndefinedError where the optimizer is not declared for such a weight.
        """
        weight = Weight.of(weight)
        types = {"weights": self.weight, "gradients": self.gradient, "accumulated": self.accumulated, "master": self.master}
        found = {name: format.width * weight.tensor.numel for name, format in types.items() if format is not None}
        for state in self._states(weight):
            found[state.name] = (self.gradient.width if state.width is None else state.width) * state.items(weight)
        return found

    def shared(self, weight: Weight | Tensor) -> Mapping[str, int]:
        """Bytes that this weight shares with all others of its states."""
        return dict(self.once) if self._states(Weight.of(weight)) is self.states else {}


def training_bytes(budget: Budget, optimizer: Optimizer, frozen: Precision | None = None) -> dict[str, Dim]:
    """Bytes of all weights by part; those without a gradient are ``frozen``, in bf16 unless a Precision is given."""
    frozen = frozen or Precision()
    found: dict[str, Dim] = {}
    shared: dict[str, int] = {}
    for weight in weights(budget):
        trains = weight.tensor.grad
        parts = optimizer.nbytes(weight) if trains else {"frozen": frozen.nbytes(weight)}
        if trains:
            shared.update(optimizer.shared(weight))
        for name, size in parts.items():
            found[name] = found.get(name, 0) + weight.tensor.copies * size
    return found | shared


# -- which weights -----------------------------------------------------------------------------------------------------


def factored(weight: Weight) -> bool:
    """Is its second moment kept as rows and columns?"""
    if weight.kind == "kernel":
        raise UndefinedError(f"Adafactor of {weight.path or weight.tensor}: how a convolution's taps lie is not declared")
    return weight.kind != "vector"


def hidden(weight: Weight) -> bool:
    """Is it one matrix of a hidden layer? Not tables, heads, convolutions, vectors."""
    return weight.kind in ("linear", "expert", "router") and not weight.each


def large(weight: Weight) -> bool:
    """Has it 4096 elements or more?"""
    numel = weight.tensor.numel
    if type(numel) is not int:
        raise InputError(f"{weight.path or weight.tensor}: 8-bit states begin at 4096 elements, so that sizes must be numbers")
    return numel >= 4096


# -- the optimizers ----------------------------------------------------------------------------------------------------

_STEP = State("step", one, 4)
_MOMENTS = State("exp_avg", every), State("exp_avg_sq", every)
_WIDE_MOMENTS = State("exp_avg", every, 4), State("exp_avg_sq", every, 4)

SGD = Optimizer(name="sgd", source="torch.optim.SGD")
SGD_MOMENTUM = Optimizer(
    name="sgd-momentum", source="torch.optim.SGD(momentum=…); Sutskever et al. 2013", states=(State("momentum_buffer", every),)
)
ADAMW = Optimizer(
    name="adamw", source="torch.optim.AdamW, as torch.optim.Adam; Loshchilov and Hutter 2017, arXiv:1711.05101",
    states=(*_MOMENTS, _STEP),
)  # fmt: skip
ADAMW_BF16 = Optimizer(
    name="adamw-bf16", source="torch.optim.AdamW on bf16 weights without a master copy", weight=BF16, gradient=BF16,
    states=(*_MOMENTS, _STEP),
)  # fmt: skip
ADAMW_MIXED = Optimizer(
    name="adamw-mixed", source="Rajbhandari et al. 2019 (ZeRO), arXiv:1910.02054, section 3.1: 2 + 2 + 12 bytes a weight",
    weight=BF16, gradient=BF16, master=FP32, states=_WIDE_MOMENTS,
)  # fmt: skip
ADAMW_MEGATRON = Optimizer(
    name="adamw-megatron", source="Megatron-LM, docs: distributed optimizer; gradients in fp32: 2 + 4 + 12 bytes a weight",
    weight=BF16, gradient=FP32, master=FP32, states=_WIDE_MOMENTS,
)  # fmt: skip
ADAMW_8BIT = Optimizer(
    name="adamw-8bit", weight=BF16, gradient=BF16,
    source="bitsandbytes.optim.AdamW8bit; Dettmers et al. 2021, arXiv:2110.02861, section 2: blocks of 256, and weights "
           "below 4096 elements in fp32",
    states=(State("state1", every, 1), State("state2", every, 1), State("absmax1", blocks, 4), State("absmax2", blocks, 4)),
    which=large, otherwise=(State("state1", every, 4), State("state2", every, 4)), once=(("qmap1", 1024), ("qmap2", 1024)),
)  # fmt: skip
ADAFACTOR = Optimizer(
    name="adafactor", source="torch.optim.Adafactor; Shazeer and Stern 2018, arXiv:1804.04235, algorithm 4",
    states=(State("row_var", row_means), State("col_var", column_means), _STEP), which=factored,
    otherwise=(State("variance", every), _STEP),
)  # fmt: skip
_FACTORS = State("exp_avg_sq_row", row_means, 4), State("exp_avg_sq_col", column_means, 4)
_RMS = State("RMS", one, 4)
ADAFACTOR_TRANSFORMERS = Optimizer(
    name="adafactor-transformers", source="transformers.optimization.Adafactor: states in fp32, and the weight's RMS",
    states=(*_FACTORS, _RMS), which=factored, otherwise=(State("exp_avg_sq", every, 4), _RMS),
)  # fmt: skip
ADAFACTOR_MOMENTUM = Optimizer(
    name="adafactor-momentum", source="transformers.optimization.Adafactor(beta1=…)",
    states=(State("exp_avg", every, 4), *_FACTORS, _RMS), which=factored,
    otherwise=(State("exp_avg", every, 4), State("exp_avg_sq", every, 4), _RMS),
)  # fmt: skip
MUON = Optimizer(
    name="muon", source="torch.optim.Muon on the matrices of hidden layers, torch.optim.AdamW on the rest; Jordan et al. 2024",
    states=(State("momentum_buffer", every),), which=hidden, otherwise=(*_MOMENTS, _STEP),
)  # fmt: skip

OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType({
    optimizer.name: optimizer
    for optimizer in (
        SGD, SGD_MOMENTUM, ADAMW, ADAMW_BF16, ADAMW_MIXED, ADAMW_MEGATRON, ADAMW_8BIT, ADAFACTOR, ADAFACTOR_TRANSFORMERS,
        ADAFACTOR_MOMENTUM, MUON,
    )
})  # fmt: skip
"""The optimizers by name. Those of torch keep their states in the gradient's type, and one fp32 count of steps a weight."""
