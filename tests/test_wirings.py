"""Wirings, positions and predictors that transformers does not have, against plain torch written here from their papers:
equal, without tolerance, in parameters, FLOPs and what autograd keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from plain_torch import Heads, angles, attend, declared, hidden, measured, rotated, weight
from torch import Tensor, nn

from blockcalc import InputError, UndefinedError, formula, load, trace, widths
from blockcalc.blocks.attention import Attention
from blockcalc.blocks.position import RelativeKeys
from blockcalc.catalogue import BLOCKS
from blockcalc.tensor import Kernels, Step

# -- more than the next token -------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A pre-norm block: grouped heads with rotations, a gated feed-forward."""

    def __init__(self, d: int, n: int, k: int, h: int, f: int) -> None:
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = weight(n * h, d), weight(k * h, d), weight(k * h, d), weight(d, n * h)
        self.gate, self.up, self.down = weight(f, d), weight(f, d), weight(d, f)
        self.gains = nn.ParameterList(weight(d) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = F.rms_norm(x, x.shape[-1:], self.gains[0])
        q, k, v = (F.linear(y, p).unflatten(-1, (-1, self.h)) for p in (self.q, self.k, self.v))
        x = x + F.linear(attend(rotated(q, cos, sin), rotated(k, cos, sin), v, mask), self.o)
        y = F.rms_norm(x, x.shape[-1:], self.gains[1])
        return x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)


class Predictor(nn.Module):
    """DeepSeek-V3, arXiv:2412.19437, equations 21 and 22."""

    def __init__(self, d: int, *block: int) -> None:
        super().__init__()
        self.stream, self.token, self.matrix, self.block = weight(d), weight(d), weight(d, 2 * d), Block(d, *block)

    def forward(self, x: Tensor, ahead: Tensor, *tables: Tensor) -> Tensor:
        both = torch.cat((F.rms_norm(x, x.shape[-1:], self.stream), F.rms_norm(ahead, x.shape[-1:], self.token)), dim=-1)
        return self.block(F.linear(both, self.matrix), *tables)


def test_a_module_that_predicts_one_token_more() -> None:
    b, t, d, n, k, h, f = 3, 5, 13, 6, 2, 10, 17
    module, mask, (cos, sin) = Predictor(d, n, k, h, f), hidden(t), angles(t, h)
    x, ahead = torch.randn(b, t, d, requires_grad=True), torch.randn(b, t, d, requires_grad=True)
    component, width = BLOCKS["mtp"].build(dict(d=d, n=n, k=k, h=h, f=f))
    right = measured(lambda: module(x, ahead, mask, cos, sin), module, mask, cos, sin)
    assert declared(trace(component, Step.train(b, t), width)) == right


def test_deepseek_v3_s_module() -> None:
    """11.5 billion of its own, 14 billion with the table and the head that it shares: DeepSeek-V3's README_WEIGHTS.md."""
    plain, more = (load("deepseek-v3", {"mtp_modules": count}) for count in (0, 1))
    before, after = (model.budget(Step.train(1, 9)) for model in (plain, more))
    d, v = 7168, 129280
    layer = next(layer.block for layer in plain.stack.layers if layer.name == "moe")
    own = trace(layer, Step.train(1, 9), d)
    # three norms, the matrix 2d → d, and one layer of the main model
    assert after.parameters().total - before.parameters().total == 3 * d + 2 * d * d + own.parameters().total == 11_610_067_968
    assert 11_610_067_968 + 2 * v * d == 13_463_426_048
    assert after.parameters().active - before.parameters().active == 3 * d + 2 * d * d + own.parameters().active
    assert after.work().forward - before.work().forward == 9 * (2 * d * d + d * v) + own.work().forward
    assert load("deepseek-v3", {"num_nextn_predict_layers": 1}).predictors == ()
    twice = load("deepseek-v3", {"mtp_modules": 2}).budget(Step.train(1, 9))
    assert twice.parameters().total - after.parameters().total == 11_610_067_968
    kept = twice.activations(widths("bf16"))
    assert sum(kept.per_layer) + kept.buffers + kept.loss + kept.rest == kept.bytes


