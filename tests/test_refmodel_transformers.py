"""The twin is the model, not only its size: with transformers' own weights it computes transformers' own logits.

A small config is read, its twin built, and every weight of transformers' module copied over, once and whole. Weights are
all drawn at random, gains and biases too. A constant that costs nothing is not declared, and so is in no twin: scales are
multiplied into the copied weights (``fold``), the rest is an attribute that the test sets (``settle``). Where a declaration
says only *that* there is a constant (a soft cap, a second rotary base), the config takes the twin's.
"""

from dataclasses import dataclass, field
from functools import cache, partial

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers_truth import config_of

from blockcalc.readers import read
from blockcalc.readers.families import FAMILIES
from blockcalc.refmodel.attention import Attention
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.refmodel.dispatch import BASE, CAP, CLIP, LOCAL_BASE
from blockcalc.refmodel.mlp import ClampedGatedMLP
from blockcalc.refmodel.moe import MoE
from blockcalc.refmodel.position import Rotary
from blockcalc.tensor import Step

torch.set_num_threads(1)

B, T, SOURCE = 2, 13, 11


# -- what transformers stores as one, in parts; (name, weight, config) to names and weights ---------------------------------


def whole(name, weight, config):
    return {name: weight}


def thirds(name, weight, config):
    """Queries, keys and values one after the other; GPT-2's matrices are transposed."""
    if config.model_type == "gpt2" and ".c_" in name and weight.dim() == 2:
        weight = weight.T
    for fused in ("c_attn", "Wqkv"):
        if fused in name:
            return {name.replace(fused, letter): part for letter, part in zip("qkv", weight.chunk(3), strict=True)}
    return {name: weight}


def head_by_head(name, weight, config):
    """Queries, keys and values of a head, then the next head's."""
    if "query_key_value" not in name:
        return {name: weight}
    parts = weight.unflatten(0, (config.num_attention_heads, 3, -1)).unbind(1)
    return {name.replace("query_key_value", letter): part.flatten(0, 1) for letter, part in zip("qkv", parts, strict=True)}


def experts(name, weight, config, *, crossed=False):
    """A bank of experts; gpt-oss's matrices are transposed, gate and up rows in turn."""
    if ".experts." not in name:
        return {name: weight}
    stem, last = name.rsplit(".", 1)
    end = "bias" if last.endswith("_bias") else "weight"
    weight = weight.mT if crossed and end == "weight" else weight  # e f d, or e f
    if last.startswith("down"):
        named = {"down": weight}
    else:
        gate, up = (weight[:, 0::2], weight[:, 1::2]) if crossed else weight.chunk(2, dim=1)
        named = {"gate": gate, "up": up}
    return {f"{stem}.{i}.{part}.{end}": one for part, bank in named.items() for i, one in enumerate(bank)}


def halves(weight, n, r=None):
    """Rows of n heads whose first r entries are rotated, from pairs side by side to pairs half apart."""
    rows = weight.unflatten(0, (n, -1))
    r = rows.size(1) if r is None else r
    return torch.cat((rows[:, 0:r:2], rows[:, 1:r:2], rows[:, r:]), dim=1).flatten(0, 1)


def side_by_side(name, weight, config):
    """GPT-J and Cohere rotate pairs that stand side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": getattr(config, "num_key_value_heads", config.num_attention_heads)}
    for part, n in heads.items():
        if part in name:
            return {name: halves(weight, n, getattr(config, "rotary_dim", None))}
    return {name: weight}


def latents(name, weight, config):
    """DeepSeek's matrices: down and up, position-free and rotary, keys and values."""
    n, p, c = config.num_attention_heads, config.qk_nope_head_dim, config.kv_lora_rank
    stem = name.split("self_attn.")[0] + "self_attn."
    if "q_b_proj" in name:
        rows = weight.unflatten(0, (n, -1))
        return {f"{stem}W_UQ.weight": rows[:, :p].flatten(0, 1), f"{stem}W_QR.weight": halves(rows[:, p:].flatten(0, 1), n)}
    if "kv_a_proj" in name:
        return {f"{stem}W_DKV.weight": weight[:c], f"{stem}W_KR.weight": halves(weight[c:], 1)}
    if "kv_b_proj" in name:
        rows = weight.unflatten(0, (n, -1))
        return {f"{stem}W_UK.weight": rows[:, :p].flatten(0, 1), f"{stem}W_UV.weight": rows[:, p:].flatten(0, 1)}
    return experts(name, weight, config)


