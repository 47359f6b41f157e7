"""Pictures: their numbers are the ledgers' own, and so are their axes."""

from fractions import Fraction

import pytest

import blockcalc
from blockcalc import Kernels, Step
from blockcalc.budget import widths
from blockcalc.convention import flops as counted
from blockcalc.errors import InputError
from blockcalc.plots import parts, pictures, roofline, scale, sweep
from blockcalc.plots.figure import Axis
from blockcalc.tables import presets

MODELS = ("gpt2", "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "gemma-2-9b", "t5-base", "bert-base", "whisper-tiny")
BF16 = widths("bf16")
H100 = roofline.Rates(989 * 10**12, 335 * 10**10)


def budgets(step, *names):
    return {name: blockcalc.load(name).budget(step) for name in names or MODELS}


def totals(figure):
    """The sum of each stack, by panel and place."""
    return {(panel.title, place): panel.total(place) for panel in figure.panels for place in panel.places}


# -- the numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_the_parts_of_every_preset_add_up(name):
    budget = blockcalc.load(name).budget(Step.train(1, 16))
    counts = parts.parameters(budget)
    assert sum(stored for stored, _ in counts.values()) == budget.parameters().total
    assert sum(active for _, active in counts.values()) == budget.parameters().active
    assert sum(parts.work(budget).values()) == counted(budget, "torch").total


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "gemma-2-9b", "gpt2", "t5-base"])
def test_tables_and_heads_are_those_of_the_ledger(name):
    budget = blockcalc.load(name).budget(Step.forward(1, 16))
    counts = parts.parameters(budget)
    assert (counts["embedding"][0], counts["head"][0]) == (budget.parameters().embedding, budget.parameters().head)


def test_mixtral_by_hand():
    counts = parts.parameters(blockcalc.load("mixtral-8x7b").budget(Step.forward(1, 16)))
    d, f, l, e, v = 4096, 14336, 32, 8, 32000
    assert counts["routed experts"] == (l * e * 3 * d * f, l * 2 * 3 * d * f)
    assert counts["feed-forward"][0] == l * d * e  # the router
    assert counts["attention"][0] == l * (2 * d * d + 2 * d * 1024)
    assert counts["norms"][0] == (2 * l + 1) * d
    assert counts["embedding"][0] == counts["head"][0] == v * d


def test_a_bar_of_parameters_is_the_total():
    many = budgets(Step.forward(1, 1))
    figure = pictures.params(many)
    assert totals(figure) == {("", name): budget.parameters().total for name, budget in many.items()}


@pytest.mark.parametrize("policy", ["minimal", "transformers", "static", "unified"])
def test_points_of_the_cache_are_the_caches(policy):
    models = [blockcalc.load(name) for name in ("llama-3.1-8b", "gemma-2-9b", "deepseek-v3")]
    many = {model.name: sweep.sweep(model, 1000, 9000, lambda s: Step.prefill(3, s)) for model in models}
    figure = pictures.kv(many, "fp8", policy)
    (panel,) = figure.panels
    assert figure.labels == tuple(many)
    for series, model in zip(panel.series, models, strict=True):
        assert series.x == sweep.lengths(1000, 9000)
        for context, size in zip(series.x, series.y, strict=True):
            assert size == sum(model.budget(Step.prefill(3, context)).cache(widths("fp8"), policy).values())


def test_a_window_bends_the_line_and_no_other():
    models = [blockcalc.load(name) for name in ("llama-3.1-8b", "mistral-7b")]
    many = {model.name: sweep.sweep(model, 1024, 16384, lambda s: Step.prefill(1, s)) for model in models}
    full, window = pictures.kv(many).panels[0].series
    assert all(size == context * 131072 for context, size in zip(full.x, full.y, strict=True))
    assert all(size == min(context, 4096) * 131072 for context, size in zip(window.x, window.y, strict=True))


