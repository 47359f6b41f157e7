"""Every declaration against its twin, in every quantity, at sizes drawn so that agreement is proof with a stated bound.

On each branch of its minima a count is a polynomial in free letters. A polynomial of degree D that is not zero vanishes at
a point drawn uniformly from a box of N values a letter with probability at most D/N (Schwartz 1980, Zippel 1979). So a wrong
count of that degree agrees in m independent draws with probability at most (D/N)^m; as many are made as bring that below
10⁻⁹.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch

from ..blocks.position import LearnedPositions
from ..budget import Budget, widths
from ..catalogue import BLOCKS, Entry
from ..convention import flops
from ..dims import symbol
from ..errors import UndefinedError
from ..model import Model, trace
from ..symbolic import tidy
from ..tensor import Kernels, Step
from . import measure
from .build import build
from .context import Caches, Run
from .dispatch import Given

BOUND = 1e-9
SMALLEST, LARGEST = 2, 13
"""The box: of one head, one sequence or one position torch keeps views where it else keeps copies, so it begins at 2."""

LARGE = 10**8
"""Parameters above which a whole model is compared on the meta device."""

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Verdict(NamedTuple):
    """One quantity of one subject: how many draws, the highest degree, the numbers of the last draw or the first that
    differs, and the chance that a wrong polynomial of that degree would have passed."""

    subject: str
    quantity: str
    branch: str
    draws: int
    degree: int
    bound: float
    engine: int
    torch: int

    @property
    def equal(self) -> bool:
        """Do engine and torch agree."""
        return self.engine == self.torch


Sizes = Mapping[str, int]


# -- free letters and their branches -----------------------------------------------------------------------------------


class Branch(NamedTuple):
    """A side of a minimum, and the sizes that free letters give there."""

    name: str
    sizes: Callable[[Mapping[str, Any]], dict[str, Any]]


def free_letters(entry: Entry) -> list[str]:
    """The letters that are drawn: those of the block, a ratio or a half for each that another must divide, b and t."""
    return ["b", "t", *entry.sizes, *(["m"] if "m" not in entry.sizes else [])]


def branches(entry: Entry) -> list[Branch]:
    """One branch, or two where a window makes a minimum, t ≤ w − 1 and t > w, or where chunks are filled up: one, or several
    with a part of a chunk behind them."""
    if "chunk" in entry.sizes:
        one = Branch("one chunk", lambda free: {**sizes_of(entry, free), "chunk": free["t"] + free["chunk"]})
        return [one, Branch("several chunks", partial(_several, entry))]
    if "w" not in entry.sizes:
        return [Branch("", partial(sizes_of, entry))]
    inside = Branch("t < w", lambda free: {**sizes_of(entry, free), "w": free["t"] + free["w"]})
    return [inside, Branch("t > w", lambda free: {**sizes_of(entry, free), "t": free["t"] + free["w"]})]


def _several(entry: Entry, free: Mapping[str, Any]) -> dict[str, Any]:
    """m chunks, of the last one t positions."""
    chunk = free["t"] + free["chunk"]
    return {**sizes_of(entry, free), "chunk": chunk, "t": (free["m"] - 1) * chunk + free["t"]}


def sizes_of(entry: Entry, free: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes that divide as they must: n = k·g, d = n·h where the head width is d/n, even rotary widths; e is a and more,
    d is i and more."""
    sizes = dict(free)
    if "k" in entry.sizes:
        sizes["n"] = free["k"] * free["n"]
    if "n" in entry.sizes and not {"h", "p"} & set(entry.sizes):
        sizes["d"] = sizes["n"] * free["d"]
    if "i" in entry.sizes:
        sizes["d"] = free["i"] + free["d"]
    if "e" in entry.sizes:
        sizes["e"] = free["a"] + free["e"]
    for even in ("r", "h"):
        if even in entry.sizes and entry.sizes[even] % 2 == 0:
            sizes[even] = 2 * free[even]
    if "m" in entry.sizes and "n" not in entry.sizes:
        sizes["m"] = free["t"] + free["m"]
    if "r" in entry.sizes and "h" in entry.sizes:
        sizes["h"] = sizes["r"] + free["h"]
    return sizes


def degree_of(expr: Any, entry: Entry, branch: Branch) -> int:
    """The total degree of a closed form in the free letters of a branch."""
    import sympy

    letters = {letter: symbol(f"free_{letter}") for letter in free_letters(entry)}
    given = branch.sizes(letters)
    names = {"B": given["b"], "T": given["t"], "S": given["t"], "M": given["m"]}
    names |= {name.upper(): given[name] for name in entry.sizes}
    placed = sympy.sympify(expr).subs({s: names[str(s)] for s in expr.free_symbols}, simultaneous=True)
    placed = placed.replace(sympy.ceiling, lambda chunks: letters["m"])  # as many as there are, or one
    placed = placed.replace(sympy.Min, lambda *sides: max(sides, key=lambda side: len(side.free_symbols)))
    return int(sympy.Poly(sympy.expand(placed), *letters.values()).total_degree())


