"""Numbers as axes show them: a power of the unit for all of an axis, ticks, and names that fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log2, log10
from typing import Any

from rich.cells import cell_len, set_cell_size

from .figure import Axis, Figure

BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
"""Colours that the colour-blind tell apart. Okabe and Ito 2008, jfly.uni-koeln.de/color."""


def prefix(axis: Axis, values: Iterable[Any]) -> tuple[int, str]:
    """What an axis divides by, and what its numbers then are: (2**30, 'GiB') or (10**12, 'TFLOP/s').

    Tokens, layers and intensities are shown as they are.
    """
    if axis.unit in ("tokens", "FLOPs a byte", ""):
        return 1, axis.unit
    if axis.unit == "share of FLOPs":
        return 1, "% of the FLOPs"
    largest, step = max(values, default=0), 1024 if axis.unit == "bytes" else 1000
    power = 0
    while largest >= step ** (power + 1) and power < 6:
        power += 1
    return step**power, BINARY[power] if axis.unit == "bytes" else DECIMAL[power] + axis.unit.replace("parameters", "")


def title(axis: Axis, unit: str) -> str:
    """What stands beside an axis: ``KV cache (GiB)``."""
    return " ".join(part for part in (axis.label, f"({unit})" if unit and axis.label else unit) if part)


def ticks(low: float, high: float, log: bool, most: int) -> list[float]:
    """Round numbers from low to high, at most about *most*."""
    return _log_ticks(low, high, most) if log else _even_ticks(low, high, most)


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    if rough <= 0:
        return [low]
    size = 10.0 ** floor(log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.999)
    return [step * n for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**power for power in powers for m in steps if low * 0.999 <= m * 10.0**power <= high * 1.001]
        if len(found) <= most:
            return found
    return found[:: ceil(len(found) / most)]


def octaves(low: int, high: int, most: int) -> list[int]:
    """Powers of two from low to high, at most about *most*."""
    powers = range(ceil(log2(low)), floor(log2(high)) + 1)
    return [2**power for power in powers[:: max(1, ceil(len(powers) / most))]]


def number(value: float) -> str:
    """A tick's number: 2,048, 0.05, 1e-06."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e7 else f"{value:g}"


def places(axis: Axis, low: float, high: float, most: int) -> list[float]:
    """The ticks of an axis between two numbers: powers of two for a logarithmic axis of tokens."""
    if axis.unit == "tokens" and axis.scale == "log":
        found = octaves(round(low), round(high), most)
        if len(found) > 1:
            return [float(tick) for tick in found]
    return ticks(low, high, axis.scale == "log", most)


def short(text: str, width: int) -> str:
    """A name in at most *width* places of a terminal, its middle left out; what cannot be printed is replaced."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(text))
    if cell_len(plain) <= width:
        return plain
    end = max(1, (width - 1) * 2 // 3)
    return f"{set_cell_size(plain, width - 1 - end)}…{set_cell_size(plain[::-1], end)[::-1]}"


def names(texts: Sequence[str], width: int) -> dict[str, str]:
    """Each text with its short name; a number tells apart those that would be the same."""
    found: dict[str, str] = {}
    for text in texts:
        name, count = short(text, width), 1
        while name in found.values():
            count += 1
            name = f"{short(text, width - 2 - len(str(count)))} {count}"
        found[text] = name
    return found


def colours(figure: Figure) -> dict[str, str]:
    """A colour for each entry of the legend, and again from the first where there are more."""
    return {label: OKABE_ITO[index % len(OKABE_ITO)] for index, label in enumerate(figure.labels)}