# -- scales, multiplied into weights; (the twin's weights by name, config) --------------------------------------------------


def scale(named, end, factor):
    """Multiply the weights whose names end so."""
    for name in (name for name in named if name.endswith(end)):
        named[name] = named[name] * factor


def nothing(named, config):
    pass


def gemma(named, config):
    """Token vectors times √d, which the tied head must not see; scores by query_pre_attn_scalar and not by h. Gains 1 + w."""
    root, of_scores = config.hidden_size**0.5, (config.head_dim / config.query_pre_attn_scalar) ** 0.5
    scale(named, "embedding.token", root)
    named["stack.norm.w"] = (1 + named["stack.norm.w"]) / root - 1
    norms = [name for name in named if name.endswith("q_norm.w")]
    for name in norms:
        named[name] = (1 + named[name]) * of_scores - 1
    if not norms:
        scale(named, "branch.q.weight", of_scores)


def t5(named, config):
    """Scores are not divided by √h, and the stream is before the tied head."""
    scale(named, ".q.weight", config.d_kv**0.5)
    scale(named, "stack.norm.gain", config.d_model**-0.5)


def deepseek(named, config):
    """The chosen experts' weights are multiplied once more."""
    for part in range(config.n_routed_experts):
        scale(named, f"experts.{part}.down.weight", config.routed_scaling_factor)


def cohere(named, config):
    """Logits are scaled."""
    scale(named, "stack.norm.gain", config.logit_scale)


def granite(named, config):
    """Four multipliers: of token vectors, scores, branches and (a divisor) logits."""
    h = config.hidden_size // config.num_attention_heads
    scale(named, "embedding.token", config.embedding_multiplier)
    scale(named, "branch.q.weight", config.attention_multiplier * h**0.5)
    scale(named, "branch.o.weight", config.residual_multiplier)
    scale(named, "down.weight", config.residual_multiplier)
    scale(named, "head.matrix", 1 / config.logits_scaling)


# -- choices that cost nothing, set on the twin; (twin, transformers' module) -----------------------------------------------


def as_built(twin, theirs):
    pass


def choose_by_group(twin, theirs):
    """DeepSeek-V3, arXiv:2412.19437, section 2.1.2: a bias for the choice alone, and experts of the best groups only."""
    routers = [module for name, module in theirs.named_modules() if name.endswith("mlp.gate")]
    mixtures = [module for module in twin.modules() if isinstance(module, MoE)]
    for mixture, router in zip(mixtures, routers, strict=True):
        mixture.route = partial(route_by_group, mixture, router.e_score_correction_bias, router.num_group, router.topk_group)


def route_by_group(mixture, correction, groups, kept, x):
    scores = mixture.router(x).sigmoid()  # b t e
    grouped = (scores + correction).unflatten(-1, (groups, -1))  # b t groups e/groups
    best = grouped.topk(2).values.sum(-1).topk(kept).indices  # b t kept
    hidden = torch.ones(grouped.shape[:-1], dtype=torch.bool).scatter(-1, best, False)  # b t groups
    chosen = grouped.masked_fill(hidden[..., None], float("-inf")).flatten(-2).topk(mixture.a).indices  # b t a
    weights = scores.gather(-1, chosen)
    return chosen, weights / weights.sum(-1, keepdim=True)


