"""The closed forms that papers print come out of the declarations, and the differences are those that are named."""

import pytest
import sympy

from blockcalc.comparisons import published_forms as forms
from blockcalc.dims import symbol
from blockcalc.parallel.layout import Layout
from blockcalc.parallel.stages import in_flight

B, D, L, N, T, V, X, Z = (symbol(letter) for letter in "BDLNTVXZ")
FORMS = {form.what: form for _, made in forms.TABLES for form in made()}

MORE = {
    "a layer": 8 * B * T,
    "a layer, tensor parallel": 8 * B * T,
    "a layer, tensor and sequence parallel": 8 * B * T / X,
    "a layer, tensor parallel, attention recomputed": 8 * B * T,
    "a layer, tensor and sequence parallel, attention recomputed": 8 * B * T / X,
    "the same, attention recomputed": -8 * B * D * L * T**2,
    "a forward pass, with look-ups and softmax": -2 * B * T * V * D - 3 * B * L * N * T**2,
    "a forward pass, the mask's half of the scores": 2 * B * D * L * T,
    "parameters": 2 * D,
    "parameters outside the embeddings": 13 * D * L + 2 * D,
    "the same with sequence parallelism": 2 * B * T * D * (X - 1) / X,
    "elements a data rank sends a step, ZeRO 3": -(T + V + 2) * D * (Z - 1) / Z,
}
"""What the engine counts beyond the published form; nothing where a form is not named here."""


@pytest.mark.parametrize("what", FORMS)
def test_a_published_form_is_derived_but_for_what_is_named(what):
    form = FORMS[what]
    assert sympy.expand(forms.difference(form) - MORE.get(what, 0)) == 0
    assert bool(form.why) == (what in MORE)


FIGURE_1 = {  # h, a, l, t, p, chunks, microbatch; GiB of the first stage: tensor parallel, and with sequences and selective
    "22B": (6144, 64, 48, 8, 1, 1, 4, 59.25, 9.5625),
    "175B": (12288, 96, 96, 8, 8, 3, 1, 66.84375, 12.3515625),
    "530B": (20480, 128, 105, 8, 35, 3, 1, 114.0234375, 23.076171875),
    "1T": (25600, 160, 128, 8, 64, 1, 1, 131.25, 26.5625),
}


@pytest.mark.parametrize("model", FIGURE_1)
def test_korthikanti_figure_1_to_all_digits(model):
    # arXiv:2205.05198, figure 1 and table 3; sequences of 2048
    h, a, l, t, p, chunks, b, plain, present = FIGURE_1[model]
    sizes = {B: b, T: 2048, D: h, N: a, X: t}
    layout = Layout(tp=t, pp=p, chunks=chunks)
    moments = in_flight(layout, 0, 2 * p * chunks)
    layers = max(map(len, moments)) * l // (p * chunks)
    for what, gib in (
        ("a layer, tensor parallel", plain),
        ("a layer, tensor and sequence parallel, attention recomputed", present),
    ):
        derived = FORMS[what].derived.subs(sympy.Min(N, X), X).subs(sizes) * layers
        statistics = MORE[what].subs(sizes) * layers
        assert int(derived - statistics) == gib * 2**30
        assert statistics < derived / 1000


ZERO = {  # arXiv:1910.02054, table 1: GB of the model's states on 1, 4, 16, 64, 256 and 1024 ranks, by stage
    7_500_000_000: (
        (120, 52.5, 35.6, 31.4, 30.4, 30.1), (120, 41.3, 21.6, 16.6, 15.4, 15.1), (120, 30, 7.5, 1.88, 0.47, 0.12),
    ),
    128_000_000_000: (
        (2048, 896, 608, 536, 518, 513), (2048, 704, 368, 284, 263, 257), (2048, 512, 128, 32, 8, 2),
    ),
    1_000_000_000_000: (
        (16000, 7000, 4750, 4187, 4046, 4011), (16000, 5500, 2875, 2218, 2054, 2013), (16000, 4000, 1000, 250, 62.5, 15.6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("parameters", ZERO)
def test_the_54_cells_of_zero(parameters, stage):
    total = forms.gpt().budget(forms.Step.train(B, T)).parameters().total
    each = sympy.simplify(FORMS[f"bytes of the model's states, ZeRO {stage}"].derived / total)
    for ranks, printed in zip((1, 4, 16, 64, 256, 1024), ZERO[parameters][stage - 1], strict=True):
        gigabytes = each.subs(Z, ranks) * parameters / sympy.Integer(10) ** 9
        step = 1 if printed >= 257 or printed == int(printed) else 10 ** -len(str(printed).partition(".")[2])
        assert abs(gigabytes - printed) < step, (ranks, float(gigabytes), printed)
