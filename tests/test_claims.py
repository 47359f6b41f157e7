"""The ledger of claims: its numbers against those worked out by hand, its verdicts, its experiments, its command."""

import json
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import pytest
import sympy
from click.testing import CliRunner

import blockcalc
from blockcalc.claims import FACTS, entries, entry, fact, feed_forward, judge
from blockcalc.claims.fact import Between, same
from blockcalc.cli import main
from blockcalc.errors import InputError
from blockcalc.tables.claims import ARTICLES, CLAIMS
from blockcalc.tables.claims.claim import Measured, about, at_least, at_most, equal, shown


@pytest.fixture(scope="module")
def ledger():
    return {one.claim.id: one for one in entries()}


def value(ledger, name, what):
    (found,) = (fact.value for fact in ledger[name].facts if fact.what == what)
    return found


# -- verdicts ----------------------------------------------------------------------------------------------------------

VERDICTS = {
    "holds": """
        qkv-identity value-span qk-norm-asymmetry positions learned-extrapolation rope-two-lines sin-bounded low-rank-head
        gqa-cache kv-tied kv-exact dynamic-cache three-paradigms ffn-gpt2 ffn-relu ffn-collapse per-position glu-12d2
        third-matrix palm-4d swiglu-8-3 shazeer-768 silu-min sigmoid-gate ffn-twice ratio-any-d ffn-two-layers quantise
        residual-count norm-params final-norm norm-share norm-independent rmsnorm-centre embedding-share depth-table depth-96
        head-dim scaling-width depth-knob nanochat mixer orders chinchilla block-512 stack-512 transformer-base block-768
        nanogpt-sizes dense-coupling moe-fine lora""",
    "holds if": """
        symmetric-score asymmetric-dof position-symmetry causal-half uniform-channels multihead-free cross-share qk-norm
        llama-width no-residual identity-layer postln-gradient residual-scale expert-utilisation""",
    "corrected": """
        pair-score symmetric-psd hadamard gqa-training kv-mqa-gqa-mla qk-half attention-linear permutation two-attn
        glu-unshrunk mistral-rounding qwen-8-3 swiglu-flops swiglu-activation activations se-net attn-ffn-ratio glu-not-swiglu
        gpt2-activation postln-stream deepnet albert same-blocks moe-mixtral moe-params moe-not-flops""",
    "not testable here": """
        extrapolation head-pruning bert-probing gate-statistics ppl-gain rmsnorm-time kaplan-shape warmup fine-tuning masking-15
        decoder-only memory sandwich""",
}


def test_every_verdict_is_the_one_its_reason_was_written_for(ledger):
    expected = {name: verdict for verdict, names in VERDICTS.items() for name in names.split()}
    assert {name: one.verdict for name, one in ledger.items()} == expected
    assert {name: claim.verdict for name, claim in CLAIMS.items()} == expected


def test_a_condition_is_named_where_a_verdict_depends_on_it():
    assert {name for name, claim in CLAIMS.items() if claim.condition} == set(VERDICTS["holds if"].split())


def test_every_claim_is_checked_or_says_that_it_cannot_be():
    for name, claim in CLAIMS.items():
        assert name in FACTS or claim.measured or claim.verdict == "not testable here", name
        assert re.match(r"D[123][ ,]", claim.where), claim.where
        assert claim.statement.endswith("."), claim.statement
        assert claim.reason.endswith((".", ".)")), claim.reason
    assert set(FACTS) <= set(CLAIMS)
    assert [article.name for article in ARTICLES] == ["D1", "D2", "D3"]


def test_a_wrong_engine_changes_the_verdicts(monkeypatch):
    right = feed_forward.form
    monkeypatch.setattr(feed_forward, "form", lambda *about, **sizes: 2 * right(*about, **sizes))
    for name in ("ffn-relu", "ffn-gpt2", "glu-12d2"):
        assert entry(name).verdict == "corrected", name


@pytest.mark.parametrize(("says", "verdict"), [
    (["for"], "holds"), (["for", "aside"], "holds"), (["aside"], "not testable here"), ([], "not testable here"),
    (["for", "against"], "corrected"), (["condition", "against"], "holds if"), (["condition", "for"], "holds if"),
    (["condition", "broken", "against"], "corrected"), (["broken"], "corrected"),
])  # fmt: skip
def test_judging(says, verdict):
    assert judge(says) == verdict


