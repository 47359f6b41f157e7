"""Whole models against their twins, measured on torch: parameters, FLOPs and what autograd keeps, layer by layer, equal."""

from functools import partial

import pytest
import torch

from blockcalc import Step, widths
from blockcalc.blocks.altup import AltUp, Merged, Streams
from blockcalc.blocks.attention import Attention, CrossAttention
from blockcalc.blocks.embedding import Frames, LayerEmbedding, LayerInput, Patches, ValueEmbedding
from blockcalc.blocks.linear_attention import GatedDeltaNet
from blockcalc.blocks.mixer import Smear, TokenMixing
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.mlp import MLP, GatedMLP, SparseGatedMLP, gelu, gelu_tanh, quick_gelu, relu, relu_squared
from blockcalc.blocks.moe import MoE
from blockcalc.blocks.norm import LayerNorm, LayerScale, RMSNorm
from blockcalc.blocks.position import ALiBi, LearnedPositions, RelativeBias, Rotary, Sinusoidal
from blockcalc.blocks.prediction import MultiTokenPrediction
from blockcalc.blocks.wiring import Backout, Blended, Block, Laurel, Parallel, Residual, Sum
from blockcalc.errors import UndefinedError
from blockcalc.heads import Classifier, Contrastive, MaskedLMHead, MeanHead, NormedFirst, Pooler
from blockcalc.model import Embedding, Layer, LMHead, Model, Stack
from blockcalc.refmodel import measure
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.tensor import Kernels

torch.set_num_threads(1)

B, T, SOURCE = 2, 7, 5
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

rms, offset, ln, cln = RMSNorm(), RMSNorm(offset=True), LayerNorm(), LayerNorm(bias=False)
tokens, tied = Embedding(v=31, d=22), LMHead(v=31, tied=True)
grouped = partial(Attention, n=6, k=2, h=10)
heads = partial(Attention, n=5, k=5, h=6)


def block(*branches, **norms):
    """Branches one after the other, all with the same norms."""
    names = ("attention", "mlp") if len(branches) == 2 else ("attention", "cross", "mlp")
    return Block(branches=tuple(Residual(name=name, branch=one, **norms) for name, one in zip(names, branches, strict=True)))


def decoder(*layers, embedding=tokens, norm=rms, head=tied, order=(), enter=None, exit=None, i=None, **more):
    """A model of (block, how many) layers."""
    named = tuple(Layer(block=one, l=l, name=f"kind{i}") for i, (one, l) in enumerate(layers))
    stack = Stack(name="decoder", layers=named, norm=norm, order=order, enter=enter, exit=exit, i=i)
    return Model(name="model", embedding=embedding, stack=stack, head=head, **more)


def encoder(one, l, norm=None):
    return Stack(name="encoder", layers=(Layer(block=one, l=l),), norm=norm)


def gemma(w):
    return block(
        grouped(w=w, softcap=True, position=Rotary(r=10)), GatedMLP(f=29, act=gelu_tanh),
        before=RMSNorm(offset=True), after=RMSNorm(offset=True),
    )  # fmt: skip


def nano(w, valued):
    branch = grouped(
        w=w, position=Rotary(r=10), qk_norm=RMSNorm(gain=False, scaled=True), norm_last=True,
        value_embedding=ValueEmbedding(v=31, i=3) if valued else None,
    )  # fmt: skip
    return Blended(block=block(branch, MLP(f=29, act=relu_squared), before=RMSNorm(gain=False)))


def gemma4(w, kv, sparse):
    """Keys and values lent and borrowed, an input for the layer, and perhaps a mixture beside the feed-forward."""
    h, around = (10, {}) if w else (14, {"kv_tied": kv != "borrowed"})
    attention = Attention(
        n=6, k=2, h=h, w=w, position=Rotary(r=h, local=w is not None), qk_norm=rms, kv=kv,
        v_norm=None if kv == "borrowed" else RMSNorm(gain=False), **around,
    )  # fmt: skip
    experts = MoE(e=5, a=2, expert=GatedMLP(f=13), router_norm=rms, expert_norm=rms, expert_scale=True)
    dense = Residual(name="dense", branch=GatedMLP(f=29), before=rms, after=rms)
    both = Sum(branches=(dense, Residual(name="moe", branch=experts, after=rms)))
    return Block(branches=(
        Residual(name="attention", branch=attention, before=rms, after=rms),
        Residual(name="mlp", branch=both if sparse else GatedMLP(f=29), after=rms),
        Residual(name="input", branch=LayerInput(i=5), after=rms),
    ))  # fmt: skip


