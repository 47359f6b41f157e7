"""The twin is the model, not only its size: with transformers' own weights it computes transformers' own logits.

A small config is read, its twin built, and every weight of transformers' module copied over, once and whole. Weights are
all drawn at random, gains and biases too. A constant that costs nothing is not declared, and so is in no twin: scales are
multiplied into the copied weights (``fold``), the rest is an attribute that the test sets (``settle``). Where a declaration
says only *that* there is a constant (a soft cap, a second rotary base), the config takes the twin's.
"""

from dataclasses import replace
from functools import cache, partial

import dense_logits
import mixture_logits
import pytest
import torch
import transformers
import transformers_states as states
import transformers_weights as weights
from logits import ALTERNATING, GROUPED, KEYS, LAYER_NORM, OLD, PLAIN, THETA, WIDE, Case, without
from torch.utils.flop_counter import FlopCounterMode
from transformers_truth import config_of

from blockcalc.readers import read
from blockcalc.readers.families import FAMILIES
from blockcalc.refmodel.attention import Attention
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.refmodel.dispatch import CAP, CLIP, LOCAL_BASE
from blockcalc.refmodel.mlp import ClampedGatedMLP, SparseGatedMLP
from blockcalc.refmodel.position import Rotary
from blockcalc.tensor import Step

torch.set_num_threads(1)

B, T, SOURCE = 4, 17, 11

LINEAR = dict(
    layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2, linear_num_value_heads=6,
    linear_key_head_dim=9, linear_value_head_dim=7, linear_conv_kernel_dim=3, hidden_act="gelu", head_dim=12,
    rope_parameters={**THETA, "partial_rotary_factor": 0.5},
)  # fmt: skip
MIXED = dict(**PLAIN, num_key_value_heads=2, norm_eps=1e-6, rope_parameters=THETA)
RECURRENT = dict(
    vocab_size=53, hidden_size=24, num_hidden_layers=3, pad_token_id=None, bos_token_id=0, eos_token_id=0,
    layer_norm_epsilon=1e-6,
)  # fmt: skip
HYBRID = dict(**{**PLAIN, "hidden_size": 32}, num_key_value_heads=2, rms_norm_eps=1e-6)
STATE = dict(mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=5, mamba_chunk_size=5, rope_parameters=THETA)
GEMMA = dict(**WIDE, query_pre_attn_scalar=7, sliding_window=5, final_logit_softcapping=CAP)
GEMMA4 = dict(
    **without(WIDE, "num_hidden_layers", "rope_parameters"), sliding_window=5, final_logit_softcapping=CAP, global_head_dim=14,
    vocab_size_per_layer_input=53, hidden_size_per_layer_input=6, rope_parameters={
        "sliding_attention": {**THETA, "rope_theta": LOCAL_BASE}, "full_attention": THETA,
    },
)  # fmt: skip
DEEPSEEK = dict(
    **{**GROUPED, "num_key_value_heads": 4}, moe_intermediate_size=11, n_shared_experts=2, n_routed_experts=6, n_group=3,
    topk_group=2, num_experts_per_tok=2, first_k_dense_replace=1, kv_lora_rank=13, q_lora_rank=17, qk_rope_head_dim=6,
    qk_nope_head_dim=9, v_head_dim=7, routed_scaling_factor=2.5,
)  # fmt: skip
MIXTURE = dict(moe_intermediate_size=11, num_experts=5, num_experts_per_tok=2)
T5_SIZES = dict(
    vocab_size=53, d_model=24, d_kv=10, d_ff=29, num_layers=2, num_decoder_layers=3, num_heads=3,
    pad_token_id=None, eos_token_id=0, relative_attention_num_buckets=10,
)  # fmt: skip
FALCON_SIZES = dict(**OLD, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, rope_parameters=THETA)