# -- quantities --------------------------------------------------------------------------------------------------------


class Quantity(NamedTuple):
    """A name, the engine's number and torch's."""

    name: str
    engine: Callable[[Any, int, Sizes], int]
    torch: Callable[[Any, int, Sizes], int]


def _budget(component: Any, d: Any, sizes: Mapping[str, Any], kernel: str = "math", recompute: str = "none") -> Budget:
    step = Step.train(sizes["b"], sizes["t"], sizes["m"])
    return trace(component, step, d, Kernels(attention=kernel), recompute)  # type: ignore[arg-type]


def _twin(component: Any, d: int, sizes: Sizes, dtype: str = "fp32") -> tuple[Any, Callable[[Run], torch.Tensor]]:
    """The twin, and its pass over random x (b t d), with a memory (b m d), tokens (b t) and the vectors of those ahead
    (b t d) for what asks for them."""
    twin = build(component, d, Given(t=sizes["t"])).to(DTYPES[dtype])
    lengths = sizes["t"], sizes["m"]
    x, memory = (torch.randn(sizes["b"], length, d, dtype=DTYPES[dtype], requires_grad=True) for length in lengths)

    takes = len(signature(twin.forward).parameters)
    ahead = torch.randn_like(x, requires_grad=True)
    given = (sizes["t"] if isinstance(component, LearnedPositions) else x, ahead)[: max(1, takes - 1)]
    tokens = torch.randint(sizes.get("v", 1), x.shape[:2])

    def step(run: Run) -> torch.Tensor:
        run.memory, run.tokens = memory, tokens
        out: torch.Tensor = twin(*given, run) if takes > 1 else twin(*given)
        return out

    return twin, step


def _params(component: Any, d: int, sizes: Sizes) -> int:
    return measure.parameters(_twin(component, d, sizes)[0])


def _flops(part: str, kernel: str, component: Any, d: int, sizes: Sizes) -> int:
    step, run = _twin(component, d, sizes)[1], Run(kernel=kernel)  # type: ignore[arg-type]
    found = measure.flops(step, run, training=part != "forward")
    return sum(found) if part == "total" else int(getattr(found, part))


def _saved(dtype: str, kernel: str, recompute: str, component: Any, d: int, sizes: Sizes) -> int:
    twin, step = _twin(component, d, sizes, dtype)
    run = Run(kernel=kernel, recompute=recompute)  # type: ignore[arg-type]
    return measure.saved(step, twin.parameters(), run).bytes


def _cached(policy: str, component: Any, d: int, sizes: Sizes) -> int:
    _, step = _twin(component, d, sizes, "bf16")
    caches = Caches(policy=policy)  # type: ignore[arg-type]
    with torch.no_grad():
        step(Run(caches=caches))
    return sum(measure.cache_bytes(caches).values())


def _engine_flops(part: str, kernel: str, component: Any, d: Any, sizes: Mapping[str, Any]) -> Any:
    return getattr(flops(_budget(component, d, sizes, kernel)), part)


def _engine_saved(dtype: str, kernel: str, recompute: str, component: Any, d: Any, sizes: Mapping[str, Any]) -> Any:
    return _budget(component, d, sizes, kernel, recompute).activations(widths(dtype)).bytes


def _engine_cached(policy: str, component: Any, d: Any, sizes: Mapping[str, Any]) -> Any:
    step = Step.prefill(sizes["b"], sizes["t"], source=sizes["m"])
    return sum(trace(component, step, d).cache(widths("bf16"), policy).values())  # type: ignore[arg-type]


def kernels(entry: Entry) -> tuple[str, ...]:
    """Those of attention, where there is any; else all are one."""
    component, d = entry.build({})
    attends = any(line.kind == "attention" for line in trace(component, Step.train(2, 2), d).lines)
    return ("math", "flash", "fused") if attends else ("math",)


def quantities(dtypes: Collection[str], device: str, kernels: Collection[str]) -> Iterator[Quantity]:
    """Parameters, FLOPs by kernel, saved bytes by type, kernel and recomputation, cache bytes by policy.

    Saved bytes are compared on the CPU, whose kernels the rules describe.
    """
    yield Quantity("parameters", lambda c, d, s: _budget(c, d, s).parameters().total, _params)
    parts = {"math": ("forward", "backward"), "flash": ("forward", "backward"), "fused": ("total",)}
    for part, of in ((part, kernel) for kernel in kernels for part in parts[kernel]):
        yield Quantity(f"FLOPs {part} {of}", partial(_engine_flops, part, of), partial(_flops, part, of))
    for how in itertools.product(dtypes if device == "cpu" else (), kernels, ("none", "selective")):
        yield Quantity(_saved_name(*how), partial(_engine_saved, *how), partial(_saved, *how))
    for policy in ("minimal", "transformers"):
        yield Quantity(f"cache bf16 {policy}", partial(_engine_cached, policy), partial(_cached, policy))


