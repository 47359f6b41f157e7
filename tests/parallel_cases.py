"""How one of several ranks is compared: the engine's with the twin's, in cost, and the twin with the whole one, in numbers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import set_checkpoint_early_stop

from blockcalc import Budget, Step, widths
from blockcalc.model import Model, trace
from blockcalc.parallel.collectives import collectives, gradients, sends
from blockcalc.parallel.layout import Layout
from blockcalc.parallel.shard import fully_sharded as cut_rows
from blockcalc.parallel.shard import shard
from blockcalc.parallel.stages import Stage, in_flight, stages
from blockcalc.refmodel import measure, moe, norm
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.refmodel.parallel.build import parallel
from blockcalc.refmodel.parallel.measure import Sent, groups_of, traffic
from blockcalc.refmodel.parallel.model import cross_entropy
from blockcalc.refmodel.parallel.pipeline import Kept, schedule, sum_ends
from blockcalc.refmodel.parallel.ranks import ALONE
from blockcalc.refmodel.parallel.weights import add_up, pieces, sum_gradients
from blockcalc.tensor import Kernels, Tensor

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


class Case(NamedTuple):
    """A component on a layout, on an input (b t d)."""

    name: str
    component: Any
    layout: Layout
    dtype: str = "fp32"
    kernel: str = "math"
    recompute: str = "none"
    b: int = 3
    t: int = 32
    d: int = 22


def expected(found: Any, dtype: str, *phases: str) -> Counter[Sent]:
    """The engine's collectives of some phases."""
    sizes: Counter[Sent] = Counter()
    for c in found:
        if c.phase in phases:
            sizes[Sent(c.kind, c.group, c.elements * widths(dtype)[c.role])] += c.copies
    return sizes


class Pair(NamedTuple):
    """The twin on one rank and the whole one, each with a step, and the gradient that comes to its result."""

    part: torch.nn.Module
    step: Any
    grad: torch.Tensor
    whole: torch.nn.Module
    steps: list[tuple[Any, torch.Tensor]]  # one for each data rank
    inputs: list[tuple[torch.Tensor, torch.Tensor]]  # whose gradients are compared, that of the whole twin cut


