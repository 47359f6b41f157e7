"""How much of a machine's rates a run attains: named factors, each with the measurement it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..declare import declaration
from ..errors import InputError
from .machine import Machine

PRODUCT = 0.80
"""The share of the peak that the best bf16 product has, where none was measured on the machine."""

_PRODUCT = (
    "the best bf16 product found on the machine; where none is published 0.80, that of an H100: Bekman, Machine Learning"
    " Engineering, maximum achievable matmul FLOPS"
)
_LINK = "376 of 450 GB/s a direction between two H100: NVIDIA/nccl, issue 1264"
_FITTED = "fitted to public runs: blockcalc table measured-speed"


class Profile(NamedTuple):
    """Factors for every machine: of the best product on it, of its bandwidth, of its links; seconds a kernel; their sources."""

    name: str
    product: float
    memory: float
    link: float
    launch: float
    sources: Mapping[str, str]


PUBLISHED = Profile("published", 1.0, 0.83, 0.84, 3e-6, MappingProxyType({
    "compute": _PRODUCT,
    "memory": "3.31 of 4.0 TB/s in BabelStream's triad on a GH200: BabelStream, issue 194",
    "launch": "3 µs, the constant of a memory operation in NVIDIA's aiconfigurator 0.12.0 (systems/*.yaml)",
    "link": _LINK,
}))  # fmt: skip
"""What single operations attain, as it is published."""

MEASURED = Profile("measured", 0.70, 0.85, 0.84, 6e-6, MappingProxyType({
    "compute": f"0.70 of {_PRODUCT}; {_FITTED}", "memory": _FITTED, "launch": _FITTED, "link": _LINK,
}))  # fmt: skip
"""What whole runs attain: ``calibration.fit`` to the runs of the side fit in ``tables/measured_speed.json``."""

PROFILES: Mapping[str, Profile] = MappingProxyType({each.name: each for each in (PUBLISHED, MEASURED)})
"""The profiles by name."""


@declaration
class Efficiency:
    """Attained fractions of peak FLOP/s, of memory bandwidth and of links, from above 0 to 1; what a kernel and a hop cost.

    Collectives of the groups *hidden* run beside computation as long as that lasts; those of others wait for it.
    """

    compute: float = PRODUCT
    memory: float = PUBLISHED.memory
    link: float = PUBLISHED.link
    launch: float = PUBLISHED.launch  # seconds a kernel takes besides what it computes and moves
    latency: float = 0.0  # seconds a hop of a collective takes besides its bytes
    hidden: frozenset[str] = frozenset(("cp", "dp", "edp"))
    profile: str | None = None  # the one that gave the factors; None: one's own, and the published ones for what is not given

    def __post_init__(self) -> None:
        for name in ("compute", "memory", "link"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= 1:
                raise InputError(f"Efficiency: {name} = {value!r}, but it is a fraction of the peak, above 0 and at most 1")
        for name in ("launch", "latency"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise InputError(f"Efficiency: {name} = {value!r}, but it is in seconds, from 0 to 1")
        if self.profile is not None and self.profile not in PROFILES:
            raise InputError(f"Efficiency: profile = {self.profile!r}, but there are {', '.join(PROFILES)}")

    @classmethod
    def of(cls, machine: Machine, profile: Profile = MEASURED) -> Efficiency:
        """The profile's factors on a machine: its share of the best product that was measured there, where one is published."""
        known = machine.matmul is not None and machine.peaks.bf16 is not None
        best = min(1.0, machine.matmul / machine.peaks.bf16) if known else PRODUCT  # type: ignore[operator]
        return cls(
            compute=profile.product * best, memory=profile.memory, link=profile.link, launch=profile.launch,
            profile=profile.name,
        )  # fmt: skip

    def notes(self) -> tuple[str, ...]:
        """The factors, the profile that gave them and its sources, as they belong beside every figure made with them."""
        factors = ", ".join(f"{name} {getattr(self, name):.2f}" for name in ("compute", "memory", "link"))
        hidden = ", ".join(sorted(self.hidden)) or "none"
        profile, usual = PROFILES[self.profile or PUBLISHED.name], Efficiency() if self.profile is None else self
        by = f"the profile {profile.name}" if self.profile else "hand; what is not given is the profile published's"
        return (
            f"Of the peaks: {factors}; {self.launch:g} s a kernel, {self.latency:g} s a hop; hidden behind computation as long"
            f" as that lasts: {hidden}. Given by {by}.",
            *(f"{name}: {source}." for name, source in profile.sources.items() if getattr(self, name) == getattr(usual, name)),
        )


PERFECT = Efficiency(compute=1, memory=1, link=1, launch=0)
"""All of every peak, and nothing besides."""