def test_what_cannot_be_tested_is_never_judged():
    assert judge(["against"], untestable=True) == "not testable here"


def test_a_printed_number_agrees_if_it_rounds_so():
    assert same(4_718_592, Decimal("4.7e6"))
    assert not same(12_879_925_248, Decimal("14e9"))
    assert same(Fraction(1, 1537), Decimal("0.0007"))  # 0.000651
    assert same(3, Between(2, 4))
    assert not same(Fraction(21, 5), Between(2, 4))
    x = sympy.Symbol("x")
    assert same(x * (x + 1), x**2 + x)
    assert fact.fact("y", 3, 4, condition=True).says == "broken"


# -- numbers -----------------------------------------------------------------------------------------------------------

B, C, D, E, F, H, K, L, M, N, P, R, S, T, U, A = (
    sympy.Symbol(letter, integer=True, positive=True) for letter in "BCDEFHKLMNPRSTUA"
)

FORMULAS = [
    ("qkv-identity", "parameters with W_O", D**2),
    ("asymmetric-dof", "free, a head h wide", 2 * D * H - H**2),
    ("asymmetric-dof", "tied, a head h wide", D * H - H * (H - 1) / 2),
    ("asymmetric-dof", "lost, a head h wide", D * H - H * (H + 1) / 2),
    ("causal-half", "pairs that the written-out product computes", T**2),
    ("positions", "vectors by distance on keys and values, m = 2c + 1 (Shaw), a layer", 2 * M * H),
    ("positions", "bias by bucket, m buckets (T5), once a stack of l layers", M * N),
    ("positions", "bias by offset, m = (2w − 1)² (Swin), in each of l layers", L * M * N),
    ("multihead-free", "elements of the softmax", B * N * T**2),
    ("gqa-cache", "share of that of n heads", K / N),
    ("kv-mqa-gqa-mla", "multi-head", 2 * N * H), ("kv-mqa-gqa-mla", "multi-query", 2 * H),
    ("kv-mqa-gqa-mla", "grouped-query", 2 * K * H), ("kv-mqa-gqa-mla", "latent", C + R),
    ("qk-half", "saved", D**2), ("kv-tied", "parameters saved", D**2),
    ("cross-share", "parameters that shared queries would save", D * H * (N - 1)),
    ("cross-share", "cache that shared keys and values save (bf16)", 2 * 2 * B * S * H * (N - 1)),
    ("two-attn", "parameters of the block", 12 * D**2), ("two-attn", "with two attentions", 16 * D**2),
    ("dynamic-cache", "alive while the next token is appended", 2 * 2 * B * K * H * (S + S + 1)),
    ("head-pruning", "parameters of each head", 4 * D * H),
    ("qk-norm", "parameters, a gain for the head's width", 2 * H), ("qk-norm", "parameters, over all heads", (N + K) * H),
    ("swiglu-flops", "multiply-adds of either", 8 * D**2), ("swiglu-flops", "plain, two a multiply-add", 16 * D**2),
    ("swiglu-activation", "kept with ReLU", 4 * D), ("swiglu-activation", "kept with GELU", 8 * D),
    ("swiglu-activation", "kept by SwiGLU", 4 * 8 * D / 3),
    ("swiglu-activation", "kept by SwiGLU, act and product in one kernel", 3 * 8 * D / 3),
    ("swiglu-activation", "the same, the product computed again", 2 * 8 * D / 3),
    ("ratio-any-d", "share of a block with norms", 2 * D / (3 * D + 1)),
    ("final-norm", "norms of l post-norm blocks", 2 * L),
    ("mixer", "more for each position", 2 * F + 1),
    ("moe-params", "parameters of the mixture", E * 3 * D * F + E * D), ("moe-params", "active ones", A * 3 * D * F + E * D),
    ("moe-params", "FLOPs", 2 * B * T * (A * 3 * D * F + E * D)),
    ("lora", "trained, q and v", R * (D + N * H) + R * (D + K * H)),
    ("lora", "trained, the feed-forward's three", 3 * R * (D + F)),
    ("dense-coupling", "FLOPs a token of the scores, which have no parameters", 2 * 2 * D * T),
]  # fmt: skip


