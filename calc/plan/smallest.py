"""How few devices a run fits on, and which machines of the catalogue can have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from ..dims import spread
from ..errors import BlockcalcError
from ..memory.held import Training
from ..model import Model
from ..parallel.layout import Layout
from ..parallel.shard import shard
from ..storage.optimizers import training_bytes
from ..storage.precision import weight_bytes
from ..tables import machines
from ..tensor import Step
from ..timing.machine import Machine, machine
from .engines import absorbed
from .fit import Fit, Run, fit
from .layouts import Split, Wanted, shares, splits
from .room import SAFE, Room
from .sections import layout as layout_of
from .task import Candidate

TRIED = 48
"""Numbers of devices that are tried on from where the weights alone would fit."""


class Roomy(NamedTuple):
    """A layout, and what fits beside it."""

    layout: Layout
    fit: Fit


class Smallest(NamedTuple):
    """The fewest devices of a machine with a layout that fits; None where none of those tried does, up to ``tried``."""

    machine: Machine
    devices: int | None
    found: Roomy | None
    tried: int


class Way(NamedTuple):
    """One way to lay a run out, with bytes that its heaviest device cannot be below."""

    least: float
    number: int  # of ways with fewer splits, which are preferred
    layout: Layout


class Devices:
    """Layouts by the room they leave, for one run; what was counted for one machine serves all others."""

    def __init__(self, model: Model, run: Run) -> None:
        self.model, self.run = model, run
        self.layers = sum(int(count) for _, count in model.stack.runs())
        self.refused = "no division of them has a domain's tensor ranks and a layer a stage"  # or why the last layout does not
        self._ways: dict[tuple[int, int], tuple[Way, ...]] = {}
        self._held: dict[tuple[int, int], Roomy | None] = {}
        self._served: dict[Split, int] = {}
        self._counted: Room | None = None

    def roomiest(self, devices: int, domain: int, available: int) -> Roomy | None:
        """The layout of so many devices whose heaviest one holds least: of two alike the one with fewer splits.

        ZeRO 2 and 3 are tried over data ranks, and sequence parallelism beside tensor parallelism. None where nothing divides.
        """
        key = devices, min(devices, domain)
        if key not in self._held:
            self._held[key] = self._lightest(self.ways(devices, domain)) or self._lightest(self._layouts(devices, domain, True))
        best = self._held[key]
        return best and best._replace(fit=Fit(best.fit.held, available))

    def ways(self, devices: int, domain: int) -> tuple[Way, ...]:
        """Those that divide, the lightest by their bounds first; in serving without whole copies of the model beside each
        other, which save nothing, unless there is no other."""
        key = devices, min(devices, domain)
        if key not in self._ways:
            self._ways[key] = self._layouts(devices, domain, False) or self._layouts(devices, domain, True)
        return self._ways[key]

    def _lightest(self, ways: Sequence[Way]) -> Roomy | None:
        """The one that holds least, by all its bytes."""
        best: tuple[int, int, Roomy] | None = None
        for way in ways:
            if best is not None and way.least > best[0]:
                break
            try:
                found = Roomy(way.layout, fit(self.model, way.layout, self.run, 0))
            except BlockcalcError as error:
                self.refused = str(error)
                continue
            size = int(found.fit.held.bytes)
            if best is None or (size, way.number) < best[:2]:
                best = size, way.number, found
        return best and best[2]

    def _layouts(self, devices: int, domain: int, copies: bool) -> tuple[Way, ...]:
        training = isinstance(self.run, Training)
        found: list[Way] = []
        for split, dp, pp in splits(self.model, devices, domain, Wanted(sequence=training), training=training):
            if not training and dp > 1 and split.ep == 1 and not copies:
                continue
            for zero in (2, 3) if training and dp * split.cp > 1 else (0,):
                try:
                    layout = split.layout(dp, pp, zero=zero, stages=shares(self.layers, pp))
                    found.append(Way(self._least(split, dp, pp, zero), len(found), layout))
                except BlockcalcError as error:
                    self.refused = str(error)
        return tuple(sorted(found, key=lambda way: way[:2]))

    def _least(self, split: Split, dp: int, pp: int, zero: int) -> float:
        """What the heaviest device holds at least. Raises InputError where the split does not divide."""
        run = self.run
        if isinstance(run, Training):
            one = Candidate(split, pp, dp, 1, zero, run.recompute, int(run.step.b), run.microbatches)
            return self._room(run).kept(one, gathered=True)
        if split not in self._served:
            model = absorbed(self.model) if run.step.t == 1 else self.model
            part = shard(model.budget(run.step, run.kernels), layout_of(split))
            cache = part.cache(run.precision.widths(), run.policy)
            self._served[split] = int(sum(weight_bytes(part, run.precision).values()) + sum(cache.values()))
        return SAFE * self._served[split] / pp

    def _room(self, run: Training) -> Room:
        self._counted = self._counted or Room(self.model, run)
        return self._counted

    def smallest(self, machine: Machine, available: int) -> Smallest:
        """The fewest devices, from those on which weights and states alone would fit."""
        devices = machine.domain if machine.network is None else 0
        for devices in self._counts(machine, max(1, ceil(self._alone() / available)) if available > 0 else 1):
            if all(way.least > available for way in self.ways(devices, machine.domain)):
                continue
            found = self.roomiest(devices, machine.domain, available)
            if found is not None and found.fit.fits:
                return Smallest(machine, devices, found, devices)
        return Smallest(machine, None, None, devices)

    def _counts(self, machine: Machine, first: int) -> Iterator[int]:
        """Every number of devices up to a full node, then full nodes; no more than links join."""
        node = machine.node
        start = first if first <= node else spread(first, node) * node
        most = None if machine.network is not None else machine.domain
        count, tried = start, 0
        while tried < TRIED and (most is None or count <= most):
            yield count
            count, tried = (count + 1 if count < node else (count // node + 1) * node), tried + 1

    def _alone(self) -> int:
        """Bytes of all weights, and of their gradients and states in training, wherever they are."""
        budget = self.model.budget(Step.forward(1, 1))
        if isinstance(self.run, Training) and self.run.adapters is None:
            return int(sum(training_bytes(budget, self.run.optimizer).values()))
        if isinstance(self.run, Training):
            return 1
        return int(sum(weight_bytes(budget, self.run.precision).values()))


def catalogue(model: Model, run: Run, available: Callable[[Machine], int]) -> tuple[Smallest, ...]:
    """Every machine of the catalogue with the fewest of it that do, those of the least memory in all first.

    *available* are the bytes that a device of a machine may hold.
    """
    devices = Devices(model, run)
    found = [devices.smallest(one, available(one)) for one in map(machine, machines()["machines"])]
    return tuple(sorted(found, key=lambda one: (one.devices is None, (one.devices or 0) * one.machine.memory_bytes)))

