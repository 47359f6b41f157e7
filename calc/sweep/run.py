"""A sweep from its first block to its last: in this process, or on a Dask cluster, which sends back the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple

from ..errors import InputError
from .evaluate import rows
from .grid import Grid
from .parts import Parts
from .spec import Spec
from .writers import Format, encode


class Encoded(NamedTuple):
    """A block as bytes, with what its log says of it."""

    block: int
    data: bytes
    rows: int
    points: int
    refused: dict[str, int]


class Summary(NamedTuple):
    """What became of a sweep. ``points`` are all of its grid, ``rows`` those written, ``refused`` counts points by reason;
    ``seconds`` and ``computed`` points are of this run, without the blocks that were there."""

    output: str
    points: int
    rows: int
    refused: dict[str, int]
    blocks: int
    resumed: int
    computed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Points a second."""
        return self.computed / self.seconds if self.seconds else 0.0


@lru_cache(16)
def _workplace(spec: Spec, thread: int) -> tuple[Grid, dict[str, Any]]:
    """A thread's own grid, and room for its columns, which the system would be asked for anew with every block."""
    return Grid(spec), {}


def block(spec: Spec, number: int, form: Format) -> Encoded:
    """The block of that number, as bytes. Another machine that has blockcalc makes the same."""
    grid, scratch = _workplace(spec, get_ident())
    found = rows(grid, number, scratch)
    return Encoded(number, encode(found, form, spec.quantities), found.height, found.points, dict(found.refused))


def sweep(
    spec: Spec, path: Path, *, resume: bool = False, force: bool = False, parts: bool = False, dask: str | None = None,
    tell: Callable[[int], object] = lambda points: None,
) -> Summary:  # fmt: skip
    """Write the sweep's rows to *path*, or with *parts* leave a file a block in the folder beside it.

    *dask* is a cluster's address, or ``local:N`` for N processes here; *tell* is told of points as they are done. Raises
    InputError where something is there already that was not to be resumed or written over.
    """
    (grid, _), kept = _workplace(spec, get_ident()), Parts(path)
    with _computing(spec, kept.form, dask) as compute:
        kept.open({"grid": spec.hash, "points": grid.points, "blocks": grid.blocks}, resume=resume, force=force)
        resumed, computed, start = len(kept.done), 0, time.perf_counter()
        tell(sum(one.points for one in kept.done.values()))
        left = (number for number in range(grid.blocks) if number not in kept.done)
        for made in compute(left):
            kept.add(*made)
            computed += made.points
            tell(made.points)
    refused: dict[str, int] = {}
    for one in kept.done.values():
        for reason, count in one.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    written = sum(one.rows for one in kept.done.values())
    if not parts:
        kept.merge(spec.quantities, force=force)
    output = str(kept.folder if parts else path)
    return Summary(output, grid.points, written, refused, grid.blocks, resumed, computed, time.perf_counter() - start)


@contextmanager
def _computing(spec: Spec, form: Format, dask: str | None) -> Iterator[Callable[[Iterator[int]], Iterator[Encoded]]]:
    """What makes blocks of their numbers."""
    if dask is None:
        yield lambda numbers: (block(spec, number, form) for number in numbers)
        return
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise InputError("--dask needs dask: pip install 'blockcalc[sweep]'") from None
    kind, _, count = dask.partition(":")
    if kind != "local":
        try:
            client = Client(dask, timeout=10)
        except (OSError, ValueError) as error:
            raise InputError(f"--dask {dask}: {' '.join(str(error).split()) or 'no scheduler answers'}") from None
        with client:
            yield lambda numbers: _on(client, spec, form, numbers)
        return
    if not (count.isascii() and count.isdigit() and 1 <= int(count[:4]) <= 1024):
        raise InputError(f"--dask {dask}: expected local:N with N processes, as in local:2, or a scheduler's address")
    with (
        LocalCluster(n_workers=int(count), threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield lambda numbers: _on(client, spec, form, numbers)


def _on(client: Any, spec: Spec, form: Format, numbers: Iterator[int]) -> Iterator[Encoded]:
    """Blocks as a cluster finishes them, a few for each worker on their way at any time."""
    from distributed import as_completed

    def submit(some: Sequence[int]) -> list[Any]:
        return [client.submit(block, spec, number, form, pure=False) for number in some]

    ahead = 4 * max(len(client.nthreads()), 1)
    done = as_completed(submit(list(islice(numbers, ahead))))
    for future in done:
        made = future.result()
        future.release()
        for more in submit(list(islice(numbers, 1))):
            done.add(more)
        yield made
