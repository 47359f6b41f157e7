"""Options of what runs where: a machine and how many of it, memory that stays free, what of the peaks is attained."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import isfinite
from typing import Any, NamedTuple

import click

from ..dims import check_sizes
from ..errors import InputError
from ..parallel.layout import Layout
from ..plan.fit import nbytes
from ..timing.costs import Counting
from ..timing.efficiency import MEASURED, PROFILES, PUBLISHED, Efficiency
from ..timing.machine import Machine, Peaks, machine
from ..timing.roofline import Setup
from . import options, runs

NONE_FITS = "no layout of {} devices fits: ask 'blockcalc fit --devices', or give a layout to see what is missing"
FACTORS = ("compute", "memory", "link", "launch", "latency")


class Place(NamedTuple):
    """Devices and the bytes that each may hold."""

    machine: Machine
    devices: int | None
    reserve: str

    @property
    def available(self) -> int:
        """The driver's memory, less what stays free."""
        return self.free(self.machine)

    def free(self, machine: Machine) -> int:
        """The same of another machine."""
        return free(self.reserve, machine)

    @property
    def facts(self) -> dict[str, Any]:
        """As they stand beside each number."""
        reserve = nbytes("--reserve", self.reserve, self.machine.memory_bytes)
        return {"name": self.machine.name, "memory": self.machine.memory_bytes, "reserve": reserve, "available": self.available}

    @property
    def words(self) -> str:
        """The same as a line."""
        facts = self.facts
        return f"{facts['name']}: {facts['memory']:,} bytes a device, {facts['reserve']:,} of them kept free"


def free(reserve: str, machine: Machine) -> int:
    """The bytes of a machine's device when so much of it stays free."""
    return machine.memory_bytes - nbytes("--reserve", reserve, machine.memory_bytes)


def make_place(given: runs.Given) -> Place:
    """The machine that the options name. Raises InputError for more kept free than there is."""
    check_sizes("--count", count=given["count"])
    return checked(Place(machine(given["gpu"]), given["count"], given["reserve"]))


def checked(place: Place) -> Place:
    """Refuse to keep all of the memory free."""
    if place.available < 1:
        raise InputError(f"--reserve {place.reserve}: leaves nothing of {place.machine.memory_bytes} bytes")
    return place


def make_room(given: runs.Given) -> Place:
    """The machine, or devices of so much memory alone: eight joined by links, and a network between servers."""
    if (given["gpu"] is None) == (given["memory"] is None):
        raise InputError("give --gpu NAME, or --memory SIZE, what a device has")
    if given["gpu"] is not None:
        return make_place(given)
    check_sizes("--count", count=given["count"])
    size = nbytes("--memory", given["memory"])
    if size < 2**20:
        raise InputError(f"--memory {given['memory']}: a device has more than {size} bytes; give a unit, as in 24GiB")
    any_rate = {"bandwidth": 1, "link": 1, "network": 1}  # no time is told
    device = Machine(name=given["memory"], peaks=Peaks(bf16=1), memory_bytes=size, domain=8, node=8, **any_rate)
    return checked(Place(device, given["count"], given["reserve"]))


_COUNT = click.option("--count", type=int, default=None, metavar="N", help="Devices in all; those of the layout unless given.")
_RESERVE = click.option(
    "--reserve", default="0", show_default=True, metavar="BYTES|%", help="Memory of a device that stays free: 2GiB, 5%."
)
place = runs.gathered(
    "place", make_place,
    click.option("--gpu", required=True, metavar="NAME", shell_complete=options.complete_machine,
                 help="A machine (blockcalc machines), or a TOML file of your own."),
    _COUNT, _RESERVE,
)  # fmt: skip
room = runs.gathered(
    "room", dict,
    click.option("--gpu", default=None, metavar="NAME", shell_complete=options.complete_machine,
                 help="A machine (blockcalc machines), or a TOML file of your own."),
    click.option("--memory", default=None, metavar="SIZE", help="A device's memory, in place of a machine: 24GiB."),
    _COUNT, _RESERVE,
)  # fmt: skip


# -- time --------------------------------------------------------------------------------------------------------------

