"""Machines: what a device computes, holds and sends, from the catalogue or from a file of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from ..declare import declaration
from ..dims import Dim
from ..errors import InputError, UndefinedError
from ..tables import machines

LARGEST = 10**24
"""No figure of a machine is larger."""


_OPTIONAL = ("link", "network", "watts", "matmul")


class Peaks(NamedTuple):
    """Dense FLOP/s of products in each type, accumulated in fp32 where the type is narrower (int8: operations a second)."""

    fp32: int | None = None
    tf32: int | None = None
    fp16: int | None = None
    bf16: int | None = None
    fp8: int | None = None
    fp4: int | None = None
    int8: int | None = None


@declaration
class Machine:
    """One device and how it stands among others. Rates are a second and in one direction; nothing is rounded."""

    name: str
    peaks: Peaks
    memory_bytes: int  # of which the driver says that they are there
    bandwidth: int  # bytes that its memory moves
    link: int | None = None  # bytes sent to the other devices of its domain
    domain: int = 1  # devices that such links join
    node: int = 1  # devices of a server
    network: int | None = None  # bytes sent to devices outside the domain
    watts: int | None = None  # its power limit
    matmul: int | None = None  # FLOP/s of the best bf16 product that was measured

    def __post_init__(self) -> None:
        for field, value in (*self.__dict__.items(), *self.peaks._asdict().items()):
            if field in ("name", "peaks") or (value is None and field in (*Peaks._fields, *_OPTIONAL)):
                continue
            if type(value) is not int or not 1 <= value <= LARGEST:
                raise InputError(f"Machine: {field} = {value!r}, but it is a whole number from 1 to 10**24")
        if all(peak is None for peak in self.peaks):
            raise InputError(f"Machine: flops: found none, expected one of {', '.join(Peaks._fields)}")
        if self.domain > 1 and self.link is None:
            raise InputError(f"Machine: domain = {self.domain} devices, but no link joins them")

    def peak(self, dtype: str) -> int:
        """FLOP/s of products in *dtype*. Raises InputError for an unknown type, UndefinedError where the machine has none."""
        if dtype not in Peaks._fields:
            raise InputError(f"a rate in {dtype!r}: the types are {', '.join(Peaks._fields)}")
        found: int | None = getattr(self.peaks, dtype)
        if found is None:
            has = ", ".join(name for name, value in self.peaks._asdict().items() if value is not None)
            raise UndefinedError(f"{self.name} has no rate in {dtype}: it has {has}")
        return found

    def nodes(self, devices: Dim) -> Dim:
        """Servers that so many devices fill."""
        return -(-devices // self.node)


def machine(name: str | Path) -> Machine:
    """The machine of that name (``blockcalc machines``), or the one that a TOML file declares.

    Raises InputError, in one line that names the field, for whatever cannot be right.

    >>> machine("h100-sxm").peak("bf16")
    989400000000000
    """
    known = machines()["machines"]
    if str(name) in known:
        return _preset(str(name), known[str(name)]["figures"])
    path = Path(name)
    try:
        declared = path.suffix == ".toml" or path.exists()
    except OSError as error:
        raise InputError(f"machine {str(name)[:40]!r}: {error.strerror}") from None
    if declared:
        return _declared(path)
    near = get_close_matches(str(name).lower(), known, 3, 0.4)
    hint = f" (did you mean {', '.join(near)}?)" if near else ""
    raise InputError(f"machine {str(name)!r} is neither one of those that 'blockcalc machines' lists{hint} nor a TOML file")


def _preset(name: str, figures: Mapping[str, Mapping[str, Any]]) -> Machine:
    values = {figure: entry["value"] for figure, entry in figures.items()}
    peaks = Peaks(**{dtype: values.pop(dtype) for dtype in Peaks._fields if dtype in values})
    return Machine(name=name, peaks=peaks, memory_bytes=values.pop("memory"), **values)


# -- a user's own ------------------------------------------------------------------------------------------------------

EXAMPLE = """\
name = "our-h100"
like = "h100-sxm"           # start from a machine of the catalogue; what follows differs, or is all of it without this line
memory_bytes = 85520809984  # a whole number
bandwidth = "2.4T"          # bytes/s: a whole number, or a text with an SI letter
link = "450G"               # bytes/s to the devices of the domain, in one direction
domain = 8
node = 8
network = "50G"             # bytes/s to devices outside the domain
watts = 500
matmul = "700T"             # FLOP/s of the best bf16 product measured there