# -- the families -----------------------------------------------------------------------------------------------------------

LLAMA = {
    "model.embed_tokens.weight": "embedding.token", "lm_head.weight": "head.matrix", "model.": "stack.", "_proj": "",
    "self_attn": "branches.0.branch", "mlp": "branches.1.branch",
    "input_layernorm": "branches.0.before", "post_attention_layernorm": "branches.1.before",
}  # fmt: skip
SPARSE = {"mlp.gate.": "mlp.router.", "shared_experts": "shared", **LLAMA}
BEHIND = {"post_attention_layernorm": "branches.0.after", "post_feedforward_layernorm": "branches.1.after"}
SANDWICH = {**BEHIND, "pre_feedforward_layernorm": "branches.1.before", **LLAMA}
LATENT = {
    "q_a_proj": "W_DQ", "o_proj": "W_O", "q_a_layernorm": "q_norm", "kv_a_layernorm": "kv_norm", **SPARSE,
}  # fmt: skip
GPT2 = {
    "transformer.wte.weight": "embedding.token", "transformer.wpe.weight": "embedding.position.table",
    "transformer.h": "stack.layers", "transformer.ln_f": "stack.norm", "ln_1": "branches.0.before", "ln_2": "branches.1.before",
    "attn.c_proj": "attn.o", "attn": "branches.0.branch", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down",
    "mlp": "branches.1.branch",
}  # fmt: skip
NEOX = {
    "gpt_neox.embed_in.weight": "embedding.token", "embed_out.weight": "head.matrix", "lm_head.weight": "head.matrix",
    "gpt_neox.final_layer_norm": "stack.norm", "transformer.word_embeddings.weight": "embedding.token",
    "transformer.word_embeddings_layernorm": "embedding.norm", "transformer.ln_f": "stack.norm", "transformer.h": "stack.layers",
    "gpt_neox.layers": "stack.layers", "input_layernorm": "branches.0.before", "post_attention_layernorm": "branches.1.before",
    "mlp.dense_h_to_4h": "branches.1.branch.up", "mlp.dense_4h_to_h": "branches.1.branch.down", "dense": "o",
    "self_attention": "branches.0.branch", "attention": "branches.0.branch",
}  # fmt: skip
MPT = {
    "transformer.wte.weight": "embedding.token", "transformer.blocks": "stack.layers", "transformer.norm_f": "stack.norm",
    "norm_1": "branches.0.before", "norm_2": "branches.1.before", "attn.out_proj": "attn.o", "attn": "branches.0.branch",
    "ffn": "branches.1.branch", "_proj": "",
}  # fmt: skip
GPTJ = {
    "transformer.wte.weight": "embedding.token", "lm_head.weight": "head.matrix", "lm_head.bias": "head.bias",
    "transformer.h": "stack.layers", "transformer.ln_f": "stack.norm", "ln_1": "norm", "out_proj": "o", "_proj": "",
    "attn": "branches.0.branch", "mlp.fc_in": "branches.1.branch.up", "mlp.fc_out": "branches.1.branch.down",
}  # fmt: skip
OPT = {
    "model.decoder.embed_tokens.weight": "embedding.token", "model.decoder.embed_positions.weight": "embedding.position.table",
    "model.decoder.project_in": "embedding.project", "model.decoder.project_out": "stack.project",
    "model.decoder.final_layer_norm": "stack.norm", "model.decoder": "stack", "self_attn_layer_norm": "branches.0.before",
    "final_layer_norm": "branches.1.before", "out_proj": "o", "_proj": "", "self_attn": "branches.0.branch",
    "fc1": "branches.1.branch.up", "fc2": "branches.1.branch.down",
}  # fmt: skip
BERT = {
    "bert.embeddings.word_embeddings.weight": "embedding.token", "bert.embeddings.token_type_embeddings.weight": "embedding.types",
    "bert.embeddings.position_embeddings.weight": "embedding.position.table", "bert.embeddings.LayerNorm": "embedding.norm",
    "bert.encoder.layer": "stack.layers", "attention.output.LayerNorm": "branches.0.outer", "attention.output.dense": "self.o",
    "attention.self": "self", "self": "branches.0.branch", "query": "q", "key": "k", "value": "v",
    "intermediate.dense": "branches.1.branch.up", "output.dense": "branches.1.branch.down", "output.LayerNorm": "branches.1.outer",
    "cls.predictions.bias": "head.output.bias", "cls.predictions.transform.dense": "head.transform",
    "cls.predictions.transform.LayerNorm": "head.norm",
}  # fmt: skip
T5 = {
    "shared.weight": "encoder_embedding.token", "decoder": "stack", "final_layer_norm": "norm",
    "block.0.layer.0.SelfAttention.relative_attention_bias.weight": "biases.0.table", "block": "layers",
    "layer.": "branches.", "layer_norm": "before", "SelfAttention": "branch", "EncDecAttention": "branch",
    "DenseReluDense": "branch", "wi_0": "gate", "wi_1": "up", "wi": "up", "wo": "down",
}  # fmt: skip


