"""What fits: sizes at their answer and one further, against every size there is, by exact counts."""

from dataclasses import replace

import pytest

from blockcalc import load
from blockcalc.errors import InputError
from blockcalc.memory.held import Held, Serving, Training
from blockcalc.parallel.layout import Layout
from blockcalc.plan.engines import absorbed
from blockcalc.plan.fit import Fit, boundary, fit, held, largest, nbytes, quantised, resized, unit
from blockcalc.plan.layouts import shares
from blockcalc.plan.smallest import Devices, catalogue
from blockcalc.tensor import Adapters, Kernels, Step
from blockcalc.timing.machine import machine, machines

H100 = machine("h100-sxm")
GIB = 2**30
FLASH = Kernels(attention="flash", norm="fused")
SIZE = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 70}
TINY = load("llama-3-8b", {**SIZE, "num_key_value_heads": 2, "head_dim": 10})
WINDOWS = load("mistral-7b", {**SIZE, "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 24})
EXPERTS = load("mixtral-8x7b", {**SIZE, "num_key_value_heads": 2, "head_dim": 10, "num_local_experts": 4})
LATENT = load("deepseek-v2-lite", {
    "hidden_size": 48, "intermediate_size": 80, "moe_intermediate_size": 24, "num_hidden_layers": 3,
    "num_attention_heads": 4, "vocab_size": 70, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6,
    "v_head_dim": 14, "n_routed_experts": 8,
})  # fmt: skip
BOTH = load("t5-small", {"d_model": 40, "d_ff": 56, "num_heads": 4, "d_kv": 10, "num_layers": 2, "vocab_size": 70})
MODELS = {"dense": TINY, "windows": WINDOWS, "experts": EXPERTS, "latent": LATENT, "encoder-decoder": BOTH}
SERVED = [Serving(step=Step.prefill(2, 8)), Serving(step=Step.decode(1, 40)), Serving(step=Step.prefill(1, 4, 20))]
TRAINED = [Training(step=Step.train(1, 16)), Training(step=Step.train(2, 8), recompute="full")]


def cases():
    """Every model in every run, with the sizes that it has."""
    for name, model in MODELS.items():
        for run in (*SERVED, *TRAINED):
            for what in ("batch", "context", "microbatch" if isinstance(run, Training) else "concurrency"):
                yield pytest.param(model, run, what, id=f"{name}-{what}-{run.step}")


@pytest.mark.parametrize("model,run,what", list(cases()))
def test_a_size_fits_at_the_answer_and_not_at_the_next(model, run, what):
    """Against every size up to far beyond the answer, one by one."""
    first = run.step.t if what == "context" and run.step.t != run.step.s else 1
    room = held(model, Layout(), resized(run, what, first + 11, Layout())).bytes + 3
    found = largest(model, Layout(), run, room, what)
    counted = {size: held(model, Layout(), resized(run, what, size, Layout())).bytes for size in range(first, first + 40)}
    if found.after is None:
        assert all(size <= room for size in counted.values()) and found.at == 2**40
    else:
        assert found.at == max(size for size, held_bytes in counted.items() if held_bytes <= room)
        assert found.here.held.bytes == counted[found.at] <= room < counted[found.at + 1] == found.after.held.bytes


LAYOUTS = [
    Layout(tp=2), Layout(tp=2, sequence=True), Layout(pp=2), Layout(dp=2, zero=3), Layout(tp=2, pp=2, dp=2, zero=1),
    Layout(cp=2), Layout(cp=2, tp=2, sequence=True), Layout(pp=2, stages=(3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("what", ["context", "microbatch"])
def test_on_layouts_too(layout, what):
    run = Training(step=Step.train(1, 32), kernels=FLASH, microbatches=2)
    step = unit(what, layout)
    room = held(TINY, layout, resized(run, what, 5 * step, layout)).bytes
    found = largest(TINY, layout, run, room, what)
    assert (found.at, found.unit) == (5 * step, step)
    assert found.here.fits and not found.after.fits
    assert found.after.held.bytes == held(TINY, layout, resized(run, what, 6 * step, layout)).bytes


def test_concurrency_counts_the_requests_of_all_data_ranks():
    """A request more holds its cache and what one more token has alive, on one of three data ranks."""
    run = Serving(step=Step.decode(1, 100), kernels=FLASH)
    alone = largest(TINY, Layout(), run, 10**6, "concurrency")
    three = largest(TINY, Layout(dp=3), run, 10**6, "concurrency")
    assert three.at == 3 * alone.at and three.unit == 3
    cache = 2 * 2 * 4 * 100 * 2 * 10  # keys and values, two bytes, l, s, k, h
    assert alone.after.held.parts["kv_cache"] - alone.here.held.parts["kv_cache"] == cache


def test_a_size_that_memory_does_not_bound():
    """A window's cache stops growing, and a step of one token reads no more than the window has."""
    found = largest(WINDOWS, Layout(), Serving(step=Step.decode(1, 8)), 10**9, "context")
    assert found.after is None or found.at > 10**6
    none = largest(TINY, Layout(), Serving(step=Step.decode(1, 8)), 10, "batch")
    assert none.at == 0 and none.here is None and not none.after.fits


def test_counts_that_go_down_are_refused():
    def look(size):
        return Fit(Held(0, {"weights": 10 - size % 3}), 9)

    with pytest.raises(InputError, match="memory is less at"):
        boundary(look, 1, 64)


@pytest.mark.parametrize("run,what,message", [
    (TRAINED[0], "concurrency", "requests in serving"), (SERVED[0], "microbatch", "of training"),
])  # fmt: skip
def test_a_size_that_a_run_does_not_have(run, what, message):
    with pytest.raises(InputError, match=message):
        largest(TINY, Layout(), run, 10**9, what)


def test_missing_by_part_adds_up():
    run = Training(step=Step.train(1, 64))
    whole = fit(TINY, Layout(), run, 10**12)
    assert whole.fits and not whole.missing()
    for room in range(1, whole.held.bytes, whole.held.bytes // 37):
        found = fit(TINY, Layout(), run, room)
        assert not found.fits and sum(found.missing().values()) == -found.free == whole.held.bytes - room
        parts = list(found.held.parts)
        first = parts.index(next(iter(found.missing())))
        assert [part for part in parts[first:] if found.held.parts[part]] == list(found.missing())


def test_an_encoder_is_held_too():
    for name in ("t5-small", "bart-base", "whisper-tiny"):
        model, step = load(name), Step.prefill(1, 16)
        weights = held(model, Layout(), Serving(step=step)).parts["weights"]
        assert weights == 2 * model.budget(step).parameters().total


# -- texts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,value", [
    ("0", 0), ("2GiB", 2 * GIB), ("1.5 GiB", 3 * GIB // 2), ("500MB", 5 * 10**8), ("12B", 12), ("10%", 101), ("0.05%", 1),
    ("100%", 1001),
])  # fmt: skip
def test_bytes_in_words(text, value):
    assert nbytes("--reserve", text, 1001) == value


@pytest.mark.parametrize("text", ["", "-1", "1e3", "2 Gib", "nan", "101%", "1" * 40, "٣GiB", "5%%", "1_000"])
def test_bytes_that_are_none(text):
    with pytest.raises(InputError, match="--reserve"):
        nbytes("--reserve", text, 1000)
    with pytest.raises(InputError, match="--memory 5%"):
        nbytes("--memory", "5%")


# -- formats -----------------------------------------------------------------------------------------------------------


def test_the_first_format_that_fits_is_the_widest():
    model, run = load("llama-3.1-8b"), Serving(step=Step.decode(1, 2048), kernels=FLASH)
    found = quantised(model, Layout(), run, 8 * GIB)
    bits = [one.format.bits_per_weight for one in found]
    assert bits == sorted(bits, reverse=True)
    assert {"bf16", "fp8", "nf4", "awq-4-128", "gguf-q4_k"} <= {one.name for one in found}
    best = next(one for one in found if one.fit and one.fit.fits)
    wider = [one for one in found if one.fit and one.format.bits_per_weight > best.format.bits_per_weight]
    assert wider and not any(one.fit.fits for one in wider)


def test_weights_that_train_have_no_format_to_choose():
    with pytest.raises(InputError, match="weights that train"):
        quantised(TINY, Layout(), TRAINED[0], GIB)
    run = Training(step=Step.train(1, 32), adapters=Adapters(8, frozenset("qv")))
    found = {one.name: one.fit for one in quantised(load("llama-3.2-1b"), Layout(), run, 80 * GIB)}
    assert found["nf4"].held.parts["frozen"] < found["int8"].held.parts["frozen"] < found["bf16"].held.parts["frozen"]


# -- devices -----------------------------------------------------------------------------------------------------------


def every_layout(devices, layers):
    """All of them that serve a dense model, by loops of its own."""
    for tp in range(1, devices + 1):
        for pp in range(1, min(devices, layers) + 1):
            if tp * pp == devices:
                yield Layout(tp=tp, pp=pp, stages=shares(layers, pp))


def least(model, run, devices):
    found = []
    for layout in every_layout(devices, 4):
        try:
            found.append(held(model, layout, run).bytes)
        except InputError:
            continue
    return min(found, default=None)


def test_the_fewest_devices_are_the_fewest():
    run = Serving(step=Step.prefill(2, 24), kernels=FLASH)
    devices = Devices(TINY, run)
    sizes = {count: least(TINY, run, count) for count in range(1, 9)}
    assert sizes[8] < sizes[4] < sizes[1] and sizes[7] is None
    for room in (sizes[1], sizes[1] - 1, sizes[2], sizes[2] - 1, sizes[4], sizes[4] - 1, sizes[8]):
        found = devices.smallest(H100, room)
        assert found.devices == min(count for count, size in sizes.items() if size is not None and size <= room)
        assert found.found.fit.held.bytes == sizes[found.devices] <= room
    assert devices.smallest(replace(H100, network=None), sizes[8] - 1).devices is None


def test_the_catalogue_by_memory():
    run = Serving(step=Step.decode(1, 4096), kernels=FLASH)
    found = {one.machine.name: one for one in catalogue(load("llama-3.1-8b"), run, lambda one: one.memory_bytes)}
    weights = 2 * 8_030_261_248
    assert found["h100-sxm"].devices == 1 and found["t4"].devices == 2 and len(found) == len(machines()["machines"])
    assert all(one.devices * one.machine.memory_bytes > weights for one in found.values() if one.devices)
    order = [one.devices * one.machine.memory_bytes for one in found.values() if one.devices]
    assert order == sorted(order)


# -- latent attention --------------------------------------------------------------------------------------------------


def test_absorbed_latent_attention():
    """n(2c + r) multiply-adds a pair, 4·(2·12 + 6); the same weights and cache; nothing else changes."""
    step = Step.decode(3, 20)
    plain, low = LATENT.budget(step), absorbed(LATENT).budget(step)
    assert plain.parameters() == low.parameters()
    scores = {line.path.rpartition(".")[2]: line.forward // 3 for line in low.lines if line.kind == "attention"}
    assert sum(scores.values()) == 4 * (2 * 12 + 6)
    assert low.work().forward < plain.work().forward
    assert absorbed(absorbed(LATENT)) == absorbed(LATENT) and absorbed(TINY) is TINY
    expanded = held(LATENT, Layout(), Serving(step=Step.decode(1, 4000))).parts["working"]
    assert expanded < 4000 * 4 * (10 + 14) * 2  # no keys and values of all heads