CASES = {
    "gpt2": Case(dict(**OLD, n_positions=31, n_embd=24, n_layer=3, n_head=4), weights.GPT2, weights.thirds, dead=KEYS),
    "llama": Case(GROUPED, weights.LLAMA),
    "llama, biased": Case(dict(**WIDE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), weights.LLAMA),
    "mistral": Case(dict(**WIDE, sliding_window=5), weights.LLAMA),
    "mixtral": Case(dict(**GROUPED, num_local_experts=5, num_experts_per_tok=2), weights.SPARSE, weights.experts),
    "qwen2": Case(GROUPED, weights.LLAMA),
    "qwen3": Case(WIDE, weights.LLAMA),
    "qwen3_moe": Case(dict(**WIDE, **MIXTURE), weights.SPARSE, weights.experts),
    "qwen3_moe, renormalised": Case(dict(**WIDE, **MIXTURE, norm_topk_prob=True), weights.SPARSE, weights.experts),
    "gpt_oss": Case(
        dict(**WIDE, num_local_experts=5, num_experts_per_tok=2, sliding_window=5, **ALTERNATING), weights.SPARSE,
        partial(weights.experts, crossed=True), spread=3,
    ),
    "deepseek_v3": Case(DEEPSEEK, weights.LATENT, weights.latents, weights.deepseek, weights.choose_by_group),
    "gemma2": Case(dict(**GEMMA, attn_logit_softcapping=CAP, **ALTERNATING), weights.SANDWICH, fold=weights.gemma),
    "gemma3_text": Case(
        {**GEMMA, **ALTERNATING, "rope_parameters": {
            "sliding_attention": {**THETA, "rope_theta": LOCAL_BASE}, "full_attention": THETA,
        }}, weights.SANDWICH, fold=weights.gemma,
    ),
    "gemma3n_text": Case(
        dict(**without(GEMMA4, "global_head_dim"), num_hidden_layers=4, num_kv_shared_layers=2, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention", "full_attention",
        ], altup_num_inputs=3, laurel_rank=5, activation_sparsity_pattern=[0.7, 0.0, 0.95, 0.0]),
        weights.STREAMS, fold=weights.gemma4, settle=weights.cut_off,
    ),
    "gemma4_text": Case(
        dict(**GEMMA4, num_hidden_layers=5, num_kv_shared_layers=2, use_double_wide_mlp=True, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention",
        ]), weights.GEMMA4, fold=weights.gemma4,
    ),
    "gemma4_text, a mixture beside": Case(
        dict(**GEMMA4, num_hidden_layers=3, **ALTERNATING, attention_k_eq_v=True, num_global_key_value_heads=1,
             enable_moe_block=True, moe_intermediate_size=11, num_experts=5, top_k_experts=2),
        weights.BESIDE, weights.experts, weights.gemma4,
    ),
    "olmo2": Case(GROUPED, {**weights.LLAMA, **weights.BEHIND, "_norm.": "_norm.norm."}),
    "cohere": Case(
        dict(**LAYER_NORM, rope_parameters=THETA, logit_scale=0.5),
        {**weights.LLAMA, "input_layernorm": "norm"}, weights.side_by_side, weights.cohere,
    ),
    "granite": Case(
        dict(**GROUPED, embedding_multiplier=3.0, attention_multiplier=0.7, residual_multiplier=0.6, logits_scaling=2.0),
        weights.LLAMA, fold=weights.granite,
    ),
    "gpt_neox": Case(
        dict(**{**PLAIN, "hidden_size": 64}, rope_parameters={**THETA, "partial_rotary_factor": 0.25}),
        weights.NEOX, weights.head_by_head,
    ),
    "gpt_neox, in series": Case(
        dict(**PLAIN, rope_parameters={**THETA, "partial_rotary_factor": 1.0}, use_parallel_residual=False),
        weights.NEOX, weights.head_by_head,
    ),
    "gptj": Case(dict(**OLD, n_positions=31, n_embd=24, n_layer=3, n_head=3, rotary_dim=6), weights.GPTJ, weights.side_by_side),
    "bloom": Case(dict(**OLD, hidden_size=30, n_layer=3, n_head=6), weights.NEOX, weights.head_by_head, dead=KEYS),
    "mpt": Case(
        dict(**OLD, d_model=30, n_layers=3, n_heads=6, max_seq_len=31, attn_config={"clip_qkv": CLIP}),
        weights.MPT, weights.thirds, spread=3,
    ),
    "falcon": Case(FALCON_SIZES, {**weights.FALCON, "input_layernorm": "norm"}, weights.head_by_head),
    "falcon, in series, alibi": Case(
        dict(**FALCON_SIZES, multi_query=False, parallel_attn=False, alibi=True, bias=True), weights.FALCON,
        weights.head_by_head, settle=weights.steeper, dead=KEYS,
    ),
    "falcon, new": Case(
        dict(**FALCON_SIZES, new_decoder_architecture=True, num_kv_heads=2), weights.FALCON, weights.head_by_head,
    ),
    "gemma": Case(WIDE, weights.LLAMA, fold=weights.gemma),
    "glm4_moe": Case(
        dict(**{**GROUPED, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}, head_dim=12, moe_intermediate_size=11,
             n_shared_experts=2, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2, first_k_dense_replace=1,
             routed_scaling_factor=2.5, use_qk_norm=True, attention_bias=True),
        weights.SPARSE, weights.experts, weights.deepseek, weights.choose_by_group,
    ),
    "gpt_neo": Case(
        dict(**OLD, max_position_embeddings=31, hidden_size=24, num_layers=3, num_heads=4, window_size=5,
             attention_types=[[["global", "local", "global"], 1]]), weights.GPT_NEO, fold=weights.gpt_neo,
    ),
    "nanochat": Case(
        dict(**GROUPED, final_logit_softcapping=CAP), {"fc1": "up", "fc2": "down", **weights.LLAMA}, weights.turned_back,
    ),
    "deepseek_v2": Case(
        {**without(DEEPSEEK, "n_group", "topk_group"), "topk_method": "greedy", "kv_lora_rank": 14, "qk_nope_head_dim": 8},
        weights.LATENT, weights.latents, weights.deepseek,
    ),
    "olmo": Case(dict(**without(GROUPED, "rms_norm_eps"), clip_qkv=CLIP), weights.LLAMA, spread=3),
    "olmoe": Case(
        dict(**GROUPED, num_experts=5, num_experts_per_tok=2, clip_qkv=CLIP),
        {**weights.SPARSE, "_norm.": "_norm.norm."}, weights.experts, spread=3,
    ),
    "phi": Case(
        {**LAYER_NORM, "hidden_size": 32, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}, weights.PHI,
    ),
    "phi3": Case(dict(**GROUPED, sliding_window=5), weights.LLAMA, weights.phi3),
    "qwen2_moe": Case(dict(**GROUPED, **MIXTURE, shared_expert_intermediate_size=17), weights.SHARING, weights.experts),
    "stablelm": Case(
        {**LAYER_NORM, "hidden_size": 64, "rope_parameters": {**THETA, "partial_rotary_factor": 0.25}}, weights.LLAMA,
    ),
    "starcoder2": Case(
        dict(**PLAIN, num_key_value_heads=2, norm_epsilon=1e-5, rope_parameters=THETA, sliding_window=5),
        {"mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down", **weights.LLAMA},
    ),
    "lfm2": Case(
        dict(**MIXED, full_attn_idxs=[1], block_multiple_of=8, conv_L_cache=4, conv_bias=True), states.LFM2, states.short,
    ),
    "lfm2_moe": Case(
        dict(**MIXED, **MIXTURE, layer_types=["conv", "full_attention", "conv"], num_dense_layers=1), states.LFM2, states.short,
    ),
    "qwen3_next": Case(
        dict(**{**GROUPED, **LINEAR}, **MIXTURE, shared_expert_intermediate_size=17, mlp_only_layers=[1]), states.DELTA,
        states.delta, spread=0.5,
    ),
    "qwen3_5_text": Case({**GROUPED, **LINEAR}, states.DELTA, states.delta, spread=0.5),
    "qwen3_5_moe_text": Case(
        dict(**{**without(GROUPED, "intermediate_size"), **LINEAR}, **MIXTURE, shared_expert_intermediate_size=17),
        states.DELTA, states.delta, spread=0.5,
    ),
    "mamba": Case(dict(**RECURRENT, state_size=5, conv_kernel=3), states.ALONE, states.channels),
    "falcon_mamba": Case(dict(**RECURRENT, state_size=5, tie_word_embeddings=False), states.ALONE, states.channels),
    "mamba2": Case(
        dict(**RECURRENT, num_heads=4, head_dim=12, n_groups=2, state_size=5, chunk_size=5, use_bias=True), states.ALONE,
        states.state_space,
    ),
    "bamba": Case(dict(**HYBRID, **STATE, attn_layer_indices=[1]), states.BESIDE, states.state_space),
    "jamba": Case(
        dict(**HYBRID, mamba_d_state=5, attn_layer_period=2, attn_layer_offset=1, num_experts=5), states.BESIDE,
        states.channels,
    ),
    "roberta": Case({**PLAIN, "layer_norm_eps": 1e-5, "pad_token_id": 1}, weights.ROBERTA, dead=KEYS),
    "bart": Case(
        dict(vocab_size=53, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=29,
             decoder_attention_heads=3, decoder_ffn_dim=31, max_position_embeddings=37, pad_token_id=1, bos_token_id=0,
             eos_token_id=0),
        weights.BART, weights.second_or_third, dead=KEYS,
    ),
    "opt": Case(
        dict(**OLD, hidden_size=24, ffn_dim=29, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=31,
             word_embed_proj_dim=17), weights.OPT, dead=KEYS,
    ),
    "bert": Case(dict(**PLAIN, layer_norm_eps=1e-5), weights.BERT, dead=KEYS),
    "t5": Case(T5_SIZES, weights.T5, fold=weights.t5),
    "t5, gated": Case(dict(**T5_SIZES, feed_forward_proj="gated-gelu"), weights.T5, fold=weights.t5),
    **dense_logits.CASES,
    **mixture_logits.CASES,
}  # fmt: skip