def gemma3n(w, kv, sparse):
    """Three streams, a low-rank residual, an input for the layer."""
    v_norm = None if kv == "borrowed" else RMSNorm(gain=False)
    attention = grouped(w=w, position=Rotary(r=10), qk_norm=rms, v_norm=v_norm, kv=kv)
    inner = Block(branches=(
        Laurel(name="attention", branch=attention, c=7),
        Residual(name="mlp", branch=(SparseGatedMLP if sparse else GatedMLP)(f=29), before=rms, after=rms),
    ))  # fmt: skip
    return AltUp(j=3, block=inner, branch=Residual(name="input", branch=LayerInput(i=5), after=rms))


rotary = grouped(position=Rotary(r=10))
mixture = MoE(e=11, a=3, expert=GatedMLP(f=13), shared=GatedMLP(f=29), score="sigmoid")
latent = MLA(n=5, c=13, q=17, p=9, r=4, u=13)
bidirectional = heads(causal=False, qkv_bias=True, o_bias=True)
bert = block(bidirectional, MLP(f=29, act=gelu, bias=True), outer=ln)
bert_input = Embedding(v=31, d=22, position=LearnedPositions(m=19), types=2, norm=ln)
biased = partial(Attention, n=6, k=6, h=10, position=RelativeBias(m=23, n=6))


def both_ways(w):
    return heads(causal=False, w=w, position=Rotary(r=6, local=w is not None))


