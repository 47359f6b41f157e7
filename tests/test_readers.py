"""What cannot be read is refused in one line that names the file and the field; nothing else is ever raised, and not late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawn_configs import CONFIG_MAPPING
from hypothesis import event, given, settings
from hypothesis import strategies as st
from test_transformers import NO_DEFAULT

from blockcalc.budget import widths
from blockcalc.errors import InputError
from blockcalc.readers import FOREIGN, load, read
from blockcalc.readers.config import LARGEST_FILE, Rule
from blockcalc.readers.families import FAMILIES
from blockcalc.tables import presets
from blockcalc.tensor import Step

NUMBERS = {
    "zero": 0, "negative": -1, "fractional": 4096.5, "a float": 4096.0, "a string": "4096", "a boolean": True, "huge": 10**30,
    "NaN": float("nan"), "infinite": float("inf"), "a list": [4096], "an object": {"size": 4096},
    "a little too large": 2**40 + 1,
}  # fmt: skip


def refusal(model: Any, *words: str, **changes: Any) -> str:
    """The one line in which *model* is refused, which holds all *words*."""
    with pytest.raises(InputError) as caught:
        load(model, changes)
    line = str(caught.value)
    assert line.isprintable() and len(line) < 1500, line
    assert all(word in line for word in words), line
    return line


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a config.json and gives its path."""

    def made(text: str | bytes) -> Path:
        path = tmp_path / "config.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return made


# -- the file -----------------------------------------------------------------------------------------------------------


NO_NAMES = ["nowhere/config.json", "llama-9b", "a\0b", "x" * 5000, "two\nlines", "\ud800"]


@pytest.mark.parametrize("name", NO_NAMES, ids=range(len(NO_NAMES)))
def test_a_name_that_is_no_file_and_no_preset_is_refused(name: str) -> None:
    refusal(name, "no such file, folder, preset or block")


def test_a_preset_that_is_nearly_named_is_suggested() -> None:
    refusal("gtp2", "did you mean gpt2")


NO_JSON = [
    "", "{", "{'model_type': 'llama'}", '{"a": 1} x', "[1,]", "\ufeff{}", b"\x80\x02}q\x00.", b"\xff\xfe{\0}\0", b"\0" * 99,
]  # fmt: skip


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_not_json_is_refused(write: Any, text: str | bytes) -> None:
    refusal(write(text), "config.json: not JSON")


