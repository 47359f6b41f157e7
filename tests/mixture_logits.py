"""The comparisons of logits of the mixtures that came after the first: ``readers/experts.py``, and some of ``mixtures.py``."""

from functools import partial

import torch
import transformers_weights as weights
from logits import ALTERNATING, GROUPED, LAYER_NORM, THETA, WIDE, Case

from blockcalc.refmodel.moe import MoE

MULTIPLIED = dict(embedding_multiplier=3.0, attention_multiplier=0.7, residual_multiplier=0.6, logits_scaling=2.0)
FEW = dict(num_experts=5, num_experts_per_tok=2)
LOCAL = dict(num_local_experts=5, num_experts_per_tok=2)
ROUTED = dict(
    moe_intermediate_size=11, n_shared_experts=2, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2,
    routed_scaling_factor=2.5,
)  # fmt: skip

# -- what transformers stores as one, in parts ------------------------------------------------------------------------------


def llama4(name, weight, config):
    """Pairs stand side by side; experts' matrices are transposed, gate behind up's columns."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, n in heads.items():
        if part in name:
            return {name: weights.halves(weight, n)}
    return weights.experts(name, weight.mT if ".experts." in name else weight, config)


def ernie(name, weight, config):
    """Pairs stand side by side; the bias of the choice has an axis more."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, n in heads.items():
        if part in name:
            return {name: weights.halves(weight, n)}
    if "moe_statics" in name:
        return {name: weight.squeeze(0)}
    return weights.experts(name, weight, config)


def granite(name, weight, config):
    """Gate and up of the shared expert are one."""
    if "input_linear" not in name:
        return weights.experts(name, weight, config)
    return {name.replace("input_linear", part): one for part, one in zip(("gate", "up"), weight.chunk(2), strict=True)}


# -- scales, multiplied into weights ----------------------------------------------------------------------------------------


def scaled(named, config):
    """The chosen experts' weights are multiplied once more."""
    factor = getattr(config, "routed_scaling_factor", None) or config.router_scaling_factor
    for part in range(config.num_experts):
        weights.scale(named, f"experts.{part}.down.weight", factor)


# -- choices that cost nothing, set on the twin -----------------------------------------------------------------------------


def mixtures(twin):
    return [module for module in twin.modules() if isinstance(module, MoE)]


def choose_by_bias(twin, theirs):
    """A bias for the choice alone, which is a buffer: arXiv:2408.15664, equation 3."""
    biases = [buffer for name, buffer in theirs.named_buffers() if name.endswith("e_score_correction_bias")]
    for mixture, bias in zip(mixtures(twin), biases, strict=True):
        mixture.route = partial(weights.route_by_group, mixture, bias, 1, 1)


def choose_by_mixer(twin, theirs):
    """SparseMixer, arXiv:2409.12136, when it does not train: twice the best, weighed among those that are near it."""
    for mixture in mixtures(twin):
        mixture.route = partial(route_by_mixer, mixture, 2 * theirs.config.router_jitter_noise)


def route_by_mixer(mixture, near, x):
    logits = mixture.router(x)
    left, found = logits, []
    for _ in range(2):
        best, chosen = left.max(-1, keepdim=True)
        far = (best - logits) / logits.abs().clamp(min=best) > near
        found.append((chosen, left.masked_fill(far, float("-inf")).softmax(-1).gather(-1, chosen)))
        left = left.scatter(-1, chosen, float("-inf"))
    return tuple(torch.cat(parts, dim=-1) for parts in zip(*found, strict=True))


# -- the families -----------------------------------------------------------------------------------------------------------

LLAMA4 = {"feed_forward": "branches.1.branch", "shared_expert": "shared", **weights.LLAMA}
HUNYUAN = {
    "query_layernorm": "q_norm", "key_layernorm": "k_norm", "mlp.gate.wg": "mlp.router", "shared_mlp": "shared",
    **weights.SPARSE,
}  # fmt: skip
GRANITE = {
    "block_sparse_moe": "branches.1.branch", "shared_mlp": "branches.1.branch.shared", "output_linear": "down", **weights.LLAMA,
}  # fmt: skip
ERNIE = {
    "lm_head.bias": "head.bias", "mlp.gate.moe_statics.e_score_correction_bias": "mlp.choice_bias", **weights.SPARSE,
}  # fmt: skip
MIXER = {"lm_head.bias": "head.bias", "mlp.router": "branches.1.branch.router", **weights.LLAMA}
ALL_HEADS = {**weights.SPARSE, "_norm.": "_norm.norm."}

CASES = {
    "llama4_text": Case(
        dict(**WIDE, intermediate_size_mlp=31, num_local_experts=3, num_experts_per_tok=2, interleave_moe_layer_step=2,
             no_rope_layers=[1, 0, 1], attention_chunk_size=5), LLAMA4, llama4,
    ),
    "hunyuan_v1_moe": Case(dict(**WIDE, num_experts=5, moe_topk=[2, 2, 2]), HUNYUAN, weights.experts),
    "ernie4_5": Case(dict(**WIDE, use_bias=True), weights.LLAMA, ernie),
    "ernie4_5_moe": Case(
        dict(**GROUPED, moe_intermediate_size=11, moe_num_experts=4, moe_k=3, moe_num_shared_experts=2, use_bias=True), ERNIE,
        ernie,
    ),
    "exaone_moe": Case(
        dict(**WIDE, **FEW, moe_intermediate_size=11, num_shared_experts=2, sliding_window=5, **ALTERNATING), weights.SPARSE,
        weights.experts, scaled, weights.choose_by_group,
    ),
    "dots1": Case(
        dict(**WIDE, **ROUTED, first_k_dense_replace=1, norm_topk_prob=True, sliding_window=5, **ALTERNATING), weights.SPARSE,
        weights.experts, weights.deepseek, weights.choose_by_group,
    ),
    "glm4_moe_lite": Case(
        dict(**{**GROUPED, "num_key_value_heads": 4}, **ROUTED, kv_lora_rank=13, q_lora_rank=17, qk_rope_head_dim=6,
             qk_nope_head_dim=9, v_head_dim=7), weights.LATENT, weights.latents, weights.deepseek, weights.choose_by_group,
    ),
    "hy_v3": Case(
        dict(**WIDE, **FEW, moe_intermediate_size=11, num_shared_experts=2, router_scaling_factor=2.5, mlp_bias=True),
        weights.SPARSE, weights.experts, scaled, choose_by_bias,
    ),
    "minimax_m2": Case(
        dict(**{**GROUPED, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}, head_dim=12, **LOCAL), ALL_HEADS,
        weights.experts, settle=choose_by_bias,
    ),
    "flex_olmo": Case(dict(**GROUPED, **FEW), {**ALL_HEADS, **weights.BEHIND}, weights.experts),
    "granitemoe": Case(dict(**GROUPED, **LOCAL, **MULTIPLIED), GRANITE, granite, weights.granite),
    "granitemoeshared": Case(
        dict(**GROUPED, **LOCAL, **MULTIPLIED, shared_intermediate_size=17), GRANITE, granite, weights.granite,
    ),
    "phimoe": Case(
        dict(**LAYER_NORM, rms_norm_eps=1e-5, rope_parameters=THETA, **LOCAL, router_jitter_noise=0.4, lm_head_bias=True),
        MIXER, weights.experts, settle=choose_by_mixer,
    ),
}  # fmt: skip