@dataclass
class Case:
    """A config, and how to copy: their words and the twin's, in the order in which they are replaced."""

    config: dict
    words: dict
    split: object = whole
    fold: object = nothing
    settle: object = as_built
    spread: float = 1.0  # of the drawn matrices, so that what is cut off is cut off
    dead: tuple = field(default=())  # ends of the names of what no logit depends on


THETA = {"rope_theta": BASE, "rope_type": "default"}
KEYS = ("branch.k.bias",)  # one number more for all keys of a query
PLAIN = dict(
    vocab_size=53, hidden_size=24, intermediate_size=29, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=31,
    pad_token_id=None, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
GROUPED = dict(**PLAIN, num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=THETA)
WIDE = dict(**GROUPED, head_dim=10)
GEMMA = dict(**WIDE, query_pre_attn_scalar=7, sliding_window=5, final_logit_softcapping=CAP)
ALTERNATING = dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"])
DEEPSEEK = dict(
    **{**GROUPED, "num_key_value_heads": 4}, moe_intermediate_size=11, n_shared_experts=2, n_routed_experts=6, n_group=3,
    topk_group=2, num_experts_per_tok=2, first_k_dense_replace=1, kv_lora_rank=13, q_lora_rank=17, qk_rope_head_dim=6,
    qk_nope_head_dim=9, v_head_dim=7, routed_scaling_factor=2.5,
)  # fmt: skip
OLD = dict(vocab_size=53, pad_token_id=None, bos_token_id=0, eos_token_id=0)
T5_SIZES = dict(
    vocab_size=53, d_model=24, d_kv=10, d_ff=29, num_layers=2, num_decoder_layers=3, num_heads=3, pad_token_id=None, eos_token_id=0,
    relative_attention_num_buckets=10,
)  # fmt: skip

CASES = {
    "gpt2": Case(dict(**OLD, n_positions=31, n_embd=24, n_layer=3, n_head=4), GPT2, thirds, dead=KEYS),
    "llama": Case(GROUPED, LLAMA),
    "llama, biased": Case(dict(**WIDE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), LLAMA),
    "mistral": Case(dict(**WIDE, sliding_window=5), LLAMA),
    "mixtral": Case(dict(**GROUPED, num_local_experts=5, num_experts_per_tok=2), SPARSE, experts),
    "qwen2": Case(GROUPED, LLAMA),
    "qwen3": Case(WIDE, LLAMA),
    "qwen3_moe": Case(dict(**WIDE, moe_intermediate_size=11, num_experts=5, num_experts_per_tok=2), SPARSE, experts),
    "qwen3_moe, renormalised": Case(
        dict(**WIDE, moe_intermediate_size=11, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True), SPARSE, experts,
    ),
    "gpt_oss": Case(
        dict(**WIDE, num_local_experts=5, num_experts_per_tok=2, sliding_window=5, **ALTERNATING), SPARSE,
        partial(experts, crossed=True), spread=3,
    ),
    "deepseek_v3": Case(DEEPSEEK, LATENT, latents, deepseek, choose_by_group),
    "gemma2": Case(dict(**GEMMA, attn_logit_softcapping=CAP, **ALTERNATING), SANDWICH, fold=gemma),
    "gemma3_text": Case(
        {**GEMMA, **ALTERNATING, "rope_parameters": {
            "sliding_attention": {**THETA, "rope_theta": LOCAL_BASE}, "full_attention": THETA,
        }}, SANDWICH, fold=gemma,
    ),
    "olmo2": Case(GROUPED, {**BEHIND, "_norm.": "_norm.norm.", **LLAMA}),
    "cohere": Case(
        dict(**PLAIN, num_key_value_heads=2, layer_norm_eps=1e-5, rope_parameters=THETA),
        {"input_layernorm": "norm", **LLAMA}, side_by_side, cohere,
    ),
    "granite": Case(
        dict(**GROUPED, embedding_multiplier=3.0, attention_multiplier=0.7, residual_multiplier=0.6, logits_scaling=2.0),
        LLAMA, fold=granite,
    ),
    "gpt_neox": Case(
        dict(**{**PLAIN, "hidden_size": 32}, rope_parameters={**THETA, "partial_rotary_factor": 0.25}), NEOX, head_by_head,
    ),
    "gpt_neox, in series": Case(dict(**PLAIN, rope_parameters=THETA, use_parallel_residual=False), NEOX, head_by_head),
    "gptj": Case(dict(**OLD, n_positions=31, n_embd=24, n_layer=3, n_head=3, rotary_dim=6), GPTJ, side_by_side),
    "bloom": Case(dict(**OLD, hidden_size=30, n_layer=3, n_head=6), NEOX, head_by_head, dead=KEYS),
    "mpt": Case(
        dict(**OLD, d_model=30, n_layers=3, n_heads=6, max_seq_len=31, attn_config={"clip_qkv": CLIP}), MPT, thirds, spread=3,
    ),
    "opt": Case(
        dict(**OLD, hidden_size=24, ffn_dim=29, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=31,
             word_embed_proj_dim=17), OPT, dead=KEYS,
    ),
    "bert": Case(dict(**PLAIN, layer_norm_eps=1e-5), BERT, dead=KEYS),
    "t5": Case(T5_SIZES, T5, fold=t5),
    "t5, gated": Case(dict(**T5_SIZES, feed_forward_proj="gated-gelu"), T5, fold=t5),
}  # fmt: skip


# -- both, side by side -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def draw(model, spread):
    """Random weights; gains and biases away from their one and nought."""
    for weight in model.parameters():
        if weight.dim() == 1:
            weight.add_(torch.randn_like(weight) * 0.3)
        else:
            weight.copy_(torch.randn_like(weight) * spread * weight.size(-1) ** -0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.randn_like(buffer) * 0.3)


def renamed(name, words, own):
    """The twin's name; a norm's weight is a gain there, or Gemma's w."""
    for word, ours in words.items():
        name = name.replace(word, ours)
    ends = [name, *(name.removesuffix("weight") + end for end in ("gain", "w"))]
    return next((name for name in ends if name in own), name)


@torch.no_grad()
def copy(case, theirs, twin):
    """Every weight of theirs into the twin, each once."""
    own = dict(twin.named_parameters())
    parts = {}
    for name, weight in theirs.named_parameters():
        parts |= case.split(name, weight, theirs.config)
    named = {renamed(name, case.words, own): part for name, part in parts.items()}
    assert len(named) == len(parts) and named.keys() == own.keys()
    case.fold(named, theirs.config)
    for name, weight in own.items():
        assert weight.shape == named[name].shape, name
        weight.copy_(named[name])
    case.settle(twin, theirs)


@cache
def pair(name):
    """The declaration, its twin, and transformers' module, the last two with the same weights."""
    torch.manual_seed(0)
    case, kind = CASES[name], name.split(",")[0]
    config, knobs = {"model_type": kind, **case.config}, FAMILIES[kind].knobs
    theirs = getattr(transformers, f"{knobs['prefix']}{knobs['classes'][0]}")._from_config(
        config_of(config), attn_implementation="eager", experts_implementation="eager"
    ).eval()  # fmt: skip
    model = read(config, "x")
    twin = build(model)
    draw(theirs, case.spread)
    copy(case, theirs, twin)
    return model, twin, theirs


def tokens(theirs, t=T, source=SOURCE):
    """Tokens, and an encoder's where there is one."""
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(53, (B, length), generator=generator) for length in (t, source)]
    return ids if theirs.config.is_encoder_decoder else ids[:1]


