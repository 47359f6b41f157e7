"""The layout that serves best: most tokens a second under a latency, or the lowest latency, among those that fit.

Tokens a second grow with the batch, and so do latency and memory: of each layout the largest batch that keeps within both
is the best of it, found by doubling and halving. A layout whose batch that memory allows gives no more than the best so far
is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from ..errors import BlockcalcError, InputError
from ..memory.held import Held, Serving
from ..model import Model
from ..parallel.layout import Layout
from ..tensor import Step
from ..timing.request import Request
from ..timing.roofline import Setup
from ..timing.serving import Tokens, first_token, served
from .engines import absorbed
from .fit import Fit, held
from .layouts import Wanted, shares, splits
from .search import NOTHING, Progress

MOST = 2**20
"""No data rank runs a larger batch."""

Goal = Literal["throughput", "latency"]


class Service(NamedTuple):
    """Requests of *prompt* tokens that are answered up to *context*; *run* says with which kernels and formats.

    ``within`` are seconds that an output token may take, ``first`` seconds until the first one; ``batch`` requests that each
    data rank answers at once, all that fit unless given.
    """

    model: Model
    setup: Setup  # its layout is not read
    devices: int
    prompt: int
    context: int
    run: Serving
    available: int
    within: float | None = None
    first: float | None = None
    batch: int | None = None
    goal: Goal = "throughput"
    wanted: Wanted = Wanted()


class Served(NamedTuple):
    """A layout with a batch a data rank: its time to first token (one prompt alone), time per output token, and bytes."""

    layout: Layout
    batch: int
    first: Tokens
    each: Tokens
    fit: Fit


class Lost(NamedTuple):
    """A layout that gives no answer or a worse one: what is missing, or how slow it is with a batch of one."""

    layout: Layout
    why: Literal["memory", "latency", "slower"]
    served: Served


class Deployed(NamedTuple):
    """Those that serve, the best first; those that do not; layouts in all, batches timed; and why splits were refused."""

    best: tuple[Served, ...]
    lost: tuple[Lost, ...]
    layouts: int
    timed: int
    refused: Counter[str]


def held_serving(model: Model, layout: Layout, run: Serving, batch: int, prompt: int, context: int, available: int) -> Fit:
    """What a device holds when *batch* requests stand at *context*, and either all decode or one prompt is read at once."""
    request = Request.to(model, prompt)
    reading = held(model, layout, replace(run, step=request.reading(1)))
    return _beside(reading, held(model, layout, replace(run, step=request.writing(batch, context - prompt))), available)


def _beside(reading: Held, decoding: Held, available: int) -> Fit:
    """Weights and caches as they are when decoding, of all else what is more."""
    parts = dict(decoding.parts)
    parts |= {name: max(size, reading.parts[name]) for name, size in parts.items() if name not in ("weights", "kv_cache")}
    return Fit(decoding._replace(parts=parts), available)


def deploy(service: Service, shown: int = 1, progress: Progress | None = None) -> Deployed:
    """The *shown* best layouts. Raises InputError where nothing divides."""
    return _Deploy(service).found(shown, progress or (lambda done, total: None))


class _Deploy:
    def __init__(self, service: Service) -> None:
        self.service, self.model = service, absorbed(service.model)
        self.refused = Counter[str]()
        self.timed = 0
        self._held: dict[tuple[Layout, int], Fit] = {}
        self._first: dict[Layout, Tokens] = {}
        self._reading: dict[Layout, Held] = {}
        self.request = Request.to(service.model, service.prompt)

    def found(self, shown: int, progress: Progress) -> Deployed:
        service = self.service
        layers = sum(int(count) for _, count in service.model.stack.runs())
        divided = splits(service.model, service.devices, service.setup.machine.domain, service.wanted, training=False)
        tried = [split.layout(dp, pp, stages=shares(layers, pp)) for split, dp, pp in divided]
        best: list[Served] = []
        lost: list[Lost] = []
        for done, layout in enumerate(tried, 1):
            try:
                answer = self.layout(layout, best[-1] if len(best) >= shown else None)
            except BlockcalcError as error:
                self.refused[str(error)] += 1
                continue
            finally:
                progress(done, len(tried))
            if isinstance(answer, Lost):
                lost.append(answer)
                continue
            best = sorted([*best, answer], key=self.rank)
            lost += [Lost(one.layout, "slower", one) for one in best[shown:]]
            del best[shown:]
        if not best and not lost:
            why = (self.refused or Counter([NOTHING])).most_common(1)[0][0]
            raise InputError(f"plan: no layout of {service.devices} devices divides this model: {why}")
        lost.sort(key=lambda one: (one.why != "slower", -one.served.fit.free if one.why == "memory" else self.rank(one.served)))
        return Deployed(tuple(best), tuple(lost), len(tried), self.timed, self.refused)

    def rank(self, one: Served) -> float:
        """Smaller is better."""
        return float(one.each.seconds if self.service.goal == "latency" else -one.each.per_second)

    def layout(self, layout: Layout, worst: Served | None) -> Served | Lost:
        """The layout at its best batch. *worst* is the last of enough answers."""
        service = self.service
        batch = service.batch or 1
        one = self.served(layout, batch)
        if not one.fit.fits:
            return Lost(layout, "memory", one)
        if not self.quick(one):
            return Lost(layout, "latency", one)
        if service.batch is None and service.goal == "throughput":
            most = self.roomiest(layout)
            full = self.served(layout, most)
            if worst is not None and self.rank(full) >= self.rank(worst):
                return Lost(layout, "slower", full)
            if self.quick(full):
                return full
            one = self.served(layout, self.most(lambda size: self.quick(self.served(layout, size)), 1, most))
        return one

    def roomiest(self, layout: Layout) -> int:
        """The largest batch that fits, of which 1 is one. Bytes grow about in proportion to it, so that the line through two
        counts says where to look next; every fourth time the middle is looked at."""
        low, high, guess, told = 1, MOST + 1, 2, 0
        while high - low > 1:
            here, there = self.fits(layout, low).free, self.fits(layout, guess).free
            each = (here - there) // (guess - low)
            low, high = (guess, high) if there >= 0 else (low, guess)
            here, told = self.fits(layout, low).free, told + 1
            guess = low + here // each if each > 0 and told % 4 else (low + high) // 2
            guess = min(max(guess, low + 1), high - 1, 8 * low)
        return low

    def most(self, holds: Callable[[int], bool], low: int, most: int) -> int:
        """The largest size for which it holds, of which *low* is one."""
        high = low
        while high < most and holds(min(2 * high, most)):
            high = min(2 * high, most)
        low, high = high, min(2 * high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    def quick(self, one: Served) -> bool:
        """Does it keep within what was asked?"""
        service = self.service
        return (service.within is None or one.each.seconds <= service.within) and (
            service.first is None or one.first.seconds <= service.first
        )

    def fits(self, layout: Layout, batch: int) -> Fit:
        """All bytes, with so many requests a data rank."""
        service, key = self.service, (layout, batch)
        if key not in self._held:
            if layout not in self._reading:
                self._reading[layout] = held(service.model, layout, replace(service.run, step=self.request.reading(1)))
            decoding = held(self.model, layout, replace(service.run, step=self.writing(batch)))
            self._held[key] = _beside(self._reading[layout], decoding, service.available)
        return self._held[key]

    def writing(self, batch: int) -> Step:
        """The last decode step of so many requests."""
        return self.request.writing(batch, self.service.context - self.service.prompt)

    def served(self, layout: Layout, batch: int) -> Served:
        """Times and bytes."""
        service, setup = self.service, self.service.setup._replace(layout=layout)
        self.timed += 1
        if layout not in self._first:
            self._first[layout] = first_token(service.model, setup, 1, service.prompt, service.run.kernels)
        first = self._first[layout]
        each = served(self.model, setup, self.writing(batch), service.run.kernels)
        return Served(layout, batch, first, each, self.fits(layout, batch))
