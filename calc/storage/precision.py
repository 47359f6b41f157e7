"""Which format each kind of weight, the cache and the activations are in; and a budget's weights in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from ..budget import Budget, Widths
from ..declare import declaration
from ..dims import Dim
from ..errors import InputError
from ..tensor import Tensor
from . import gguf
from .formats import BF16, FP8, FP8_BLOCK, FP16, FP32, INT8, MXFP4, MXFP6, MXFP8, NF4, NF4_DOUBLE, NVFP4, Format, awq, gptq
from .weights import Kind, Weight, weights

FORMATS: Mapping[str, Format] = MappingProxyType({
    format.name: format
    for format in (FP32, BF16, FP16, FP8, FP8_BLOCK, INT8, NF4, NF4_DOUBLE, MXFP4, MXFP6, MXFP8, NVFP4)
} | {
    f"gguf-{format.name}": format for format in gguf.TYPES
})  # fmt: skip
"""The formats by name; ``named`` knows those of GPTQ and AWQ besides."""


def named(name: str) -> Format:
    """The format of that name: one of ``FORMATS``, or GPTQ or AWQ by bits and group, ``gptq-4-128``, ``awq-4-128``."""
    if name in FORMATS:
        return FORMATS[name]
    method, *sizes = name.split("-")
    if method in ("gptq", "awq") and len(sizes) == 2 and all(size.isascii() and size.isdigit() for size in sizes):
        return (gptq if method == "gptq" else awq)(*(int(size[:9]) for size in sizes))
    raise InputError(f"format {name!r} is not one of {', '.join(FORMATS)}, gptq-BITS-GROUP, awq-BITS-GROUP")


@declaration
class Precision:
    """A format for each kind of weight, and plain types for the cache and for what is computed."""

    linear: Format = BF16
    expert: Format = BF16
    router: Format = BF16
    head: Format = BF16
    table: Format = BF16
    position: Format = BF16
    kernel: Format = BF16
    vector: Format = BF16
    key_value: Format = BF16
    activation: Format = BF16
    statistic: Format = FP32

    @classmethod
    def of(cls, format: Format, compute: Format | None = None) -> Precision:
        """All that the format applies to in it, and the rest as the format leaves it: fp32, or the type computed in.

        That is bf16 unless given; a plain type computes in itself. ``dataclasses.replace`` overrides a kind.
        """
        plain = format in (FP32, BF16, FP16)
        compute = compute or (format if plain else BF16)
        kinds = {kind: compute for kind in cls.__dataclass_fields__ if kind != "statistic"}
        return cls(**kinds | dict.fromkeys(format.wide, FP32) | dict.fromkeys(format.applies, format))

    def format(self, kind: Kind) -> Format:
        """That of a kind of weight."""
        found: Format = getattr(self, kind)
        return found

    def nbytes(self, weight: Weight | Tensor, where: Literal["device", "file"] = "device") -> Dim:
        """Bytes of one copy of the weight."""
        weight = Weight.of(weight)
        return self.format(weight.kind).nbytes(weight, where)

    def widths(self) -> Widths:
        """Bytes an element by role, of what is no weight; masks are one byte, indices int64."""
        compute = dict.fromkeys(("activation", "state"), self.activation.width)
        rest = {"key_value": self.key_value.width, "statistic": self.statistic.width, "mask": 1, "index": 8}
        return MappingProxyType(compute | rest)


def weight_bytes(
    budget: Budget, precision: Precision, by: Literal["path", "kind"] = "path", where: Literal["device", "file"] = "device"
) -> dict[str, Dim]:
    """Bytes of all weights under *precision*, a tied one once, by the line that uses them first or by kind.

    A matrix stands by itself here; a checkpoint that fuses some (q, k and v) stores once what a tensor has once.
    """
    found: dict[str, Dim] = {}
    for weight in weights(budget):
        key = weight.path if by == "path" else weight.kind
        found[key] = found.get(key, 0) + weight.tensor.copies * precision.nbytes(weight, where)
    return found
