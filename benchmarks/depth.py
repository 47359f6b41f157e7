"""A budget costs its distinct layers, however many there are of each: 60,000 layers against 4.

    python benchmarks/depth.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from measure import Row, interleaved, pairs, repeated, report

from blockcalc import Step, load, widths

SHALLOW, DEEP, REPEATS, ROUNDS = 4, 60_000, 10, 15
FAMILIES = ("llama", "gemma2", "mixtral", "deepseek_v3", "t5")
LAYERS = {"t5": ("num_layers", "num_decoder_layers")}
STEP, BF16 = Step.train(1, 2048), widths("bf16")


def config(family: str, layers: int) -> dict[str, Any]:
    """The family's default model, that deep."""
    return {"model_type": family} | dict.fromkeys(LAYERS.get(family, ("num_hidden_layers",)), layers)


def budgeted(model: Any) -> object:
    """A trace and all its sums."""
    budget = model.budget(STEP)
    return budget.parameters(), budget.work(), budget.cache(BF16), budget.activations(BF16)


def against(shallow: Callable[[], object], deep: Callable[[], object]) -> list[float]:
    """The ratio of deep to shallow, pair by pair."""
    found = interleaved({"deep": repeated(deep, REPEATS), "shallow": repeated(shallow, REPEATS)}, ROUNDS)
    return pairs(found["deep"], found["shallow"])


def main() -> None:
    """Measure reading and tracing apart."""
    rows = []
    for family in FAMILIES:
        configs = [config(family, layers) for layers in (SHALLOW, DEEP)]
        reading = against(*(partial(load, fields) for fields in configs))
        tracing = against(*(partial(budgeted, load(fields)) for fields in configs))
        rows.append(Row(f"{family}: trace and sums", f"{SHALLOW} layers", tracing, 1.2))
        rows.append(Row(f"{family}: reader", f"{SHALLOW} layers", reading))
    notes = (
        f"{DEEP:,} layers against {SHALLOW}. A reader looks at each layer, for a config may list them: it has no target. What"
        " is printed a layer (`Activations.per_layer`) grows with them, and is left out.",
    )
    report("depth", "Depth", rows, notes, ("blockcalc",))


if __name__ == "__main__":
    main()
