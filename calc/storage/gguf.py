"""GGUF's block types: bytes of quants, scales and minima of a block. Rows that are no whole blocks are refused."""

from __future__ import annotations

from .formats import Format, Stored
from .weights import Kind

_SOURCE = "ggml-org/llama.cpp, ggml/src/ggml-common.h; sizes: PyPI gguf 0.19.0, gguf/constants.py, GGML_QUANT_SIZES"
_QUANTISED: tuple[Kind, ...] = ("linear", "expert", "head", "table")
_WIDE: tuple[Kind, ...] = ("vector", "router", "position")  # convert_hf_to_gguf.py keeps them in F32


def _type(name: str, block: int, quants: int, scales: int = 0, minima: int = 0) -> Format:
    """Bytes of each in a block of so many elements."""
    sizes = {"quants": quants, "scales": scales, "minima": minima}
    parts = tuple(Stored(part, 8 * size, block) for part, size in sizes.items() if size)
    return Format(name=name, parts=parts, source=_SOURCE, inputs=block, applies=_QUANTISED, wide=_WIDE)


TYPES = tuple(
    _type(*row)
    for row in (
        # name, elements, bytes of quants, of scales, of minima
        ("f32", 1, 4), ("f16", 1, 2), ("bf16", 1, 2),
        ("q4_0", 32, 16, 2), ("q4_1", 32, 16, 2, 2), ("q5_0", 32, 20, 2), ("q5_1", 32, 20, 2, 2),
        ("q8_0", 32, 32, 2), ("q8_1", 32, 32, 8), ("q1_0", 128, 16, 2),
        ("q2_k", 256, 64, 8 + 2, 8 + 2),  # 16 scales and 16 minima of 4 bits; an fp16 for all of either
        ("q3_k", 256, 96, 12 + 2),  # 16 scales of 6 bits
        ("q4_k", 256, 128, 6 + 2, 6 + 2), ("q5_k", 256, 160, 6 + 2, 6 + 2),  # 8 scales and 8 minima of 6 bits
        ("q6_k", 256, 192, 16 + 2), ("q8_k", 256, 256, 4 + 32),  # q8_k: an fp32, and the sums of 16 elements each
        ("iq1_s", 256, 48, 2), ("iq1_m", 256, 48, 8), ("iq2_xxs", 256, 64, 2), ("iq2_xs", 256, 64, 8 + 2),
        ("iq2_s", 256, 72, 8 + 2), ("iq3_xxs", 256, 96, 2), ("iq3_s", 256, 104, 4 + 2),
        ("iq4_nl", 32, 16, 2), ("iq4_xs", 256, 128, 6 + 2), ("tq1_0", 256, 52, 2), ("tq2_0", 256, 64, 2),
        ("mxfp4", 32, 16, 1), ("nvfp4", 64, 32, 4),
    )
)  # fmt: skip
"""Of every type that holds weights; an IQ type's quants are indices into grids, with the signs and the small scales in them."""
