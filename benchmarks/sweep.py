"""Budgets over NumPy arrays: a closed form made from the trace, against NumPy over one written by hand.

    python benchmarks/sweep.py [MODELS]

A model of the sweep is a llama of its own sizes; its budget is its parameters and the FLOPs of a forward pass.
"""

from __future__ import annotations

import statistics
import sys

import numpy as np
from measure import Row, interleaved, pairs, repeated, report
from numpy.typing import NDArray

from blockcalc import Step, compile_formulas, formula, load

BATCH, TOKENS, ROUNDS = 1, 2048, 15
AT_LEAST = 10_000_000  # budgets a second

Column = NDArray[np.int64]


def draw(count: int) -> dict[str, Column]:
    """The sizes of that many llamas, a column a letter."""
    dice = np.random.default_rng(0)

    def column(step: int, low: int, high: int) -> Column:
        return step * dice.integers(low, high, count)

    k = column(2, 1, 5)
    return {
        "D": column(64, 8, 257), "F": column(64, 16, 1025), "L": column(1, 2, 161), "N": k * column(1, 1, 17), "K": k,
        "H": column(16, 4, 9), "V": column(64, 100, 4001),
    }  # fmt: skip


def by_hand(D: Column, F: Column, L: Column, N: Column, K: Column, H: Column, V: Column) -> tuple[Column, Column]:
    """Parameters and forward FLOPs as one would write them down, with no check that a result fits."""
    heads = H * (N + K)
    matrices = D * (3 * F + 2 * heads)
    params = L * (matrices + 2 * D) + 2 * V * D + D
    flops = 2 * BATCH * TOKENS * (L * (matrices + 2 * TOKENS * N * H) + V * D)
    return params, flops


def by_hand_in_blocks(columns: dict[str, Column], size: int = 32768) -> tuple[Column, Column]:
    """The same, a block of rows at a time, which stays in the processor's cache."""
    count = len(columns["D"])
    params, flops = np.empty(count, np.int64), np.empty(count, np.int64)
    for start in range(0, count, size):
        rows = slice(start, start + size)
        params[rows], flops[rows] = by_hand(**{letter: column[rows] for letter, column in columns.items()})
    return params, flops


def main(count: int) -> None:
    """Measure both over the same columns."""
    columns = draw(count)
    compiled = compile_formulas([formula("llama", "params"), formula("llama", "flops")])

    def ours() -> tuple[Column, Column]:
        params, flops = compiled.over(B=BATCH, T=TOKENS, **columns)
        return params, flops

    assert all((a == b).all() for a, b in zip(ours(), by_hand(**columns), strict=True))
    _check_one(columns, ours())
    found = interleaved({
        "ours": repeated(ours),
        "by hand": repeated(lambda: by_hand(**columns)),
        "in blocks": repeated(lambda: by_hand_in_blocks(columns)),
    }, ROUNDS)  # fmt: skip
    a_second = count / statistics.median(found["ours"])
    rows = [
        Row("parameters and FLOPs, `Compiled.over`", "NumPy by hand", pairs(found["ours"], found["by hand"]), 3.0),
        Row("parameters and FLOPs, `Compiled.over`", "NumPy by hand, in blocks", pairs(found["ours"], found["in blocks"]), 3.0),
        Row(f"{AT_LEAST:,} budgets a second", "those measured", [AT_LEAST * seconds / count for seconds in found["ours"]], 1.0),
    ]
    notes = [
        f"{count:,} llamas a round, {ROUNDS} rounds; all results equal. `over` also checks, before it computes, that no result"
        " and no partial sum reaches 2**63; NumPy by hand would wrap.",
        f"Here that was {a_second / 1e6:,.0f} million budgets a second of processor time.",
    ]
    report("sweep", "Many models at once", rows, notes, ("blockcalc", "numpy", "sympy"))


def _check_one(columns: dict[str, Column], results: tuple[Column, Column]) -> None:
    """The first model's numbers are those of its trace."""
    d, f, l, n, k, h, v = (int(columns[letter][0]) for letter in "DFLNKHV")
    budget = load({
        "model_type": "llama", "hidden_size": d, "intermediate_size": f, "num_hidden_layers": l, "num_attention_heads": n,
        "num_key_value_heads": k, "head_dim": h, "vocab_size": v,
    }).budget(Step.forward(BATCH, TOKENS))  # fmt: skip
    assert (budget.parameters().total, 2 * budget.work().forward) == (results[0][0], results[1][0])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
