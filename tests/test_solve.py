"""Formulas the other way round: closed forms derived here by hand, whole numbers confirmed by the Budget on both sides."""

from functools import cache

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import blockcalc
from blockcalc import InputError, Step, flops, load, solve, widths
from blockcalc.blocks.attention import Attention
from blockcalc.catalogue import BLOCKS
from blockcalc.dims import symbol
from blockcalc.inverse.signs import NotPiecewise, signs
from blockcalc.model import trace
from blockcalc.readers.families import FAMILIES

D, F, H, N, T = map(symbol, "DFHNT")
GIB = 2**30


def kv_bytes(model, batch, context, policy="minimal"):
    return sum(load(model).budget(Step.prefill(batch, context)).cache(widths("bf16"), policy).values())


# -- closed forms ------------------------------------------------------------------------------------------------------


def closed(*words, **options):
    (form,) = solve(*words, **options).closed
    return form.relation, form.expr


def test_a_gated_feed_forward_equals_a_plain_one_of_4d_at_8d_over_3():
    # 3·d·f = 2·d·4d
    found = solve("params = params(mlp, f=4d)", "f", "gated-mlp")
    assert [(form.relation, form.expr, form.text()) for form in found.closed] == [("=", 8 * D / 3, "8·D/3")]
    assert (found.left, found.right, found.answers, found.answer) == ("3·D·F", "8·D²", (), None)


@pytest.mark.parametrize(("parts", "expected"), [
    ("scores, mix", 4 * D),  # 2·2·b·t²·d against 2·b·t·8d²
    ("attention", 2 * D),  # and 2·b·t·4d² of the projections
])  # fmt: skip
def test_where_attention_overtakes_a_feed_forward_of_4d(parts, expected):
    assert closed(f"flops[{parts}] >= flops[mlp]", "seq", "pre-norm", sizes={"f": "4d"}) == (">=", expected)
    d = 8 * 7
    block, _ = BLOCKS["pre-norm"].build({"d": d, "n": 7, "f": 4 * d})
    names = parts.split(", ")
    for length, sign in [(expected.subs(D, d) - 1, -1), (expected.subs(D, d), 0), (expected.subs(D, d) + 1, 1)]:
        lines = trace(block, Step.forward(3, int(length)), d).lines
        work = [
            sum(line.pairs * line.forward for line in lines if set(wanted) & set(line.path.split(".")))
            for wanted in (names, ["mlp"])
        ]
        assert (work[0] > work[1]) - (work[0] < work[1]) == sign


def test_where_attention_overtakes_a_gated_feed_forward_whatever_the_heads():
    # 4·b·l·n·h·t² against 6·b·l·t·d·f
    assert closed("flops[scores, mix] = flops[mlp]", "t", family="llama") == ("=", 3 * D * F / (2 * H * N))


