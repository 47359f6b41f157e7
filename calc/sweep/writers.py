"""A block as bytes, and blocks as one file: Parquet, CSV, JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np

from ..errors import InputError
from .rows import Rows, Whole, Words

Format: TypeAlias = Literal["parquet", "csv", "jsonl"]
ENDINGS: dict[str, Format] = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_of(path: Path) -> Format:
    """The format that a file's ending says. Raises InputError for another ending, or where Parquet's library is missing."""
    if path.suffix not in ENDINGS:
        raise InputError(f"-o {path}: expected a name that ends in {', '.join(ENDINGS)}")
    found = ENDINGS[path.suffix]
    if found == "parquet":
        _arrow()
    return found


def encode(rows: Rows, form: Format, dense: Sequence[str]) -> bytes:
    """A file of these rows, of which the *dense* columns hardly repeat."""
    if form == "parquet":
        sink = io.BytesIO()
        table = _table(rows)
        _arrow()[1].write_table(table, sink, **_encoding(table.column_names, dense))
        return sink.getvalue()
    text = io.StringIO(newline="")
    if form == "csv":
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(rows.columns)
        writer.writerows(zip(*(column.cells() for column in rows.columns.values()), strict=True))
    else:
        text.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in rows.lines())
    return text.getvalue().encode()


def merge(blocks: Iterable[bytes], form: Format, file: BinaryIO, dense: Sequence[str]) -> None:
    """One file of the blocks' rows, in their order: a row group a block, or one head and all lines."""
    if form != "parquet":
        for number, block in enumerate(blocks):
            file.write(block[block.index(b"\n") + 1 :] if form == "csv" and number else block)
        return
    parquet, writer = _arrow()[1], None
    try:
        for block in blocks:
            table = parquet.read_table(io.BytesIO(block))
            writer = writer or parquet.ParquetWriter(file, table.schema, **_encoding(table.column_names, dense))
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise InputError("Parquet needs pyarrow: pip install 'blockcalc[sweep]'; or write .csv or .jsonl") from None
    return pyarrow, parquet


def _encoding(names: Sequence[str], dense: Sequence[str]) -> dict[str, Any]:
    """Axes repeat and are written as dictionaries, the numbers of points as differences."""
    return {"use_dictionary": [name for name in names if name not in ("point", *dense)],
            "column_encoding": {"point": "DELTA_BINARY_PACKED"}}  # fmt: skip


def _table(rows: Rows) -> Any:
    return _arrow()[0].table({name: _array(column) for name, column in rows.columns.items()})


def _array(column: Whole | Words) -> Any:
    pa = _arrow()[0]
    if isinstance(column, Whole):
        return pa.array(column.values, mask=column.missing)
    absent = np.array([word is None for word in column.words])[column.values]
    places = pa.array(column.values.astype(np.int32), mask=absent)
    return pa.DictionaryArray.from_arrays(places, pa.array([word or "" for word in column.words], pa.string()))
