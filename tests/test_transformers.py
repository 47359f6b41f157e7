"""Every family against transformers itself, on the meta device: equal, without tolerance.

The class's own default, every preset, and small configs drawn at random: parameters, active parameters, FLOPs forward and
backward, cache bytes, FLOPs of a decode step. BLOCKCALC_EXAMPLES sets how many configs are drawn a family.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import transformers_truth as truth
from drawn_configs import CONFIG_MAPPING, configs
from hypothesis import event, given, note
from hypothesis import strategies as st

from blockcalc.budget import widths
from blockcalc.readers import load, read
from blockcalc.readers.config import Rule
from blockcalc.readers.families import FAMILIES
from blockcalc.tables import presets
from blockcalc.tensor import Step

pytestmark = pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")  # no shared expert is one of width 0

NO_DEFAULT = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    **{kind: {"head_dim": 128} for kind in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "nemotron": {"num_key_value_heads": 8},
    "dbrx": {"attn_config": {"rope_theta": 1e4}},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
}
"""Fields without which the class's default makes no model that runs."""

KINDS = [kind for kind in FAMILIES if kind in CONFIG_MAPPING]
"""The families that transformers has."""

CHUNKED = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
"""Families that run 64 positions at once, so that more are drawn."""

LOOKS_AT_VALUES = {"BartForSequenceClassification", "MBartForSequenceClassification"}
"""Classes that pick out the positions of a token, and so cannot run on the meta device."""

ON_CPU = {"dbrx"}
"""Families that look for the rows of each expert, and so cannot run on the meta device."""

READ_PRESETS = [name for name, preset in presets().items() if preset["config"]["model_type"] in KINDS]


def classes(kind: str) -> tuple[str, ...]:
    """The names of the classes of a family that are read, the usual one first."""
    knobs = FAMILIES[kind].knobs
    return tuple(f"{knobs['prefix']}{suffix}" for suffix in knobs["classes"])


def fields_read(kind: str) -> frozenset[str]:
    """The fields that a family's reader reads."""
    rules = (rule for rule in FAMILIES[kind].knobs.values() if isinstance(rule, Rule))
    return frozenset(field for rule in rules for field in rule.fields)


def model_of(config: dict[str, Any], device: str = "meta") -> Any:
    """What transformers makes of a config."""
    return truth.build(config, (config.get("architectures") or classes(config["model_type"]))[0], device)


def small_presets() -> list[str]:
    """The two smallest presets of each family that runs without values."""
    by_kind = defaultdict(list)
    for name in READ_PRESETS:
        kind = presets()[name]["config"]["model_type"]
        by_kind[kind] += [] if kind in ON_CPU else [name]
    return [name for names in by_kind.values() for name in sorted(names, key=lambda n: int(presets()[n]["parameters"]))[:2]]


def total(config: dict[str, Any]) -> int:
    """Our count of parameters."""
    return int(read(config, "test").budget(Step.forward(1, 1)).parameters().total)


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_default_has_as_many_parameters(kind: str) -> None:
    config = {"model_type": kind, **NO_DEFAULT.get(kind, {})}
    assert total(config) == truth.parameters(model_of(config))


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_as_transformers_saves_it_is_read_alike(kind: str) -> None:
    config = {"model_type": kind, **NO_DEFAULT.get(kind, {})}
    assert total(truth.config_of(config).to_dict()) == total(config)


@pytest.mark.parametrize("name", READ_PRESETS)
def test_a_preset_has_as_many_parameters(name: str) -> None:
    config = presets()[name]["config"]
    assert total(config) == presets()[name]["parameters"] == truth.parameters(model_of(config))
    assert load(name) == read(config, name)


@pytest.mark.parametrize("name", small_presets())
def test_a_preset_costs_as_many_flops(name: str) -> None:
    config = presets()[name]["config"]
    ours = read(config, "test").budget(Step.forward(1, 7, 5)).work()
    assert 2 * ours.forward == truth.forward_flops(model_of(config), 1, 7, 5)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_drawn_config_costs_the_same(kind: str, data: st.DataObject) -> None:
    config = data.draw(configs(kind, classes(kind), fields_read(kind)), "config")
    lengths = ((1, 3), (3, 150 if kind in CHUNKED else 13), (3, 13))
    b, t, source = (data.draw(st.integers(least, most)) for least, most in lengths)
    note(f"b={b}, t={t}, source={source}")
    theirs, ours = model_of(config, "cpu" if kind in ON_CPU else "meta"), read(config, "test")
    event(type(theirs).__name__)

    parameters = ours.budget(Step.forward(b, t, source)).parameters()
    assert (parameters.total, parameters.active) == (truth.parameters(theirs), truth.active_parameters(theirs))
    assert parameters.trainable == sum(weight.numel() for weight in theirs.parameters() if weight.requires_grad)

    if type(theirs).__name__ in LOOKS_AT_VALUES:
        return
    work = ours.budget(Step.train(b, t, source)).work()
    assert (2 * work.forward, 2 * work.backward) == truth.training_flops(theirs, b, t, source)

    if theirs.can_generate():
        served = truth.serve(theirs, b, t, source)
        held = ours.budget(Step.prefill(b, t, source=source)).cache(widths("bf16"), "transformers")
        assert sum(held.values()) == served.cache_bytes
        if 1 not in map(config.get, ("sliding_window", "window_size", "attention_chunk_size")):  # attends to all it keeps
            assert 2 * ours.budget(Step.decode(b, t + 1, source)).work().forward == served.decode_flops