@pytest.mark.parametrize("text", ["[]", "3", "null", '"llama"', "true", "1e999"])
def test_json_that_is_no_object_is_refused(write: Any, text: str) -> None:
    refusal(write(text), "config.json: found", "expected an object")


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"model_type":"llama","hidden_size":['])
def test_a_hundred_thousand_levels_are_refused(write: Any, opening: str) -> None:
    refusal(write(opening * 100_000), "config.json: nested too deeply")


@pytest.mark.parametrize("levels", range(900, 1000, 7))
def test_levels_at_the_parsers_own_limit_are_refused(write: Any, levels: int) -> None:
    deep = "[" * levels + "]" * levels
    refusal(write(f'{{"model_type": "gpt2", "n_embd": {deep}, "hidden_size": {deep}}}'), "config.json: ")


def test_a_file_above_16_mb_is_refused(write: Any) -> None:
    path = write("{}")
    os.truncate(path, LARGEST_FILE + 1)
    refusal(path, "config.json: more than 16777216 bytes")


def test_a_device_without_end_is_refused() -> None:
    refusal("/dev/zero", "/dev/zero: more than")


def test_a_number_of_more_digits_than_python_reads_is_refused(write: Any) -> None:
    refusal(write(f'{{"model_type": "llama", "hidden_size": {"9" * 5000}}}'), "config.json: not JSON")
    refusal({"model_type": "llama", "hidden_size": 10**5000}, "hidden_size: found a number of 16610 bits")


def test_a_field_that_stands_twice_is_refused(write: Any) -> None:
    why = "the field stands twice in the same object"
    refusal(write('{"model_type": "llama", "hidden_size": 64, "hidden_size": 65}'), f"config.json: hidden_size: {why}")
    refusal(write('{"model_type": "llama", "rope_scaling": {"a\\nb": 1, "a\\nb": 2}}'), f"config.json: a\\nb: {why}")


def test_a_million_fields_are_read_in_no_time(write: Any) -> None:
    fields = ",".join(f'"{i}":0' for i in range(1_000_000))
    path = write(f'{{{fields},"0":0}}')
    start = time.monotonic()
    refusal(path, "0: the field stands twice")
    assert time.monotonic() - start < 10


def test_a_folder_without_a_config_and_one_called_config_are_refused(tmp_path: Path) -> None:
    refusal(tmp_path, "a folder without a config.json")
    (tmp_path / "config.json").mkdir()
    refusal(tmp_path, "cannot be read: Is a directory")


def test_links_to_nothing_and_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    refusal(tmp_path / "broken", "broken", "no such file")
    refusal(tmp_path / "circle", "circle")


def test_a_folder_with_a_config_is_read(write: Any) -> None:
    path = write(json.dumps(presets()["gpt2"]["config"]))
    assert load(path.parent).stack == load("gpt2").stack == load(str(path)).stack


# -- the fields ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gtp2", "", "LLAMA", 3, None, ["llama"], {}, True, "a\nb"])
def test_an_unknown_model_type_is_refused(kind: Any) -> None:
    refusal({"model_type": kind}, "config: model_type: found", "llama")


def test_a_missing_model_type_is_refused(write: Any) -> None:
    refusal(write("{}"), "config.json: model_type: found nothing")


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForMaskedLM", "", "a\nb", 3, [3], {}, [[]], ["x" * 10**6]])
def test_an_unknown_architecture_is_refused(name: Any) -> None:
    refusal({"model_type": "llama", "architectures": name}, "config: architectures: found", "LlamaForCausalLM")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("junk", NUMBERS)
def test_every_size_of_every_family_is_a_whole_number_in_range(kind: str, junk: str) -> None:
    for field in sizes_of(kind):
        if field in FINE.get(junk, ()) or (kind, field, junk) in FINE_HERE:
            continue
        refusal({"model_type": kind, "num_experts_per_tok": 1, field: NUMBERS[junk]}, "config: ", field)


def sizes_of(kind: str) -> list[str]:
    """The fields whose class default is a whole number, and which the family reads."""
    default = class_default(kind)
    return sorted(field for field in fields_of(kind) if type(default.get(field)) is int)


def class_default(kind: str) -> dict[str, Any]:
    """A family's config as transformers saves it, or as little as there can be of one that transformers does not have."""
    return CONFIG_MAPPING[kind]().to_dict() if kind in CONFIG_MAPPING else {"model_type": kind}


def fields_of(kind: str) -> set[str]:
    """The fields that a family reads."""
    rules = [rule for rule in FAMILIES[kind].knobs.values() if isinstance(rule, Rule)]
    return {field for rule in rules for field in rule.fields}


ZERO_IS_FINE = {
    "altup_active_idx", "first_k_dense_replace", "hidden_size_per_layer_input", "max_window_layers", "n_shared_experts",
    "num_dense_layers", "num_kv_shared_layers", "pooler_output_size", "sliding_window", "attn_layer_offset",
    "expert_layer_offset", "moe_layer_end_index", "moe_layer_start_index", "moe_num_shared_experts", "num_shared_experts",
}  # fmt: skip
FINE = {"zero": ZERO_IS_FINE, "negative": {"moe_layer_end_index"}}
"""Fields for which transformers takes a number as it is: none of them, or counted from the end."""

FINE_HERE = {("granitemoehybrid", "num_local_experts", "zero"), ("granitemoeshared", "shared_intermediate_size", "zero")}

WRONG: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("llama", {"hidden_size": 4097}, ("hidden_size = 4097", "num_attention_heads = 32")),
    ("llama", {"num_key_value_heads": 5}, ("num_attention_heads = 32", "num_key_value_heads = 5")),
    ("bert", {"num_attention_heads": 7}, ("hidden_size = 768", "num_attention_heads = 7")),
    ("bart", {"decoder_attention_heads": 7}, ("d_model = 1024", "decoder_attention_heads = 7")),
    ("mixtral", {"num_experts_per_tok": 9}, ("num_experts_per_tok: found 9", "8 experts of num_local_experts")),
    ("mistral", {"sliding_window": 0}, ("sliding_window: found 0",)),
    ("gemma2", {"layer_types": ["full_attention"]}, ("layer_types: found a list", "26 entries")),
    ("gemma2", {"layer_types": ["linear_attention"] * 26}, ("layer_types: found a list", "'full_attention'")),
    ("gemma2", {"layer_types": [[]] * 26}, ("layer_types: found a list",)),
    ("gemma2", {"layer_types": "full_attention"}, ('layer_types: found "full_attention"',)),
    ("qwen3_moe", {"mlp_only_layers": [24]}, ("mlp_only_layers: found a list", "below 24")),
    ("llama", {"hidden_act": "swiglu"}, ('hidden_act: found "swiglu"', "silu")),
    ("llama", {"tie_word_embeddings": "false"}, ('tie_word_embeddings: found "false"', "true or false")),
    ("llama", {"num_hidden_layers": 2**40}, ("num_hidden_layers", "at most 65536 layers")),
    ("gpt_neo", {"attention_types": [[["global"], 2**40]]}, ("attention_types",)),
    ("gpt2", {"n_embd": 768, "hidden_size": 64}, ("hidden_size: found 64", "768", "n_embd")),
    ("llama", {"text_config": {"hidden_size": 4}}, ("text_config", "no such field")),
    ("llama", {"num_local_experts": 8}, ("num_local_experts", "no such field")),
    ("llama", {"kv_lora_rank": 512}, ("kv_lora_rank", "no such field")),
    ("gpt2", {"add_cross_attention": True}, ("add_cross_attention: found true", "expected false")),
    ("gemma4_text", {"num_kv_shared_layers": 30}, ("num_kv_shared_layers: found 30", "stands before them")),
    ("gemma4_text", {"enable_moe_block": True}, ("top_k_experts: found nothing", "no default")),
    ("gemma4_text", {"per_layer_config": {"3": {"head_dim": 8}}}, ("per_layer_config", "the same heads")),
    ("gemma4_text", {"per_layer_config": {"30": {"head_dim": 8}}}, ('per_layer_config: found "30"',)),
    ("gemma4_text", {"per_layer_config": {"3": {"intermediate_size": 8}}}, ('per_layer_config: found "3"',)),
    ("gemma4_text", {"num_key_value_heads": 3}, ("num_attention_heads = 8", "3 key-value heads")),
    ("gemma4_text", {"use_bidirectional_attention": "all"}, ("use_bidirectional_attention: found", "causal")),
    ("gemma3n_text", {"num_hidden_layers": 3}, ("num_kv_shared_layers: found nothing", "stands before them")),
    ("gemma3n_text", {"altup_active_idx": 4}, ("altup_active_idx: found 4", "4 streams")),
    ("gemma3n_text", {"altup_correct_scale": False}, ("altup_correct_scale: found false", "nothing reads")),
    ("gemma3n_text", {"intermediate_size": [8, 9]}, ("intermediate_size: found a list", "35 entries")),
    ("gemma3n_text", {"activation_sparsity_pattern": [1.0] * 35}, ("activation_sparsity_pattern: found a list", "below 1")),
    ("qwen3_next", {"linear_num_value_heads": 5}, ("linear_num_value_heads = 5", "linear_num_key_heads = 16")),
    ("qwen3_next", {"layer_types": ["sliding_attention"] * 48}, ("layer_types: found a list", "'linear_attention'")),
    ("qwen3_next", {"full_attention_interval": 0}, ("full_attention_interval: found 0",)),
    ("qwen3_5_text", {"attn_output_gate": False}, ("attn_output_gate: found false", "expected true")),
    ("qwen3_5_moe_text", {"linear_conv_kernel_dim": None}, ("linear_conv_kernel_dim: found null",)),
    ("helium", {"head_dim": 64}, ("head_dim: found 64", "2560/20")),
    ("codegen", {"n_embd": 4082, "n_head": 1}, ("n_embd: found 4082", "a multiple of 4")),
    ("persimmon", {"num_key_value_heads": 8}, ("num_key_value_heads: found 8", "expected 64")),
    ("gpt_bigcode", {"num_key_value_heads": 12}, ("num_key_value_heads: found 12", "expected 1")),
    ("internlm3", {"qkv_bias": True, "bias": False}, ("bias: found false", "qkv_bias")),
    ("hunyuan_v1_dense", {}, ("head_dim: found nothing", "no default")),
    ("nemotron", {}, ("num_key_value_heads: found nothing", "no default")),
    ("exaone4", {"sliding_window": None}, ("layer_types: found nothing", "sliding_window is null")),
    ("exaone4", {"sliding_window_pattern": "LLLG"}, ('sliding_window_pattern: found "LLLG"',)),
    ("smollm3", {"layer_types": ["sliding_attention"] * 36}, ("sliding_window: found nothing", "layer_types")),
    ("smollm3", {"no_rope_layers": [1, 0]}, ("no_rope_layers: found a list", "36 entries")),
    ("cohere2", {"rotary_pct": 0.5}, ("rotary_pct: found 0.5", "whole heads")),
    ("lfm2", {"block_ffn_dim_multiplier": 1e30}, ("block_ffn_dim_multiplier: found 1e+30",)),
    ("granitemoehybrid", {"position_embedding_type": True}, ("position_embedding_type: found true",)),
    ("ernie4_5_moe", {"moe_layer_end_index": -2}, ("moe_layer_end_index: found -2", "from -1")),
    ("llama4_text", {"num_experts_per_tok": 0}, ("num_experts_per_tok: found 0",)),
    ("gemma4_text", {"per_layer_config": 0}, ("per_layer_config: found 0",)),
    ("hunyuan_v1_moe", {"head_dim": 128, "norm_topk_prob": False}, ("norm_topk_prob: found false",)),
    ("glm4_moe_lite", {"partial_rotary_factor": 0.5}, ("partial_rotary_factor: found 0.5",)),
    ("mamba", {"d_model": 1024}, ("d_model: found 1024", "768")),
    ("mamba", {"n_layer": 24}, ("n_layer: found 24", "32")),
    ("dbrx", {"attn_config": {"kv_n_heads": 5}}, ("n_heads = 16", "attn_config: kv_n_heads = 5")),
    ("phimoe", {"num_local_experts": 1}, ("num_experts_per_tok: found nothing", "1 experts of num_local_experts")),
]


