"""Models drawn at random against their twins: what no one thought of combining."""

import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from blockcalc import Step, widths
from blockcalc.blocks.attention import Attention, CrossAttention
from blockcalc.blocks.embedding import Frames, Patches
from blockcalc.blocks.linear_attention import LinearAttention
from blockcalc.blocks.mixer import SqueezeExcitation
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.mlp import ACTIVATIONS, MLP, ClampedGatedMLP, GatedMLP, gelu
from blockcalc.blocks.moe import MoE
from blockcalc.blocks.norm import HeadsNorm, LayerNorm, LayerScale, RMSNorm
from blockcalc.blocks.position import ALiBi, LearnedPositions, RelativeBias, Rotary, Sinusoidal
from blockcalc.blocks.prediction import MultiTokenPrediction
from blockcalc.blocks.wiring import Blended, Block, Parallel, Residual
from blockcalc.errors import UndefinedError
from blockcalc.heads import Classifier, MaskedLMHead, MeanHead, Pooler
from blockcalc.model import Embedding, Layer, LMHead, Model, Stack
from blockcalc.refmodel import measure
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.tensor import Kernels

torch.set_num_threads(1)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NORMS = (
    LayerNorm(), LayerNorm(bias=False), LayerNorm(gain=False, bias=False), RMSNorm(), RMSNorm(gain=False),
    RMSNorm(offset=True),
)  # fmt: skip
WINDOWS = ((None, None), (1, None), (3, None), (9, None), (None, 2), (None, 4))


