"""Sums over a trace: published totals, cache policies, and that parts add up to wholes."""

import json

import pytest
from click.testing import CliRunner

from blockcalc import InputError, UndefinedError, load, widths
from blockcalc.budget import held
from blockcalc.cli import main
from blockcalc.readers import FAMILIES
from blockcalc.tables import presets
from blockcalc.tensor import Kernels, Step

BF16 = widths("bf16")
READABLE = [name for name, preset in presets().items() if preset["config"]["model_type"] in FAMILIES]


@pytest.mark.parametrize("name", READABLE)
def test_components_are_disjoint_and_sum_to_the_total(name):
    budget = load(name).budget(Step.forward(1, 1))
    counts, parts = budget.parameters(), budget.components()
    assert len({part.path for part in parts}) == len(parts)
    assert sum(part.params for part in parts) == counts.total
    assert sum(part.active for part in parts) == counts.active
    assert counts.embedding + counts.head + counts.non_embedding == counts.total


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("name", READABLE)
def test_layers_loss_buffers_and_the_rest_sum_to_what_is_kept(name, recompute):
    kept = load(name).budget(Step.train(2, 64), recompute=recompute).activations(BF16)
    assert sum(kept.per_layer) + kept.buffers + kept.loss + kept.rest == kept.bytes
    assert sum(kept.paths.values()) + kept.buffers == kept.bytes == sum(kept.roles.values())


def test_published_totals():
    """Each from its config, and what torch's counter and a real cache object say of it."""
    def counts(name, step):
        return load(name).budget(step)

    assert counts("llama-3-8b", Step.forward(1, 2048)).parameters().total == 8_030_261_248
    assert 2 * counts("llama-3-8b", Step.forward(1, 2048)).work().forward == 32_938_104_193_024
    assert counts("llama-3-8b", Step.prefill(1, 8192)).cache(BF16)["full"] == 1_073_741_824
    mixtral = counts("mixtral-8x7b", Step.forward(1, 1)).parameters()
    assert (mixtral.total, mixtral.active) == (46_702_792_704, 12_879_925_248)
    deepseek = counts("deepseek-v3", Step.forward(1, 2048))
    assert deepseek.parameters()[:3] == (671_026_404_352, 37_552_282_624, 36_625_603_584)
    assert 2 * deepseek.work().forward == 170_973_789_683_712
    assert counts("deepseek-v3", Step.prefill(1, 8192)).cache(BF16)["latent"] == 575_668_224
    assert counts("gemma-2-9b", Step.forward(1, 1)).parameters().total == 9_241_705_984
    qwen = counts("qwen3-30b-a3b", Step.forward(1, 1)).parameters()
    assert (qwen.total, qwen.active) == (30_532_122_624, 3_353_032_704)
    assert counts("gpt2", Step.forward(1, 1)).parameters().total == 124_439_808
    assert counts("bert-base", Step.forward(1, 1)).parameters().total == 109_514_298
    t5 = counts("t5-base", Step.prefill(1, 512))
    assert t5.parameters().total == 222_903_552
    assert sum(t5.cache(BF16).values()) == 37_748_736


def test_tied_and_untied_heads():
    tied = load("gpt2").budget(Step.forward(1, 1)).parameters()
    untied = load("gpt2", {"tie_word_embeddings": False}).budget(Step.forward(1, 1)).parameters()
    assert (tied.head, untied.head) == (0, 50257 * 768)
    assert untied.total - tied.total == 50257 * 768


@pytest.mark.parametrize(
    ("policy", "window", "context", "positions"),
    [
        ("minimal", 4, 9, 4), ("minimal", 4, 3, 3), ("transformers", 4, 9, 3), ("transformers", 4, 2, 2),
        ("transformers", 1, 9, 9), ("static", 4, 9, 4), ("unified", 4, 9, 9), ("minimal", None, 9, 9),
    ],
)  # fmt: skip
def test_what_a_window_layer_holds(policy, window, context, positions):
    assert held(context, window, policy) == positions


