"""transformers' weights of convolutions and state-space models, by the names of the twins."""

from __future__ import annotations

import transformers_weights as weights


def short(name, weight, config):
    """LFM2's gates and values in one matrix, and a kernel with an axis of one; a bank of experts."""
    if ".conv.conv.weight" in name:
        return {name: weight.squeeze(1)}
    if "in_proj" in name:
        return {name.replace("in_proj", part): one for part, one in zip("bcx", weight.chunk(3), strict=True)}
    return weights.experts(name, weight, config)


def delta(name, weight, config):
    """Gated DeltaNet's projections, of each key head in turn or one after the other, and one kernel for all channels; a query
    and its gate side by side in each head; a bank of experts."""
    n, k = config.linear_num_value_heads, config.linear_num_key_heads
    keys, values = k * config.linear_key_head_dim, n * config.linear_value_head_dim
    if ".q_proj" in name:
        parts = weight.unflatten(0, (config.num_attention_heads, 2, -1)).unbind(1)
        return {name.replace("q_proj", part): one.flatten(0, 1) for part, one in zip(("q", "gate"), parts, strict=True)}
    if ".conv1d." in name:
        parts = weight.squeeze(1).split((keys, keys, values))
        return {name.replace("conv1d", f"{part}_convolution"): one for part, one in zip("qkv", parts, strict=True)}
    for fused, parts, sizes in (
        ("in_proj_qkvz", ("q", "k", "v", "gate"), (keys, keys, values, values)), ("in_proj_ba", ("beta", "decay"), (n, n)),
    ):  # fmt: skip
        if fused in name:
            split = weight.unflatten(0, (k, -1)).split([size // k for size in sizes], dim=1)
            return {name.replace(fused, part): one.flatten(0, 1) for part, one in zip(parts, split, strict=True)}
    if "in_proj_qkv" in name:
        split = weight.split((keys, keys, values))
        return {name.replace("in_proj_qkv", part): one for part, one in zip("qkv", split, strict=True)}
    return weights.experts(name, weight, config)


DELTA = {
    "linear_attn.out_proj": "linear_attn.o", "in_proj_z": "gate", "in_proj_b": "beta", "in_proj_a": "decay", "dt_bias": "shift",
    "A_log": "rate", "linear_attn": "branches.0.branch", **weights.SHARING,
}  # fmt: skip


def state_space(name, weight, config):
    """Mamba-2's one projection and its one convolution, in parts."""
    names = ("num_heads", "n_groups", "state_size", "head_dim")
    if config.model_type != "mamba2":
        names = ("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head")
    n, groups, h, u = (getattr(config, name) for name in names)
    sizes = {"z": n * u, "x": n * u, "b": groups * h, "c": groups * h, "dt": n}
    if "conv1d" in name:
        weight = weight.squeeze(1) if weight.dim() == 3 else weight
        parts = zip("xbc", weight.split([sizes[part] for part in "xbc"]), strict=True)
        return {name.replace("conv1d", f"{part}_convolution"): one for part, one in parts}
    if "in_proj" in name:
        return {name.replace("in_proj", part): one for part, one in zip(sizes, weight.split(list(sizes.values())), strict=True)}
    return {name: weight}


def channels(name, weight, config):
    """Mamba's channels and gate, and what B, C and Δ are made by."""
    if "conv1d.weight" in name:
        return {name: weight.squeeze(1)}
    if "in_proj" in name:
        return {name.replace("in_proj", part): one for part, one in zip("xz", weight.chunk(2), strict=True)}
    if "x_proj" in name:
        jamba = config.model_type == "jamba"
        rank, h = (config.mamba_dt_rank, config.mamba_d_state) if jamba else (config.time_step_rank, config.state_size)
        parts = zip(("dt_down", "b", "c"), weight.split([rank, h, h]), strict=True)
        return {name.replace("x_proj", part): one for part, one in parts}
    return weights.experts(name, weight, config)


ALONE = {
    "backbone.embeddings.weight": "embedding.token", "lm_head.weight": "head.matrix", "backbone": "stack",
    "mixer.norm.weight": "mixer.gain", ".norm.weight": ".branches.0.before.gain", "norm_f": "norm",
    "mixer": "branches.0.branch", "A_log": "rate", "dt_bias": "shift", ".D": ".skip", "dt_proj.bias": "shift",
    "dt_proj": "dt_up", "out_proj": "o", "conv1d": "x_convolution",
}  # fmt: skip
BESIDE = {
    "mamba.norm.weight": "mamba.gain", "model.final_layernorm": "stack.norm", "pre_ff_layernorm": "branches.1.before",
    "mamba": "self_attn", "A_log": "rate", "dt_bias": "shift", ".D": ".skip", "dt_proj.bias": "shift", "dt_proj": "dt_up",
    "out_proj": "o", "conv1d": "x_convolution", "dt_layernorm": "norms.0", "b_layernorm": "norms.1",
    "c_layernorm": "norms.2",
    "feed_forward": "mlp", **weights.LLAMA,
}  # fmt: skip
LFM2 = {
    "conv.conv.": "conv.convolution.", "conv.": "branches.0.branch.", "embedding_norm": "norm",
    "self_attn.out_proj": "self_attn.o", "out_proj": "o",
    "_layernorm": "_norm", "operator_norm": "branches.0.before", "ffn_norm": "branches.1.before",
    "feed_forward.gate.": "mlp.router.", "feed_forward": "mlp", ".w1": ".gate", ".w3": ".up", ".w2": ".down", **weights.LLAMA,
}  # fmt: skip