MODELS = {
    "Llama": decoder((block(rotary, GatedMLP(f=29), before=rms), 3), head=LMHead(v=31, tied=False)),
    "GPT-2": decoder(
        (block(heads(qkv_bias=True, o_bias=True), MLP(f=29, act=gelu_tanh, bias=True), before=ln), 3),
        embedding=Embedding(v=31, d=22, position=LearnedPositions(m=19)), norm=ln,
    ),
    "GPT-J": decoder(
        (Parallel(branches=tuple(Residual(name=f"b{i}", branch=one) for i, one in enumerate((rotary, MLP(f=29)))), norm=ln), 3),
        norm=ln, head=LMHead(v=31, tied=False, bias=True),
    ),
    "Gemma 2": decoder(
        (gemma(3), 3), (gemma(None), 2), head=LMHead(v=31, tied=True, softcap=True),
        order=tuple((f"kind{i % 2}", 1) for i in range(5)),
    ),
    "Qwen3.5": decoder(
        (block(GatedDeltaNet(n=6, k=2, h=5, u=7, g=3, chunk=4), GatedMLP(f=29), before=offset), 3),
        (block(heads(output_gate=True, qk_norm=offset), GatedMLP(f=29), before=offset), 1), norm=offset,
    ),
    "Gemma 3n": decoder(
        (gemma3n(3, "own", True), 2), (gemma3n(None, "lent", True), 1), (gemma3n(3, "lent", False), 1),
        (gemma3n(3, "borrowed", False), 2), (gemma3n(None, "borrowed", False), 1), enter=Streams(j=3), exit=Merged(),
        embedding=Embedding(v=31, d=22, layers=LayerEmbedding(v=29, l=7, i=5)), order=(
            ("kind0", 1), ("kind1", 1), ("kind0", 1), ("kind2", 1), ("kind3", 1), ("kind4", 1), ("kind3", 1),
        ),
    ),
    "Gemma 4": decoder(
        (gemma4(3, "own", True), 2), (gemma4(None, "own", False), 1), (gemma4(3, "lent", False), 1),
        (gemma4(None, "lent", False), 1), (gemma4(3, "borrowed", True), 2), (gemma4(None, "borrowed", False), 2),
        embedding=Embedding(v=31, d=22, layers=LayerEmbedding(v=29, l=9, i=5)), order=(
            ("kind0", 1), ("kind1", 1), ("kind0", 1), ("kind2", 1), ("kind3", 1), ("kind4", 1), ("kind5", 1), ("kind4", 1),
            ("kind5", 1),
        ),
    ),
    "alternating windows": decoder(
        (block(grouped(w=3, position=Rotary(r=10, local=True)), GatedMLP(f=29), before=rms, after=rms), 3),
        (block(rotary, GatedMLP(f=29), before=rms, after=rms), 1), order=(("kind0", 2), ("kind1", 1), ("kind0", 1)),
    ),
    "Llama 4": decoder((block(grouped(chunk=3), GatedMLP(f=29), before=rms), 2), (block(rotary, mixture, before=rms), 1)),
    "MPT": decoder((block(grouped(position=ALiBi(n=6), clip=True), MLP(f=29), before=cln), 3), norm=cln),
    "OPT": decoder(
        (block(heads(), MLP(f=29, act=relu), outer=ln), 2), norm=None,
        embedding=Embedding(v=31, d=22, i=10, position=LearnedPositions(m=19, reserved=2)), i=10,
    ),
    "Mixtral with a dense first layer": decoder(
        (block(rotary, GatedMLP(f=29), before=rms), 1), (block(rotary, mixture, before=rms), 3),
    ),
    "DeepSeek": decoder(
        (block(latent, GatedMLP(f=29), before=rms), 1), (block(latent, mixture, before=rms), 2),
        head=LMHead(v=31, tied=False), predictors=(MultiTokenPrediction(block=block(latent, mixture, before=rms), last=rms),),
    ),
    "nanochat": decoder(
        (nano(3, True), 2), (nano(None, False), 1), embedding=Embedding(v=31, d=22, norm=RMSNorm(gain=False), smear=Smear(i=7)),
        norm=RMSNorm(gain=False), exit=Backout(), head=LMHead(v=31, tied=False, softcap=True, used=23, wide=True),
    ),
    "BERT": decoder((bert, 3), embedding=bert_input, norm=None, head=MaskedLMHead(output=LMHead(v=31, tied=True, bias=True))),
    "BERT, classes": decoder((bert, 2), embedding=bert_input, norm=None, head=Pooler(v=3)),
    "BERT, token classes": decoder((bert, 2), embedding=bert_input, norm=None, head=Classifier(v=3, bias=True)),
    "ELECTRA": decoder((bert, 2), embedding=bert_input, norm=None, head=Classifier(v=1, bias=True, act=gelu)),
    "ALBERT": Model(
        name="ALBERT",
        embedding=Embedding(v=31, d=22, i=10, all_narrow=True, position=LearnedPositions(m=19), types=2, norm=ln),
        stack=Stack(name="encoder", layers=(Layer(block=bert, l=5, j=2),)),
        head=MaskedLMHead(output=LMHead(v=31, tied=True, bias=True)),
    ),
    "T5": decoder(
        (block(biased(), CrossAttention(n=6, k=6, h=10), MLP(f=29), before=rms), 3),
        encoder=encoder(block(biased(causal=False), MLP(f=29), before=rms), 2, rms),
    ),
    "the first transformer": decoder(
        (block(heads(), CrossAttention(n=5, k=5, h=6), MLP(f=29, bias=True), outer=ln), 2),
        embedding=Embedding(v=31, d=22, position=Sinusoidal()), norm=None,
        encoder=encoder(block(heads(causal=False), MLP(f=29, bias=True), outer=ln), 3),
    ),
    "Marian": decoder(
        (block(heads(), CrossAttention(n=5, k=5, h=6), MLP(f=29, bias=True), outer=ln), 2),
        embedding=Embedding(v=31, d=22, position=Sinusoidal(m=19)), norm=None,
        encoder_embedding=Embedding(v=37, d=22, position=Sinusoidal(m=19)),
        encoder=encoder(block(heads(causal=False), MLP(f=29, bias=True), outer=ln), 3),
    ),
    "Whisper": decoder(
        (block(heads(k_bias=False, qkv_bias=True), CrossAttention(n=5, k=5, h=6), MLP(f=29, act=gelu), before=ln), 2),
        embedding=Embedding(v=31, d=22, position=LearnedPositions(m=19)), norm=ln, encoder_embedding=Frames(d=26, m=5, x=3),
        encoder=encoder(block(bidirectional, MLP(f=37, act=gelu), before=ln), 2, ln),
    ),
    "ViT": decoder(
        (block(bidirectional, MLP(f=29, act=gelu), before=ln), 2), embedding=Patches(d=22, m=6, y=9, x=3, z=61), norm=ln,
        head=Classifier(v=5, bias=True, first=True),
    ),
    "DINOv2": decoder(
        (block(bidirectional, MLP(f=29, act=gelu, bias=True), before=ln, after=LayerScale()), 2), norm=ln,
        embedding=Patches(d=22, m=6, y=9, x=3, reserved=1), head=Classifier(v=5, bias=True, first=True),
    ),
    "ModernBERT": decoder(
        (block(both_ways(None), GatedMLP(f=29, act=gelu), before=cln), 1),
        (block(both_ways(3), GatedMLP(f=29, act=gelu), before=cln), 2),
        embedding=Embedding(v=31, d=22, norm=cln), norm=cln, order=(("kind0", 1), ("kind1", 2)),
        head=MaskedLMHead(output=LMHead(v=31, tied=True, bias=True), norm=cln, bias=False),
    ),
    "ModernBERT, classes of the mean": decoder(
        (block(both_ways(3), GatedMLP(f=29, act=gelu), before=cln), 2), embedding=Embedding(v=31, d=22, norm=cln), norm=cln,
        head=Classifier(v=3, bias=True, mean=True, act=gelu, norm=cln, hidden_bias=False),
    ),
    "CLIP": decoder(
        (block(heads(qkv_bias=True, o_bias=True, cached=False), MLP(f=29, act=quick_gelu, bias=True), before=ln), 2),
        embedding=Embedding(v=31, d=22, position=LearnedPositions(m=19)), norm=ln, head=Contrastive(i=17),
        encoder=encoder(block(bidirectional, MLP(f=37, act=quick_gelu, bias=True), before=ln), 3),
        encoder_embedding=Patches(d=26, m=6, y=9, x=3, bias=False, norm=ln),
    ),
    "CLIP's images": decoder(
        (block(bidirectional, MLP(f=37, act=quick_gelu, bias=True), before=ln), 3), norm=None, head=NormedFirst(v=17),
        embedding=Patches(d=22, m=6, y=9, x=3, bias=False, norm=ln),
    ),
    "MLP-Mixer": decoder(
        (block(TokenMixing(f=13), MLP(f=29, act=gelu, bias=True), before=ln), 2), norm=ln, head=MeanHead(v=5),
        embedding=Patches(d=22, m=7, y=9, x=3, class_token=False, positions=False),
    ),
}  # fmt: skip