# -- both, side by side -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def draw(model, spread):
    """Random weights; gains and biases away from their one and nought."""
    for name, weight in model.named_parameters():
        if name.endswith("e_score_correction_bias"):
            weight.copy_(torch.randn_like(weight) * 0.1)
        elif weight.dim() == 1:
            weight.add_(torch.randn_like(weight) * 0.3)
        else:
            weight.copy_(torch.randn_like(weight) * spread * min(weight.shape[-2:]) ** -0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.randn_like(buffer) * 0.1)


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
    """Tokens, none of them padding, and an encoder's where there is one."""
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(2, 53, (B, length), generator=generator) for length in (t, source)]
    return ids if theirs.config.is_encoder_decoder else ids[:1]


@torch.no_grad()
def their_logits(theirs, ids, source=None):
    return theirs(ids).logits if source is None else theirs(input_ids=source, decoder_input_ids=ids).logits


@torch.no_grad()
def our_logits(twin, ids, source=None):
    return twin(ids, Run(), source)


def assert_equal_but_for_rounding(ours, theirs, times=1):
    """To some forty units in the last place of the largest logit, or several *times* that."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=times * 5e-6 * float(theirs.abs().max()))


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
    assert_equal_but_for_rounding(our_logits(twin, *ids), logits)


@pytest.mark.parametrize("name", CASES)
def test_a_twin_costs_what_transformers_costs(name):
    model, twin, theirs = pair(name)
    budget = model.budget(Step.forward(B, T, SOURCE))
    counts = [sum(weight.numel() for weight in module.parameters()) for module in (twin, theirs)]
    assert counts == [budget.parameters().total] * 2
    ids = tokens(theirs)
    assert flops(our_logits, twin, *ids) == flops(their_logits, theirs, *ids) == 2 * budget.work().forward


UNDECLARED = [
    (name, part) for name, case in CASES.items() for part in ("fold", "settle") if getattr(case, part) is not weights.none
]  # fmt: skip


@pytest.mark.parametrize(("name", "part"), UNDECLARED)
def test_what_is_not_declared_makes_a_difference(name, part):
    model, twin, theirs = pair(name)
    case, other, ids = CASES[name], build(model), tokens(theirs)
    copy(replace(case, **{part: weights.none}), theirs, other)
    assert (our_logits(other, *ids) - our_logits(twin, *ids)).abs().max() > 1e-2


def test_the_far_buckets_of_t5_are_those_of_transformers():
    _, twin, theirs = pair("t5")
    ids = tokens(theirs, 150, 160)
    assert_equal_but_for_rounding(our_logits(twin, *ids), their_logits(theirs, *ids))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.split is states.delta])
def test_several_chunks_are_those_of_transformers(name):
    model, twin, theirs = pair(name)
    ids = tokens(theirs, 150)
    assert_equal_but_for_rounding(our_logits(twin, *ids), their_logits(theirs, *ids), times=10)  # systems of 64 unknowns
    assert flops(their_logits, theirs, *ids) == 2 * model.budget(Step.forward(B, 150)).work().forward


@pytest.mark.parametrize("name", CASES)
def test_no_weight_can_change_unnoticed(name):
    _, twin, theirs = pair(name)
    ids = tokens(theirs)
    logits, generator = our_logits(twin, *ids), torch.Generator().manual_seed(2)
    for name_of, weight in twin.named_parameters():
        before = weight.detach().clone()
        with torch.no_grad():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.3)
            moved = (our_logits(twin, *ids) - logits).abs().max()
            weight.copy_(before)
        assert (moved < 1e-4) if name_of.endswith(CASES[name].dead or "nothing") else (moved > 1e-3), name_of


CONSTANTS = {Rotary: ("base",), Attention: ("w", "clip", "cap"), ClampedGatedMLP: ("alpha", "limit"), SparseGatedMLP: ("c",)}


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