def mine(x: torch.Tensor, ranks: Any) -> torch.Tensor:
    """The rank's positions of x (b t d)."""
    return ranks.tp.rows(x[:, ranks.positions(x.size(1) // ranks.cp.size)], 1)


def data_rank(ranks: Any) -> int:
    """Which data the rank reads."""
    return ranks.dp.rank // ranks.cp.size if ranks.dp.size > 1 else 0


def block(case: Case, ranks: Any, dtype: torch.dtype) -> Pair:
    """A component on random x (b t d), and on an encoder's output (b m d) for one that reads it."""
    torch.manual_seed(0)
    whole = build(case.component, case.d).to(dtype)
    part = parallel(case.component, case.d, ranks).to(dtype)
    torch.manual_seed(1)
    data = [torch.randn(3, case.b, case.t, case.d, dtype=dtype) for _ in range(case.layout.dp)]
    xs = [[part.clone().requires_grad_() for part in one[:2]] for one in data]
    own = [mine(x.detach(), ranks).clone().requires_grad_() for x in xs[data_rank(ranks)]]

    def steps(twin: Any, x: torch.Tensor, memory: torch.Tensor) -> Any:
        def step(run: Run) -> torch.Tensor:
            run.memory = memory
            return twin(x, run)

        return step

    every = [(steps(whole, *pair), one[2]) for pair, one in zip(xs, data, strict=True)]
    place = data_rank(ranks)
    return Pair(part, steps(part, *own), mine(data[place][2], ranks), whole, every, list(zip(xs[place], own, strict=True)))


def language_model(case: Case, ranks: Any, dtype: torch.dtype) -> Pair:
    """A model and its loss on random tokens."""
    torch.manual_seed(0)
    model = case.component
    whole, part = build(model).to(dtype), parallel(model, 0, ranks).to(dtype)
    torch.manual_seed(1)
    v = model.embedding.v
    data = [[torch.randint(v, (case.b, case.t)) for _ in range(3)] for _ in range(case.layout.dp)]
    one = torch.tensor(1.0, dtype=dtype)

    def steps(twin: Any, ids: torch.Tensor, targets: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
        def step(run: Run) -> torch.Tensor:
            losses, given = [], (ids, run, None if model.encoder is None else source)
            for logits in twin.outputs(*given) if model.predictors else [twin(*given)]:
                run.places.append("loss")
                losses.append(cross_entropy(logits.flatten(0, 1), targets.flatten().clone(), group))
            return torch.stack(losses).sum() if len(losses) > 1 else losses[0]

        return step

    own = [ids[:, ranks.positions(case.t // ranks.cp.size)] for ids in data[data_rank(ranks)]]
    every = [(steps(whole, *ids, ALONE), one) for ids in data]
    return Pair(part, steps(part, *own, ranks.tp), one / ranks.cp.size, whole, every, [])


def stage(case: Case, ranks: Any, dtype: torch.dtype) -> Pair:
    """A pipeline's stage on random tokens, or on what the stage before made; without a whole."""
    one = case.component
    part = parallel(one, 0, ranks).to(dtype)
    first, between, _ = handed_on(case, ranks, dtype)

    def step(run: Run) -> torch.Tensor:
        out = part(first if one.first else between, run)
        if not one.last:
            return out
        run.places.append("loss")
        return cross_entropy(out.flatten(0, 1), torch.zeros_like(first).flatten(), ranks.tp)

    grad = torch.tensor(1.0, dtype=dtype) if one.last else torch.empty_like(between)
    return Pair(part, step, grad, part, [], [])


def pair_of(case: Case, ranks: Any, dtype: torch.dtype) -> Pair:
    """What is compared of a case."""
    makers = {Model: language_model, Stage: stage}
    return makers.get(type(case.component), block)(case, ranks, dtype)


def budget_of(case: Case) -> Budget:
    """What the whole costs."""
    step, kernels = Step.train(case.b, case.t), Kernels(attention=case.kernel)
    if isinstance(case.component, Model | Stage):
        return case.component.budget(step, kernels, case.recompute)
    return trace(case.component, step, case.d, kernels, case.recompute)


def costs(case: Case, ranks: Any) -> list[str]:
    """Where the engine's rank and the twin's differ."""
    budget, sizes, of_model = budget_of(case), widths(case.dtype), isinstance(case.component, Model | Stage)
    rank, comms, sums = shard(budget, case.layout), collectives(budget, case.layout), gradients(budget, case.layout)
    pair = pair_of(case, ranks, DTYPES[case.dtype])
    part = pair.part

    def run() -> Run:
        return Run(kernel=case.kernel, recompute=case.recompute)

    saved = measure.saved(pair.step, part.parameters(), run())
    flops = measure.flops(pair.step, run())
    kept, work = rank.activations(sizes), rank.work()
    part.zero_grad()
    with set_checkpoint_early_stop(False):
        out, forward = traffic(ranks, part, lambda: pair.step(run()))
        _, backward = traffic(ranks, part, lambda: out.backward(pair.grad))
        _, summed = traffic(ranks, part, lambda: sum_gradients(part, ranks))
    pairs = {
        "parameters": (rank.parameters().total, measure.parameters(part)),
        "saved": ((kept.bytes, kept.buffers), (saved.bytes, saved.buffers)),
        "flops": ((2 * work.forward, 2 * (work.backward + work.recompute)), tuple(flops)),
        "forward": (expected(comms, case.dtype, "forward"), forward),
        "backward": (expected(comms, case.dtype, "backward", "recompute"), backward),
        "gradients": (totals(expected(sums, case.dtype, "step")), totals(summed)),
    }
    for one in (*comms, *sums):
        pairs[f"ranks of {one.group}"] = (one.ranks, dict(groups_of(ranks, part))[one.group].size)
    if of_model:
        pairs["saved a layer"] = ((kept.per_layer, kept.loss, kept.rest), (saved.per_layer, saved.loss, saved.rest))
    if case.layout.cp != 1:
        del pairs["flops"]
    return [difference(what, ours, theirs) for what, (ours, theirs) in pairs.items() if ours != theirs]


def difference(what: str, ours: Any, theirs: Any) -> str:
    """The two in words; of collectives, those that only one has."""
    if isinstance(ours, Counter):
        ours, theirs = ({tuple(one): count for one, count in (a - b).items()} for a, b in ((ours, theirs), (theirs, ours)))
    return f"{what}: engine {ours}, twin {theirs}"


def totals(sent: Counter[Sent]) -> Counter[tuple[str, str]]:
    """Bytes by kind and group: gradients are added up tensor by tensor here, and in buckets elsewhere."""
    sizes: Counter[tuple[str, str]] = Counter()
    for one, count in sent.items():
        sizes[one.kind, one.group] += one.bytes * count
    return sizes


def truth(case: Case, ranks: Any) -> list[str]:
    """Where the twin on several ranks computes something else than the whole one."""
    pair = pair_of(case, ranks, torch.float64)
    part, whole = pair.part, pair.whole
    torch.manual_seed(2)
    for weight in whole.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    for weight, piece in pieces(dict(whole.named_parameters()), part, ranks):
        weight.data.copy_(piece)

    def seeded(step: Any, run: Run) -> torch.Tensor:
        torch.manual_seed(3)  # of random features
        return step(run)

    wanted = [seeded(step, Run(kernel=case.kernel)) for step, _ in pair.steps]
    torch.autograd.backward(wanted, [grad for _, grad in pair.steps])
    out = seeded(pair.step, Run(kernel=case.kernel, recompute=case.recompute))
    out.backward(pair.grad)
    sum_gradients(part, ranks)
    right = wanted[data_rank(ranks)]
    if isinstance(case.component, Model):
        out = out.detach() / ranks.cp.size
        add_up(out, ranks.cp)
        pairs = {"out": (right, out)}
    else:
        pairs = {"out": (mine(right, ranks), out)}
    entered = [(x.grad, y.grad) for x, y in pair.inputs if y.grad is not None]
    pairs |= {f"input {number}": (mine(grad, ranks), own) for number, (grad, own) in enumerate(entered)}
    names = {weight: name for name, weight in part.named_parameters()}
    of = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in whole.named_parameters()}
    pairs |= {names[weight]: (piece, weight.grad) for weight, piece in pieces(of, part, ranks) if weight.requires_grad}
    kinds = moe.MoE | norm.OffsetRMSNorm  # these work in fp32
    single = any(isinstance(module, kinds) or getattr(module, "wide", False) for module in part.modules())
    loose = 1e-4 if single else 1e-9
    return [name for name, (ours, theirs) in pairs.items() if not torch.allclose(ours, theirs, rtol=loose, atol=loose)]


# -- pipelines ---------------------------------------------------------------------------------------------------------


def pipeline(case: Case, ranks: Any, microbatches: int) -> list[str]:
    """Where the engine's stages and torch's schedule of the twin's differ: weights, what is kept at the peak, sends."""
    layout, sizes, dtype = case.layout, widths(case.dtype), DTYPES[case.dtype]
    pieces_of = stages(case.component, layout)
    own = range(ranks.pp.rank, len(pieces_of), layout.pp)
    budgets = [pieces_of[i].budget(Step.train(case.b, case.t), Kernels(attention=case.kernel), case.recompute) for i in own]
    parts = [parallel(pieces_of[i], 0, ranks).to(dtype) for i in own]
    for part in parts:
        part.run = partial(Run, kernel=case.kernel, recompute=case.recompute)
    runner = schedule(parts, ranks, microbatches, len(pieces_of), handed_on(case, ranks, dtype))
    ids, targets = torch.randint(case.component.embedding.v, (2, microbatches, case.b, case.t)).flatten(1, 2)
    train(runner, ids, targets, ranks)  # the first step also exchanges shapes
    held = Kept((x for part in parts for x in (*part.parameters(), *part.constants.values())), batch=(ids, targets))
    with held.hooks(), set_checkpoint_early_stop(False):
        _, sent = traffic(ranks, torch.nn.ModuleList(parts), lambda: train(runner, ids, targets, ranks))
    kept = [one.bytes - one.buffers for one in (shard(budget, layout).activations(sizes) for budget in budgets)]
    most = max(sum(kept[i] for i in moment) for moment in in_flight(layout, ranks.pp.rank, microbatches))
    wanted: Counter[Sent] = Counter()
    for i, budget in zip(own, budgets, strict=True):
        boundary = Tensor(("b", "t", "d"), (case.b, case.t, case.component.embedding.d))
        forward, backward = (expected([one], case.dtype, one.phase) for one in sends(boundary, layout, budget, "boundary"))
        both = (forward if i < len(pieces_of) - 1 else Counter()), (backward if i > 0 else Counter())
        inside = expected(collectives(budget, layout), case.dtype, "forward", "backward", "recompute")
        for one, count in (*both[0].items(), *both[1].items(), *inside.items()):
            wanted[one] += count * microbatches
    pairs = {
        "parameters": (
            [shard(budget, layout).parameters().total for budget in budgets], [measure.parameters(part) for part in parts]
        ),
        "at the peak": (most, held.most),
        "after the step": (0, held.now),
        "sent": (wanted, sent),
    }  # fmt: skip
    return [difference(what, ours, theirs) for what, (ours, theirs) in pairs.items() if ours != theirs]


def handed_on(case: Case, ranks: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Examples of a microbatch's tokens, of what a stage hands on, and of the logits."""
    embedding = getattr(case.component, "model", case.component).embedding
    t, d, v = case.t, embedding.d, embedding.v
    own = t // (ranks.tp.size if ranks.tp.sequence else 1)
    between = torch.empty(case.b, own, d, dtype=dtype, requires_grad=True)
    return torch.zeros(case.b, t, dtype=torch.int64), between, torch.empty(case.b, t, v // ranks.tp.size, dtype=dtype)


def train(runner: Any, ids: torch.Tensor, targets: torch.Tensor, ranks: Any) -> list[torch.Tensor]:
    """One step of a schedule; the losses on the last rank."""
    losses: list[torch.Tensor] = []
    last = ranks.pp.rank == ranks.pp.size - 1
    runner.step(*([ids] if ranks.pp.rank == 0 else []), **({"target": targets, "losses": losses} if last else {}))
    return losses


def pipelined_truth(case: Case, ranks: Any, microbatches: int) -> list[str]:
    """Where the stages compute something else than the whole model."""
    torch.manual_seed(0)
    whole = build(case.component).double()
    for weight in whole.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ids, targets = torch.randint(case.component.embedding.v, (2, microbatches, case.b, case.t)).flatten(1, 2)
    wanted = [
        cross_entropy(whole(one, Run()).flatten(0, 1), target.flatten(), ALONE)
        for one, target in zip(ids.chunk(microbatches), targets.chunk(microbatches), strict=True)
    ]
    torch.stack(wanted).sum().backward()
    pieces_of = stages(case.component, case.layout)
    own = range(ranks.pp.rank, len(pieces_of), case.layout.pp)
    parts = [parallel(pieces_of[i], 0, ranks).double() for i in own]
    before = [sum(count for one in pieces_of[:i] if one.layers is not None for _, count in one.layers.runs()) for i in own]
    weights = dict(whole.named_parameters())
    for part, first in zip(parts, before, strict=True):
        for weight, piece in pieces(weights, part, ranks, first):
            weight.data.copy_(piece)
    losses = train(
        schedule(parts, ranks, microbatches, len(pieces_of), handed_on(case, ranks, torch.float64)), ids, targets, ranks
    )
    sum_ends(parts, ranks)
    for part in parts:
        sum_gradients(part, ranks)
    pairs = {f"loss {i}": (a, b) for i, (a, b) in enumerate(zip(wanted, losses, strict=False))}
    grads = {name: weight.grad for name, weight in weights.items()}
    for part, first in zip(parts, before, strict=True):
        names = {weight: name for name, weight in part.named_parameters()}
        pairs |= {names[weight]: (piece, weight.grad) for weight, piece in pieces(grads, part, ranks, first)}
    return [name for name, (ours, theirs) in pairs.items() if not torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)]


# -- fully sharded -----------------------------------------------------------------------------------------------------


def sharded_weights(case: Case, ranks: Any) -> list[str]:
    """Where the engine's ZeRO 3 and torch's ``fully_shard``, each layer first and the model last, differ."""
    budget = budget_of(case)
    pair = language_model(case, ranks, DTYPES[case.dtype])
    whole = pair.whole
    step, grad = pair.steps[ranks.dp.rank]
    mesh = DeviceMesh.from_group(ranks.dp.process, "cpu")
    for module in (*whole.stack.layers, whole):
        fully_shard(module, mesh=mesh)
    run = partial(Run, kernel=case.kernel, recompute=case.recompute)
    out, forward = traffic(ranks, whole, lambda: step(run()))
    _, backward = traffic(ranks, whole, lambda: out.backward(grad))
    seen: dict[Any, int] = {}
    for line in budget.lines:
        for weight in line.weights:
            part = cut_rows(line, weight, case.layout.dp)
            seen.setdefault(weight, part.numel * part.copies)
    local = sum(weight.to_local().numel() for weight in whole.parameters())
    sums = gradients(budget, case.layout)
    pairs = {
        "parameters of the first rank": (sum(seen.values()), local) if ranks.dp.rank == 0 else (0, 0),
        "forward": (totals(one_group(expected(sums, case.dtype, "forward"))), totals(forward)),
        "backward": (totals(one_group(expected(sums, case.dtype, "backward"))), totals(backward)),
    }
    return [difference(what, ours, theirs) for what, (ours, theirs) in pairs.items() if ours != theirs]


def one_group(sent: Counter[Sent]) -> Counter[Sent]:
    """The same where those who share an expert are those who share everything."""
    return sum((Counter({one._replace(group="dp"): count}) for one, count in sent.items()), Counter())


# -- routing -----------------------------------------------------------------------------------------------------------


def even_routing(put: Any = setattr) -> None:
    """Let routers choose experts in turn, so that all get as many rows."""
    put(moe.MoE, "route", evenly)


def evenly(self: moe.MoE, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In place of ``MoE.route``: experts in turn, whatever the scores, which weigh them as ever."""
    logits = self.router(x).float()  # b t e
    e = logits.size(-1)
    chosen = (torch.arange(x.size(1) * self.a) % e).view(1, -1, self.a).expand(len(x), -1, -1).contiguous()  # b t a
    if self.score == "softmax_of_chosen":
        places = torch.arange(chosen.numel() // self.a)[:, None] * e + chosen.flatten(0, 1)  # b·t a
        weights = logits.flatten()[places].view_as(chosen).softmax(-1)  # b t a
    else:
        weights = (logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()).gather(-1, chosen)
    if self.renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return chosen, weights.to(x.dtype)