WITHOUT_FLASH = {"Gemma 2", "T5"}


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("kernel", ["math", "flash", "fused"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_costs_what_its_twin_costs(name, dtype, kernel, recompute):
    how = Step.train(B, T, SOURCE), Kernels(attention=kernel), recompute
    if kernel == "flash" and name in WITHOUT_FLASH:
        with pytest.raises(UndefinedError, match="flash"):
            MODELS[name].budget(*how)
        return
    torch.manual_seed(0)
    twin, budget = build(MODELS[name]).to(DTYPES[dtype]), MODELS[name].budget(*how)
    step = measure.loss(twin, B, T, SOURCE)
    assert budget.parameters().total == measure.parameters(twin)
    work, kept = budget.work(), budget.activations(widths(dtype))
    found = measure.flops(step, Run(kernel=kernel, recompute=recompute))
    assert (2 * work.forward, 2 * (work.backward + work.recompute)) == found
    saved = measure.saved(step, twin.parameters(), Run(kernel=kernel, recompute=recompute))
    assert (kept.bytes, kept.per_layer, kept.buffers, kept.loss, kept.rest) == saved


@pytest.mark.parametrize("name", MODELS)
def test_active_parameters_are_those_that_one_token_gives_a_gradient_to(name):
    torch.manual_seed(0)
    twin = build(MODELS[name])
    inputs = measure.inputs(twin, 1, 1, 1)
    if name == "nanochat":  # its gate of the position before has none to read in a sequence of one token
        inputs = measure.inputs(twin, 1, 2, 1)
    active = MODELS[name].budget(Step.forward(1, 1)).parameters().active
    assert active == measure.active_parameters(twin, lambda run: sum(twin.outputs(inputs[0], run, inputs[1])))


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("dropout", ["noise", "mask"])
@pytest.mark.parametrize("kernel", ["math", "fused"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["GPT-2", "Llama", "BERT", "T5", "Gemma 2"])
def test_dropout_keeps_noise_or_a_mask_and_in_one_kernel_a_seed(name, dtype, kernel, dropout, recompute):
    torch.manual_seed(0)
    kernels = Kernels(attention=kernel, dropout=dropout)
    if (name, kernel) == ("Gemma 2", "fused"):
        with pytest.raises(UndefinedError, match="soft-capped scores with dropout"):
            MODELS[name].budget(Step.train(B, T, SOURCE), kernels)
        return
    twin = build(MODELS[name]).to(DTYPES[dtype])
    kept = MODELS[name].budget(Step.train(B, T, SOURCE), kernels, recompute).activations(widths(dtype))
    run = Run(kernel=kernel, dropout=dropout, recompute=recompute)
    saved = measure.saved(measure.loss(twin, B, T, SOURCE), twin.parameters(), run)
    assert (kept.bytes, kept.per_layer, kept.buffers, kept.loss, kept.rest) == saved
    assert kept.bytes > MODELS[name].budget(Step.train(B, T, SOURCE), None, "full").activations(widths(dtype)).bytes
