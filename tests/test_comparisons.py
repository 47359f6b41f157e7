"""The numbers of the comparison tables: against the commands, the configs' own fields, hand-made products, published figures,
and the tables of the three articles (``blockcalc.tables.claims.ARTICLES`` gives their titles)."""

from fractions import Fraction
from functools import cache
from itertools import combinations, product

import pytest

from blockcalc import CONVENTIONS, Step, flops, load, trace, widths
from blockcalc.catalogue import BLOCKS
from blockcalc.comparisons import TITLES, Asked, comparison, draw
from blockcalc.comparisons.mixtures import touched
from blockcalc.tables import presets
from blockcalc.tables.claims import ARTICLES
from blockcalc.tables.table import as_object

drawn = cache(draw)


def rows(name, index=0, asked=None):
    """A table's rows by their first column's text."""
    table = (drawn(name) if asked is None else draw(name, asked))[index]
    return {row[0]: dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows}


def takes(name):
    return comparison(name).takes


# -- attention ---------------------------------------------------------------------------------------------------------

D, N, K, H, W, S = 4096, 32, 8, 128, 4096, 8192

BY_HAND = {  # weights, elements cached of a token
    "multi-head": (4 * D * N * H, 2 * N * H),
    "grouped-query": (2 * D * N * H + 2 * D * K * H, 2 * K * H),
    "multi-query": (2 * D * N * H + 2 * D * H, 2 * H),
    "multi-head, window": (4 * D * N * H, 2 * N * H),
    # down to the latents and their norms, up to keys, values and queries, and out
    "latent": (D * (512 + 64 + 1536) + 512 + 1536 + 512 * N * (128 + 128) + 1536 * N * (128 + 64) + N * 128 * D, 512 + 64),
    "linear": (4 * D * N * H, 0),
    "W_Q = W_K": (3 * D * N * H, 2 * N * H),
    "W_K = W_V": (3 * D * N * H, N * H),
    "W_Q = W_K = W_V": (2 * D * N * H, N * H),
    "cross": (4 * D * N * H, 2 * N * H),
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_parameters_and_cache_of_attention_by_hand(kind):
    row, (parameters, cached) = rows("attention")[kind], BY_HAND[kind]
    assert row["parameters"] == parameters
    assert row["cache of a token"] == 2 * cached
    assert row["cache"] == 2 * cached * (W if kind == "multi-head, window" else S)


def test_flops_of_attention_by_hand():
    found = rows("attention")
    # projections, then scores and mixing over all pairs; two a multiply-add
    assert found["multi-head"]["FLOPs"] == 2 * (S * 4 * D * N * H + 2 * S * S * N * H)
    assert found["grouped-query"]["FLOPs"] == 2 * (S * 2 * D * H * (N + K) + 2 * S * S * N * H)
    assert found["multi-head, window"]["FLOPs to decode"] == 2 * (4 * D * N * H + 2 * W * N * H)
    assert found["multi-head, window"]["FLOPs"] == found["multi-head"]["FLOPs"]  # torch's convention has no window


@pytest.mark.parametrize(
    "kind,block", [("multi-head", "mha"), ("multi-query", "mqa"), ("latent", "mla"), ("latent, absorbed", "mla-absorbed"),
                   ("linear", "linear-attention"), ("W_Q = W_K", "tied-qk"), ("cross", "cross-attention")],
)  # fmt: skip
def test_a_kind_is_its_block(kind, block):
    sizes = takes("attention").sizes
    component, d = BLOCKS[block].build({letter: sizes[letter] for letter in BLOCKS[block].sizes})
    row = rows("attention")[kind]
    assert row["parameters"] == trace(component, Step.forward(1, 1), d).parameters().total
    assert row["FLOPs"] == flops(trace(component, Step.forward(1, S), d)).forward
    assert row["kept, math"] == trace(component, Step.train(1, S), d).activations(widths("bf16")).bytes


def value_of(formula, sizes):
    """What a formula of ours is at these sizes."""
    code = formula.replace("·", "*").replace("²", "**2")
    return eval(code, {"__builtins__": {}, "min": min}, {letter.upper(): size for letter, size in sizes.items()})


@pytest.mark.parametrize("name,symbolic", [("attention", 1), ("feed-forward", 2)])
def test_a_formula_gives_the_number_that_stands_in_its_place(name, symbolic):
    asked = takes(name)
    steps = {"b": 1, "t": asked.seq, "s": asked.context} if name == "attention" else {}
    formulas = rows(name, symbolic)
    assert len(formulas) > 6
    for kind, row in formulas.items():
        for quantity, formula in list(row.items())[1:]:
            number = rows(name)[kind][quantity]
            assert number == (None if formula is None else value_of(formula, {**asked.sizes, **steps})), (kind, quantity)


def test_flash_keeps_no_pairs_and_is_undefined_for_latents():
    found = rows("attention")
    assert {kind for kind, row in found.items() if row["kept, flash"] is None} == {"latent", "latent, absorbed"}
    assert {kind for kind, row in found.items() if row["kept, fused"] is None} == {"latent, absorbed"}
    for kind in found.keys() - {"latent", "latent, absorbed", "linear"}:
        assert found[kind]["kept, flash"] < found[kind]["kept, math"]
    notes = drawn("attention")[0].notes
    assert any("keys are 192 wide and values 128" in note for note in notes)


# -- feed-forward, norms, positions, paradigms -------------------------------------------------------------------------


def test_what_norms_have():
    d, l, norms = 768, 12, rows("norms")
    assert [row["parameters"] for row in norms.values()] == [2 * d, d, d, 0]
    assert norms["LayerNorm"]["kept"] == 1024 * (2 * d + 2 + 2)  # input, mean, 1/std, all in bf16
    stacks = rows("norms", 1)
    for norm, own in (("LayerNorm", 2 * d), ("RMSNorm", d)):
        of_norms = {wiring: row["of the norms"] for wiring, row in stacks.items() if wiring.endswith(f", {norm}")}
        # two a block; before them all and behind, four; one that serves both branches; a final one but for post-norm
        assert list(of_norms.values()) == [own * count for count in (2 * l, 2 * l + 1, 4 * l + 1, 2 * l + 1, l + 1, 2 * l + 1)]
    assert stacks["none"]["parameters"] == l * 12 * d**2
    for row in stacks.values():
        assert row["parameters"] - row["of the norms"] == l * 12 * d**2
        assert row["over all"] == Fraction(row["of the norms"], row["parameters"])


def test_what_positions_add():
    d, n, h, l, t, found = 768, 12, 64, 12, 1024, rows("positions")
    assert {way: row["parameters"] for way, row in found.items()} == {
        "none": 0, "sinusoidal": 0, "learned": 1024 * d, "relative keys and values (Shaw)": l * 2 * 33 * h,
        "bias by bucket, once a stack (T5)": 32 * n, "bias by bucket, in each layer": l * 32 * n, "ALiBi": 0, "rotary": 0,
    }  # fmt: skip
    assert {way: row["buffers"] for way, row in found.items() if row["buffers"]} == {
        "sinusoidal": 2 * t * d, "ALiBi": 2 * n * t, "rotary": 2 * 2 * t * h // 2,
    }  # fmt: skip
    assert {way: row["FLOPs"] for way, row in found.items() if row["FLOPs"]} == {
        "relative keys and values (Shaw)": 2 * 2 * l * n * t * t * h,
    }  # fmt: skip
    assert {way: row["longest"] for way, row in found.items() if row["longest"]} == {"learned": 1024}


def test_paradigms_by_hand():
    d, l, v, found = 512, 6, 37000, rows("paradigms")
    encoder, decoder, deep, both = found.values()
    assert encoder["parameters"] == decoder["parameters"] == v * d + l * (12 * d**2 + 4 * d) + 2 * d
    assert deep["parameters"] == decoder["parameters"] + l * (12 * d**2 + 4 * d)
    assert both["parameters"] == v * d + l * (12 * d**2 + 4 * d) + l * (16 * d**2 + 6 * d) + 4 * d
    assert encoder["FLOPs"] == decoder["FLOPs"]
    assert encoder["FLOPs"] - decoder["FLOPs, visible pairs"] == 2 * 2 * l * d * (512 * 511 // 2)
    assert (encoder["cache"], decoder["cache"], both["cache"]) == (0, l * 2 * 2 * d * 512, 2 * l * 2 * 2 * d * 512)
    assert both["one more token"] == decoder["one more token"]  # the source grows no more


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["models", "mixtures"])
def test_totals_are_those_that_transformers_counts(name):
    for model, row in rows(name).items():
        assert row["parameters" if name == "models" else "total"] == presets()[model]["parameters"]


PUBLISHED = {  # KB of cache a token, bf16: DeepSeek-AI 2025, Insights into DeepSeek-V3, arXiv:2505.09343, table 1
    "deepseek-v3": 70_272, "llama-3.1-405b": 516_096, "qwen2.5-72b": 327_680,
}  # fmt: skip


@pytest.mark.parametrize("model", PUBLISHED)
def test_cache_of_a_token_as_published(model):
    row = rows("kv", 0, Asked(models=(model,), contexts=(4096,)))[model]
    assert row["first token"] == row["token after 4,096"] == PUBLISHED[model]
    assert row["at 4,096"] == 4096 * PUBLISHED[model]


def test_windows_bend_the_cache():
    found = rows("kv")
    for model, row in found.items():
        config = presets()[model]["config"]
        straight = row["first token"] * 2048 == row["at 2,048"]
        assert straight or config.get("sliding_window", 2048) < 2048
    gemma = found["gemma-2-9b"]  # every other of 42 layers has a window of 4,096; 8 heads of 256
    assert gemma["token after 1,048,576"] == 21 * 2 * 2 * 8 * 256
    assert gemma["at 8,192"] == 21 * 2 * 2 * 8 * 256 * (8192 + 4096)
    assert found["mistral-7b"]["at 1,048,576"] == found["mistral-7b"]["at 4,096"]


def test_shapes_are_those_of_the_configs():
    fields = {
        "layers l": ("num_hidden_layers", "n_layer", "num_layers"), "width d": ("hidden_size", "n_embd", "d_model"),
        "heads n": ("num_attention_heads", "n_head", "num_heads"),
    }  # fmt: skip
    for model, row in rows("shapes").items():
        config = presets()[model]["config"]
        for column, names in fields.items():
            said = [config[name] for name in names if name in config]
            assert said == [row[column]] or (model, said) == ("transformer-base", []), (model, column)
        assert row["d/l"] == Fraction(row["width d"], row["layers l"])
        assert row["feed-forward/attention"] == Fraction(row["feed-forward"], row["attention"])
    deepseek = rows("shapes")["deepseek-v3"]
    assert (deepseek["hidden f"], deepseek["f/d"], deepseek["head width h"]) == ("18,432, 2,048", None, 192)


def test_experts_touched_by_counting_all_outcomes():
    for e, a, tokens in ((4, 1, 3), (4, 2, 2), (5, 3, 2), (3, 3, 2), (6, 2, 1)):
        choices = list(combinations(range(e), a))
        outcomes = list(product(choices, repeat=tokens))
        mean = Fraction(sum(len(set().union(*outcome)) for outcome in outcomes), len(outcomes))
        assert touched(e, a, tokens) == mean


def test_experts_are_those_of_the_configs():
    for model, row in rows("mixtures").items():
        config = presets()[model]["config"]
        e = {config[name] for name in ("num_local_experts", "num_experts", "n_routed_experts") if name in config}
        assert e == {row["experts e"]}
        assert row["active a"] == config["num_experts_per_tok"]
        touches = list(rows("mixtures", 1)[model].values())[1:]
        assert touches[0] == row["active a"]
        assert touches == sorted(touches)
        assert touches[-1] < row["experts e"]


def test_conventions_as_their_authors_write_them():
    (v, d, l, s), total = (50257, 12288, 96, 2048), 174_604_259_328
    found = {name: row["FLOPs"] for name, row in rows("conventions").items()}
    assert set(found) == set(CONVENTIONS)
    assert found["megatron-2021"] == 96 * s * l * d**2 * (1 + Fraction(s, 6 * d) + Fraction(v, 16 * l * d))
    assert found["megatron-2022"] == 72 * s * l * d**2 * (1 + Fraction(s, 6 * d) + Fraction(v, 12 * l * d))
    assert found["palm"] == s * (6 * total + 12 * l * d * s)
    assert found["nanogpt"] == s * (6 * (total - 2048 * d) + 12 * l * d * s)
    assert found["kaplan"] == s * 6 * (total - v * d - 2048 * d)


def test_a_convention_that_is_not_defined_is_blank_and_says_why():
    deepseek = drawn("conventions")[1]
    blank = {row[0] for row in deepseek.rows if row[1] is None}
    assert blank == {"palm", "kaplan", "chinchilla", "megatron-2021", "megatron-2022", "nanogpt"}
    for name in blank:
        assert sum(note.startswith(f"blank: {name}: defined for dense models") for note in deepseek.notes) == 1


def test_the_main_totals_are_those_of_the_commands():
    model = load("gemma-2-9b")
    row = rows("models")["gemma-2-9b"]
    assert row["FLOPs"] == flops(model.budget(Step.train(1, 2048))).total
    assert row["activations"] == model.budget(Step.train(1, 2048)).activations(widths("bf16")).bytes
    assert row["KV cache"] == sum(model.budget(Step.prefill(1, 8192)).cache(widths("bf16")).values())


# -- the articles' own tables ------------------------------------------------------------------------------------------
# D1, D2 and D3 are in the order of ARTICLES; each test names the article's section and says where its figure is wrong.


def test_the_articles_are_the_ones_meant():
    assert [article.name for article in ARTICLES] == ["D1", "D2", "D3"]
    assert [article.author for article in ARTICLES] == ["kailfrong", "not named", "not named"]


def test_d1_7_5_parameters_of_feed_forwards():
    """ReLU 8d² at 4d, GLU 12d² at 4d, SwiGLU 8d² at 8d/3; LLaMA rounds 4096's up to 11008 by 256. All of it holds."""
    wide = rows("feed-forward")
    assert (wide["ReLU"]["f/d"], wide["ReLU"]["parameters in d²"]) == (4, 8)
    assert (wide["GLU (sigmoid)"]["f/d"], wide["GLU (sigmoid)"]["parameters in d²"]) == (4, 12)
    exact = rows("feed-forward", 1, Asked(sizes={"d": 3072, "f": 4 * 3072, "multiple": 1}))
    assert (exact["SwiGLU (SiLU)"]["f/d"], exact["SwiGLU (SiLU)"]["parameters in d²"]) == (Fraction(8, 3), 8)
    assert rows("feed-forward", 1)["SwiGLU (SiLU)"]["hidden width f"] == 11008


def test_d1_7_7_flops_of_feed_forwards():
    """It prints 8d² FLOPs a token for both: those are multiply-adds, FLOPs are 16d². That both are equal holds."""
    d, exact = 3072, rows("feed-forward", 1, Asked(sizes={"d": 3072, "f": 4 * 3072, "multiple": 1}))
    assert exact["ReLU"]["FLOPs of a token"] == exact["SwiGLU (SiLU)"]["FLOPs of a token"] == 2 * 8 * d**2


def test_d1_7_8_memory_of_feed_forwards():
    """It prints hidden tensors of 4d and 2.67d and concludes that SwiGLU saves memory. One tensor is smaller, but a gated
    network keeps four of them where ReLU keeps one: 32d/3 elements against 4d, besides the input."""
    d, exact = 3072, rows("feed-forward", 1, Asked(sizes={"d": 3072, "f": 4 * 3072, "multiple": 1}))
    kept = {name: Fraction(row["kept of a token"], 2) - d for name, row in exact.items()}
    assert kept["ReLU"] == 4 * d
    assert kept["GELU"] == 8 * d
    assert kept["SwiGLU (SiLU)"] == Fraction(32 * d, 3)
    assert exact["SwiGLU (SiLU)"]["hidden width f"] < exact["ReLU"]["hidden width f"]


def test_d1_1_5_cache_of_grouped_heads():
    """32 query heads in 4 key-value groups cache an eighth. It holds."""
    found = rows("attention", 0, Asked(sizes={"k": 4}, seq=64))
    assert found["multi-head"]["cache of a token"] == 8 * found["grouped-query"]["cache of a token"]


def test_d1_9_1_and_9_5_depth_width_heads():
    """Blocks of GPT-2 and LLaMA; from LLaMA's smallest to its largest 32 to 80 blocks, 4096 to 8192, 32 to 64 heads. It
    holds; its largest LLaMA is of 70B, which is Llama 2's."""
    found = rows("shapes")
    printed = {"gpt2": 12, "gpt2-medium": 24, "gpt2-large": 36, "llama-7b": 32, "llama-2-70b": 80}
    assert {model: found[model]["layers l"] for model in printed} == printed
    small, large = found["llama-7b"], found["llama-65b"]
    assert [(small[c], large[c]) for c in ("layers l", "width d", "heads n")] == [(32, 80), (4096, 8192), (32, 64)]


def test_d1_8_3_feed_forward_over_attention():
    """It prints 1 : 2 for 4d² against 8d², and 1 : 2 to 1 : 4 for LLaMA, Mistral, Qwen. The first holds, the second where heads
    are not grouped: with fewer key-value heads the attention is smaller."""
    found = {model: row["feed-forward/attention"] for model, row in rows("shapes").items()}
    assert round(found["gpt2"], 2) == round(found["gpt3-175b"], 2) == 2
    assert Fraction(2) < found["llama-7b"] < Fraction(203, 100)
    outside = {model: round(float(found[model]), 2) for model in ("mistral-7b", "llama-3-70b", "qwen2.5-72b", "qwen2-7b")}
    assert outside == {"mistral-7b": 4.2, "llama-3-70b": 4.67, "qwen2.5-72b": 4.81, "qwen2-7b": 6.94}


def test_d1_9_4_mixtral():
    """It prints 8 × 7B ≈ 47B in all, which holds to two digits because attention is shared, and 2 × 7B = 14B active, which
    counts the attention twice: 12.88B are."""
    row = rows("mixtures")["mixtral-8x7b"]
    assert round(row["total"], -9) == 47 * 10**9
    assert round(row["active"], -7) == 12_880_000_000
    assert row["active"] < 14 * 10**9 < 2 * presets()["mistral-7b"]["parameters"]


def test_d2_6_where_the_parameters_are():
    """A block 512 wide: 1,048,576 of attention, 2,097,152 of feed-forward, 2,048 of norms, 3,147,776 in all; six of them
    18,886,656; 12d² and 16d² a layer, about 44M in 12 and 63M with the table. All of it holds, biases aside."""
    found = rows("paradigms")
    encoder, both = found["encoder (BERT)"], found["encoder-decoder (Transformer, T5)"]
    assert encoder["a block's"] == 1_048_576 + 2_097_152 + 2_048 == 3_147_776
    assert 6 * encoder["a block's"] == 18_886_656
    blocks = 6 * (encoder["a block's"] + both["a block's"])
    assert round(blocks, -6) == 44 * 10**6
    assert round(both["parameters"], -6) == 63 * 10**6


def test_d3_9_three_paradigms():
    """It says that all three are built of the very same block. Those of an encoder and a decoder are; an encoder-decoder's
    decoder block has cross-attention and a norm besides, 4d² + 2d without biases, and a cache of its own."""
    d, found = 512, rows("paradigms")
    block = {name: row["a block's"] for name, row in found.items()}
    assert block["encoder (BERT)"] == block["decoder (GPT)"]
    assert block["encoder-decoder (Transformer, T5)"] - block["decoder (GPT)"] == 4 * d**2 + 2 * d


def test_d3_6_four_generations_of_positions():
    """Sinusoids are not learned, a learned table bounds the length, rotation adds nothing to the input. All of it holds."""
    found = rows("positions")
    assert found["sinusoidal"]["parameters"] == found["rotary"]["parameters"] == 0
    assert [way for way, row in found.items() if row["longest"] is not None] == ["learned"]


def test_every_table_is_complete():
    for name in TITLES:
        for table in drawn(name):
            found = as_object(table)
            assert found["rows"]
            assert len({column["name"] for column in found["columns"]}) == len(found["columns"])