@torch.no_grad()
def their_logits(theirs, ids, source=None):
    return theirs(ids).logits if source is None else theirs(input_ids=source, decoder_input_ids=ids).logits


@torch.no_grad()
def our_logits(twin, ids, source=None):
    return twin(ids, Run(), source)


def flops(logits, *given):
    with FlopCounterMode(display=False) as counter:
        logits(*given)
    return counter.get_total_flops()


@pytest.mark.parametrize("name", CASES)
def test_a_twin_with_the_weights_of_transformers_has_its_logits(name):
    _, twin, theirs = pair(name)
    ids = tokens(theirs)
    logits = their_logits(theirs, *ids)
    assert logits.std() > 0.1
    torch.testing.assert_close(our_logits(twin, *ids), logits)


@pytest.mark.parametrize("name", CASES)
def test_a_twin_costs_what_transformers_costs(name):
    model, twin, theirs = pair(name)
    budget = model.budget(Step.forward(B, T, SOURCE))
    counts = [sum(weight.numel() for weight in module.parameters()) for module in (twin, theirs)]
    assert counts == [budget.parameters().total] * 2
    ids = tokens(theirs)
    assert flops(our_logits, twin, *ids) == flops(their_logits, theirs, *ids) == 2 * budget.work().forward


def test_the_far_buckets_of_t5_are_those_of_transformers():
    _, twin, theirs = pair("t5")
    ids = tokens(theirs, 150, 160)
    torch.testing.assert_close(our_logits(twin, *ids), their_logits(theirs, *ids))