def test_width_of_a_budget_of_parameters_at_a_fixed_ratio_of_width_to_depth():
    # d/128 layers of 4·d² and 2·d·4d: 12·d³/128 parameters without the norms
    tied = {"l": "d/128", "f": "4d", "h": "d/n", "k": "n"}
    found = solve("params[attention, mlp] = 7e9", "d", family="mpt", sizes=tied)
    assert [(form.relation, form.expr) for form in found.closed] == [("=", sympy.root(sympy.Rational(7 * 10**9 * 128, 12), 3))]
    (answer,) = found.answers
    assert [choice.at for choice in answer.choices] == [4096, 4224]  # multiples of 128, so that the layers are whole
    assert [choice.left for choice in answer.choices] == [12 * 4096**3 // 128, 12 * 4224**3 // 128]
    assert answer.at == min(answer.choices, key=lambda choice: abs(choice.left - 7 * 10**9)).at


def test_both_sides_of_one_family():
    # 3·d·4d in d/128 layers against 3·d·5d in 3
    relation, root = closed("params[mlp] = params[mlp](llama, l=3, f=5d)", "d", family="llama", sizes={"l": "d/128", "f": "4d"})
    assert (relation, root) == ("=", sympy.Rational(3 * 15 * 128, 12))


def test_inequalities_keep_their_direction():
    assert closed("params <= params(mlp, f=4d)", "f", "gated-mlp") == ("<=", 8 * D / 3)
    assert closed("params >= params(mlp, f=4d)", "f", "gated-mlp") == (">=", 8 * D / 3)
    assert closed("params(mlp) <= params(gated-mlp, f=d)", "f") == ("<=", 3 * D / 2)


def test_a_quadratic_has_the_root_that_is_positive():
    (form,) = solve("params[attention, mlp] = 1M", "d", "pre-norm").closed  # 4·d² + 2·d·f
    here = form.expr.subs(F, 29)
    assert here.is_positive
    assert sympy.simplify(4 * here**2 + 2 * here * 29) == 10**6


# -- whole numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-2-9b", "deepseek-v3", "gpt-oss-20b", "t5-base"])
def test_the_largest_context_fits_and_one_more_does_not(model):
    answer = solve("kv <= 16GiB", "context", model).answer
    assert kv_bytes(model, 1, answer) <= 16 * GIB < kv_bytes(model, 1, answer + 1)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-2-9b", "deepseek-v3", "mistral-7b"])
def test_the_largest_batch_fits_and_one_more_does_not(model):
    found = solve("kv <= 80GB", "batch", model, context=32768, policy="transformers")
    assert kv_bytes(model, found.answer, 32768, "transformers") <= 80 * 10**9
    assert kv_bytes(model, found.answer + 1, 32768, "transformers") > 80 * 10**9
    assert [choice.holds for choice in found.answers[0].choices] == [True, False]


def test_the_answers_are_those_of_the_budget():
    (answer,) = solve("activations <= 40GiB", "seq", "gpt2", batch=4).answers
    for choice in answer.choices:
        kept = load("gpt2").budget(Step.train(4, choice.at)).activations(widths("bf16")).bytes
        assert (choice.left, choice.right, choice.distance) == (kept, 40 * GIB, kept - 40 * GIB)
    assert [choice.at for choice in answer.choices] == [answer.at, answer.at + 1]


def test_a_cache_that_stops_growing_has_no_largest_context():
    found = solve("kv <= 1GiB", "context", "mistral-7b")
    # 32 layers of 2·8·128 numbers of 2 bytes, 4,096 positions
    assert found.reason == f"no largest S: kv stops growing at S = 4,096, where it is {32 * 2 * 8 * 128 * 2 * 4096:,} bytes"
    assert found.answers == ()


def test_where_it_stops_growing_is_reached_and_kept():
    found = solve("kv = 512MiB", "context", "mistral-7b")
    (answer,) = found.answers
    assert (answer.what, answer.at, [choice.at for choice in answer.choices]) == ("smallest", 4096, [4095, 4096])


@pytest.mark.parametrize(("words", "said"), [
    (("kv = 1GiB", "context", "mistral-7b"), "from S = 4,096 on it stays at 536,870,912"),
    (("params <= 5", "l", "llama-3.1-8b"), "no L satisfies it: params is 1,268,789,248 parameters at L = 1"),
    (("params >= 5", "l", "llama-3.1-8b"), "every L up to 1,099,511,627,776 satisfies it"),
    (("params = params", "l", "llama-3.1-8b"), "every L"),
    (("prefill_flops >= 5", "context", "llama-3.1-8b"), "every S"),  # but for those below the 2,048 new tokens
    (("prefill_flops <= 5", "context", "llama-3.1-8b"), "no S satisfies it"),
    (("params = params(mlp)", "f", "gated-mlp"), "no positive F"),
    (("params = params(mlp, f=f)", "f", "mlp"), "every F satisfies it: both sides are the same"),
])  # fmt: skip
def test_why_there_is_no_answer(words, said):
    found = solve(*words)
    assert said in found.reason
    assert found.answers == () and found.answer is None


def test_two_answers():
    # 3·d·(1000 − d) has each value below 750,000 twice
    found = solve("params = 40000", "d", "gated-mlp", sizes={"f": "1000-d"})
    assert [(one.what, one.at) for one in found.answers] == [("nearest", 14), ("nearest", 986)]
    assert len(found.closed) == 2
    found = solve("params >= 41412", "d", "gated-mlp", sizes={"f": "1000-d"})
    assert [(one.what, one.at) for one in found.answers] == [("smallest", 14), ("largest", 986)]


def test_a_choice_among_multiples():
    tied = {"l": "d/128", "f": "4d", "h": 128, "n": "d/128", "k": "n", "v": 32000}
    (answer,) = solve("params = 7B", "d", family="llama", sizes=tied, multiple=256).answers
    assert {choice.at % 256 for choice in answer.choices} == {0}
    for choice in answer.choices:
        d = choice.at
        config = {
            "model_type": "llama", "hidden_size": d, "num_hidden_layers": d // 128, "intermediate_size": 4 * d, "head_dim": 128,
            "num_attention_heads": d // 128, "num_key_value_heads": d // 128, "vocab_size": 32000,
        }  # fmt: skip
        assert load(config).budget(Step.forward(1, 1)).parameters().total == choice.left
    distances = {choice.at: abs(choice.distance) for choice in answer.choices}
    assert distances[answer.at] == min(distances.values())


def test_sizes_that_no_model_has_are_passed_over():
    """Whole numbers of layers need a width that 128 divides, whole heads one that 7 divides."""
    tied = {"l": "d/128", "f": "4d", "n": 7, "h": "d/n", "k": "n", "v": 32000}
    (answer,) = solve("params <= 7B", "d", family="llama", sizes=tied).answers
    assert [choice.at for choice in answer.choices] == [answer.at, answer.at + 7 * 128]


def test_a_window_of_one_is_none_of_the_closed_form_of_transformers_cache():
    found = solve("kv <= 256MiB", "w", "mistral-7b", policy="transformers")
    # 131,072 bytes a position of its 32 layers, w − 1 of them; a window of 1 would hold all 8,192
    assert found.answer == 2**28 // 131072 + 1
    for size in ("w", "sliding_window"):
        with pytest.raises(InputError, match="W = 1: policy transformers"):
            given = {"sizes": {"w": 1}} if size == "w" else {"changes": {"sliding_window": 1}}
            solve("kv <= 256MiB", "context", "mistral-7b", policy="transformers", **given)


# -- fields of a config ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "model"), [
    ("num_hidden_layers", "llama-3.1-8b"), ("n_embd", "gpt2"), ("hidden_size", "gemma-2-9b"), ("intermediate_size", "qwen3-8b"),
    ("num_experts_per_tok", "mixtral-8x7b"), ("d_model", "t5-base"),
])  # fmt: skip
def test_a_field_of_the_config(field, model):
    def active(value):
        return load(model, {field: value}).budget(Step.forward(1, 1)).parameters().active

    found = solve("active <= 15B", field, model) if field != "num_experts_per_tok" else solve("active <= 20B", field, model)
    most = found.equation.right
    (answer,) = found.answers
    low, high = (choice.at for choice in answer.choices)
    assert (low, active(low) <= most < active(high)) == (answer.at, True)
    for between in range(low + 1, high):
        with pytest.raises(InputError):
            active(between)
    assert " -> " in str(found.held)


