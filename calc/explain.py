"""Where each number of a budget comes from: the closed form, the sizes put in, the value, and the paper."""

from __future__ import annotations

from typing import Any, NamedTuple

from .budget import Budget
from .model import trace
from .symbolic import symbolize, tidy
from .tensor import Line, Step
from .text import text


class Explained(NamedTuple):
    """One operation: its parameters and forward FLOPs as closed form, with the numbers put in, and as a value."""

    path: str
    params: str
    params_put_in: str
    params_value: int
    flops: str
    flops_put_in: str
    flops_value: int
    source: str


def explain(component: Any, batch: int, seq: int, width: int | None = None) -> list[Explained]:
    """Every operation of a model (or, with its input's *width*, of a block) that has parameters or FLOPs.

    The symbolic trace and the trace of the numbers have the same lines; they are read side by side. FLOPs are those of
    a forward pass, two a multiply-add, over full attention squares.
    """
    from .dims import symbol

    symbolic, values, _ = symbolize(component)
    sizes = {str(s): value for s, value in values.items()} | {"B": batch, "T": seq}
    step = Step.forward(symbol("B"), symbol("T"))
    if width is None:
        forms, numbers = symbolic.budget(step), component.budget(Step.forward(batch, seq))
    else:
        sizes["D"] = width
        forms, numbers = trace(symbolic, step, symbol("D")), trace(component, Step.forward(batch, seq), width)
    return _side_by_side(forms, numbers, sizes)


def _side_by_side(forms: Budget, numbers: Budget, sizes: dict[str, int]) -> list[Explained]:
    seen: set[Any] = set()
    found = []
    for form, number in zip(forms.lines, numbers.lines, strict=True):
        new = [index for index, weight in enumerate(number.weights) if weight not in seen]
        seen.update(number.weights)
        params = tidy(sum(form.weights[i].numel * form.weights[i].copies for i in new))
        flops = tidy(2 * form.copies * form.pairs * form.forward)
        if params == 0 and flops == 0:
            continue
        found.append(Explained(
            number.path,
            text(params), text(params, sizes), sum(number.weights[i].numel * number.weights[i].copies for i in new),
            text(flops), text(flops, sizes), 2 * number.copies * number.pairs * number.forward,
            _source(number),
        ))  # fmt: skip
    return found


def _source(line: Line) -> str:
    """What the component that wrote the line says of itself: its rule and its paper."""
    doc = (line.origin.__doc__ or "") if line.origin is not None else ""
    return " ".join(doc.partition("\n\n")[0].split())
