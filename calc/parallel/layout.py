"""How a model lies on devices: which letter each kind of parallelism splits, and into how many parts."""

from __future__ import annotations

from typing import Literal

from ..declare import declaration
from ..dims import Dim, check_divides, check_sizes, divide
from ..errors import InputError


@declaration
class Layout:
    """Ranks of each kind; a device has one rank of each. What is not given is not split.

    Tensor parallelism splits heads (n, k), hidden units (f) and the vocabulary (v): Shoeybi et al. 2019,
    arXiv:1909.08053, section 3. With *sequence* what it leaves whole is split along the sequence instead: Korthikanti et
    al. 2022, arXiv:2205.05198, section 4.2.2. Context parallelism splits the sequence (t) of everything: Liu et al. 2023,
    arXiv:2310.01889; with *ulysses* its ranks exchange positions for heads before attention, and back: Jacobs et al. 2023,
    arXiv:2309.14509, section 3.1. Expert parallelism spreads a bank's experts (e) over ranks of the tensor, context and data
    groups. Pipelining splits the layers (l): Narayanan et al. 2021, arXiv:2104.04473, section 2.2. A batch is that of one
    data rank: data parallelism shrinks no request. ZeRO splits the states of the optimizer (1), the gradients too (2), the
    weights too (3): Rajbhandari et al. 2020, arXiv:1910.02054, section 5; stage 3 as torch's ``fully_shard`` does it.
    """

    tp: Dim = 1  # tensor-parallel ranks
    cp: Dim = 1  # context-parallel ranks
    pp: int = 1  # pipeline stages
    dp: Dim = 1  # data-parallel ranks
    ep: Dim = 1  # expert-parallel ranks, out of the tp·cp·dp of a stage
    etp: Dim | None = None  # tensor-parallel ranks of an expert, tp unless given
    sequence: bool = False  # sequence parallelism beside tensor parallelism
    chunks: int = 1  # pieces of the model a pipeline rank holds, interleaved
    stages: tuple[int, ...] = ()  # layers of each piece in order, equally many unless given
    zero: Literal[0, 1, 2, 3] = 0
    ulysses: bool = False  # context ranks exchange positions for heads, in place of a ring

    def __post_init__(self) -> None:
        check_sizes("Layout", tp=self.tp, cp=self.cp, pp=self.pp, dp=self.dp, ep=self.ep, etp=self.etp, chunks=self.chunks)
        check_divides("Layout", "tp·cp·dp", self.tp * self.cp * self.dp, "ep·etp", self.ep * self.expert_tp)
        check_divides("Layout", "tp", self.tp, "etp", self.expert_tp)
        if self.zero not in (0, 1, 2, 3):
            raise InputError(f"Layout: zero = {self.zero}, but ZeRO has the stages 0 (off), 1, 2 and 3")
        if self.stages and len(self.stages) != self.pp * self.chunks:
            raise InputError(f"Layout: {len(self.stages)} stages are given, but pp·chunks = {self.pp * self.chunks}")
        if self.chunks > 1 and self.pp == 1:
            raise InputError(f"Layout: chunks = {self.chunks} are interleaved over pipeline stages, but pp = 1")

    @property
    def expert_tp(self) -> Dim:
        """Tensor-parallel ranks of one expert."""
        return self.tp if self.etp is None else self.etp

    @property
    def devices(self) -> Dim:
        """All ranks."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def replicas(self) -> Dim:
        """Ranks that hold the same part of a weight, and add up its gradients: dp·cp."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> Dim:
        """The same of an expert's weight."""
        return divide(self.tp * self.cp * self.dp, self.ep * self.expert_tp, "tp·cp·dp", "ep·etp")