@pytest.mark.parametrize(("words", "at"), [
    # 4,096·(49,410·l + 64,001) parameters; no model has 2**40 layers
    (("params >= 7B", "num_hidden_layers", "llama-7b"), [33, 34]),
    # 6,553,600 parameters a key-value head; their number divides the ten query heads
    (("params[k, v] >= 20M", "num_key_value_heads", "nanochat"), [2, 5]),
])  # fmt: skip
def test_a_field_of_which_more_satisfies_it(words, at):
    (answer,) = solve(*words).answers
    assert (answer.what, [choice.at for choice in answer.choices]) == ("smallest", at)


def test_a_field_whose_smallest_size_satisfies_it():
    # 64 key-value heads need 64 heads at least, which give most parameters
    found = solve("params <= 34980831232", "num_attention_heads", "command-r-v01")
    assert found.reason.startswith("every num_attention_heads") and "at num_attention_heads = 64" in found.reason


def test_a_field_says_what_follows_it():
    held = solve("params = 7B", "n_embd", "gpt2").held
    assert held["D"].startswith("768 -> ") and held["H"].startswith("64 -> ")
    assert (held["N"], held["F"]) == ("12", "3072")


@pytest.mark.parametrize(("unknown", "given", "said"), [
    ("num_hidden_layers", {"sizes": {"f": 5}}, "f: while a field, num_hidden_layers, is asked for"),
    ("num_hidden_layers", {"changes": {"num_hidden_layers": 5}}, "num_hidden_layers: asked for and given at once"),
    ("batch", {"sizes": {"s": 5}, "context": 100}, "S: given twice"),
])  # fmt: skip
def test_what_is_given_counts_or_is_refused(unknown, given, said):
    with pytest.raises(InputError, match=said):
        solve("kv <= 1GiB", unknown, "llama-7b", **given)