@pytest.mark.parametrize("step", [Step.forward, Step.train, Step.decode], ids=["forward", "train", "decode"])
def test_shares_add_up_to_the_flops(step):
    models = [blockcalc.load(name) for name in ("llama-3.1-8b", "deepseek-v3", "t5-base")]
    many = {model.name: sweep.sweep(model, 64, 512, lambda t: step(2, t)) for model in models}
    wanted = {(name, one.step.s): counted(one, "torch").total for name, all_of in many.items() for one in all_of}
    assert totals(pictures.flops(many)) == wanted


def test_attention_scores_by_hand():
    budget = blockcalc.load("llama-3.1-8b").budget(Step.forward(1, 2048))
    work = parts.work(budget)
    assert work["attention scores"] == 32 * 2 * 2 * 2048 * 2048 * 4096
    assert work["feed-forward"] == 32 * 2 * 2048 * 3 * 4096 * 14336
    assert work["head"] == 2 * 2048 * 4096 * 128256


def test_a_projection_of_the_embedding_is_none_of_the_named_parts():
    # ALBERT's token vectors of 128 are projected to 768: https://huggingface.co/albert/albert-base-v2
    work = parts.work(blockcalc.load("albert-base").budget(Step.forward(1, 64)))
    assert work["other"] == 2 * 64 * 128 * 768


def test_activations_add_up_and_a_missing_kernel_is_told():
    models = [blockcalc.load(name) for name in ("llama-3.1-8b", "gemma-2-9b")]
    many, missing = sweep.trainings(models, Step.train(2, 64))
    figure = pictures.activations(many, "bf16", missing)
    wanted = {
        (name, f"{one.kernels.attention}, {one.recompute}"): one.activations(BF16).bytes
        for name, all_of in many.items() for one in all_of
    }  # fmt: skip
    assert totals(figure) == wanted
    assert [len(all_of) for all_of in many.values()] == [6, 3]
    assert len(missing) == 1 and "soft-capped scores have no flash kernel" in figure.notes[-1]


@pytest.mark.parametrize("of", ["params", "kv", "activations"])
@pytest.mark.parametrize("name", ["gemma-3-12b", "deepseek-v3", "t5-base", "nanochat"])
def test_layers_add_up_to_what_stands_in_layers(of, name):
    step = Step.prefill(2, 4096) if of == "kv" else Step.train(2, 64)
    budget = blockcalc.load(name).budget(step)
    found = pictures.layers({name: budget}, of).column(pictures.QUANTITIES[of][1].name)
    if of == "params":
        inside = {w for line in budget.lines if line.layer is not None for w in line.weights}
        assert sum(found) == sum(weight.numel * weight.copies for weight in inside)
    elif of == "kv":
        stray = [line for line in budget.lines if line.layer is None and line.cached]
        stray_bytes = sum(2 * c.tensor.numel * c.tensor.copies for line in stray for c in line.cached)
        assert sum(found) + stray_bytes == sum(budget.cache(BF16).values())
    else:
        assert found == budget.activations(BF16).per_layer


def test_window_layers_hold_their_window():
    figure = pictures.layers(budgets(Step.prefill(1, 32768), "gemma-3-12b"), "kv")
    by_kind = {kind: size for _, _, kind, size in figure.rows}
    # 8 key-value heads of 256, keys and values, two bytes: https://huggingface.co/google/gemma-3-12b-pt
    assert by_kind == {"decoder.window": 1024 * 8 * 256 * 2 * 2, "decoder.full": 32768 * 8 * 256 * 2 * 2}


# -- the roofline -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [Step.forward(2, 64), Step.decode(2, 64), Step.prefill(1, 16, 64)], ids=["all", "one", "some"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "pythia-160m", "phi-2"])
def test_bytes_are_the_traffic_but_for_rows_that_are_not_looked_up(name, step):
    budget = blockcalc.load(name).budget(step)
    found = roofline.operations(budget, BF16)
    lookups = [line for line in budget.lines if line.kind == "lookup"]
    tables = sum(2 * weight.numel for line in lookups for weight in line.weights)
    rows = sum(2 * tensor.numel for line in lookups for tensor in line.written)
    assert sum(one.bytes for one in found.values()) == budget.traffic(BF16) - tables + rows
    assert sum(one.flops for one in found.values()) == counted(budget, "torch").total