def test_predictors_want_a_language_head() -> None:
    with pytest.raises(InputError, match="predictors share the head"):
        replace(load("deepseek-v3", {"mtp_modules": 1}), head=None)
    with pytest.raises(InputError, match="mtp_modules: found 65, expected at most 64"):
        load("deepseek-v3", {"mtp_modules": 65})
    with pytest.raises(InputError, match="mtp_modules: a llama config has no such field"):
        load("llama-3-8b", {"mtp_modules": 1})


# -- wirings and positions ----------------------------------------------------------------------------------------------


class DeepNet(nn.Module):
    """norm(αx + branch(x)): Wang et al. 2022, arXiv:2203.00555, section 3.2."""

    def __init__(self, d: int, n: int, f: int, alpha: float) -> None:
        super().__init__()
        self.alpha, self.heads = alpha, Heads(d, n, bias=False)
        self.mlp = nn.Sequential(nn.Linear(d, f, bias=False), nn.ReLU(), nn.Linear(f, d, bias=False))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norms[0](self.alpha * x + self.heads(x, x, mask))
        return self.norms[1](self.alpha * x + self.mlp(x))


def test_deepnet_s_constants_cost_nothing() -> None:
    b, t, sizes = 3, 5, dict(d=14, n=7, f=17)
    module, mask, x = DeepNet(**sizes, alpha=1.7), hidden(t), torch.randn(b, t, 14, requires_grad=True)
    found, plain = (declared(trace(BLOCKS[name].build(sizes)[0], Step.train(b, t), 14)) for name in ("deepnet", "post-norm"))
    assert found == measured(lambda: module(x, mask), module, mask)
    assert found == plain
    assert formula("deepnet").expr == formula("post-norm").expr


def test_the_order_of_the_sublayers_does_not_change_what_they_cost() -> None:
    """Press, Smith and Levy 2020, arXiv:1911.03864: three of each, whatever their order."""
    for quantity in ("params", "flops", "kv"):
        assert formula("sandwich-order", quantity).expr.expand() == (3 * formula("pre-norm", quantity).expr).expand()


class Shaw(nn.Module):
    """Shaw, Uszkoreit and Vaswani 2018, arXiv:1803.02155, equations 3 and 4, with distances up to c = 2."""

    def __init__(self, d: int, n: int, values: bool) -> None:
        super().__init__()
        self.n, self.h = n, d // n
        self.q, self.k, self.v, self.o = (weight(d, d) for _ in range(4))
        self.keys, self.values = weight(5, self.h), weight(5, self.h) if values else None

    def forward(self, x: Tensor, mask: Tensor, distances: Tensor) -> Tensor:
        q, k, v = (F.linear(x, p).unflatten(-1, (self.n, self.h)).transpose(1, 2) for p in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) + torch.einsum("bnth,tsh->bnts", q, F.embedding(distances, self.keys))
        weights = (scores * self.h**-0.5).masked_fill(mask, float("-inf")).softmax(-1)
        out = weights @ v
        if self.values is not None:
            out = out + torch.einsum("bnts,tsh->bnth", weights, F.embedding(distances, self.values))
        return F.linear(out.transpose(1, 2).flatten(2), self.o)


@pytest.mark.parametrize("values", [True, False])
def test_relative_keys(values: bool) -> None:
    b, t, d, n = 3, 5, 14, 7
    i = torch.arange(t)
    module, mask, distances = Shaw(d, n, values), hidden(t), (i - i[:, None]).clamp(-2, 2) + 2
    x = torch.randn(b, t, d, requires_grad=True)
    attention = Attention(n=n, k=n, h=d // n, position=RelativeKeys(m=5, values=values))
    found = declared(trace(attention, Step.train(b, t), d))
    assert found == measured(lambda: module(x, mask, distances), module, mask)
    with pytest.raises(UndefinedError, match="relative keys have no flash kernel"):
        trace(attention, Step.train(b, t), d, Kernels(attention="flash"))