[flops]                     # dense FLOP/s
bf16 = "989.4T"
fp8 = 1_978_900_000_000_000
"""
"""What a file says."""

_RATES = ("bandwidth", "link", "network", "matmul")
_FIELDS = ("name", "like", "memory_bytes", *_RATES, "domain", "node", "watts", "flops")


def _declared(path: Path) -> Machine:
    from ..readers.config import printable

    where = printable(str(path))
    given = _table(path, where)
    for field in given:
        if field not in _FIELDS:
            raise InputError(f"{where}: {printable(field)}: unknown field; a machine has {', '.join(_FIELDS)}")
    given["name"] = _text(where, "name", given.get("name", path.stem))
    like = _like(where, given.pop("like", None))
    values = dict(like.__dict__) if like else {}
    peaks = _peaks(where, given.pop("flops", {}), like.peaks if like else Peaks())
    values |= {field: _figure(where, field, value) if field != "name" else value for field, value in given.items()}
    for field in ("memory_bytes", "bandwidth"):
        if field not in values:
            raise InputError(f"{where}: {field}: missing; give it, or a machine to start from: like = \"h100-sxm\"")
    try:
        return Machine(**values | {"peaks": peaks})
    except InputError as error:
        raise InputError(f"{where}: {str(error).removeprefix('Machine: ')}") from None


def _table(path: Path, where: str) -> dict[str, Any]:
    from tomllib import TOMLDecodeError, load

    from ..readers.config import printable

    try:
        with path.open("rb") as file:
            return load(file)
    except TOMLDecodeError as error:
        raise InputError(f"{where}: no TOML: {printable(' '.join(str(error).split()))}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}") from None


def _text(where: str, field: str, value: Any) -> str:
    from ..readers.config import shown

    if not isinstance(value, str) or not value.isprintable() or not value:
        raise InputError(f"{where}: {field}: found {shown(value)}, expected a name")
    return value


def _like(where: str, name: Any) -> Machine | None:
    from ..readers.config import shown

    if name is None:
        return None
    if not isinstance(name, str) or name not in machines()["machines"]:
        raise InputError(f"{where}: like: {shown(name)} is not one of those that 'blockcalc machines' lists")
    return machine(name)


def _peaks(where: str, given: Any, like: Peaks) -> Peaks:
    from ..readers.config import printable, shown

    if not isinstance(given, dict):
        raise InputError(f"{where}: flops: found {shown(given)}, expected a table of rates by type")
    for dtype in given:
        if dtype not in Peaks._fields:
            raise InputError(f"{where}: flops.{printable(dtype)}: unknown type; there are {', '.join(Peaks._fields)}")
    return like._replace(**{dtype: _figure(where, f"flops.{dtype}", value) for dtype, value in given.items()})


def _figure(where: str, field: str, value: Any) -> int:
    """A whole number; a rate may be a text with an SI letter."""
    from ..plots.roofline import rate
    from ..readers.config import printable, shown

    is_rate = field in _RATES or field.startswith("flops.")
    if is_rate and isinstance(value, str):
        return rate(f"{where}: {field}", printable(value))
    if type(value) is not int or not 1 <= value <= LARGEST:
        forms = ' or a text such as "3.35T"' if is_rate else ""
        raise InputError(f"{where}: {field}: found {shown(value)}, expected a whole number above 0{forms}")
    return value
