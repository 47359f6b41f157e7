"""How long collectives take: ring formulas over the link that a group's devices have to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..budget import Widths
from ..dims import Dim, larger
from ..errors import InputError
from ..parallel.collectives import Collective
from ..parallel.layout import Layout
from .efficiency import PERFECT, Efficiency
from .machine import Machine


class Route(NamedTuple):
    """Where a group's devices stand: how many of them share a domain, and the bytes/s of each device in a ring of them all."""

    together: int
    ring: int


def route(collective: Collective, layout: Layout, machine: Machine) -> Route:
    """The way of a group, its ranks laid out tensor-parallel first, then context, data and last pipeline (Megatron-LM's
    order), on domains filled one after the other.

    A ring that leaves its domain is as fast as all the network links of the group's devices there, or the link if slower:
    NCCL runs rings through every device's own. Raises InputError where there is no such link.
    """
    stride, ranks = _stride(collective, layout), int(collective.ranks)
    together = ranks if stride * ranks <= machine.domain else max(1, machine.domain // stride)
    if together > 1 and machine.link is None:
        raise InputError(f"{machine.name}: {ranks} ranks of {collective.group}, but no link joins its devices")
    if together == ranks:
        return Route(ranks, machine.link or 0)
    if machine.network is None:
        raise InputError(
            f"{machine.name}: {ranks} ranks of {collective.group} at a stride of {stride} leave its domain of {machine.domain}"
            " devices, and it has no network: give bytes/s in a file (like, network)"
        )
    outside = together * machine.network
    return Route(together, outside if together == 1 or machine.link is None else min(machine.link, outside))


def _stride(collective: Collective, layout: Layout) -> int:
    """Devices from one rank of the group to the next."""
    strides: Mapping[str, int] = {
        "tp": 1, "heads": 1, "etp": 1, "cp": layout.tp, "ep": layout.expert_tp, "dp": layout.tp,
        "edp": layout.expert_tp * layout.ep, "pp": layout.tp * layout.cp * layout.dp,
    }  # fmt: skip
    return strides[collective.group]


_HOPS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}


def seconds(
    collective: Collective, layout: Layout, machine: Machine, widths: Widths, efficiency: Efficiency = PERFECT
) -> Dim:
    """Time of a collective, all its copies: bytes sent by a ring over the route's rate, and a latency for each hop.

    An all-to-all sends each peer its share: to those of its domain over the link, to the others over the network, at once.
    """
    ranks = int(collective.ranks)
    if ranks == 1:
        return 0.0
    way = route(collective, layout, machine)
    if collective.kind == "send":
        inside = way.together == ranks
        rate, hops = way.ring if inside else machine.network or 0, 1
        moved = collective.sent(widths) / rate
    elif collective.kind == "all-to-all":
        payload, hops = collective.payload(widths), ranks - 1
        near = payload * (way.together - 1) / ranks / machine.link if way.together > 1 and machine.link else 0.0
        far = payload * (ranks - way.together) / ranks / machine.network if way.together < ranks and machine.network else 0.0
        moved = larger(near, far)
    else:
        moved, hops = collective.sent(widths) / way.ring, _HOPS[collective.kind] * (ranks - 1)
    return moved / efficiency.link + hops * efficiency.latency * collective.copies
