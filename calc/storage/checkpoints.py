"""Checkpoints on disk: the tensors of safetensors and GGUF files, read by header alone, with these formats' own libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import InputError
from ..readers.config import printable, read_json, shown


class Entry(NamedTuple):
    """A stored tensor: its name, the type and the shape it is stored in (outermost first), its bytes and the file it is in.

    A GGUF's shape is that of the elements, whatever their blocks.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: Path

    @property
    def numel(self) -> int:
        """Items stored: elements, or the words that they are packed in."""
        return prod(self.shape)


class Stock(NamedTuple):
    """The tensors of one stored type: how many, their items (elements, or the words that they are packed in), their bytes."""

    dtype: str
    tensors: int
    items: int
    bytes: int


class Checkpoint(NamedTuple):
    """What a path holds."""

    path: str
    form: Literal["safetensors", "gguf"]
    files: tuple[Path, ...]
    entries: tuple[Entry, ...]

    def types(self) -> tuple[Stock, ...]:
        """The tensors by stored type, the type with the most bytes first."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.dtype, []).append(entry)
        stocks = (_stock(dtype, entries) for dtype, entries in found.items())
        return tuple(sorted(stocks, key=lambda stock: -stock.bytes))

    def all(self) -> Stock:
        """All tensors; headers and padding are not theirs."""
        return _stock("all", self.entries)


def _stock(dtype: str, entries: Sequence[Entry]) -> Stock:
    return Stock(dtype, len(entries), sum(entry.numel for entry in entries), sum(entry.nbytes for entry in entries))


def read(path: str | Path) -> Checkpoint:
    """The checkpoint at *path*: a ``.safetensors`` or ``.gguf`` file, one of a split GGUF's, an index, or a folder with one.

    Raises InputError, in one line that names the file, for whatever cannot be read as such.
    """
    path = Path(path)
    where = printable(str(path))
    try:
        path = _in_folder(path, where) if path.is_dir() else path
        if not path.is_file():
            raise InputError(f"{where}: no such file or folder; expected .safetensors, .gguf or a folder of them")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if path.name.endswith(".safetensors.index.json"):
        return _sharded(path, where)
    if path.suffix == ".safetensors":
        return Checkpoint(where, "safetensors", (path,), tuple(_safetensors(path)))
    if path.suffix == ".gguf":
        files = _splits(path)
        entries = tuple(entry for file in files for entry in _gguf(file))
        _refuse_doubles(entries)
        return Checkpoint(where, "gguf", files, entries)
    raise InputError(f"{printable(str(path))}: expected a .safetensors or .gguf file, a .safetensors.index.json, or a folder")


def _in_folder(folder: Path, where: str) -> Path:
    """The folder's index, else its only file of weights."""
    for pattern in ("*.safetensors.index.json", "*.safetensors", "*.gguf"):
        found = sorted(folder.glob(pattern))
        if pattern == "*.gguf" and found and len({_SPLIT.sub("", file.name) for file in found}) == 1:
            return found[0]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"{where}: {len(found)} files {pattern}; name the one that is meant")
    raise InputError(f"{where}: a folder without .safetensors or .gguf files")


# -- safetensors -------------------------------------------------------------------------------------------------------

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "C64": 64, "F64": 64,
    "F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Bits an item of each type that safetensors has."""


def _open(file: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError:
        raise InputError("reading .safetensors needs safetensors: pip install 'blockcalc[checkpoints]'") from None
    try:
        return safe_open(file, framework="numpy")
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{printable(str(file))}: no whole safetensors file: {_said(error)}") from None


def _safetensors(file: Path) -> Iterator[Entry]:
    with _open(file) as opened:
        for name in opened.keys():  # noqa: SIM118 (not a mapping)
            part = opened.get_slice(name)
            dtype, shape = part.get_dtype(), tuple(part.get_shape())
            if dtype not in BITS:
                raise InputError(f"{printable(f'{file}: {name}')}: found type {dtype}, expected one of {', '.join(BITS)}")
            yield Entry(name, dtype, shape, prod(shape) * BITS[dtype] // 8, file)


def values(entry: Entry) -> Any:
    """A small tensor's data, as a NumPy array: where a format keeps a shape in a tensor of its own."""
    with _open(entry.file) as opened:
        return opened.get_tensor(entry.name)


def _sharded(index: Path, where: str) -> Checkpoint:
    """All shards that an index names; each has exactly the tensors that the index says."""
    named = read_json(index).get("weight_map")
    label = printable(str(index))
    if not isinstance(named, dict) or not all(isinstance(shard, str) for shard in named.values()):
        raise InputError(f"{label}: weight_map: found {shown(named)}, expected tensors' names and the file of each")
    shards: dict[str, set[str]] = {}
    for name, shard in named.items():
        shards.setdefault(shard, set()).add(name)
    entries: list[Entry] = []
    for shard, names in sorted(shards.items()):
        if shard != Path(shard).name or not (index.parent / shard).is_file():
            raise InputError(f"{label}: weight_map: {printable(shard)}: no such file beside the index")
        found = tuple(_safetensors(index.parent / shard))
        differ = names.symmetric_difference(entry.name for entry in found)
        if differ:
            raise InputError(f"{label}: {printable(shard)}: {printable(min(differ))} is in only one of the index and the shard")
        entries.extend(found)
    return Checkpoint(where, "safetensors", tuple(index.parent / shard for shard in sorted(shards)), tuple(entries))


# -- GGUF --------------------------------------------------------------------------------------------------------------

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")


def _splits(file: Path) -> tuple[Path, ...]:
    """The file, or all parts of the model that it is one part of."""
    match = _SPLIT.search(file.name)
    if match is None:
        return (file,)
    parts = tuple(
        file.with_name(_SPLIT.sub(f"-{part:05}-of-{match[2]}", file.name)) for part in range(1, int(match[2]) + 1)
    )
    for part in parts:
        if not part.is_file():
            raise InputError(f"{printable(str(part))}: no such file, but it is a part of {printable(file.name)}")
    return parts


def _gguf(file: Path) -> tuple[Entry, ...]:
    try:
        from .gguf_header import tensors
    except ModuleNotFoundError as missing:
        raise InputError(f"reading .gguf needs {missing.name}: pip install 'blockcalc[checkpoints]'") from None
    try:
        return tuple(Entry(name, dtype, shape, size, file) for name, dtype, shape, size in tensors(file))
    except (ValueError, KeyError, IndexError, OSError, OverflowError, RecursionError) as error:
        raise InputError(f"{printable(str(file))}: no whole GGUF file: {_said(error)}") from None


def _said(error: Exception) -> str:
    """What a library said, on one line."""
    return printable(" ".join(str(error.args[0] if error.args else error).split()) or type(error).__name__)


def _refuse_doubles(entries: tuple[Entry, ...]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise InputError(f"{printable(f'{entry.file}: {entry.name}')}: the tensor is in two parts")
        seen.add(entry.name)
