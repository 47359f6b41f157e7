"""The search of layouts: the same best as trying everything, from bounds that never lie, in few evaluations."""

from fractions import Fraction
from itertools import product
from math import isclose

import pytest

from blockcalc import load
from blockcalc.errors import BlockcalcError, InputError
from blockcalc.memory.held import Serving, Training
from blockcalc.parallel.layout import Layout
from blockcalc.plan.deploy import Service, deploy, held_serving
from blockcalc.plan.engines import absorbed
from blockcalc.plan.fit import fit
from blockcalc.plan.known import Known
from blockcalc.plan.layouts import Split, Wanted, divisors, experts, least_data, shares
from blockcalc.plan.search import _Search, search
from blockcalc.plan.sections import Sections
from blockcalc.plan.task import MODES, Task
from blockcalc.tensor import Kernels, Step
from blockcalc.timing.costs import Counting
from blockcalc.timing.machine import machine
from blockcalc.timing.roofline import Setup
from blockcalc.timing.serving import SERVING, first_token, next_token
from blockcalc.timing.training import TRAINING, training_step

H100 = machine("h100-sxm")
SIZE = {"hidden_size": 480, "intermediate_size": 800, "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 704}
TINY = load("llama-3-8b", {**SIZE, "num_key_value_heads": 2, "head_dim": 40})
EXPERTS = load("mixtral-8x7b", {**SIZE, "num_key_value_heads": 2, "head_dim": 40, "num_local_experts": 4})
LATENT = load("deepseek-v2-lite", {
    "hidden_size": 48, "intermediate_size": 80, "moe_intermediate_size": 24, "num_hidden_layers": 3,
    "num_attention_heads": 4, "vocab_size": 72, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6,
    "v_head_dim": 14, "n_routed_experts": 8,
})  # fmt: skip


def task(model, devices, batch, t, available=10**12, wanted=Wanted(), setup=None):  # noqa: B008
    run = Training(step=Step.train(1, t), kernels=TRAINING)
    return Task(model, setup or Setup(H100), devices, batch, run, available, wanted)


# -- training, against every combination -------------------------------------------------------------------------------


def everything(model, devices, batch, t, layers):
    """Seconds and bytes of every combination, by loops of its own over sizes that the search may try."""
    numbers = range(1, devices + 1)
    found = {}
    for tp, cp, pp, ep in product(numbers, numbers, numbers, divisors(experts(model))):
        dp = devices // (tp * cp * pp) if devices % (tp * cp * pp) == 0 else 0
        if not dp or batch % dp or pp > layers:
            continue
        for etp, sp, zero, chunks in product({tp} if model is TINY else {1, tp}, (False, True), range(4), (1, 2, 4)):
            if (sp and tp == 1) or (zero and dp * cp == 1) or (chunks > 1 and (pp == 1 or pp * chunks > layers)):
                continue
            for microbatch, mode in product(range(1, batch + 1), ("none", "selective", "full")):
                if batch // dp % microbatch:
                    continue
                micros = batch // dp // microbatch
                key = tp, cp, pp, dp, ep, etp, sp, zero, chunks, microbatch, mode
                try:
                    layout = Layout(
                        tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=etp, sequence=sp, zero=zero, chunks=chunks,
                        stages=shares(layers, pp * chunks),
                    )  # fmt: skip
                    step = Step.train(microbatch, t)
                    time = training_step(model, Setup(H100, layout), step, micros, kernels=TRAINING, recompute=mode)
                    run = Training(step=step, kernels=TRAINING, recompute=mode, microbatches=micros)
                    found[key] = time.seconds, fit(model, layout, run, 0).held.bytes
                except BlockcalcError:
                    continue
    return found


def key_of(one):
    split = one.split
    return (
        split.tp, split.cp, one.pp, one.dp, split.ep, split.etp, split.sequence, one.zero, one.chunks, one.microbatch,
        one.recompute,
    )  # fmt: skip


@pytest.mark.parametrize("model,devices,batch,t,layers", [
    (TINY, 4, 4, 64, 6), (TINY, 6, 2, 24, 6), (EXPERTS, 4, 2, 32, 6), (LATENT, 4, 2, 32, 3),
])  # fmt: skip
def test_the_same_best_as_trying_everything(model, devices, batch, t, layers):
    """The first layer of the last model has no experts, so that a stage of it has none."""
    known = everything(model, devices, batch, t, layers)
    sizes = sorted({size for _, size in known.values()})
    rooms = [sizes[-1], sizes[len(sizes) // 2], sizes[len(sizes) // 8], sizes[3], sizes[0], sizes[0] - 1]
    for room in rooms:
        fitting = {key: seconds for key, (seconds, size) in known.items() if size <= room}
        found = search(task(model, devices, batch, t, room), shown=2, losers=2)
        if not fitting:
            assert not found.best
            continue
        best = found.best[0]
        assert isclose(best.step.seconds, min(fitting.values()), rel_tol=1e-9)
        assert isclose(fitting[key_of(best.candidate)], best.step.seconds, rel_tol=1e-9)
        assert known[key_of(best.candidate)][1] == best.fit.held.bytes <= room
        assert found.timed <= found.candidates and all(not one.fit.fits for one in found.lost)
        assert all(one.step.seconds < best.step.seconds for one in found.lost)
        assert [one.step.seconds for one in found.best] == sorted(one.step.seconds for one in found.best)


@pytest.mark.parametrize("model,devices,batch,setup,every", [
    (TINY, 4, 4, Setup(H100), 3), (EXPERTS, 4, 4, Setup(H100), 17), (LATENT, 4, 4, Setup(H100), 13),
    (TINY, 24, 24, Setup(H100, counting=Counting(fused=True)), 47),
])  # fmt: skip
def test_what_is_put_together_is_what_the_engine_counts(model, devices, batch, setup, every):
    """A candidate's time equals ``training_step``'s; bounds of time and memory are never above the truth."""
    work = task(model, devices, batch, 32, setup=setup)
    found = _Search(work, lambda done, total: None)
    looked = 0
    every_one = ((bound, one) for bound, family in found.bounded(list(found.families())) for one in family.candidates())
    for number, (bound, one) in enumerate(every_one):
        if number % every:
            continue
        layout, run = work.of(one)
        time = training_step(
            model, setup._replace(layout=layout), run.step, run.microbatches, kernels=run.kernels, recompute=run.recompute
        )
        assert isclose(found.known.seconds(one), time.seconds, rel_tol=1e-9)
        assert bound <= time.seconds
        size = fit(model, layout, run, 0).held.bytes
        assert found.known.least_bytes(one) <= size
        assert found.known.kept(one) <= found.known.kept(one, gathered=True) <= size
        looked += 1
    assert looked > 50


def test_405b_over_16384_devices_takes_few_evaluations():
    """Meta trained it with tp 8, pp 16 and dp 128 at a sequence of 8192 and a batch of 2048: arXiv:2407.21783, table 4."""
    found = search(task(load("llama-3.1-405b"), 16384, 2048, 8192, H100.memory_bytes, Wanted(tp=8, cp=1)))
    (best,) = found.best
    assert best.fit.fits and best.layout.devices == 16384 and best.layout.tp == 8
    assert found.candidates > 1000 and found.timed < 300 and found.sized < 30
    meta = Layout(tp=8, pp=16, dp=128, sequence=True, zero=2, stages=shares(126, 16))
    theirs = training_step(load("llama-3.1-405b"), Setup(H100, meta), Step.train(1, 8192), 16)
    assert best.step.seconds <= theirs.seconds


def test_what_is_wanted_is_kept():
    wanted = Wanted(tp=2, pp=2, zero=1, recompute="full", microbatch=2, sequence=True)
    found = search(task(TINY, 8, 8, 32, wanted=wanted))
    best = found.best[0].candidate
    assert (best.split.tp, best.pp, best.zero, best.recompute) == (2, 2, 1, "full")
    assert best.microbatch == 2 and best.split.sequence
    with pytest.raises(InputError, match="no layout of 8 devices"):
        search(task(TINY, 8, 8, 32, wanted=Wanted(tp=3)))


def test_progress_goes_to_its_end():
    seen = []
    search(task(TINY, 2, 2, 16), progress=lambda done, total: seen.append((done, total)))
    assert seen and all(0 <= done <= total for done, total in seen) and seen == sorted(seen)


@pytest.mark.parametrize("name", [
    "deepseek-v3", "gemma-3-1b", "gpt-oss-20b", "bloom-560m", "bert-base", "t5-small", "albert-base",
])  # fmt: skip
@pytest.mark.parametrize("mode", MODES)
def test_sections_add_up_to_their_stage(name, mode):
    """What a stage keeps, and its weights, are the sums over its sections; of layers that share more a stage is one section."""
    model = load(name)
    run = Training(step=Step.train(2, 64), kernels=TRAINING)
    known, widths = Sections(model, run), run.precision.widths()
    assert known.apart == (name not in ("t5-small", "albert-base"))
    for kind in {*known.whole, *(known.pieces(3, 1) if model.encoder is None else ())}:
        whole = known.budget(kind, 2, mode)
        kept = [(Fraction(count, section.times), known.lines(section, 2, mode).activations(widths))
                for section, count in known.mix((kind,), layers=True)]  # fmt: skip
        all_kept = whole.activations(widths)
        assert sum(share * (found.bytes - found.buffers) for share, found in kept) == all_kept.bytes - all_kept.buffers
        parts = [(Fraction(count, section.times), known.lines(section, 2, mode)) for section, count in known.mix((kind,))]
        assert sum(share * part.parameters().total for share, part in parts) == whole.parameters().total
        assert sum(share * part.work().forward for share, part in parts) == whole.work().forward


# -- divisions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers,pieces,each", [
    (12, 4, ()), (126, 16, (7, *(8,) * 14, 7)), (7, 4, (2, 2, 2, 1)), (6, 4, (1, 2, 2, 1)), (5, 4, (1, 1, 2, 1)),
])  # fmt: skip
def test_layers_are_dealt_out(layers, pieces, each):
    assert shares(layers, pieces) == each
    assert not each or (sum(each) == layers and len(each) == pieces)


def test_numbers():
    assert divisors(12) == (1, 2, 3, 4, 6, 12) and divisors(1) == (1,)
    with pytest.raises(InputError, match="divisors of 0"):
        divisors(0)
    assert experts(TINY) == 1 and experts(EXPERTS) == 4 and experts(LATENT) == 8
    known = Known(task(EXPERTS, 4, 4, 8))
    assert known.whole == known.pieces(1, 1) and len(set(known.pieces(3, 1))) == 3


# -- serving -----------------------------------------------------------------------------------------------------------


def served(model, devices, most, setup, kernels, layers):
    """Seconds, tokens a second and bytes of every layout and batch."""
    found = {}
    banks = (1, 2, 4, 8) if experts(model) > 1 else (1,)
    for tp, pp, ep in product(range(1, devices + 1), range(1, min(devices, layers) + 1), banks):
        if devices % (tp * pp):
            continue
        for etp, batch in product({1, tp} if len(banks) > 1 else {tp}, range(1, most + 1)):
            try:
                layout = Layout(tp=tp, pp=pp, dp=devices // (tp * pp), ep=ep, etp=etp, stages=shares(layers, pp))
                each = next_token(absorbed(model), setup._replace(layout=layout), batch, 48, kernels)
                first = first_token(model, setup._replace(layout=layout), 1, 32, kernels)
                run = Serving(step=Step.decode(1, 48), kernels=kernels)
                size = held_serving(model, layout, run, batch, 32, 48, 0).held.bytes
            except BlockcalcError:
                continue
            found[tp, pp, ep, etp, batch] = each, first, size
    return found


@pytest.mark.parametrize("model,kernels,layers,devices", [
    (TINY, SERVING, 6, 4), (EXPERTS, SERVING, 6, 4), (LATENT, Kernels(norm="fused"), 3, 2),
], ids=["dense", "experts", "latent"])  # fmt: skip
def test_the_same_service_as_trying_everything(model, kernels, layers, devices):
    setup = Setup(H100)
    known = served(model, devices, 12, setup, kernels, layers)
    small = [size for (_, _, _, _, batch), (_, _, size) in known.items() if batch == 4]
    for room, goal, share in product((max(small), min(small)), ("throughput", "latency"), (None, 0.5)):
        times = sorted(each.seconds for each, _, _ in known.values())
        within = None if share is None else times[int(len(times) * share)]
        run = Serving(step=Step.decode(1, 48), kernels=kernels)
        found = deploy(Service(model, setup, devices, 32, 48, run, room, within, goal=goal))
        able = [
            (each, batch) for (_, _, _, _, batch), (each, _, size) in known.items()
            if size <= room and (within is None or each.seconds <= within) and (goal == "throughput" or batch == 1)
        ]  # fmt: skip
        if not able:
            assert not found.best
        elif goal == "latency":
            assert found.best[0].each.seconds == min(each.seconds for each, _ in able)
        elif found.best[0].batch <= 12:
            assert found.best[0].each.per_second == max(each.per_second for each, _ in able)
        assert all(one.fit.fits and (within is None or one.each.seconds <= within) for one in found.best)


def test_a_service_that_is_too_slow_or_too_large_says_which():
    run = Serving(step=Step.decode(1, 48), kernels=SERVING)
    slow = deploy(Service(TINY, Setup(H100), 2, 32, 48, run, 10**11, 1e-12))
    assert not slow.best and {one.why for one in slow.lost} == {"latency"}
    large = deploy(Service(TINY, Setup(H100), 2, 32, 48, run, 10))
    assert not large.best and {one.why for one in large.lost} == {"memory"}
    assert all(sum(one.served.fit.missing().values()) == -one.served.fit.free for one in large.lost)


def test_a_split_has_the_data_ranks_that_its_experts_need():
    for tp, ep, etp in product((1, 2, 4), (1, 2, 4, 8), (1, 2)):
        if tp % etp == 0:
            least = least_data(Split(tp=tp, ep=ep, etp=etp))
            assert (tp * least) % (ep * etp) == 0
            assert all((tp * fewer) % (ep * etp) for fewer in range(1, least))