@pytest.mark.parametrize(("name", "what", "expected"), FORMULAS, ids=lambda part: part if isinstance(part, str) else "")
def test_closed_forms(ledger, name, what, expected):
    assert value(ledger, name, what) == blockcalc.claims.fact.text(sympy.factor(expected))


NUMBERS = [
    # 64·(2·768 − 64 − 1)/2
    ("asymmetric-dof", "lost by one of GPT-2's heads", 64 * 1471 // 2),
    ("multihead-free", "n·h of qwen3-0.6b, d = 1024", 16 * 128), ("multihead-free", "n·h of gemma-7b, d = 3072", 16 * 256),
    ("gqa-cache", "share with 32 heads in 4 groups", Fraction(1, 8)),
    ("gqa-training", "rows of W_K in mistral-7b, n·h = 4096", 8 * 128),
    ("kv-mqa-gqa-mla", "latent, DeepSeek-V3", 512 + 64),
    ("kv-mqa-gqa-mla", "the same expanded to keys and values of every head", 128 * (128 + 64 + 128)),
    ("kv-mqa-gqa-mla", "year of latent attention", 2024),
    ("qk-half", "share of the attention", Fraction(1, 4)), ("qk-half", "share of a block with f = 4d", Fraction(1, 12)),
    ("two-attn", "their ratio", Fraction(16, 12)),
    ("two-attn", "ratio of the parameters with two feed-forwards", Fraction(20, 12)),
    ("head-pruning", "parameters of 38 heads of a Transformer base", 38 * 4 * 512 * 64),
    ("ffn-gpt2", "without biases", 2 * 768 * 3072), ("ffn-gpt2", "with biases", 2 * 768 * 3072 + 3072 + 768),
    ("palm-4d", "hidden width", 73728), ("glu-unshrunk", "times the attention", 3),
    # ⌈10922.67/256⌉ = 43
    ("swiglu-8-3", "that width at d = 4096, rounded up to a multiple of 256", 43 * 256),
    ("swiglu-8-3", "its parameters in d²", Fraction(3 * 11008, 4096)),  # 8.0625
    ("llama-width", "LLaMA-7B", Fraction(11008, 4096)),
    ("shazeer-768", "plain", 2 * 768 * 3072), ("shazeer-768", "gated", 3 * 768 * 2048),
    ("mistral-rounding", "in units of d", Fraction(7, 2)),
    ("qwen-8-3", "qwen2-7b", Fraction(18944, 3584)), ("qwen-8-3", "qwen3-8b", 3),
    ("activations", "year of Swish, arXiv:1710.05941", 2017), ("silu-min", "slope at 0", Fraction(1, 2)),
    # 3·14336·4096 to 2·4096·128·(32 + 8)
    ("attn-ffn-ratio", "mistral-7b", Fraction(21, 5)), ("attn-ffn-ratio", "llama-3-8b", Fraction(21, 5)),
    # 3·28672·8192 to 2·8192·128·(64 + 8); 3·24576·3072 to 4·3072·4096
    ("attn-ffn-ratio", "llama-3-70b", Fraction(14, 3)), ("attn-ffn-ratio", "gemma-7b", Fraction(9, 2)),
    # the biases of Q, K and V beside 2·3584·128·(28 + 4) and 2·8192·128·(64 + 8)
    ("attn-ffn-ratio", "qwen2-7b", Fraction(3 * 18944 * 3584, 2 * 3584 * 128 * 32 + 128 * (28 + 4 + 4))),
    ("attn-ffn-ratio", "qwen2.5-72b", Fraction(3 * 29568 * 8192, 2 * 8192 * 128 * 72 + 128 * (64 + 8 + 8))),
    ("ffn-two-layers", "times the attention", 4), ("gpt2-activation", "activation of gpt2", "gelu"),
    ("quantise", "share of the feed-forwards", Fraction(32 * 3 * 14336 * 4096, 8_030_261_248)),  # 70.2%
    ("quantise", "share of the embedding and the head", Fraction(2 * 128256 * 4096, 8_030_261_248)),  # 13.1%
    ("norm-share", "share at d = 512", Fraction(1, 3 * 512 + 1)), ("deepnet", "parameters added to a block of two branches", 0),
    ("final-norm", "norms of GPT-2", 25), ("final-norm", "norms of LLaMA-7B", 65),
    ("depth-96", "by 12d² a layer at d = 12288", 96 * 12 * 12288**2), ("depth-96", "parameters of gpt3-175b", 174_604_259_328),
    # twelve layers of 4·768² + 2·768·3072 + 9·768 + 3072 = 7,087,872; 97,798,656 saved in all
    ("albert", "saved in all", Fraction(109_482_240 - 11_683_584, 109_482_240)),  # 89.3%
    ("albert", "saved by sharing alone, of the model", Fraction(11 * 7_087_872, 109_482_240)),  # 71.2%
    ("albert", "sharing's part of the saving", Fraction(11 * 7_087_872, 97_798_656)),  # 79.7%
    ("albert", "of the encoder", Fraction(11, 12)),  # 91.7%
    ("orders", "20 over 1/20", 400), ("chinchilla", "FLOPs by 6ND", 6 * 70 * 1400 * 10**18),  # 5.88e23
    ("depth-knob", "nanochat-d32, v = 65536", 12 * 32 * 2048**2 + 2 * 65536 * 2048),
    ("nanochat", "kinds of scalar parameters", 4), ("nanochat", "activation", "relu_squared"),
    ("block-512", "block", 4 * 512**2 + 2 * 512 * 2048 + 4 * 512), ("stack-512", "six blocks", 6 * 3_147_776),
    # biases: 4·512 of attention, 2048 + 512 of the feed-forward
    ("block-512", "with all biases", 3_147_776 + 4 * 512 + 2048 + 512), ("stack-512", "embedding of 32,000", 32_000 * 512),
    ("transformer-base", "12 layers", (6 * 12 + 6 * 16) * 512**2), ("transformer-base", "embedding of 37,000", 37_000 * 512),
    # biases 12·2560 + 18·4·512, norms (12 + 18)·2·512
    ("transformer-base", "biases and norms besides", 12 * 2560 + 18 * 2048 + 30 * 1024),
    ("block-768", "feed-forward", 2 * 768 * 3072),
    ("block-768", "W_Q, W_K and W_V", 3 * 768**2), ("block-768", "with W_O", 4 * 768**2),
    # 4·512² + 4·512 + 2·512
    ("same-blocks", "parameters that the encoder-decoder's decoder block has more", 4 * 512**2 + 6 * 512),
    # layers 32·(2·4096·128·40 + 4096·8 + 8·3·4096·14336 + 2·4096), tables 2·32000·4096, norm 4096
    ("moe-mixtral", "parameters", 32 * (41_943_040 + 32_768 + 24 * 4096 * 14336 + 8192) + 64_000 * 4096 + 4096),
    ("moe-mixtral", "active", 32 * (41_943_040 + 32_768 + 6 * 4096 * 14336 + 8192) + 64_000 * 4096 + 4096),
    ("moe-mixtral", "eight times Mistral-7B", 8 * 7_241_732_096), ("moe-mixtral", "twice Mistral-7B", 14_483_464_192),
    ("moe-params", "Mixtral over Mistral-7B", Fraction(46_702_792_704, 7_241_732_096)),  # 6.45
    ("moe-params", "active over Mistral-7B", Fraction(12_879_925_248, 7_241_732_096)),  # 1.78
    ("moe-fine", "parameters of DeepSeek-V2", 235_741_434_880), ("moe-fine", "active", 21_375_800_320),
    ("expert-utilisation", "DeepSeek-V3, stored", 671_026_404_352),
    ("expert-utilisation", "DeepSeek-V3, active", 37_552_282_624),
    ("expert-utilisation", "active without the input table, the model card's 37B", 37_552_282_624 - 129_280 * 7168),
    ("moe-not-flops", "at batch 8", 8 * (1 - Fraction(3, 4) ** 8)),  # 7.199
    ("lora", "Llama-3-8B, rank 16 on q and v", 32 * 16 * (4096 + 4096 + 4096 + 1024)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "what", "expected"), NUMBERS, ids=lambda part: part if isinstance(part, str) else "")
def test_numbers(ledger, name, what, expected):
    found = value(ledger, name, what)
    assert found == expected
    assert not isinstance(found, float)


def test_figures_that_reasons_print(ledger):
    assert f"{float(value(ledger, 'silu-min', 'least value')):.9f}" == "-0.278464543"
    assert f"{float(value(ledger, 'orders', 'orders of magnitude')):.1f}" == "2.6"
    for name, share in (("qwen2.5-72b", "4.81"), ("qwen2-7b", "6.94"), ("llama-7b", "2.02")):
        assert f"{float(value(ledger, 'attn-ffn-ratio', name)):.2f}" == share


def test_presets_that_are_out_of_the_ordinary_are_named(ledger):
    assert {"gemma-2b 256", "deepseek-v3 192"} <= set(value(ledger, "head-dim", "the others").split(", "))
    assert "gpt2-medium 43" in value(ledger, "kaplan-shape", "the others").split(", ")
    assert value(ledger, "head-dim", "presets") == len(blockcalc.tables.presets())


# -- experiments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.measured])
def test_torch_finds_what_is_expected(name):
    from blockcalc.refmodel.claims import measure

    found = measure(name)
    for one, number in zip(CLAIMS[name].measured, found, strict=True):
        assert one.agrees(number), (one.what, one.expected, number)


def test_experiments_are_the_same_in_every_run():
    import torch

    from blockcalc.refmodel.claims import EXPERIMENTS, measure

    before = torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed()
    assert measure("pair-score") == measure("pair-score")
    assert before == (torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed())
    assert set(EXPERIMENTS) == {name for name, claim in CLAIMS.items() if claim.measured}


@pytest.mark.parametrize(("one", "right", "wrong"), [
    (equal("x", 3), 3, 3.1), (about("x", 1, 0.1), 1.05, 1.2), (at_most("x", 0.5), 0.4, 0.6), (at_least("x", 0.5), 0.6, 0.4),
    (at_most("x", 1e-12), 0, float("nan")),
])  # fmt: skip
def test_an_expectation_can_fail(one, right, wrong):
    assert one.agrees(right)
    assert not one.agrees(wrong)


def test_a_time_is_only_shown():
    assert shown("x").agrees(123)


# -- the command -------------------------------------------------------------------------------------------------------


def run(*words):
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, ["claims", *words], prog_name="blockcalc")