def test_one_more_token_costs_less_once_the_windows_are_full():
    """Gemma 2 9B: 42 layers of 2·8·256·2 bytes a token, of which 21 stop growing at 4096."""
    layer = 2 * 8 * 256 * 2
    for context, growing in [(4095, 42), (4096, 21), (100_000, 21)]:
        budget = load("gemma-2-9b").budget(Step.prefill(3, context))
        assert budget.cache_per_token(BF16) == growing * layer
        more = load("gemma-2-9b").budget(Step.prefill(3, context + 1))
        assert sum(more.cache(BF16).values()) - sum(budget.cache(BF16).values()) == 3 * growing * layer


def test_the_cross_cache_does_not_grow_with_the_context():
    here = load("t5-base").budget(Step.decode(1, 100, 37)).cache(BF16)
    there = load("t5-base").budget(Step.decode(1, 200, 37)).cache(BF16)
    assert there["full"] == 2 * here["full"]
    assert there["cross"] == here["cross"] == 12 * 2 * 12 * 64 * 37 * 2


def test_an_encoder_has_no_cache():
    assert sum(load("bert-base").budget(Step.prefill(1, 64)).cache(BF16).values()) == 0


@pytest.mark.parametrize("name", ["bert-base", "vit-base", "mixer-s32"])
@pytest.mark.parametrize("step", [Step.decode(2, 49), Step.prefill(2, 3, 49)], ids=["decode", "behind a cache"])
def test_what_needs_all_positions_at_once_does_not_decode(name, step):
    with pytest.raises(UndefinedError, match=r"all .*at once: nothing to decode from a cache"):
        load(name).budget(step)


@pytest.mark.parametrize("model", ["vit-base", "mixer-s32", "bert-base"])
def test_a_sweep_has_no_decoding_of_what_runs_at_once(model):
    found = CliRunner().invoke(main, ["sweep", model, "--quantity", "decode_flops", "--quantity", "flops", "--json"])
    (row,) = json.loads(found.stdout)["rows"]
    assert "nothing to decode" in row["refused"] and row["decode_flops"] is None and row["flops"] > 0


@pytest.mark.parametrize("name", ["vit-base", "mixer-s32"])
def test_a_length_that_is_set_leaves_a_whole_pass(name):
    """Whatever is said; but a step that decodes is none, of a single token neither."""
    model = load(name)
    for step in (Step.forward(2, 9), Step.prefill(2, 9), Step.train(2, 9)):
        assert model.fit(step).t == model.fit(step).s == model.fit(model.fit(step)).t == model.embedding.length
    with pytest.raises(UndefinedError, match="nothing to decode"):
        model.fit(Step.decode(2, 1))


def test_the_cost_of_a_layer_does_not_depend_on_how_many_there_are():
    shallow, deep = (load("llama-3-8b", {"num_hidden_layers": count}).budget(Step.train(1, 64)) for count in (3, 60_000))
    assert len(shallow.lines) == len(deep.lines)


def test_recomputing_whole_layers_runs_their_forward_again():
    plain = load("gpt2").budget(Step.train(1, 64))
    again = load("gpt2").budget(Step.train(1, 64), recompute="full")
    head = 64 * 768 * 50257
    assert again.work().recompute == plain.work().forward - head
    assert plain.work().recompute == 0
    assert again.activations(BF16).bytes < plain.activations(BF16).bytes


def test_flash_keeps_no_scores():
    math, flash = (load("llama-3-8b").budget(Step.train(1, 4096), Kernels(attention=k)) for k in ("math", "flash"))
    assert math.activations(BF16).bytes - flash.activations(BF16).bytes > 32 * 32 * 4096 * 4096


def test_an_unknown_dtype_is_refused():
    with pytest.raises(InputError, match="dtype 'fp7'"):
        widths("fp7")


def test_traffic_reads_each_weight_once():
    """One token through a linear map: at least its weights move, in two bytes each."""
    budget = load("llama-3-8b").budget(Step.decode(1, 1))
    assert budget.traffic(BF16) > 2 * (8_030_261_248 - 128256 * 4096)
