"""A sweep on disk: each block a file, which is there whole or not at all, and a log of those that are.

``OUT.parts/sweep.json`` says whose blocks they are. A block is written under another name, flushed to the disk, and renamed;
then a line of ``blocks.jsonl`` says how many bytes it has, and their checksum. What has no line, or another size, is computed
again. So a sweep may be killed at any moment, and goes on with nothing lost and nothing twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from ..errors import InputError
from .writers import format_of, merge

_ABOUT, _LOG = "sweep.json", "blocks.jsonl"


class Block(NamedTuple):
    """A line of the log."""

    block: int
    bytes: int
    crc32: int
    rows: int
    points: int
    refused: dict[str, int]


class Parts:
    """The folder of a sweep's blocks, beside the file that they become."""

    def __init__(self, path: Path) -> None:
        self.path, self.form = path, format_of(path)
        self.folder = path.with_name(path.name + ".parts")
        self.done: dict[int, Block] = {}

    @property
    def about(self) -> Path:
        """Whose blocks these are."""
        return self.folder / _ABOUT

    def part(self, block: int) -> Path:
        """The file of a block."""
        return self.folder / f"part-{block:09d}.{self.form}"

    def open(self, about: dict[str, Any], *, resume: bool, force: bool) -> None:
        """Begin, or go on. Raises InputError where something is in the way that was not to be written over."""
        if self.path.is_dir():
            raise InputError(f"-o {self.path}: Is a directory")
        if self._merged():  # killed between the last two steps
            if resume:
                self._read(about)
                return
        elif self.path.exists() and not force:
            raise InputError(f"-o {self.path}: the file exists; --force writes over it")
        if self.folder.exists():
            if not self.about.exists() and any(self.folder.iterdir()):
                raise InputError(f"{self.folder}: a folder that no sweep made; name another file")
            if resume and self.about.exists():
                self._read(about)
                return
            if not force and self.about.exists():
                raise InputError(f"{self.folder}: a sweep that was not finished; --resume goes on with it, --force starts anew")
            self.remove()
        try:
            self.folder.mkdir(exist_ok=True)
            self._put(self.about, json.dumps(about).encode())
        except OSError as error:
            raise InputError(f"-o {self.path}: {error.strerror}") from None

    def _read(self, about: dict[str, Any]) -> None:
        try:
            there = json.loads(self.about.read_bytes())
        except ValueError:
            there = {}
        for key, value in about.items():
            if there.get(key) != value:
                what = "another grid" if key == "grid" else f"{key} {there.get(key)}, not {value}"
                raise InputError(f"{self.folder}: blocks of {what}; name another file, or --force starts anew")
        log = self.folder / _LOG
        for line in log.read_bytes().splitlines() if log.exists() else ():
            try:
                found = Block(**json.loads(line))
            except (ValueError, TypeError):  # the line that was being written
                continue
            part = self.part(found.block)
            if part.exists() and part.stat().st_size == found.bytes:
                self.done[found.block] = found

    def add(self, block: int, data: bytes, rows: int, points: int, refused: dict[str, int]) -> None:
        """Keep a block."""
        line = Block(block, len(data), crc32(data), rows, points, refused)
        self._put(self.part(block), data)
        log = self.folder / _LOG
        torn = log.exists() and log.stat().st_size > 0 and not log.read_bytes().endswith(b"\n") if not self.done else False
        with log.open("ab") as file:
            file.write((b"\n" if torn else b"") + json.dumps(line._asdict()).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.done[block] = line

    def _put(self, path: Path, data: bytes) -> None:
        """Write a file that is there whole or not at all."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush(self.folder)

    # -- the end ------------------------------------------------------------------------------------------------------

    def merge(self, dense: Sequence[str], *, force: bool) -> None:
        """Make the one file of all blocks, and remove the folder."""
        if not self._merged():
            temporary = self.folder / ".merged"
            with temporary.open("wb") as file:
                merge(self._blocks(), self.form, file, dense)
                file.flush()
                os.fsync(file.fileno())
            if self.path.exists() and not force:
                raise InputError(f"-o {self.path}: the file exists by now; --resume --force writes over it")
            self._put(self.folder / "merged.json", json.dumps(_identity(temporary)).encode())
            temporary.replace(self.path)
            _flush(self.path.parent)
        self.remove()

    def _blocks(self) -> Iterator[bytes]:
        for block in sorted(self.done):
            data = self.part(block).read_bytes()
            if crc32(data) != self.done[block].crc32:
                raise InputError(f"{self.part(block)}: its bytes are not those that were written; remove it, and --resume")
            yield data

    def _merged(self) -> bool:
        """Is the file there that this folder became."""
        try:
            return bool(json.loads((self.folder / "merged.json").read_bytes()) == _identity(self.path))
        except (OSError, ValueError):
            return False

    def remove(self) -> None:
        """Remove what a sweep writes, and the folder if nothing else is in it."""
        if not self.folder.exists():
            return
        for pattern in ("part-*", ".part-*", ".sweep.json.*", ".merged*", "merged.json", _LOG, _ABOUT):
            for path in self.folder.glob(pattern):
                path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def _identity(path: Path) -> list[int]:
    """What a file keeps when it is renamed."""
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _flush(folder: Path) -> None:
    """Have the folder's names reach the disk, where a folder can be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
