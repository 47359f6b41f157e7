"""transformers' weights by the names of the twins: how fused ones part, what scales them, and which word is which."""

from __future__ import annotations

from functools import partial

import torch

from blockcalc.refmodel.mlp import SparseGatedMLP
from blockcalc.refmodel.moe import MoE
from blockcalc.refmodel.position import ALiBi

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
    """Queries, a key and a value of a key-value head, then the next one's."""
    if "query_key_value" not in name:
        return {name: weight}
    n, k = config.num_attention_heads, config.num_attention_heads
    if config.model_type == "falcon" and (config.new_decoder_architecture or config.multi_query):
        k = config.num_kv_heads if config.new_decoder_architecture else 1
    parts = weight.unflatten(0, (k, n // k + 2, -1)).split((n // k, 1, 1), dim=1)  # k g h, k 1 h, k 1 h
    return {name.replace("query_key_value", letter): part.flatten(0, 2) for letter, part in zip("qkv", parts, strict=True)}


def phi3(name, weight, config):
    """Queries, keys and values; gate and up."""
    n, k = config.num_attention_heads, config.num_key_value_heads
    for fused, parts, sizes in (("qkv_proj", "qkv", (n, k, k)), ("gate_up_proj", ("gate", "up"), (1, 1))):
        if fused in name:
            split = weight.split([len(weight) // sum(sizes) * size for size in sizes])
            return {name.replace(fused, part): one for part, one in zip(parts, split, strict=True)}
    return {name: weight}


def second_or_third(name, weight, config):
    """BART's feed-forward is the third branch of the decoder's layers."""
    branch = f"branches.{2 if 'decoder' in name else 1}"
    pairs = {"fc1": f"{branch}.branch.up", "fc2": f"{branch}.branch.down", ".final_layer_norm": f".{branch}.outer"}
    for word, ours in pairs.items():
        name = name.replace(word, ours)
    return {name: weight}


def turned_back(name, weight, config):
    """nanochat rotates the other way, which is the pairs' second entries first."""
    if "q_proj" not in name and "k_proj" not in name:
        return {name: weight}
    first, second = weight.unflatten(0, (-1, 2, config.hidden_size // config.num_attention_heads // 2)).unbind(1)
    return {name: torch.stack((second, first), dim=1).flatten(0, 2)}


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


def none(weights_or_twin, config_or_theirs):
    """Nothing is missing."""


def gemma(named, config):
    """Token vectors times √d, which the tied head must not see; scores by query_pre_attn_scalar and not by h. Gains 1 + w."""
    scalar = getattr(config, "query_pre_attn_scalar", config.head_dim)
    root, of_scores = config.hidden_size**0.5, (config.head_dim / scalar) ** 0.5
    scale(named, "embedding.token", root)
    named["stack.norm.w"] = (1 + named["stack.norm.w"]) / root - 1
    norms = [name for name in named if name.endswith("q_norm.w")]
    for name in norms:
        named[name] = (1 + named[name]) * of_scores - 1
    if not norms:
        scale(named, "branch.q.weight", of_scores)


def gemma4(named, config):
    """Token vectors times √d, which the tied head must not see; scores are not divided by √h. A layer's input is the sum of
    rows times √i and a norm, over √2."""
    root, i = config.hidden_size**0.5, config.hidden_size_per_layer_input
    scale(named, "embedding.token", root)
    scale(named, "stack.norm.gain", 1 / root)
    for name in (name for name in named if name.endswith("q_norm.gain")):
        named[name] = named[name] * len(named[name]) ** 0.5
    scale(named, "embedding.layers.table", (i / 2) ** 0.5)
    scale(named, "embedding.layers.projection.weight", 1 / root)
    scale(named, "embedding.layers.norm.gain", 0.5**0.5)
    scale(named, "router_norm.gain", 1 / root)
    for name in (name for name in named if name.count(".") == 4 and name.endswith(".norm.gain")):  # the router's of AltUp
        named[name] = named[name] / config.hidden_size


def gpt_neo(named, config):
    """Scores are not divided by √h."""
    scale(named, ".q.weight", (config.hidden_size // config.num_heads) ** 0.5)


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


def steeper(twin, theirs):
    """Falcon's slopes are divided by √h too; and its eager attention adds them twice, once in the mask."""
    for module in twin.modules():
        if isinstance(module, ALiBi):
            module.slopes = [2 * slope * theirs.config.head_dim**-0.5 for slope in module.slopes]


def cut_off(twin, theirs):
    """How many deviations above its mean a gate of Gemma 3n counts: those that leave a share of a normal distribution below."""
    cut = [module for module in twin.modules() if isinstance(module, SparseGatedMLP)]
    shares = [share for share in theirs.config.activation_sparsity_pattern if share]
    for module, share in zip(cut, shares, strict=True):
        module.c = torch.distributions.Normal(0, 1).icdf(torch.tensor(share)).item()


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
SANDWICH = {**LLAMA, **BEHIND, "pre_feedforward_layernorm": "branches.1.before"}
INPUTS = {
    "model.embed_tokens_per_layer.weight": "embedding.layers.table", "post_per_layer_input_norm": "branches.2.after",
    "model.per_layer_model_projection": "embedding.layers.projection",
    "model.per_layer_projection_norm": "embedding.layers.norm", "per_layer_input_gate": "branches.2.branch.narrow",
    "per_layer_projection": "branches.2.branch.widen",
}  # fmt: skip
GEMMA4 = {**INPUTS, **SANDWICH}
_BESIDE = {
    "post_feedforward_layernorm_1": "branches.1.branch.branches.0.after",
    "post_feedforward_layernorm_2": "branches.1.branch.branches.1.after",
    "pre_feedforward_layernorm_2": "branches.1.branch.branches.1.branch.expert_norm",
    "pre_feedforward_layernorm": "branches.1.branch.branches.0.before", "router.scale": "router_norm.weight",
    "router.per_expert_scale": "expert_scale", "router.proj": "router",
    **{f".{part}": f".branches.1.branch.branches.1.branch.{part}" for part in ("router", "expert_scale", "experts")},
    "mlp": "branches.1.branch.branches.0.branch",
}  # fmt: skip
BESIDE = {**_BESIDE, **GEMMA4, **_BESIDE}
STREAMS = {
    "model.altup_projections": "stack.enter.projections", "model.altup_unembed_projections": "stack.exit.projections",
    "altup.correct_output_scale": "scale", "altup.correction_coefs": "correct", "altup.prediction_coefs": "predict",
    "altup.modality_router": "router", "altup.router_norm": "norm", "laurel.linear_left": "block.branches.0.left",
    "laurel.linear_right": "block.branches.0.right", "laurel.post_laurel_norm": "block.branches.0.norm",
    **{word: ours.replace("branches.2", "branch") for word, ours in INPUTS.items()},
    **{word: ours.replace("branches", "block.branches") for word, ours in SANDWICH.items()},
}  # fmt: skip
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
    "transformer.word_embeddings_layernorm": "embedding.norm", "transformer.ln_f": "stack.norm",
    "transformer.h": "stack.layers", "gpt_neox.layers": "stack.layers", "input_layernorm": "branches.0.before",
    "post_attention_layernorm": "branches.1.before", "mlp.dense_h_to_4h": "branches.1.branch.up",
    "mlp.dense_4h_to_h": "branches.1.branch.down", "dense": "o",
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
    "bert.embeddings.word_embeddings.weight": "embedding.token",
    "bert.embeddings.token_type_embeddings.weight": "embedding.types",
    "bert.embeddings.position_embeddings.weight": "embedding.position.table", "bert.embeddings.LayerNorm": "embedding.norm",
    "bert.encoder.layer": "stack.layers", "attention.output.LayerNorm": "branches.0.outer", "attention.output.dense": "self.o",
    "attention.self": "self", "self": "branches.0.branch", "query": "q", "key": "k", "value": "v",
    "intermediate.dense": "branches.1.branch.up", "output.dense": "branches.1.branch.down",
    "output.LayerNorm": "branches.1.outer",
    "cls.predictions.bias": "head.output.bias", "cls.predictions.transform.dense": "head.transform",
    "cls.predictions.transform.LayerNorm": "head.norm",
}  # fmt: skip
T5 = {
    "shared.weight": "encoder_embedding.token", "decoder": "stack", "final_layer_norm": "norm",
    "block.0.layer.0.SelfAttention.relative_attention_bias.weight": "biases.0.table", "block": "layers",
    "layer.": "branches.", "layer_norm": "before", "SelfAttention": "branch", "EncDecAttention": "branch",
    "DenseReluDense": "branch", "wi_0": "gate", "wi_1": "up", "wi": "up", "wo": "down",
}  # fmt: skip
BART = {
    "model.shared.weight": "encoder_embedding.token",
    "model.encoder.embed_positions.weight": "encoder_embedding.position.table",
    "model.encoder.layernorm_embedding": "encoder_embedding.norm", "model.encoder": "encoder",
    "model.decoder.embed_positions.weight": "embedding.position.table", "model.decoder.layernorm_embedding": "embedding.norm",
    "model.decoder": "stack", "self_attn_layer_norm": "branches.0.outer", "encoder_attn_layer_norm": "branches.1.outer",
    "self_attn": "branches.0.branch", "encoder_attn": "branches.1.branch", "out_proj": "o", "_proj": "",
}  # fmt: skip
GPT_NEO = {
    "attn.attention.out_proj": "attn.o", "attn.attention": "attn", "q_proj": "q", "k_proj": "k", "v_proj": "v", **GPT2,
}  # fmt: skip
PHI = {
    "model.final_layernorm": "stack.norm", "lm_head.bias": "head.bias", "self_attn.dense": "self_attn.o", "fc1": "up",
    "fc2": "down", **LLAMA, "input_layernorm": "norm",
}  # fmt: skip
ROBERTA = {
    "roberta.": "bert.", "lm_head.bias": "head.output.bias", "lm_head.dense": "head.transform",
    "lm_head.layer_norm": "head.norm", **BERT,
}  # fmt: skip
FALCON = {"ln_attn": "branches.0.before", "ln_mlp": "branches.1.before", **NEOX}
SHARING = {"shared_expert_gate": "shared_gate", "shared_expert.": "shared.", **SPARSE}
