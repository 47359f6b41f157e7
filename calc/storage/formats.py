"""Number formats of weights: what one block holds and costs, where rows are padded or refused, what is left in 16 bits.

A format is the list of tensors that a checkpoint stores in place of one matrix. ``FORMATS`` has them by name.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Literal

from ..declare import declaration
from ..dims import Dim, ceiling, check_divides, divide
from ..errors import InputError
from ..tensor import Tensor
from .weights import KINDS, Kind, Weight


@declaration(kw_only=False)
class Stored:
    """One stored tensor: an item of so many bits for each tile of *inputs* by *outputs* elements; None is all of that axis.

    What is packed fills the bytes of its last item. ``only`` names the one place where it exists, if it is one.
    """

    name: str
    bits: int
    inputs: int | None = 1
    outputs: int | None = 1
    items: int = 1  # a tile
    only: Literal["file", "device"] | None = None

    def nbytes(self, rows: Dim, columns: Dim, format: Format) -> Dim:
        """Bytes for a matrix of *rows* outputs and *columns* inputs."""
        down, known = _tiles(columns, self.inputs, format.inputs)
        across, also = _tiles(rows, self.outputs, format.outputs)
        bits = down * across * self.items * self.bits
        whole = known * also * self.items * self.bits % 8 == 0
        return divide(bits, 8, "bits", "a byte") if whole else ceiling(bits, 8)

    @property
    def bits_per_weight(self) -> Fraction:
        """Its share in a matrix so large that what is stored once a row or once in all does not count."""
        if self.inputs is None or self.outputs is None:
            return Fraction(0)
        return Fraction(self.bits * self.items, self.inputs * self.outputs)


def _tiles(size: Dim, tile: int | None, multiple: int) -> tuple[Dim, int]:
    """How many tiles a size has, and a number that divides that whatever the size."""
    if tile is None:
        return 1, 1
    if multiple % tile == 0:
        return size if tile == 1 else divide(size, tile, "a size", "a tile"), multiple // tile
    return ceiling(size, tile), 1


@declaration
class Format:
    """How matrices are stored. ``source`` is where its layout is written down.

    A row's length must be a multiple of *inputs*, the number of rows one of *outputs*; ``flat`` formats cut the flattened
    tensor into blocks and pad the last. ``applies`` are the kinds of weights that a checkpoint of this format has in it,
    ``wide`` those it keeps in fp32; the rest is in 16 bits.
    """

    name: str
    parts: tuple[Stored, ...]
    source: str
    inputs: int = 1
    outputs: int = 1
    flat: bool = False
    applies: tuple[Kind, ...] = ("linear", "expert")
    wide: tuple[Kind, ...] = ()

    def nbytes(self, weight: Weight | Tensor, where: Literal["device", "file"] = "device") -> Dim:
        """Bytes of one copy of *weight*, when it is computed with or in a checkpoint.

        Raises InputError where the format's own code refuses the shape.
        """
        weight = Weight.of(weight)
        rows, columns = (1, weight.tensor.numel) if self.flat else (weight.rows, weight.columns)
        for what, size, multiple in (("inputs", columns, self.inputs), ("outputs", rows, self.outputs)):
            if type(size) is int and size % multiple:
                name = f"{weight.path}: " if weight.path else ""
                raise InputError(f"{name}{size} {what} are not a multiple of {multiple}, as {self.name} needs them")
            if multiple != 1:
                by = f"{multiple}, as {self.name} needs it"
                check_divides(weight.path or self.name, f"the number of {what}", size, by, multiple)
        parts = (part for part in self.parts if part.only in (None, where))
        return (1 if self.flat else weight.matrices) * sum(part.nbytes(rows, columns, self) for part in parts)

    @property
    def block(self) -> tuple[int, int]:
        """Elements of a block, and its bits: the smallest run of a row for which every item is whole."""
        tiles = [part for part in self.parts if part.bits_per_weight]
        size = lcm(*((part.inputs or 1) * (part.outputs or 1) for part in tiles))
        return size, int(size * self.bits_per_weight)

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits an element of a matrix so large that what is stored once a row or once in all does not count."""
        return sum((part.bits_per_weight for part in self.parts), Fraction(0))

    @property
    def width(self) -> int:
        """Bytes an element of a plain type, for activations and caches. Raises InputError for one with blocks."""
        (first, *_) = self.parts
        if first.inputs != 1 or first.outputs != 1 or first.bits % 8:
            raise InputError(f"{self.name} has no whole bytes an element: fp32, bf16, fp16, fp8 and int8 have")
        return first.bits // 8


def _plain(name: str, bits: int, source: str) -> Format:
    return Format(name=name, parts=(Stored("weight", bits),), source=source, applies=KINDS)


FP32 = _plain("fp32", 32, "IEEE 754-2019, binary32")
BF16 = _plain("bf16", 16, "Kalamkar et al. 2019, arXiv:1905.12322, section 3")
FP16 = _plain("fp16", 16, "IEEE 754-2019, binary16")