class Draw:
    """A model, part by part."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.one = self.random.choice

    def chance(self, p):
        return self.random.random() < p

    def norm(self):
        return self.one((*NORMS, None, None, None))

    def attention(self, causal, biased):
        if causal and self.chance(0.25):
            return MLA(
                n=self.one((2, 3, 5)), c=7, q=self.one((None, 11)), p=3, r=4, u=self.one((6, 7)), bias=self.chance(0.5),
                absorbed=self.chance(0.4), norm=self.one((RMSNorm(), RMSNorm(gain=False))),
            )  # fmt: skip
        if not causal and self.chance(0.2):
            return self.one((LinearAttention(n=5, h=3, m=7), SqueezeExcitation(f=7)))
        n = self.one((2, 4, 6))
        k = self.one([k for k in range(1, n + 1) if n % k == 0])
        biases = [RelativeBias(m=11, n=n)] * biased + [ALiBi(n=n)] * causal
        position = self.one([None, Rotary(r=4), Rotary(r=2, local=True), *biases])
        window, chunk = self.one(WINDOWS) if causal else (self.one((None, None, 3)), None)
        norm = self.one((None, None, *NORMS, HeadsNorm(), HeadsNorm(norm=LayerNorm()), LayerNorm(heads=True)))
        return Attention(
            n=n, k=k, h=self.one((4, 6)), w=window, chunk=chunk, causal=causal, position=position, qk_norm=norm,
            qkv_bias=self.chance(0.3), k_bias=self.one((None, False, True)), o_bias=self.chance(0.3),
            norm_last=self.chance(0.3), clip=self.chance(0.2), softcap=self.chance(0.2), sinks=self.chance(0.2),
            qk_tied=n == k and self.chance(0.2), output_gate=self.chance(0.2),
            kv_tied=norm is None and not isinstance(position, Rotary) and self.chance(0.4),
        )  # fmt: skip

    def feed_forward(self, f=13):
        if f == 13 and self.chance(0.3):
            shared = self.one((None, self.feed_forward(11)))
            return MoE(
                e=self.one((3, 5)), a=self.one((1, 2, 3)), expert=self.feed_forward(5), shared=shared,
                shared_gate=shared is not None and self.chance(0.4), renormalise=self.chance(0.5),
                score=self.one(("softmax", "sigmoid", "softmax_of_chosen")), router_bias=self.chance(0.3),
            )  # fmt: skip
        plain = self.one((MLP, GatedMLP))(f=f, act=self.one(ACTIVATIONS), bias=self.chance(0.3))
        return plain if self.chance(0.9) else ClampedGatedMLP(f=f)

    def residual(self, name, branch):
        norms = {"before": self.norm(), "after": self.one((self.norm(), LayerScale())), "outer": self.norm()}
        return Residual(name=name, branch=branch, scaled=self.chance(0.1), **norms)

    def block(self, causal, cross):
        if not cross and self.chance(0.2):
            parts = (("attention", self.attention(causal, False)), ("mlp", self.feed_forward()))
            return Parallel(branches=tuple(Residual(name=n, branch=p, before=self.norm()) for n, p in parts), norm=self.norm())
        branches = [self.residual("attention", self.attention(causal, True)), self.residual("mlp", self.feed_forward())]
        if cross:
            branches.insert(1, self.residual("cross", CrossAttention(n=6, k=self.one((1, 6)), h=4, q_bias=self.chance(0.3))))
        if self.chance(0.2):
            self.random.shuffle(branches)
        return Block(branches=tuple(branches))

    def stack(self, name, causal, cross, i=None):
        layers, blended = [], self.chance(0.1)
        for number in range(self.one((1, 1, 2, 3))):
            count = self.one((1, 2, 3))
            sets = self.one((None, None, 1, min(2, count)))
            block = Blended(block=self.block(causal, cross)) if blended else self.block(causal, cross)
            layers.append(Layer(block=block, l=count, name=f"kind{number}", j=sets))
        names = [layer.name for layer in layers for _ in range(layer.l)]
        self.random.shuffle(names)
        layers.sort(key=lambda layer: names.index(layer.name))
        return Stack(name=name, layers=tuple(layers), norm=self.norm(), order=tuple((name, 1) for name in names), i=i)

    def embedding(self, v, d, i=None):
        position = self.one((
            None, LearnedPositions(m=11), LearnedPositions(m=13, reserved=2), Sinusoidal(), Sinusoidal(m=11),
        ))  # fmt: skip
        narrow = i is not None and self.chance(0.5)
        return Embedding(v=v, d=d, i=i, all_narrow=narrow, position=position, types=self.one((None, 2)), norm=self.norm())

    def model(self):
        d, i = self.one((22, 26)), self.one((None, None, 10))
        if self.chance(0.15):
            extras = {"class_token": self.chance(0.5), "positions": self.chance(0.5)}
            embedding = Patches(d=d, m=5, y=9, x=3, z=self.one((None, 61)), **extras)
            head = self.one((Pooler(), Classifier(v=3, bias=True), Classifier(v=3, bias=True, first=True), MeanHead(v=3)))
            return Model(name="drawn", embedding=embedding, stack=self.stack("decoder", self.chance(0.5), False), head=head)
        head = self.one((
            LMHead(v=29, tied=self.chance(0.7), softcap=self.chance(0.3)),
            LMHead(v=29, tied=False, bias=True),
            LMHead(v=29, tied=self.chance(0.7), softcap=self.chance(0.3), wide=self.chance(0.5), used=23),
            MaskedLMHead(output=LMHead(v=29, tied=True, bias=True), act=self.one(ACTIVATIONS), norm=self.one(NORMS)),
            Pooler(v=3), Pooler(v=3, i=7, act=gelu), Classifier(v=3, bias=True),
            Classifier(
                v=3, bias=True, **self.one(({}, {"first": True}, {"mean": True})), act=gelu, norm=self.norm(),
                hidden_bias=self.chance(0.5),
            ),
        ))  # fmt: skip
        further, predictors = {}, ()
        if self.chance(0.35):
            source = self.one((None, self.embedding(31, 38), Frames(d=38, m=5, x=7)))
            further = {"encoder": self.stack("encoder", False, False), "encoder_embedding": source}
        if isinstance(head, LMHead) and not head.bias and i is None and self.chance(0.3):
            predictor = MultiTokenPrediction(block=self.block(True, False), norm=self.one(NORMS), last=self.norm())
            predictors = (predictor,) * self.one((1, 2))
        stack = self.stack("decoder", bool(further) or self.chance(0.8), bool(further), i if isinstance(head, LMHead) else None)
        return Model(name="drawn", embedding=self.embedding(29, d, i), stack=stack, head=head, predictors=predictors, **further)


@given(st.integers(0, 2**32))
def test_a_drawn_model_costs_what_its_twin_costs(seed):
    """b, t and the heads are two at least: of one, torch keeps views where it else keeps copies."""
    draw = Draw(seed)
    model, b, t, source = draw.model(), draw.one((2, 3)), draw.one((2, 3, 5, 7)), draw.one((2, 3, 5, 7))
    dtype, kernel = draw.one(list(DTYPES)), draw.one(("math", "flash", "fused"))
    recompute = draw.one(("none", "selective", "full"))
    try:
        budget = model.budget(Step.train(b, t, source), Kernels(attention=kernel), recompute)
    except UndefinedError:
        budget, kernel = model.budget(Step.train(b, t, source), Kernels(), recompute), "math"
    torch.manual_seed(seed)
    twin = build(model).to(DTYPES[dtype])
    step = measure.loss(twin, b, t, source)
    assert budget.parameters().total == measure.parameters(twin)
    work, kept = budget.work(), budget.activations(widths(dtype))
    found = measure.flops(step, Run(kernel=kernel, recompute=recompute))
    assert (2 * work.forward, 2 * (work.backward + work.recompute)) == found
    saved = measure.saved(step, twin.parameters(), Run(kernel=kernel, recompute=recompute))
    assert (kept.bytes, kept.per_layer, kept.buffers, kept.loss, kept.rest) == saved
