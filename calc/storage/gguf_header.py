"""A GGUF file's tensors by the gguf package's own reader, held to the file's length and to its header alone."""

from __future__ import annotations

import os
from typing import Any

import numpy
from gguf import GGUFReader, GGUFValueType


class _Header(GGUFReader):
    """Skips the arrays of a header, such as vocabularies, and refuses to read past the end of the file."""

    def _get(self, offset: int, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
        if offset + int(count) * numpy.dtype(dtype).itemsize > len(self.data):
            raise ValueError(f"it has {len(self.data)} bytes, but its header tells of more")
        return super()._get(offset, dtype, count, override_order)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind = GGUFValueType(int(self._get(orig_offs, numpy.uint32)[0]))
        count = int(self._get(orig_offs + 4, numpy.uint64)[0])
        place = orig_offs + 12
        if kind in self.gguf_scalar_to_np:
            place += count * numpy.dtype(self.gguf_scalar_to_np[kind]).itemsize
            self._get(place, numpy.uint8, 0)
        else:
            for _ in range(count):
                place += self._item(place, kind)
        return place - orig_offs, [], [], [GGUFValueType.ARRAY]

    def _item(self, place: int, kind: GGUFValueType) -> int:
        """Bytes of a string, or of an array inside an array."""
        if kind == GGUFValueType.STRING:
            return 8 + int(self._get(place, numpy.uint64)[0])
        return self._get_field_parts(place, kind)[0]


def tensors(path: str | os.PathLike[str]) -> list[tuple[str, str, tuple[int, ...], int]]:
    """Name, type, shape (outermost first) and bytes of each tensor.

    Raises ValueError, KeyError, IndexError or OSError for what is no whole GGUF file.
    """
    return [
        (tensor.name, tensor.tensor_type.name, tuple(int(size) for size in reversed(tensor.shape)), int(tensor.n_bytes))
        for tensor in _Header(path).tensors
    ]
