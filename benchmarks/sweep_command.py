"""A grid of ten million points by ``blockcalc sweep``, against NumPy over the same closed forms.

    python benchmarks/sweep_command.py [POINTS]

A point is a llama's size, a batch, a context and a layout; its row are one rank's parameters, KV cache and prefill FLOPs. NumPy
computes what is written down by hand here, over columns that are there already, with no check that anything divides or fits.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from itertools import count as numbers
from pathlib import Path
from random import Random

import numpy as np
from measure import Row, interleaved, pairs, repeated, report
from numpy.typing import NDArray

from blockcalc import load
from blockcalc.memory.held import Training, heaviest, training
from blockcalc.parallel.layout import Layout
from blockcalc.sweep.evaluate import rows
from blockcalc.sweep.grid import Grid
from blockcalc.sweep.run import sweep
from blockcalc.sweep.spec import Spec, spec
from blockcalc.tensor import Step
from blockcalc.timing.machine import machine
from blockcalc.timing.roofline import Setup
from blockcalc.timing.run import utilization
from blockcalc.timing.training import TRAINING, training_step

ROUNDS = 5
PIECE = 32768
QUANTITIES = ("params", "kv", "prefill_flops")
PLANS = ("train_memory", "train_seconds", "train_mfu")
FEW = 64  # plans that the planner makes one by one
HAND = ("n", "k", "f", "v", "D", "L", "B", "S")
Column = NDArray[np.int64]


def asked(points: int) -> Spec:
    """Ten sizes in each of d and f, eight depths, eight batches, ten layouts, and contexts to fill up."""
    contexts = points // (10 * 10 * 10 * 8 * 8)
    axes = [
        "tp=1,2,4,8,16", "dp=1,2", "d=4096:8704:512", "f=8192:17408:1024", "l=8:64:8", "b=2^0:2^7",
        f"s=1024:{1024 * contexts}:1024",
    ]  # fmt: skip
    return spec(["llama"], axes, QUANTITIES, ties=["n=32", "k=8", "h=128", "v=128256", "t=s"])


def columns(grid: Grid) -> dict[str, Column]:
    """The sizes of every point."""
    axes = [np.array(list(one), np.int64) for one in (*grid.outer[1:], *grid.letters)]
    mesh = np.meshgrid(*axes, indexing="ij")
    names = [one.name for one in (*grid.outer[1:], *grid.letters)]
    found = {name: array.reshape(-1) for name, array in zip(names, mesh, strict=True)}
    tp = found["tp"]
    return found | {"n": 32 // tp, "k": np.maximum(8 // tp, 1), "f": found["F"] // tp, "v": 128256 // tp}


def by_hand(
    n: Column, k: Column, f: Column, v: Column, D: Column, L: Column, B: Column, S: Column
) -> tuple[Column, Column, Column]:
    """Parameters, KV cache in bf16 and FLOPs of a prefill of all S, with n, k, f and v as one rank has them."""
    matrices = D * (3 * f + 2 * 128 * (n + k))
    params = L * (matrices + 2 * D) + 2 * v * D + D
    kv = 4 * 128 * B * S * L * k
    flops = 2 * B * S * (L * (matrices + 2 * S * n * 128) + v * D)
    return params, kv, flops


def hand(sizes: dict[str, Column]) -> None:
    """All points, a piece at a time, which stays in the processor's cache."""
    out = [np.empty(len(sizes["D"]), np.int64) for _ in QUANTITIES]
    for start in range(0, len(sizes["D"]), PIECE):
        part = slice(start, start + PIECE)
        for made, values in zip(out, by_hand(**{name: sizes[name][part] for name in HAND}), strict=True):
            made[part] = values