efficiency = click.option(
    "--efficiency", default=None, metavar="PROFILE|NAME=X,…",
    help="Attained fractions of the peaks, compute, memory and link, and seconds, launch (a kernel) and latency (a hop):"
         " compute=.6,memory=.8; or a profile, measured (unless given) or published. Printed with their sources.",
)  # fmt: skip
products = click.option(
    "--products", type=click.Choice(Peaks._fields), default=None,
    help="Type that linear maps and experts multiply in, where it is not --dtype: fp8, as kernels of 8-bit weights and"
         " activations do.",
)  # fmt: skip
fused = click.option("--fused", is_flag=True, help="Elementwise lines move nothing, as when compilers fuse them.")
price = click.option("--price", default=None, metavar="X", help="Of a device hour, in any currency.")
overhead = click.option("--pue", default="1", show_default=True, metavar="X", help="What a building draws over its devices.")


def attained(text: str | None, machine: Machine) -> Efficiency:
    """A profile's efficiency on the machine, or the published one with the factors that are given by hand."""
    if text is None or text in PROFILES:
        return Efficiency.of(machine, PROFILES[text] if text else MEASURED)
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not sign or name.strip() not in FACTORS:
            raise InputError(
                f"--efficiency {part}: expected {' or '.join(PROFILES)}, or NAME=X of {', '.join(FACTORS)},"
                " as in compute=.6,memory=.8"
            )
        if name.strip() in given:
            raise InputError(f"--efficiency {text}: {name.strip()} is given twice")
        given[name.strip()] = number("--efficiency", value)
    return replace(Efficiency.of(machine, PUBLISHED), profile=None, **given)


def setup(place: Place, layout: Layout, efficiency: str | None, fused: bool, counting: Counting | None = None) -> Setup:
    """What runs where."""
    counting = (counting or Counting())._replace(fused=fused)
    return Setup(place.machine, layout, counting, attained(efficiency, place.machine))


def assumed(setup: Setup) -> tuple[str, ...]:
    """What a time rests on, as lines below it."""
    fused = "nothing, as fused" if setup.counting.fused else "their tensors"
    narrow = setup.counting.products
    return (
        *([f"Linear maps and experts multiply in {narrow}."] if narrow else []),
        *setup.attained.notes(),
        "Lower bound: the longest of compute, memory and links at their peaks, all at once. Estimate: line by line at the"
        f" fractions above; elementwise lines move {fused}.",
    )


# -- numbers -----------------------------------------------------------------------------------------------------------

_LETTERS = {"": 0, "k": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15, "E": 18}
_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d{1,12}))?([kMGBTPE]?)", re.ASCII)


def count(option: str, text: str) -> int:
    """A whole number, with an SI letter (or B for a billion) or without: 15T, 1.4T, 300B."""
    found = _NUMBER.fullmatch(text.strip())
    value = Fraction(f"{found[1]}.{found[2] or 0}") * 10 ** _LETTERS[found[3]] if found else Fraction(0)
    if value.denominator != 1 or not 1 <= value <= 10**24:
        raise InputError(f"{option} {text}: expected a whole number such as 15T, 300B or 1000000")
    return int(value)


def number(option: str, text: str, most: float = 1e30) -> float:
    """A number from 0."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not isfinite(found) or not 0 <= found <= most:
        raise InputError(f"{option} {text}: expected a number from 0, such as 2 or 11200.5")
    return found


def amount(option: str, text: str) -> float:
    """A number above 0, with an SI letter or without."""
    letter = text[-1:] if text[-1:] in _LETTERS else ""
    found = number(option, text.removesuffix(letter)) * 10.0 ** _LETTERS[letter]
    if found <= 0:
        raise InputError(f"{option} {text}: expected a number above 0")
    return found


def priced(price: str | None, pue: str) -> tuple[float | None, float]:
    """The price of a device hour, and the building's overhead."""
    overhead = number("--pue", pue)
    if overhead < 1:
        raise InputError(f"--pue {pue}: a building draws at least what its devices do, 1")
    return None if price is None else number("--price", price), overhead


def devices(place: Place, layout: Layout) -> Layout | None:
    """The layout that is asked about; None where the number of devices alone is given, and a layout is to be found."""
    if place.devices in (None, layout.devices):
        return layout
    if layout == Layout():
        return None
    raise InputError(f"--count {place.devices}: the layout has {layout.devices} devices, tp · cp · pp · dp")
