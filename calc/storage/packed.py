"""From what a checkpoint stores to the parameters that it means: packed words unpacked, scales and buffers left out."""

from __future__ import annotations

import json
from math import prod
from typing import NamedTuple

from ..errors import InputError
from ..readers.config import printable
from .checkpoints import Checkpoint, Entry, values


class Logical(NamedTuple):
    """A parameter as the model has it: the name of what stores it, and its shape, outermost first, outputs before inputs."""

    name: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Its elements."""
        return prod(self.shape)


class Parameters(NamedTuple):
    """A checkpoint's parameters, and how many elements they have in all."""

    each: tuple[Logical, ...]
    total: int


BUFFERS = ("rotary_emb.inv_freq", "masked_bias", "e_score_correction_bias", "rope_freqs.weight", "rope_factors_long.weight",
           "rope_factors_short.weight")  # fmt: skip
"""Ends of names of constants that checkpoints store beside their parameters; 4-D ``attn.bias`` (a mask) is another."""

COMPANIONS = (
    "qzeros", "scales", "g_idx", "SCB", "weight_format", "weight_scale", "weight_scale_inv", "weight_scale_2", "input_scale",
    "weight_shape", "weight_zero_point", "weight_g_idx", "weight_global_scale", "input_global_scale", "activation_scale",
)  # fmt: skip
"""Last parts of names of what stands beside a packed matrix."""


def parameters(checkpoint: Checkpoint) -> Parameters:
    """The parameters of a checkpoint.

    Knows GPTQ, AWQ (GEMM), bitsandbytes' 4 and 8 bits, fp8 with scales, NVFP4, compressed-tensors, gpt-oss's MXFP4 and
    GGUF. Raises InputError for integers that are packed in no way known here.
    """
    entries = {entry.name: entry for entry in checkpoint.entries}
    found = (_parameter(entry, entries, checkpoint.form == "gguf") for entry in checkpoint.entries)
    each = tuple(parameter for parameter in found if parameter is not None)
    return Parameters(each, sum(parameter.numel for parameter in each))


def _parameter(entry: Entry, entries: dict[str, Entry], gguf: bool) -> Logical | None:
    """What an entry means, None where it is no parameter but stands beside one."""
    name, dtype, shape = entry[:3]
    if name.endswith(BUFFERS) or (name.endswith(("attn.bias", "attention.bias")) and len(shape) == 4):
        return None
    if gguf:
        return None if dtype.startswith("I") and dtype[1:].isdigit() else Logical(name, shape)
    stem, _, last = name.rpartition(".")
    if last == "qweight":
        return Logical(name, _int32(entry, entries, stem))
    if last == "weight_packed":
        return Logical(name, _shape_beside(entry, entries, stem))
    if name.endswith("_blocks") and f"{name.removesuffix('blocks')}scales" in entries:
        return Logical(name, (*shape[:-2], 2 * prod(shape[-2:])))
    if _stands_beside(name, stem, last, entries):
        return None
    if dtype in ("U8", "I8", "I32") and last == "weight":
        return Logical(name, _bytes(entry, entries, stem))
    return Logical(name, shape) if dtype.startswith(("F", "BF", "C")) else None


def _stands_beside(name: str, stem: str, last: str, entries: dict[str, Entry]) -> bool:
    """Is it a scale, a zero point, a codebook of a matrix that is there?"""
    if any(f"{stem}.{matrix}" in entries for matrix in ("qweight", "weight", "weight_packed")) and last in COMPANIONS:
        return True
    matrix, dot, _ = name.partition(".weight.")
    if dot and f"{matrix}.weight" in entries:
        return True
    return name.endswith("_scales") and f"{name.removesuffix('scales')}blocks" in entries


def _int32(entry: Entry, entries: dict[str, Entry], stem: str) -> tuple[int, int]:
    """Outputs and inputs of a matrix packed into int32: down the inputs (GPTQ) or along the outputs (AWQ)."""
    scales, zeros, order = (entries.get(f"{stem}.{part}") for part in ("scales", "qzeros", "g_idx"))
    if len(entry.shape) == 2 and scales is not None and len(scales.shape) == 2:
        (down, across), outputs = entry.shape, scales.shape[1]
        if across == outputs and order is not None:
            return outputs, order.numel
        if across == outputs and zeros is not None and zeros.numel and down * outputs % zeros.shape[1] == 0:
            return outputs, down * outputs // zeros.shape[1]  # both hold as many a word: down·32/bits, bits = 32·words/outputs
        if outputs and 32 * across % outputs == 0 and across < outputs:
            return outputs, down
    raise _unknown(entry)


def _bytes(entry: Entry, entries: dict[str, Entry], stem: str) -> tuple[int, ...]:
    """The shape of integers that stand for a matrix: two a byte (NF4, FP4, NVFP4), or one (LLM.int8())."""
    for kind in ("nf4", "fp4"):
        state = entries.get(f"{entry.name}.quant_state.bitsandbytes__{kind}")
        if state is not None:
            return _state_shape(entry, state)
    if entry.dtype == "I8" and f"{stem}.SCB" in entries:
        return entry.shape
    if entry.dtype == "U8" and f"{stem}.weight_scale_2" in entries:
        return (*entry.shape[:-1], 2 * entry.shape[-1])
    if entry.dtype == "I8" and f"{stem}.weight_scale" in entries:
        return entry.shape
    raise _unknown(entry)


def _state_shape(entry: Entry, state: Entry) -> tuple[int, ...]:
    """The shape that bitsandbytes writes as JSON beside a flattened matrix."""
    try:
        shape = tuple(json.loads(bytes(values(state)).decode("utf-8"))["shape"])
    except (ValueError, KeyError, TypeError):
        raise _unknown(entry) from None
    if not all(type(size) is int and size >= 0 for size in shape) or (prod(shape) + 1) // 2 != entry.nbytes:
        raise InputError(f"{printable(f'{entry.file}: {entry.name}')}: {entry.nbytes} bytes cannot hold {shape} in 4 bits")
    return shape


def _shape_beside(entry: Entry, entries: dict[str, Entry], stem: str) -> tuple[int, ...]:
    """The shape that compressed-tensors writes beside int32 words; without one, two elements a byte."""
    shape = entries.get(f"{stem}.weight_shape")
    if shape is not None and shape.dtype in ("I32", "I64") and shape.numel <= 4:
        return tuple(int(size) for size in values(shape))
    if entry.dtype == "U8":
        return (*entry.shape[:-1], 2 * entry.shape[-1])
    raise _unknown(entry)


def _unknown(entry: Entry) -> InputError:
    return InputError(
        f"{printable(f'{entry.file}: {entry.name}')}: found {entry.dtype} {list(entry.shape)}, packed in no way that is known"
        " here: GPTQ, AWQ (GEMM), bitsandbytes, NVFP4, MXFP4, compressed-tensors"
    )
