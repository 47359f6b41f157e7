"""The comparisons of logits of the families in ``readers/dense.py``, and of those in ``readers/gpt.py`` that came with them."""

import torch
import transformers_weights as weights
from logits import ALTERNATING, GROUPED, KEYS, LAYER_NORM, OLD, PLAIN, THETA, WIDE, Case

from blockcalc.refmodel.dispatch import CAP, LOCAL_BASE

HALF = {**THETA, "partial_rotary_factor": 0.5}
SLIDING = dict(sliding_window=5, **ALTERNATING)

# -- what transformers stores as one, in parts ------------------------------------------------------------------------------


def glm(name, weight, config):
    """Half of a head is rotated, in pairs side by side; gate and up are one."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, n in heads.items():
        if part in name:
            return {name: weights.halves(weight, n, config.head_dim // 2)}
    return weights.phi3(name, weight, config)


def bigcode(name, weight, config):
    """Queries, one key and one value; or all three a head."""
    if "c_attn" not in name:
        return {name: weight}
    d, n = config.n_embd, config.n_head
    parts = weight.split([d, d // n, d // n]) if config.multi_query else weight.unflatten(0, (n, 3, -1)).unbind(1)
    rows = [part if config.multi_query else part.flatten(0, 1) for part in parts]
    return {name.replace("c_attn", letter): part for letter, part in zip("qkv", rows, strict=True)}


def codegen(name, weight, config):
    """Four parts, each its queries, values and keys; pairs side by side."""
    if "qkv_proj" not in name:
        return {name: weight}
    q, v, k = (part.flatten(0, 1) for part in weight.unflatten(0, (4, 3, -1)).unbind(1))
    q, k = (weights.halves(part, config.n_head, config.rotary_dim) for part in (q, k))
    return {name.replace("qkv_proj", letter): part for letter, part in zip("qkv", (q, k, v), strict=True)}


def shifted(named, config):
    """Gains are 1 + w."""
    for name in (name for name in named if name.endswith(".gain")):
        named[name] = torch.ones_like(named[name]) + named[name]


# -- the families -----------------------------------------------------------------------------------------------------------

PERSIMMON = {
    "model.final_layernorm": "stack.norm", "q_layernorm": "q_norm", "k_layernorm": "k_norm", "self_attn.dense": "self_attn.o",
    "dense_h_to_4h": "up", "dense_4h_to_h": "down", **weights.LLAMA,
}  # fmt: skip
BIOGPT = {
    "biogpt.embed_tokens.weight": "embedding.token", "biogpt.embed_positions.weight": "embedding.position.table",
    "biogpt.layer_norm": "stack.norm", "biogpt.": "stack.", "self_attn_layer_norm": "branches.0.before",
    "final_layer_norm": "branches.1.before", "out_proj": "o", "_proj": "", "self_attn": "branches.0.branch",
    "fc1": "branches.1.branch.up", "fc2": "branches.1.branch.down",
}  # fmt: skip
BIGCODE = dict(**OLD, n_positions=31, n_embd=24, n_layer=3, n_head=4)

CASES = {
    "arcee": Case(GROUPED, weights.LLAMA),
    "biogpt": Case(dict(**PLAIN, scale_embedding=False), BIOGPT, dead=KEYS),
    "codegen": Case(dict(**BIGCODE, rotary_dim=4), weights.GPTJ, codegen),
    "cohere2": Case(
        dict(**LAYER_NORM, rope_parameters=THETA, logit_scale=0.5, **SLIDING), {**weights.LLAMA, "input_layernorm": "norm"},
        weights.side_by_side, weights.cohere,
    ),
    "cwm": Case(dict(**WIDE, sliding_window=5), weights.LLAMA),
    "exaone": Case(GROUPED, weights.LLAMA),
    "exaone4": Case(dict(**GROUPED, **SLIDING), {**weights.LLAMA, **weights.BEHIND}),
    "glm": Case({**WIDE, "head_dim": 12, "rope_parameters": HALF}, weights.LLAMA, glm),
    "glm4": Case(
        {**WIDE, "head_dim": 12, "rope_parameters": HALF},
        {"post_self_attn_layernorm": "branches.0.after", "post_mlp_layernorm": "branches.1.after", **weights.LLAMA}, glm,
    ),
    "gpt_bigcode": Case(BIGCODE, weights.GPT2, bigcode, dead=KEYS),
    "gpt_bigcode, many keys": Case(dict(**BIGCODE, multi_query=False), weights.GPT2, bigcode, dead=KEYS),
    "helium": Case(dict(**GROUPED, head_dim=6), weights.LLAMA, weights.side_by_side),
    "hunyuan_v1_dense": Case(WIDE, {"query_layernorm": "q_norm", "key_layernorm": "k_norm", **weights.LLAMA}),
    "internlm3": Case(dict(**WIDE, qkv_bias=True, bias=True), weights.LLAMA),
    "ministral": Case(dict(**WIDE, **SLIDING), weights.LLAMA),
    "ministral3": Case(
        {**WIDE, "sliding_window": 5, "rope_parameters": {
            **THETA, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 31,  # of which T is less
        }}, weights.LLAMA,
    ),
    "nemotron": Case(
        {**PLAIN, "hidden_size": 32, "num_key_value_heads": 2, "rope_parameters": HALF}, weights.LLAMA, fold=shifted,
    ),
    "olmo3": Case(
        {**GROUPED, **SLIDING, "rope_parameters": {
            "sliding_attention": {**THETA, "rope_theta": LOCAL_BASE}, "full_attention": THETA,
        }}, {**weights.LLAMA, **weights.BEHIND, "_norm.": "_norm.norm."},
    ),
    "persimmon": Case(
        {**PLAIN, "hidden_size": 32, "layer_norm_eps": 1e-5, "rope_parameters": HALF}, PERSIMMON, weights.head_by_head,
    ),
    "seed_oss": Case(dict(**WIDE, attention_out_bias=True), weights.LLAMA),
    "smollm3": Case(
        dict(**GROUPED, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=5), weights.LLAMA,
    ),
    "vaultgemma": Case(
        dict(**WIDE, **SLIDING, query_pre_attn_scalar=7, final_logit_softcapping=CAP, attn_logit_softcapping=CAP),
        {**weights.LLAMA, "pre_feedforward_layernorm": "branches.1.before"}, fold=weights.gemma,
    ),
}  # fmt: skip