@pytest.mark.parametrize(("kind", "fields", "words"), WRONG)
def test_fields_that_contradict_are_refused(kind: str, fields: dict[str, Any], words: tuple[str, ...]) -> None:
    refusal({"model_type": kind, **fields}, "config: ", *words)


IDLE: list[tuple[str, dict[str, Any]]] = [
    ("llama4_text", {"no_rope_layers": []}),
    ("smollm3", {"max_window_layers": 28, "use_sliding_window": False}),
    ("mamba", {"d_model": 768, "d_inner": 1536, "n_layer": 32, "ssm_cfg": {}}),
    ("glm4_moe_lite", {"partial_rotary_factor": 1.0, "num_nextn_predict_layers": 1, "first_k_dense_replace": 1}),
    ("minimax_m2", {"shared_intermediate_size": 0, "num_mtp_modules": 3, "scoring_func": "sigmoid"}),
    ("exaone_moe", {"num_nextn_predict_layers": 1}),
    ("cohere2", {"_sliding_window_pattern": 4, "layer_switch": 4, "use_parallel_block": True}),
    ("pegasus", {"normalize_before": True, "add_final_layer_norm": True, "num_hidden_layers": 12}),
]
"""Fields of published files that say nothing, or again what others say."""


@pytest.mark.parametrize(("kind", "fields"), IDLE)
def test_what_a_published_file_says_again_changes_nothing(kind: str, fields: dict[str, Any]) -> None:
    assert load({"model_type": kind, **fields}) == load({"model_type": kind})