@pytest.mark.parametrize("name", CASES)
def test_no_weight_can_change_unnoticed(name):
    _, twin, theirs = pair(name)
    ids = tokens(theirs)
    logits, generator = our_logits(twin, *ids), torch.Generator().manual_seed(2)
    for name_of, weight in twin.named_parameters():
        before = weight.detach().clone()
        with torch.no_grad():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
            moved = (our_logits(twin, *ids) - logits).abs().max()
            weight.copy_(before)
        assert (moved < 1e-4) if name_of.endswith(CASES[name].dead or "nothing") else (moved > 1e-3), name_of


CONSTANTS = {Rotary: ("base",), Attention: ("w", "clip", "cap"), ClampedGatedMLP: ("alpha", "limit")}


@pytest.mark.parametrize("name", CASES)
def test_no_constant_can_change_unnoticed(name):
    _, twin, theirs = pair(name)
    ids = tokens(theirs)
    logits = our_logits(twin, *ids)
    for module in twin.modules():
        for constant in CONSTANTS.get(type(module), ()):
            before = getattr(module, constant)
            if before is not None:
                setattr(module, constant, before - 1 if constant == "w" else before * 0.9)
                moved = (our_logits(twin, *ids) - logits).abs().max()
                setattr(module, constant, before)
                assert moved > 1e-4, constant
