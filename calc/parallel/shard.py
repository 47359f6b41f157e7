"""One rank's part of a trace: the same lines, with local tensors in place of whole ones.

What is split is read off the letters of a tensor's axes. Tensor parallelism owns n, k, f and v; sequence parallelism the
positions of whatever holds none of these; context parallelism all positions; expert parallelism the copies in a bank. The
result is a Budget, and every sum over it is the rank's.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from ..blocks.altup import AltUp, Merged, Streams
from ..blocks.embedding import LayerEmbedding, LayerInput, ValueEmbedding
from ..blocks.linear_attention import GatedDeltaNet, LinearAttention
from ..blocks.mixer import Smear, SqueezeExcitation, TokenMixing
from ..blocks.mlp import SparseGatedMLP
from ..blocks.moe import DenseMoE
from ..blocks.norm import HeadsNorm
from ..blocks.position import RelativeKeys
from ..blocks.short_convolution import ShortConvolution
from ..blocks.state_space import Mamba, Mamba2
from ..budget import Budget
from ..dims import Dim, check_divides, divide, product, smaller, spread
from ..errors import InputError, UndefinedError
from ..recorder import Carry
from ..tensor import Line, Tensor
from .layout import Layout

SPLIT = frozenset("nkfv")
"""Letters that tensor parallelism owns: query heads, key-value heads, hidden units, the vocabulary."""

WEIGHTS = frozenset(("matrix", "vector", "table", "head"))

_WHOLE = {
    HeadsNorm: "one norm over all heads at once needs them on one rank",
    TokenMixing: "its hidden units mix positions",
    SqueezeExcitation: "its bottleneck is made of all channels",
    Smear: "it moves vectors from position to position",
    ValueEmbedding: "its table has a vocabulary and heads",
    RelativeKeys: "its vectors are of pairs of positions",
    DenseMoE: "its experts each read every token",
    SparseGatedMLP: "its threshold is of all hidden units",
    **dict.fromkeys((ShortConvolution, Mamba, Mamba2, GatedDeltaNet), "its convolution runs over channels of all kinds"),
    **dict.fromkeys((AltUp, Streams, Merged), "its streams are mixed by all channels"),
    **dict.fromkeys((LayerEmbedding, LayerInput), "its table is of all layers"),
}
"""Components that have no declared way to be split, and why."""


def shard(budget: Budget, layout: Layout) -> Budget:
    """What one rank of *layout* has of *budget*: parameters, work, caches, activations. Rows are routed evenly.

    An ``active`` count stays that of the whole bank. Raises InputError naming the sizes that do not divide, and
    UndefinedError for what has no declared way to be split.
    """
    if layout.tp == layout.cp == layout.ep == 1:
        return budget
    check(budget, layout)
    part = Shards(layout, budget)
    carries = tuple(
        Carry(part.tensor(c.before), part.tensor(c.received), part.tensor(c.returned), part.tensor(c.after), c.layer)
        for c in budget.carries
    )
    return Budget(
        (part.line(line) for line in budget.lines), carries, (part.tensor(buffer) for buffer in budget.buffers),
        budget.step, budget.kernels, budget.recompute, budget.order,
    )  # fmt: skip


def check(budget: Budget, layout: Layout) -> None:
    """Refuse what has no declared way to be split. A stage of several may have no experts."""
    if layout.ep != 1 and any(line.dense for line in budget.lines):
        raise UndefinedError(f"DenseMoE on several ranks: {_WHOLE[DenseMoE]}")
    if layout.tp != 1 or layout.cp != 1:
        for line in budget.lines:
            if line.origin in _WHOLE:
                raise UndefinedError(f"{line.path} ({line.origin.__name__}) on several ranks: {_WHOLE[line.origin]}")
            if ".lora_" in line.path:
                raise UndefinedError(f"{line.path}: adapters are declared on one tensor- and context-parallel rank only")
            _check_views(line, budget, layout)
        _check_lent(budget)
    if layout.sequence or layout.cp != 1:
        _check_sequence(budget, layout)
    if layout.cp != 1:
        _check_context(budget, layout)
    if layout.ep != 1 and layout.pp == 1 and all(line.bank == 1 for line in budget.lines):
        raise InputError(f"Layout: ep = {layout.ep}, but there is no bank of experts to spread")
    routed = layout.ep != 1 and layout.tp != layout.expert_tp
    if routed and budget.step.training and not layout.sequence:
        raise InputError(
            f"Layout: experts on etp = {layout.expert_tp} of tp = {layout.tp} ranks run rows that sequence parallelism "
            "splits: set it, or set etp = tp"
        )


def _check_lent(budget: Budget) -> None:
    made = {x.storage: line.layer for line in budget.lines for x in line.written}
    for line in budget.lines:
        for x in line.read:
            if "k" in x.axes and made.get(x.storage, line.layer) != line.layer:
                raise UndefinedError(f"{line.path} on several ranks: its keys and values are those of another layer")


def _check_views(line: Line, budget: Budget, layout: Layout) -> None:
    """Heads, or a part of the vocabulary, that are views of what each rank has whole."""
    for x in line.read:
        if layout.tp == 1 or x.base is None or SPLIT.isdisjoint(x.axes):
            continue
        if "v" in x.axes and x["v"] != x.storage["v"]:
            raise UndefinedError(f"{line.path}: a part of the logits is declared on one tensor-parallel rank only")
        if SPLIT.isdisjoint(x.storage.axes) and ("n" in x.axes or budget.step.training or layout.sequence):
            raise UndefinedError(f"{line.path}: its heads are views of what each tensor-parallel rank has whole")


def _check_sequence(budget: Budget, layout: Layout) -> None:
    """What reads positions that stand on other ranks."""
    for line in budget.lines:
        if line.kind in ("convolution", "concat") and line.written[0].axes == ("b", "t", "d") and line.weights:
            raise UndefinedError(f"{line.path}: patches and frames on ranks that split the sequence are not declared")
        if any(x.axes in (("b", "d"), ("b", "i")) for x in (*line.read, *line.written)):
            raise UndefinedError(f"{line.path}: one vector of a whole sequence is not declared on ranks that split it")
        if any(entry.kind == "latent" for entry in line.cached) and budget.step.cache:
            raise UndefinedError(f"{line.path}: a latent cache on ranks that split the sequence is not declared")


def _check_context(budget: Budget, layout: Layout) -> None:
    if budget.step.cache:
        raise UndefinedError("context parallelism is declared for steps without a cache")
    for line in budget.lines:
        if line.window is not None:
            raise UndefinedError(f"{line.path}: context parallelism of a window layer is not declared")
        if line.pairs != 1 and budget.kernels.attention == "math":
            raise UndefinedError(f"{line.path}: context parallelism passes keys around a ring; set attention flash or fused")
        if line.pairs != 1 and line.read[3:]:
            raise UndefinedError(f"{line.path}: context parallelism of attention with a position bias is not declared")
        if line.pairs != 1 and (line.weights or budget.kernels.dropout != "none"):
            what = "sinks" if line.weights else "dropout"
            raise UndefinedError(f"{line.path}: context parallelism of attention with {what} is not declared")
        if line.causal:
            check_divides("Layout", "t", budget.step.t, "2·cp, the pieces of a causal ring,", 2 * layout.cp)
        if line.origin is LinearAttention:
            raise UndefinedError(f"{line.path}: context parallelism of linear attention is not declared")
        if any("m" in tensor.axes for tensor in line.read):
            raise UndefinedError(f"{line.path}: context parallelism of an encoder beside a decoder is not declared")


class Shards:
    """From whole tensors and lines to one rank's. A tensor keeps its identity: asked twice, it is the same local one."""

    def __init__(self, layout: Layout, budget: Budget) -> None:
        self.layout = layout
        self.buffers = frozenset(budget.buffers)
        self._made: dict[Tensor, Tensor] = {}
        self._gathered: dict[Tensor, Tensor] = {}

    # -- tensors ------------------------------------------------------------------------------------------------------

    def tensor(self, whole: Tensor, bank: Dim = 1) -> Tensor:
        """The rank's part of an activation, a statistic, a buffer, or of a weight of a bank of so many experts."""
        found = self._made.get(whole)
        if found is None:
            sizes = tuple(self._size(whole, axis, size, bank) for axis, size in zip(whole.axes, whole.sizes, strict=True))
            copies, experts = whole.copies, "the experts of a bank e"
            if bank != 1 and whole.role in WEIGHTS:  # of every layer as many
                check_divides("Layout", experts, bank, "ep", self.layout.ep)
                copies = divide(copies, self.layout.ep, experts, "ep")
            found = self._made[whole] = Tensor(
                whole.axes, sizes, whole.role, copies, whole.active,
                whole.grad, whole.base and self.tensor(whole.base), whole.cast_of and self.tensor(whole.cast_of),
            )  # fmt: skip
        return found

    def kept(self, whole: Tensor, bank: Dim) -> Tensor:
        """The rank's part of what a line keeps. Rows of experts that are split are gathered once for all of a rank's experts,
        and kept so, as by Megatron-LM's dispatcher; what else is gathered is kept as the rank's part."""
        layout = self.layout
        if bank == 1 or not layout.sequence or layout.expert_tp == 1 or self.owned(whole):
            return self.tensor(whole)
        if whole not in self._gathered:
            part = self.tensor(whole)
            sizes = (size * layout.expert_tp if axis == "t" else size for axis, size in zip(part.axes, part.sizes, strict=True))
            self._gathered[whole] = Tensor(part.axes, tuple(sizes), part.role, part.copies, part.active, part.grad)
        return self._gathered[whole]

    def owned(self, whole: Tensor) -> bool:
        """Is it split by tensor parallelism: does it have heads, hidden units or a vocabulary?"""
        ranks = self.layout.expert_tp if "a" in whole.axes else self.layout.tp
        return ranks != 1 and not SPLIT.isdisjoint(whole.axes)

    def _size(self, whole: Tensor, axis: str, size: Dim, bank: Dim) -> Dim:
        if axis in SPLIT:
            by = "etp" if bank != 1 or "a" in whole.axes else "tp"
            name = "the vocabulary, which --vocab-multiple pads, v" if axis == "v" else axis
            return divide(size, self._owners(whole, axis, size, bank), name, by)
        if axis == "t" or (axis in "sm" and "b" in whole.axes and whole.role != "key_value"):
            return divide(size, self._parts(self._level(whole)), axis, "the ranks that split the sequence")
        return size

    def _owners(self, whole: Tensor, axis: str, size: Dim, bank: Dim) -> Dim:
        """Into how many parts a letter is split. Fewer key-value heads than ranks: each rank has one, several the same."""
        layout = self.layout
        if bank != 1 or "a" in whole.axes:
            return layout.expert_tp
        if axis != "k":
            return layout.tp
        owners = smaller(size, layout.tp)
        check_divides("Layout", "tp", layout.tp, "the key-value heads, of which each rank needs one, k", owners)
        return owners

    def _level(self, whole: Tensor) -> int:
        """Who splits its positions: 0 the context ranks alone, 1 also those an expert has not, 2 also the tensor ranks."""
        if not self.layout.sequence or whole.role in WEIGHTS or whole in self.buffers or "b" not in whole.axes:
            return 0
        if "a" in whole.axes and not SPLIT.isdisjoint(whole.axes):  # rows inside an expert
            return 1
        return 0 if self.owned(whole) or (whole.axes == ("b", "t") and whole.role == "index") else 2

    def _parts(self, level: int) -> Dim:
        layout = self.layout
        return layout.cp * (1, divide(layout.tp, layout.expert_tp, "tp", "etp"), layout.tp)[level]

    # -- lines --------------------------------------------------------------------------------------------------------

    def line(self, whole: Line) -> Line:
        """The rank's part of a line."""
        written, read = (tuple(map(self.tensor, tensors)) for tensors in (whole.written, whole.read))
        saved = tuple(self.kept(tensor, whole.bank) for tensor in whole.saved)
        if self.layout.ulysses and self.layout.cp != 1 and whole.pairs != 1 and saved:
            saved += (self.exchanged(whole),)
        weights = tuple(self.tensor(weight, whole.bank) for weight in whole.weights)
        cached = tuple(entry._replace(tensor=self.tensor(entry.tensor), expanded=self._heads(entry.expanded))
                       for entry in whole.cached)  # fmt: skip
        by, across = self._letters((*whole.written, *whole.weights), whole.bank), self._across(whole)
        if whole.pairs == 1:
            by, across = by * across, 1
        forward, dinput, dweight = (
            divide(work, by, f"the work of {whole.path}", "its ranks") for work in (whole.forward, whole.dinput, whole.dweight)
        )
        line = copy(whole)
        line.written, line.read, line.saved = written, read, saved
        line.weights, line.cached, line.heads = weights, cached, self._heads(whole.heads)
        line.forward, line.dinput, line.dweight = forward, dinput, dweight
        line.pairs, line.visible = (divide(pairs, across, "pairs", "cp") for pairs in (whole.pairs, whole.visible))
        return line

    def exchanged(self, attention: Line) -> Tensor:
        """The output of whole sequences and the rank's heads, which attention keeps beside that of the rank's positions."""
        for tensor in attention.read[:3]:
            for axis in "nk":
                if axis in tensor.axes:
                    divide(tensor[axis], self.layout.tp * self.layout.cp, axis, "tp·cp, whose ranks exchange heads")
        out = self.tensor(attention.written[0])
        return Tensor(out.axes, out.sizes, out.role, out.copies, out.active, out.grad)

    def _heads(self, heads: Dim | None) -> Dim | None:
        return heads if heads is None or heads == 1 else divide(heads, self.layout.tp, "n", "tp")

    def _letters(self, tensors: Iterable[Tensor], bank: Dim) -> Dim:
        """Into how many parts the letters of these tensors split a line's work."""
        parts = {
            axis: self._owners(tensor, axis, size, bank)
            for tensor in tensors
            for axis, size in zip(tensor.axes, tensor.sizes, strict=True)
            if axis in SPLIT
        }
        if "n" in parts:  # each query head with the key-value head of its group
            parts.pop("k", None)
        return product(parts.values())

    def _across(self, whole: Line) -> Dim:
        """Into how many parts its positions are split: the fewest of any tensor, for what is gathered runs whole."""
        levels = [
            self._level(tensor)
            for tensor in (*whole.written, *whole.read)
            if "t" in tensor.axes and tensor not in self.buffers and tensor.role != "index"
        ]
        return self._parts(min(levels)) if levels else 1


def fully_sharded(line: Line, part: Tensor, ranks: Dim) -> Tensor:
    """The first of *ranks* equal parts of a weight, cut along torch's first axis and filled up: ``fully_shard``.

    torch keeps a linear's weight as (made, summed), whose first axis are the outputs; a table's are its rows.
    """
    rows = part.axes[:1] if line.kind in ("lookup", "add") else tuple(a for a in part.axes if a in line.written[0].axes)
    if not rows:
        raise UndefinedError(f"{line.path}: a weight without rows cannot be cut, so ZeRO stage 3 is not declared for it")
    cut = product(part[axis] for axis in rows)
    rest = [(axis, size) for axis, size in zip(part.axes, part.sizes, strict=True) if axis not in rows]
    axes, sizes = ("rows", *(axis for axis, _ in rest)), (spread(cut, ranks), *(size for _, size in rest))
    return Tensor(axes, sizes, part.role, part.copies, part.active, part.grad)