ANYWHERE: dict[str, Any] = {
    "_name_or_path": "x", "attention_dropout": 0.0, "auto_map": {"AutoConfig": "a.B"}, "bos_token_id": 1,
    "cache_implementation": "hybrid", "dtype": "bfloat16", "eos_token_id": [1, 2], "finetuning_task": None,
    "gradient_checkpointing": False, "id2label": {"0": "A", "1": "B"}, "initializer_range": 0.02, "output_router_logits": False,
    "pretraining_tp": 1, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-6,
    "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 1e6, "task_specific_params": {"x": {"y": 1}},
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
}  # fmt: skip


@pytest.mark.parametrize("kind", FAMILIES)
def test_fields_that_change_no_count_are_read_over(kind: str) -> None:
    config = {**class_default(kind), **NO_DEFAULT.get(kind, {}), "id2label": ANYWHERE["id2label"]}
    assert load({**config, **ANYWHERE}) == load(config)


def test_of_a_model_of_several_parts_the_readable_one_is_named() -> None:
    parts = {"text_config": {"model_type": "llama4_text"}, "vision_config": {}}
    refusal({"model_type": "llama4", **parts}, 'model_type: found "llama4"', "its text_config, a llama4_text")
    refusal({"model_type": "llama4", "text_config": {"model_type": "x"}}, 'model_type: found "llama4", expected one of')