def _saved_name(dtype: str, kernel: str, recompute: str) -> str:
    return f"saved {dtype} {kernel}" + ("" if recompute == "none" else f" {recompute}")


# -- verdicts ----------------------------------------------------------------------------------------------------------


def draws_for(degree: int, box: int = LARGEST - SMALLEST + 1) -> int:
    """Draws after which (degree/box)^draws is below 10⁻⁹. Refuses a degree that the box cannot tell."""
    if degree >= box:
        raise UndefinedError(f"a polynomial of degree {degree} needs a box of more than {box} values a letter")
    return math.ceil(math.log(BOUND) / math.log(degree / box))


def verify_block(
    name: str, seed: int = 0, most: int | None = None, device: str = "cpu", dtypes: Collection[str] = tuple(DTYPES)
) -> Iterator[Verdict]:
    """A block of the catalogue against its twin, quantity by quantity; those that no kernel computes are left out.

    *most* draws at most are made, where a difference is looked for and no proof.
    """
    entry = BLOCKS[name]
    for quantity, branch in itertools.product(quantities(dtypes, device, kernels(entry)), branches(entry)):
        letters = {letter: symbol(letter.upper()) for letter in {*free_letters(entry)}}
        try:
            made = entry.make(**{letter: letters[letter] for letter in entry.sizes})
            form = tidy(quantity.engine(made, letters["d"], letters))
        except UndefinedError:
            continue
        degree = max(1, degree_of(form, entry, branch))
        draws = min(draws_for(degree), most or LARGEST**2)
        dice = random.Random(f"{seed} {name} {quantity.name}")
        with torch.device(device):
            verdict = _compared(name, entry, quantity, branch, degree, draws, dice)
        yield verdict


def _compared(
    name: str, entry: Entry, quantity: Quantity, branch: Branch, degree: int, draws: int, draw: random.Random
) -> Verdict:
    engine = measured = 0
    for _ in range(draws):
        free = {letter: draw.randint(SMALLEST, LARGEST) for letter in free_letters(entry)}
        sizes = branch.sizes(free)
        component = entry.make(**{letter: sizes[letter] for letter in entry.sizes})
        engine, measured = quantity.engine(component, sizes["d"], sizes), quantity.torch(component, sizes["d"], sizes)
        if engine != measured:
            break
    bound = (degree / (LARGEST - SMALLEST + 1)) ** draws
    return Verdict(name, quantity.name, branch.name, draws, degree, bound, engine, measured)


def verify_model(
    model: Model, b: int = 2, t: int = 5, source: int = 3, dtypes: Collection[str] = tuple(DTYPES)
) -> list[Verdict]:
    """A whole model against its twin, at its own sizes: one draw, and so no bound.

    A model of more than 10⁸ parameters is built and run on the meta device, and only in fp32, without the flash kernel: that
    device has none, and keeps LayerNorm's statistics of bf16 in fp32.
    """
    large = model.budget(Step.forward(1, 1)).parameters().total > LARGE
    kinds = (("fp32", "math"), *((("fp32", "fused"),) if large else (("bf16", "math"), ("bf16", "flash"), ("bf16", "fused"))))
    verdicts: list[Verdict] = []
    with torch.device("meta" if large else "cpu"):
        for (dtype, kernel), recompute in itertools.product(kinds, ("none", "selective", "full")):
            if dtype not in dtypes:
                continue
            try:
                budget = model.budget(Step.train(b, t, source), Kernels(attention=kernel), recompute)  # type: ignore[arg-type]
            except UndefinedError:
                continue
            verdicts += _of_model(model, budget, dtype, kernel, recompute)
    return verdicts


def _of_model(model: Model, budget: Budget, dtype: str, kernel: str, recompute: str) -> Iterator[Verdict]:
    def verdict(quantity: str, engine: int, measured: int) -> Verdict:
        return Verdict(model.name, quantity, "", 1, 0, 1.0, engine, measured)

    twin = build(model).to(DTYPES[dtype])
    step = measure.loss(twin, budget.step.b, budget.step.t, budget.step.source)
    if dtype == "fp32" and recompute == "none":
        yield verdict("parameters", budget.parameters().total, measure.parameters(twin))
    if recompute == "none":
        found, counted = measure.flops(step, Run(kernel=kernel)), flops(budget)  # type: ignore[arg-type]
        yield verdict(f"FLOPs forward {kernel}", counted.forward, found.forward)
        yield verdict(f"FLOPs backward {kernel}", counted.backward or 0, found.backward)
    kept = measure.saved(step, twin.parameters(), Run(kernel=kernel, recompute=recompute))  # type: ignore[arg-type]
    yield verdict(_saved_name(dtype, kernel, recompute), budget.activations(widths(dtype)).bytes, kept.bytes)