FP8 = Format(
    name="fp8", parts=(Stored("weight", 8), Stored("weight_scale", 32, None, None)),
    source="E4M3: Micikevicius et al. 2022, arXiv:2209.05433, section 3; a scale a tensor",
)  # fmt: skip
FP8_BLOCK = Format(
    name="fp8-block", parts=(Stored("weight", 8), Stored("weight_scale_inv", 32, 128, 128)),
    source="E4M3 with an fp32 scale a tile of 128 by 128: DeepSeek-V3, arXiv:2412.19437, section 3.3.2",
)  # fmt: skip
INT8 = Format(
    name="int8", parts=(Stored("weight", 8), Stored("SCB", 32, None), Stored("weight_format", 8, None, None, only="file")),
    source="LLM.int8(): Dettmers et al. 2022, arXiv:2208.07339, section 3; a row's absolute maximum in fp32, as bitsandbytes "
           "keeps it; outliers are taken from the input's columns at run time and store nothing",
)  # fmt: skip

_NF4 = "NF4: Dettmers et al. 2023, arXiv:2305.14314, section 3; as bitsandbytes keeps it, each weight with its codebooks. "
_NF4 += "The shape and types beside it in a file, some hundred bytes of JSON of no fixed length, are left out"
_CODES, _CODEBOOK = Stored("weight", 4), Stored("quant_map", 32, None, None, items=16)
NF4 = Format(name="nf4", flat=True, parts=(_CODES, Stored("absmax", 32, 64), _CODEBOOK), source=_NF4)
NF4_DOUBLE = Format(
    name="nf4-double", flat=True, source=_NF4 + "; the blocks' maxima less their mean, in 8 bits, in blocks of 256",
    parts=(
        _CODES, Stored("absmax", 8, 64), Stored("nested_absmax", 32, 64 * 256), _CODEBOOK,
        Stored("nested_quant_map", 32, None, None, items=256), Stored("nested_offset", 32, None, None, only="device"),
    ),
)  # fmt: skip

_MX = "OCP Microscaling Formats (MX) Specification 1.0, section 5: 32 elements share an E8M0 byte"


def _mx(bits: int) -> Format:
    return Format(name=f"mxfp{bits}", parts=(Stored("blocks", bits), Stored("scales", 8, 32)), source=_MX, inputs=32)


MXFP4, MXFP6, MXFP8 = _mx(4), _mx(6), _mx(8)
NVFP4 = Format(
    name="nvfp4", inputs=16,
    parts=(Stored("weight", 4), Stored("weight_scale", 8, 16), Stored("weight_scale_2", 32, None, None)),
    source="NVIDIA, Pretraining Large Language Models with NVFP4, arXiv:2509.25149, section 2: 16 elements share an E4M3 "
           "byte, a tensor an fp32",
)  # fmt: skip


def gptq(bits: int = 4, group: int | None = 128, *, g_idx: bool = True) -> Format:
    """GPTQ (Frantar et al. 2022, arXiv:2210.17323) as AutoGPTQ and GPTQModel pack it into int32, down the inputs.

    A group of inputs has an fp16 scale and a packed zero an output; None is one group of all inputs. They store the group
    of every input (``g_idx``) with and without act-order.
    """
    _check_packed("gptq", bits, group, (2, 3, 4, 8))
    order = (Stored("g_idx", 32, 1, None),) if g_idx else ()
    return Format(
        name=f"gptq-{bits}-{group or 'all'}", inputs=32, outputs=32,
        parts=(Stored("qweight", bits), Stored("qzeros", bits, group), Stored("scales", 16, group), *order),
        source="AutoGPTQ 0.7.1, auto_gptq/nn_modules/qlinear/qlinear_cuda.py: QuantLinear",
    )  # fmt: skip


def awq(bits: int = 4, group: int | None = 128) -> Format:
    """AWQ (Lin et al. 2023, arXiv:2306.00978) as AutoAWQ packs it for GEMM: eight outputs in an int32, whole groups only."""
    _check_packed("awq", bits, group, (4,))
    return Format(
        name=f"awq-{bits}-{group or 'all'}", inputs=group or 1, outputs=32 // bits,
        parts=(Stored("qweight", bits), Stored("qzeros", bits, group), Stored("scales", 16, group)),
        source="AutoAWQ 0.2.9, awq/modules/linear/gemm.py: WQLinear_GEMM",
    )  # fmt: skip


def _check_packed(name: str, bits: int, group: int | None, known: tuple[int, ...]) -> None:
    if bits not in known:
        raise InputError(f"{name}: {bits} bits, but it packs {', '.join(map(str, known))}")
    if group is not None and (type(group) is not int or group < 1):
        raise InputError(f"{name}: a group of {group!r} inputs, but a group is a whole number from 1")