def test_the_list():
    result = run()
    assert result.exit_code == 0
    for name in CLAIMS:
        assert f" {name} " in result.stdout
    assert "author kailfrong" in result.stdout


def test_json():
    found = json.loads(run("--json").stdout)
    assert [article["name"] for article in found["articles"]] == ["D1", "D2", "D3"]
    assert [one["id"] for one in found["claims"]] == list(CLAIMS)
    keys = {"id", "where", "statement", "verdict", "reason", "formula", "value", "measured"}
    assert all(keys <= set(one) for one in found["claims"])


@pytest.mark.parametrize("form", ["--csv", "--markdown"])
def test_other_forms(form):
    lines = run(form).stdout
    assert "swiglu-flops" in lines
    assert "corrected" in run("swiglu-flops", form).stdout


def test_one_in_full():
    text = run("swiglu-8-3").stdout
    assert "8·D/3" in text
    assert "11,008" in text
    (one,) = json.loads(run("swiglu-8-3", "--json").stdout)["claims"]
    assert (one["formula"], one["verdict"]) == ("8·D/3", "holds")


def test_verify_fills_in_what_torch_finds():
    result = run("gqa-cache", "--verify", "--json")
    assert result.exit_code == 0
    (one,) = json.loads(result.stdout)["claims"][0]["measured"]
    assert (one["value"], one["agrees"]) == (8.0, True)


def test_verify_exits_with_1_where_torch_differs(monkeypatch):
    monkeypatch.setattr("blockcalc.refmodel.claims.measure", lambda name: (7.0,))
    assert run("gqa-cache", "--verify").exit_code == 1
    assert json.loads(run("gqa-cache", "--verify", "--json").stdout)["claims"][0]["measured"][0]["agrees"] is False


def test_an_unknown_claim_is_refused():
    result = run("swiglu")
    assert result.exit_code == 2
    assert "no such claim; did you mean swiglu-" in result.stderr
    with pytest.raises(InputError):
        entry("no-claim")


def test_without_torch_verify_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\nfrom blockcalc.cli import main\nmain(['claims', 'gqa-cache', '--verify'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == "blockcalc: claims --verify needs torch: pip install 'blockcalc[verify]'\n"
    assert result.stdout == ""


def test_measured_is_a_tuple_of_what_torch_must_find():
    assert all(isinstance(one, Measured) for claim in CLAIMS.values() for one in claim.measured)
