"""The layouts that a number of devices can have: every way to divide them among the kinds of parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ..errors import InputError
from ..model import Model
from ..parallel.layout import Layout
from ..recorder import Recompute


class Wanted(NamedTuple):
    """What of a layout is fixed; None is tried in every way."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    sequence: bool | None = None
    zero: int | None = None
    chunks: int | None = None
    most_cp: int = 8  # context-parallel ranks that are tried at most
    microbatch: int | None = None  # sequences
    recompute: Recompute | None = None


class Split(NamedTuple):
    """How every tensor is cut: what the work of one stage depends on."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence: bool = False

    def layout(self, dp: int, pp: int = 1, chunks: int = 1, zero: int = 0, stages: tuple[int, ...] = ()) -> Layout:
        """With data ranks and pipeline stages."""
        return Layout(
            tp=self.tp, cp=self.cp, ep=self.ep, etp=self.etp, sequence=self.sequence, dp=dp, pp=pp, chunks=chunks,
            zero=zero, stages=stages,  # type: ignore[arg-type]
        )  # fmt: skip


@cache
def divisors(number: int) -> tuple[int, ...]:
    """The whole numbers that divide it, the smallest first."""
    if number < 1:
        raise InputError(f"divisors of {number}: expected a whole number from 1")
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def of(number: int, wanted: int | None, most: int | None = None) -> tuple[int, ...]:
    """The divisors that are wanted."""
    found = divisors(number) if wanted is None else ((wanted,) if number % wanted == 0 else ())
    return found if most is None or wanted is not None else tuple(one for one in found if one <= most)


def experts(model: Model) -> int:
    """The greatest number of ranks that every bank of experts of the model divides over; 1 where it has none."""
    from math import gcd

    from ..tensor import Step

    banks = {line.bank for line in model.budget(Step.forward(1, 1)).lines if line.bank != 1}
    return gcd(*(int(bank) for bank in banks)) if banks else 1


def splits(model: Model, devices: int, domain: int, wanted: Wanted, *, training: bool) -> Iterator[tuple[Split, int, int]]:
    """Each split, with its data ranks and pipeline stages: tensor parallelism inside a domain, no more stages than layers.

    Sequence parallelism beside tensor parallelism, and context parallelism, are tried in training alone. Experts of fewer
    tensor ranks than the rest need sequence parallelism there.
    """
    banks, layers = experts(model), sum(int(count) for _, count in model.stack.runs())
    for tp in of(devices, wanted.tp, domain):
        for cp in of(devices // tp, wanted.cp, wanted.most_cp if training else 1):
            for pp in of(devices // (tp * cp), wanted.pp, layers):
                dp = devices // (tp * cp * pp)
                if wanted.dp in (None, dp) and (pp == 1 or model.encoder is None):
                    for split in _experts(tp, cp, dp, banks, wanted, training):
                        yield split, dp, pp


def _experts(tp: int, cp: int, dp: int, banks: int, wanted: Wanted, training: bool) -> Iterator[Split]:
    beside = (False, True) if training and tp > 1 and wanted.sequence is None else (bool(wanted.sequence) and tp > 1,)
    for etp in (tp,) if banks == 1 else (wanted.etp,) if wanted.etp else sorted({1, tp}):
        ranks = tp * cp * dp
        if tp % etp or ranks % etp:
            continue
        for ep in (1,) if banks == 1 else of(banks, wanted.ep):
            if (ranks // etp) % ep == 0:
                for sequence in beside:
                    if sequence or etp == tp or not training:
                        yield Split(tp, cp, ep, etp, sequence)


def shares(layers: int, pieces: int) -> tuple[int, ...]:
    """Layers of each piece: equally many, and where that is not whole one fewer in some, first of all in the last piece and
    the first, which have the head and the embedding besides. Empty where they are equal."""
    each, more = divmod(layers, pieces)
    fewer = (pieces - 1, *range(pieces - 1))[: pieces - more]
    return tuple(each if index in fewer else each + 1 for index in range(pieces)) if more else ()


def least_data(split: Split) -> int:
    """The fewest data ranks that a split needs."""
    from math import gcd

    inside, bank = split.tp * split.cp, split.ep * split.etp
    return bank // gcd(inside, bank)
