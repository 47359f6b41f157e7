"""Models that transformers does not have, against plain torch written here from their papers: equal, without tolerance, in
parameters, FLOPs and what autograd keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from plain_torch import Heads, angles, attend, declared, hidden, measured, rotated, weight
from torch import Tensor, nn

from blockcalc import InputError, UndefinedError, formula, load, trace, widths
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.embedding import ValueEmbedding
from blockcalc.catalogue import BLOCKS
from blockcalc.symbolic import QUANTITIES
from blockcalc.tables import presets
from blockcalc.tensor import Step

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


# -- MLP-Mixer ----------------------------------------------------------------------------------------------------------


class Mixer(nn.Module):
    """Tolstikhin et al. 2021, arXiv:2105.01601, figure 1 and section 2."""

    def __init__(self, patch: int, channels: int, s: int, d: int, f_token: int, f: int, l: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, d, patch, patch)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm_1": nn.LayerNorm(d), "w_1": nn.Linear(s, f_token), "w_2": nn.Linear(f_token, s),
                "norm_2": nn.LayerNorm(d), "w_3": nn.Linear(d, f), "w_4": nn.Linear(f, d),
            })
            for _ in range(l)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)  # b s d
        for p in self.layers:
            x = x + p["w_2"](F.gelu(p["w_1"](p["norm_1"](x).transpose(1, 2)))).transpose(1, 2)
            x = x + p["w_4"](F.gelu(p["w_3"](p["norm_2"](x))))
        return self.head(self.norm(x).mean(1))


def test_a_mixer() -> None:
    config = dict(
        model_type="mlp_mixer", image_size=[10, 15], patch_size=5, num_channels=3, hidden_size=14, tokens_mlp_dim=11,
        channels_mlp_dim=17, num_layers=3, num_labels=7,
    )  # fmt: skip
    mixer, image, targets = Mixer(5, 3, 6, 14, 11, 17, 3, 7), torch.randn(2, 3, 10, 15), torch.randint(7, (2,))
    right = measured(lambda: F.cross_entropy(mixer(image), targets), mixer)
    assert declared(load(config).budget(Step.train(2, 1))) == right
    bare = load(config, {"num_labels": 0}).budget(Step.forward(2, 1)).parameters().total
    assert bare == right[0] - (14 * 7 + 7)


@pytest.mark.parametrize(
    ("name", "printed"),
    [("s32", 19), ("s16", 18), ("b32", 60), ("b16", 59), ("l32", 206), ("l16", 207), ("h14", 431)],
)
def test_the_mixers_are_as_large_as_their_paper_prints(name: str, printed: int) -> None:
    """Table 1 of arXiv:2105.01601, without the classifier."""
    size = presets()[f"mixer-{name}"]["config"]
    p, l, c = size["patch_size"], size["num_layers"], size["hidden_size"]
    s, d_s, d_c = (224 // p) ** 2, size["tokens_mlp_dim"], size["channels_mlp_dim"]
    right = p * p * 3 * c + c + l * (2 * 2 * c + 2 * s * d_s + d_s + s + 2 * c * d_c + d_c + c) + 2 * c
    total = load(f"mixer-{name}", {"num_labels": 0}).budget(Step.forward(1, 1)).parameters().total
    assert total == right == presets()[f"mixer-{name}"]["parameters"] - 1000 * (c + 1)
    assert abs(total - printed * 10**6) < 600_000


def test_a_mixer_s_parameters_depend_on_the_image_and_it_has_no_cache() -> None:
    small, large = (load("mixer-b16", {"image_size": size}) for size in (224, 448))
    more = large.budget(Step.forward(1, 1)).parameters().total - small.budget(Step.forward(1, 1)).parameters().total
    assert more == 12 * (784 - 196) * (2 * 384 + 1)
    assert sum(small.budget(Step.prefill(1, 9)).cache(widths("bf16")).values()) == 0
    with pytest.raises(InputError, match="patch_size: found 15, expected a divisor"):
        load("mixer-b16", {"patch_size": 15})


# -- the original Transformer -------------------------------------------------------------------------------------------


class Transformer(nn.Module):
    """Section 3 of the paper: 2·l layers, norms behind the sums, sinusoids, one table or three."""

    def __init__(self, v: int, d: int, n: int, f: int, l: int, bias: bool, tied: bool) -> None:
        super().__init__()
        self.d, self.tied = d, tied
        self.tables = nn.ParameterList(weight(v, d) for _ in range(1 if tied else 3))
        self.layers = nn.ModuleList(self._layer(d, n, f, bias, 1 + number // l) for number in range(2 * l))

    @staticmethod
    def _layer(d: int, n: int, f: int, bias: bool, attentions: int) -> nn.ModuleDict:
        return nn.ModuleDict({
            "attentions": nn.ModuleList(Heads(d, n, bias) for _ in range(attentions)),
            "norms": nn.ModuleList(nn.LayerNorm(d) for _ in range(attentions + 1)),
            "mlp": nn.Sequential(nn.Linear(d, f), nn.ReLU(), nn.Linear(f, d)),
        })

    def forward(self, source: Tensor, target: Tensor, positions: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        memory, x = (
            F.embedding(ids, table) * self.d**0.5 + position
            for ids, table, position in zip((source, target), (self.tables[0], self.tables[-1]), positions, strict=True)
        )
        for layer in self.layers:
            attentions, norms, mlp = layer["attentions"], layer["norms"], layer["mlp"]
            if len(attentions) == 1:
                memory = norms[0](memory + attentions[0](memory, memory, None))
                memory = norms[1](memory + mlp(memory))
            else:
                x = norms[0](x + attentions[0](x, x, mask))
                x = norms[1](x + attentions[1](x, memory, None))
                x = norms[2](x + mlp(x))
        return F.linear(x, self.tables[0 if self.tied else 1])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_an_original_transformer(bias: bool, tied: bool) -> None:
    v, d, n, f, l, b, t, s = 31, 14, 7, 17, 2, 3, 5, 11
    config = dict(
        model_type="transformer", vocab_size=v, d_model=d, num_heads=n, d_ff=f, num_layers=l, attention_bias=bias, tie=tied
    )
    model, mask, positions = Transformer(v, d, n, f, l, bias, tied), hidden(t), (torch.randn(s, d), torch.randn(t, d))
    source, target, right = torch.randint(v, (b, s)), torch.randint(v, (b, t)), torch.randint(v, (b * t,))

    def step() -> Tensor:
        return F.cross_entropy(model(source, target, positions, mask).flatten(0, 1), right)

    assert declared(load(config).budget(Step.train(b, t, s))) == measured(step, model, *positions, mask)


@pytest.mark.parametrize(("name", "d", "n", "f"), [("base", 512, 8, 2048), ("big", 1024, 16, 4096)])
def test_a_transformer_with_biases_has_the_layers_of_torch_s(name: str, d: int, n: int, f: int) -> None:
    with torch.device("meta"):
        theirs = nn.Transformer(d, n, 6, 6, f, batch_first=True)
    count = sum(weight.numel() for weight in theirs.parameters())
    ours = load(f"transformer-{name}", {"attention_bias": True}).budget(Step.forward(1, 1)).parameters()
    assert ours.total == count - 2 * 2 * d + 37000 * d  # torch has a norm behind each stack, and no table
    plain = load(f"transformer-{name}").budget(Step.forward(1, 1)).parameters()
    assert ours.total - plain.total == 6 * (4 + 8) * d
    assert plain.total == presets()[f"transformer-{name}"]["parameters"] == {"base": 63_045_632, "big": 214_171_648}[name]


def test_a_transformer_caches_both_kinds_of_keys() -> None:
    found = load("transformer-base").budget(Step.prefill(1, 7, source=11)).cache(widths("bf16"))
    assert (found["full"], found["cross"]) == (6 * 2 * 512 * 7 * 2, 6 * 2 * 512 * 11 * 2)


# -- nanoGPT and nanochat -----------------------------------------------------------------------------------------------


def test_nanogpt_s_default() -> None:
    # 50304·768 + 1024·768 + 12·(12·768² + 13·768) + 2·768; nanoGPT prints it without the position table
    found = load("nanogpt").budget(Step.forward(1, 1)).parameters()
    assert found.total == 38_633_472 + 786_432 + 12 * (7_077_888 + 9_984) + 1_536 == 124_475_904
    assert found.total - 786_432 == 123_689_472


class Nanochat(nn.Module):
    """What github.com/karpathy/nanochat's gpt.py describes, without its code: smear, blend, value embeddings, backout."""

    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        self.l, self.n, self.k, self.v = c["n_layer"], c["n_head"], c["n_kv_head"], c["vocab_size"]
        self.h, d, rows = c["n_embd"] // self.n, c["n_embd"], (self.v + 63) // 64 * 64
        quarter = (c["sequence_len"] + 511) // 512 * 128
        letters = [c["window_pattern"][i % len(c["window_pattern"])] for i in range(self.l)]
        self.windows = [quarter + 1 if letter == "S" and i < self.l - 1 else None for i, letter in enumerate(letters)]
        self.valued = [(self.l - 1 - i) % 2 == 0 for i in range(self.l)]
        self.table, self.lm_head = weight(rows, d), weight(rows, d)
        self.smear_gate, self.smear_lambda, self.backout_lambda = weight(1, 24), weight(1), weight(1)
        self.resid_lambdas, self.x0_lambdas = weight(self.l), weight(self.l)
        shapes = {
            "q": (self.n * self.h, d), "k": (self.k * self.h, d), "v": (self.k * self.h, d), "o": (d, d),
            "up": (4 * d, d), "down": (d, 4 * d),
        }  # fmt: skip
        more = {"table": (rows, self.k * self.h), "gate": (self.k, 12)}
        self.layers = nn.ModuleList(
            nn.ParameterDict({name: weight(*shape) for name, shape in (shapes | (more if valued else {})).items()})
            for valued in self.valued
        )

    def forward(self, ids: Tensor, masks: dict[int | None, Tensor], cos: Tensor, sin: Tensor) -> Tensor:
        x = norm(F.embedding(ids, self.table))
        share = self.smear_lambda * F.linear(x[:, 1:, :24], self.smear_gate).sigmoid()
        x = start = torch.cat((x[:, :1], x[:, 1:] + share * x[:, :-1]), dim=1)
        streams: list[Tensor] = []
        for i, p in enumerate(self.layers):
            x = self.resid_lambdas[i] * x + self.x0_lambdas[i] * start
            x = x + self.attention(p, norm(x), ids, masks[self.windows[i]], cos, sin)
            x = x + F.linear(F.linear(norm(x), p["up"]).relu().square(), p["down"])
            streams.append(x)
        x = norm(x - self.backout_lambda * streams[self.l // 2])
        logits = F.linear(x, self.lm_head)[..., : self.v].float()
        return 15 * torch.tanh(logits / 15)

    def attention(self, p: Any, x: Tensor, ids: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (F.linear(x, p[name]).unflatten(-1, (-1, self.h)) for name in "qkv")
        if "table" in p:
            looked_up = F.embedding(ids, p["table"]).unflatten(-1, (-1, self.h))
            v = v + (3 * F.linear(x[..., :12], p["gate"]).sigmoid())[..., None] * looked_up
        q, k = (norm(rotated(y, cos, sin)) * 1.2 for y in (q, k))
        return F.linear(attend(q, k, v, mask), p["o"])


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", [1, 3])
@pytest.mark.parametrize("l", [1, 2, 3, 4, 7])
def test_nanochat_as_its_repository_has_it(l: int, b: int, dtype: str) -> None:
    t, kind = 5, DTYPES[dtype]
    config = dict(sequence_len=9, vocab_size=101, n_layer=l, n_head=4, n_kv_head=2, n_embd=24, window_pattern="SSL")
    model = Nanochat(config).to(kind)
    masks = {window: hidden(t, window) for window in set(model.windows)}
    cos, sin = (table.to(kind) for table in angles(t, 6))
    ids, targets = torch.randint(101, (b, t)), torch.randint(101, (b * t,))

    def step() -> Tensor:
        return F.cross_entropy(model(ids, masks, cos, sin).flatten(0, 1), targets)

    budget = load({"model_type": "karpathy_nanochat", **config}).budget(Step.train(b, t))
    ours, theirs = declared(budget, dtype), measured(step, model, cos, sin, *masks.values())
    if b == 1:  # then heads and positions of one sequence are views, and less is copied than the rules for several say
        ours, theirs = ours[:3], theirs[:3]
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "total", "matrices", "estimate"),
    [("d12", 286_261_730, 110_100_912, 759_696_048), ("d20", 896_533_746, 435_160_240, None)],
)
def test_nanochat_s_own_counts(name: str, total: int, matrices: int, estimate: int | None) -> None:
    """What nanochat prints of a run: parameters, those of the layers and the head, and estimate_flops a token."""
    model = load(f"nanochat-{name}-karpathy")
    budget = model.budget(Step.forward(1, 2048))
    assert budget.parameters().total == presets()[f"nanochat-{name}-karpathy"]["parameters"] == total
    linears = [line for line in budget.lines if line.kind == "linear"]
    multiplied = sum(w.numel * w.copies for line in linears for w in line.weights)
    assert multiplied == matrices + 24  # the smear gate is a scalar of theirs
    if estimate is not None:  # 6 a weight, 12·n·h of each key that is seen, the query's own left out
        lines = [line for line in budget.lines if line.kind == "attention"]
        seen = sum(line.copies * line.forward * min(2048, (line.window or 2049) - 1) for line in lines)
        assert 6 * multiplied + 6 * seen == estimate
    vectors = [line for line in budget.lines if line.kind == "scale" and line.weights]
    layers = model.stack.runs()
    assert sum(line.copies for line in vectors) == 2 * sum(count for _, count in layers) + 2  # the four named scalars


class Smear(nn.Module):
    """x plus a gated share of the position before."""

    def __init__(self, i: int) -> None:
        super().__init__()
        self.i, self.gate, self.share = i, weight(1, i), weight(1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.share * F.linear(x[:, 1:, : self.i], self.gate).sigmoid()
        return torch.cat((x[:, :1], x[:, 1:] + gate * x[:, :-1]), dim=1)


@pytest.mark.parametrize("t", [2, 3, 5])
@pytest.mark.parametrize("b", [1, 3])
def test_a_smear(b: int, t: int) -> None:
    """The gate reads a copy of its rows where there are several of several sequences, and else x itself."""
    module, x = Smear(7), torch.randn(b, t, 31, requires_grad=True)
    found = declared(trace(BLOCKS["smear"].build({"d": 31, "i": 7})[0], Step.train(b, t), 31))
    assert found == measured(lambda: module(x), module)


def test_nanochat_s_windows_values_and_state() -> None:
    model = load("nanochat-d12-karpathy")
    assert [layer.name for layer in model.stack.layers] == ["window", "window_value", "full_value"]
    assert [layer.l for layer in model.stack.layers] == [6, 3, 3]
    assert {layer.block.block.branches[0].branch.w for layer in model.stack.layers} == {513, None}
    held = model.budget(Step.prefill(2, 2000)).cache(widths("bf16"))
    token = 2 * 768 * 2
    assert (held["window"], held["full"], held["state"]) == (2 * 9 * 513 * token, 2 * 3 * 2000 * token, 2 * 768 * 2)
    # the gate of the smear: at each position that has one before it
    gate = [model.budget(step).lines for step in (Step.forward(1, 9), Step.prefill(1, 9), Step.decode(1, 9), Step.decode(1, 1))]
    macs = [next(line.forward for line in lines if line.path == "embedding.smear.gate") for lines in gate]
    assert macs == [8 * 24, 8 * 24, 24, 0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"window_pattern": "SXL"}, "window_pattern: found \"SXL\", expected the letters S and L"),
        ({"n_embd": 18}, "n_embd: found 18, expected at least 24"),
        ({"n_kv_head": 4}, "n_head = 6 is not divisible by n_kv_head = 4"),
    ],
)  # fmt: skip
def test_what_nanochat_s_config_may_not_say(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load("nanochat-d12-karpathy", changes)


def test_a_gate_that_reads_more_than_there_is_is_refused() -> None:
    attention = Attention(n=2, k=1, h=4, value_embedding=ValueEmbedding(v=9, i=12))
    with pytest.raises(InputError, match="reads i = 12 entries of x, which is only d = 11 wide"):
        trace(attention, Step.forward(1, 2), 11)


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", ["mixer-s32", "transformer-base", "nanochat-d12-karpathy"])
def test_their_formulas_are_their_budgets(name: str, quantity: str) -> None:
    asked, model = QUANTITIES[quantity], load(name)
    if name == "mixer-s32" and quantity in ("prefill_flops", "decode_flops"):
        with pytest.raises(UndefinedError, match="positions all run at once"):
            formula(name, quantity)
        return
    for b, t, s in ((1, 128, 128), (3, 1000, 3001)):
        right = asked.read(model.budget(asked.step(b, t, s)), widths("bf16"), "torch")
        assert formula(name, quantity).subs(B=b, T=t, S=s) == right


def test_two_sizes_of_one_letter_keep_their_own_symbols() -> None:
    assert formula("mlp_mixer").text() == (
        "D·(V + X·Y + 3) + L·(D·(2·F + 5) + F + F_token·(2·M + 1) + M) + V"
    )