def broadcast(grid: Grid, sizes: dict[str, Column]) -> None:
    """All points, by the sizes of each axis alone, as NumPy broadcasts them."""
    out = [np.empty(grid.boxes.shape, np.int64) for _ in QUANTITIES]
    every = {name: sizes[name].reshape(grid.boxes.shape) for name in HAND}
    axes = {"D": 1, "F": 2, "f": 2, "L": 3, "B": 4, "S": 5}
    for number in range(grid.boxes.total):
        box = tuple(slice(span.start, span.stop) for span in grid.boxes.box(number))
        thin = {name: every[name][tuple(cut if axis in (0, axes.get(name)) else slice(0, 1) for axis, cut in enumerate(box))]
                for name in HAND}  # fmt: skip
        for made, values in zip(out, by_hand(**thin), strict=True):
            made[box] = values


def planner(plans: Grid) -> None:
    """Some plans of the grid, as ``blockcalc train`` makes each."""
    model, draw = load("llama-3.1-8b"), Random(7)
    for _ in range(FEW):
        gpu, dp, b, t = (one[draw.randrange(len(one))] for one in (*plans.outer[1:], *plans.letters))
        step, layout = Step.train(b, t), Layout(dp=dp)
        heaviest(training(model, layout, Training(step=step, kernels=TRAINING)))
        budget = model.budget(step)
        timed = training_step(model, Setup(machine(gpu), layout), step)
        utilization(budget, "torch", timed.seconds, dp, machine(gpu).peak("bf16"), dp)


def main(points: int) -> None:
    """Measure all of it over the same grid."""
    question = asked(points)
    grid = Grid(question)
    sizes = columns(grid)
    _check(grid, sizes)

    plans = Grid(spec(["llama-3.1-8b"], ["gpu=h100-sxm,h200-sxm", "dp=1,8", "b=1:64", "t=128:262144:128"], PLANS))
    room: dict[str, Column] = {}

    def ours() -> None:
        for block in range(grid.blocks):
            rows(grid, block, room)

    def planned() -> None:
        for block in range(plans.blocks):
            rows(plans, block)

    with tempfile.TemporaryDirectory() as folder:
        files = numbers()
        found = interleaved({
            "hand": repeated(lambda: hand(sizes)),
            "broadcast": repeated(lambda: broadcast(grid, sizes)),
            "ours": repeated(ours),
            "plans": repeated(planned),
            "planner": repeated(lambda: planner(plans)),
            "parquet": repeated(lambda: sweep(question, Path(folder) / f"{next(files)}.parquet", parts=True)),
        }, ROUNDS)  # fmt: skip
    a_second = grid.points / statistics.median(found["ours"])
    table = [
        Row(f"{grid.points:,} points, all columns", "NumPy by hand, in pieces", pairs(found["ours"], found["hand"]), 3.0),
        Row("the same", "NumPy by hand, broadcast", pairs(found["ours"], found["broadcast"]), 3.0),
        Row("the same into Parquet", "NumPy by hand, in pieces", pairs(found["parquet"], found["hand"])),
        Row(
            f"{plans.points:,} plans: {', '.join(PLANS)}", f"{FEW} of them, one by one",
            pairs(found["plans"], found["planner"]), 1.0,
        ),
    ]  # fmt: skip
    notes = [
        f"{len(QUANTITIES)} quantities of llamas on {len(grid.outer[1]) * len(grid.outer[2])} layouts, one process; all results"
        " equal. NumPy by hand starts from columns of a rank's sizes and makes the quantities alone; a sweep makes the columns"
        " of sizes and of reasons too, divides among ranks, and checks what divides and what fits.",
        f"Here that was {a_second / 1e6:,.0f} million points a second of processor time.",
    ]
    report("sweep_command", "A grid of sizes, steps and layouts", table, notes, ("blockcalc", "numpy", "sympy", "pyarrow"))


def _check(grid: Grid, sizes: dict[str, Column]) -> None:
    """Ours are the numbers by hand, at every point of some blocks."""
    for block in {0, grid.blocks // 2, grid.blocks - 1}:
        found, span = rows(grid, block), grid.span(block)
        assert not found.refused, found.refused
        wanted = by_hand(**{name: sizes[name][span.start : span.stop] for name in HAND})
        for name, values in zip(QUANTITIES, wanted, strict=True):
            assert (found.columns[name].values == values).all(), name


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_240_000)