def test_a_field_that_is_none_is_refused():
    with pytest.raises(InputError, match="did you mean n_embd"):
        solve("params = 7B", "n_embdd", "gpt2")


# -- whatever is asked -------------------------------------------------------------------------------------------------

MODELS = ["gpt2", "llama-3.1-8b", "gemma-2-2b", "mistral-7b", "mixtral-8x7b", "deepseek-v3", "t5-v1.1-base", "gpt-oss-20b"]


@given(st.sampled_from(MODELS), st.integers(1, 9), st.integers(1, 10**13), st.sampled_from(["<=", ">="]))
def test_any_memory_for_the_cache(model, batch, target, relation):
    found = solve(f"kv {relation} {target}", "context", model, batch=batch)

    def holds(context):
        return (kv_bytes(model, batch, context) <= target) if relation == "<=" else (kv_bytes(model, batch, context) >= target)

    if found.answers:
        (answer,) = found.answers
        beyond = answer.at + 1 if relation == "<=" else answer.at - 1
        assert holds(answer.at) and not holds(beyond)
    else:
        assert holds(1) == holds(2**40)


@cache
def totals(family):
    return blockcalc.compile_formulas([blockcalc.formula({"model_type": family}, "params")])


@given(
    st.sampled_from(["llama", "gemma", "gpt2", "qwen3"]), st.integers(10**6, 10**12), st.sampled_from([16, 64, 128]),
    st.sampled_from([1, 64, 256]),
)  # fmt: skip
def test_any_budget_of_parameters(family, target, ratio, multiple):
    tied = {"l": f"d/{ratio}", "f": "4d", "n": 4, "h": "d/n", "k": "n", "v": 32000}
    tied |= {"m": 1024} if family == "gpt2" else {}
    found = solve(f"params <= {target}", "d", family=family, sizes=tied, multiple=multiple)

    def total(d):
        sizes = {"D": d, "L": d // ratio, "F": 4 * d, "N": 4, "K": 4, "H": d // 4, "V": 32000, "M": 1024}
        compiled = totals(family)
        return compiled(**{name: sizes[name] for name in compiled.symbols})[0]

    least = sympy.ilcm(ratio, 4, multiple)
    if not found.answers:
        assert total(int(least)) > target
    else:
        (answer,) = found.answers
        assert answer.at % least == 0
        assert total(answer.at) <= target < total(answer.at + int(least))


@given(st.data())
def test_every_root_is_found(data):
    """Polynomials with known whole roots between minima: the runs of signs against each number's own."""
    x = symbol("X")
    roots = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=3))
    bend = data.draw(st.integers(1, 60))
    expr = sympy.prod([sympy.Min(x, bend) + (x - bend) * data.draw(st.sampled_from([0, 1, -2])) - root for root in roots])
    found = signs(sympy.sympify(expr), x, 80).runs
    assert [one.first for one in found] == [1, *(one.last + 1 for one in found[:-1])] and found[-1].last == 80
    for one in found:
        for number in range(one.first, one.last + 1):
            assert sympy.sign(expr.subs(x, number)) == one.sign


def test_chunks_are_looked_for_one_by_one():
    """Visible pairs of chunked attention have a rounding: no polynomial, so that sizes are looked at, and it says so."""
    with pytest.raises(NotPiecewise):
        signs(sympy.floor(T / 3) - 5, T, 99)
    found = solve("flops <= 1e9", "seq", "chunked", sizes=BLOCKS["chunked"].sizes, convention="exact", batch=1)
    block = Attention(n=15, k=3, h=11, chunk=5)
    work = [flops(trace(block, Step.forward(1, found.answer + more), 13), "exact").forward for more in (0, 1)]
    assert work[0] <= 10**9 < work[1]
    assert "not proved" in found.proved


OPEN = ("gemma3n_text", "mpnet")
"""Families of which the sign of what is left without a width is open."""


@pytest.mark.parametrize("family", FAMILIES)
def test_the_width_of_every_family(family):
    try:
        forms = solve("params = 7e9", "d", family=family).closed
    except InputError as error:
        said = "this family has no default", "no closed form for D", "there are D_"
        assert any(words in str(error) for words in said), error
        return
    assert len(forms) == (2 if family in OPEN else 1)
    assert all(form.expr.free_symbols for form in forms)