@pytest.mark.parametrize("field", sorted(FOREIGN))
def test_a_field_of_an_architecture_that_is_not_read_is_refused(field: str) -> None:
    foreign = [kind for kind in FAMILIES if field not in fields_of(kind)]
    for kind in foreign:
        refusal({"model_type": kind, "num_experts_per_tok": 1, field: 7}, "config: ")


def test_what_a_config_says_is_told_on_one_line() -> None:
    refusal({"model_type": "gpt_neox", "rotary_pct": "a\nb"}, "config: rotary_pct: found \"a\\nb\"")


def test_a_changed_field_is_named_and_may_be_set_right() -> None:
    assert refusal("llama-7b", "llama-7b: hidden_size: found 0", hidden_size=0)
    assert load("llama-7b", {"hidden_size": 64 * 32}).embedding.d == 2048


# -- anything at all ----------------------------------------------------------------------------------------------------

def nested(levels: int) -> Any:
    """A list in a list in a list."""
    return json.loads("[" * levels + "]" * levels)


scalars = st.none() | st.booleans() | st.integers(-1, 9) | st.floats() | st.text(max_size=3)
words = st.sampled_from(["full_attention", "sliding_attention", "gelu", "local", "x", None, 0, 7, []])
junk = st.one_of(
    scalars, st.integers(), st.sampled_from([2**16, 2**16 + 1, 2**40, 2**40 + 1, 10**30, 10**4000]), words, st.text(max_size=9),
    st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=9),
    st.sampled_from([1, 30, 300]).map(nested),
    st.builds(lambda word, count: [word] * count, words, st.sampled_from([1, 12, 24, 100_000])),
)  # fmt: skip

STARTS: list[dict[str, Any]] = [
    *(preset["config"] for preset in presets().values() if preset["config"]["model_type"] in FAMILIES),
    *({"model_type": kind} for kind in FAMILIES),
    *map(class_default, FAMILIES),
]
OTHERS = ("architectures", "num_labels", "id2label", "rope_parameters", "rope_scaling", "dtype")
EVERY_FIELD = sorted(FOREIGN.union(*map(fields_of, FAMILIES), OTHERS))


@st.composite
def broken(draw: Any) -> dict[str, Any]:
    """A config with one to four fields dropped, moved, or replaced by anything."""
    config = dict(draw(st.sampled_from(STARTS)))
    own = sorted(fields_of(config["model_type"]) | set(config) - {"model_type"})
    for _ in range(draw(st.integers(1, 4))):
        field = draw(st.sampled_from(own) | st.sampled_from(own) | st.sampled_from(EVERY_FIELD) | st.just("model_type"))
        action = draw(st.sampled_from(["drop", "swap", "junk", "junk", "junk", "small"]))
        if action == "drop":
            config.pop(field, None)
        elif action == "swap":
            config[field] = config.get(draw(st.sampled_from(own)))
        else:
            config[field] = draw(st.integers(1, 64) if action == "small" else junk)
    return config


# Ten times as many as of others: each takes a millisecond.
@settings(max_examples=10 * settings().max_examples)
@given(config=broken())
def test_anything_is_read_or_refused(config: dict[str, Any]) -> None:
    start = time.process_time()
    try:
        model = read(config, "test")
        budget = model.budget(Step.train(2, 5))
        counts = [budget.parameters().total, budget.work().forward, budget.activations(widths("bf16")).bytes]
        counts += budget.cache(widths("bf16"), "transformers").values()
    except InputError as error:
        assert str(error).startswith("test: ") and str(error).isprintable(), str(error)
        assert len(str(error)) < 1500
        event("refused")
    else:
        assert all(type(count) is int and count >= 0 for count in counts)
        event("read")
    assert time.process_time() - start < 2