def test_operations_by_hand():
    step, d, f, l = Step.decode(8, 2048), 4096, 14336, 32
    found = roofline.operations(blockcalc.load("llama-3.1-8b").budget(step), BF16)
    # gate and up read 8 rows of d and write 8 of f, down the other way round; every weight once
    assert found["feed-forward"] == (2 * 8 * 3 * d * f * l, l * (2 * 3 * d * f + 2 * 3 * 8 * (d + f)))
    assert found["head"] == (2 * 8 * d * 128256, 2 * d * 128256 + 2 * 8 * (d + 128256))


def test_a_token_reads_the_experts_that_it_reaches():
    one, many = (roofline.operations(blockcalc.load("mixtral-8x7b").budget(Step.decode(b, 64)), BF16) for b in (1, 64))
    weights, rows = 32 * 2 * 3 * 4096 * 14336, 32 * 2 * 2 * 3 * (4096 + 14336)
    assert one["routed experts"].bytes == 2 * weights + rows
    assert many["routed experts"].bytes == 8 * weights + 64 * rows


def test_training_moves_once_more_for_each_gradient():
    step = blockcalc.load("llama-3.1-8b").budget
    forward, train = (roofline.operations(step(one(1, 64)), BF16) for one in (Step.forward, Step.train))
    for kind in ("attention scores", "attention projections", "feed-forward", "head"):
        assert train[kind] == (3 * forward[kind].flops, 3 * forward[kind].bytes)


def test_points_are_on_the_roof():
    figure = roofline.roofline(budgets(Step.decode(4, 512), "llama-3.1-8b", "deepseek-v3"), H100)
    for _, _, flops, moved, intensity, attainable, bound in figure.rows:
        assert intensity == Fraction(flops, moved)
        assert attainable == min(989 * 10**12, intensity * 335 * 10**10)
        assert bound == ("FLOPs" if attainable == 989 * 10**12 else "bytes")
    assert figure.roof[1] == (Fraction(989 * 10**12, 335 * 10**10), 989 * 10**12)


@pytest.mark.parametrize("text,found", [("989T", 989 * 10**12), ("3.35T", 335 * 10**10), ("1", 1), ("2.5k", 2500)])
def test_rates(text, found):
    assert roofline.rate("--flops-per-second", text) == found


@pytest.mark.parametrize("text", ["", "T", "1.5", "-1T", "0", "nan", "inf", "1e99", "3.35 TB/s", "1.0001k", "9" * 5000])
def test_rates_that_are_none(text):
    with pytest.raises(InputError, match="--bytes-per-second"):
        roofline.rate("--bytes-per-second", text)


# -- axes ---------------------------------------------------------------------------------------------------------------


def test_units_are_binary_for_bytes_and_decimal_for_the_rest():
    of_bytes, of_flops = Axis(column="", label="", unit="bytes"), Axis(column="", label="", unit="FLOP/s")
    assert scale.prefix(of_bytes, [1023]) == (1, "bytes")
    assert scale.prefix(of_bytes, [1024]) == (1024, "KiB")
    assert scale.prefix(of_bytes, [5 * 2**30]) == (2**30, "GiB")
    assert scale.prefix(of_flops, [989 * 10**12]) == (10**12, "TFLOP/s")


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("high", [0.3, 1.0, 7.5, 123.0, 2e9])
def test_ticks_are_inside_and_not_too_many(high, log):
    low = high / 700 if log else 0.0
    found = scale.ticks(low, high, log, 6)
    assert 2 <= len(found) <= 7
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in found)


def test_names_stay_distinct_when_short():
    found = scale.names(["a/very/long/way/to/config.json", "b/very/long/way/to/config.json"], 12)
    assert len(set(found.values())) == 2
    assert all(len(name) <= 12 for name in found.values())


def test_kernels_are_told_apart():
    model = blockcalc.load("llama-3.1-8b")
    math, flash = (model.budget(Step.train(1, 64), Kernels(attention=kernel)) for kernel in ("math", "flash"))
    # five products backward instead of four: 2.5 × forward against 2 ×
    assert 6 * parts.work(flash)["attention scores"] == 7 * parts.work(math)["attention scores"]
