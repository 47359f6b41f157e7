"""Encoders and encoder-decoders: what their readers refuse, and what a name beside another one means."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from blockcalc import Step, widths
from blockcalc.errors import InputError, UndefinedError
from blockcalc.readers import load
from blockcalc.tables import presets

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("marian", {"tie_word_embeddings": False}, "a fourth token table"),
    ("marian", {"static_position_embeddings": False}, "Marian's positions are fixed"),
    ("mbart", {"normalize_before": False}, "MBART has its norms before its branches"),
    ("mbart", {"add_final_layer_norm": False}, "MBART has a norm behind its stacks"),
    ("pegasus", {"normalize_embedding": True}, "Pegasus does not norm its embeddings"),
    ("pegasus", {"tie_word_embeddings": False}, "a fourth token table"),
    ("mt5", {"feed_forward_proj": "gated-gelu-gelu"}, "feed_forward_proj"),
    ("dinov2", {"image_size": [28, 42]}, "equal sides"),
    ("electra", {"is_decoder": True}, "an encoder"),
    ("distilbert", {"hidden_dim": 0}, "hidden_dim"),
    ("modernbert", {"sliding_window": 64}, "no such field"),
    ("modernbert", {"classifier_pooling": "max"}, "one of cls, mean"),
    ("nomic_bert", {"n_embd": 768}, "no such field"),
    ("clip", {"text_config": {"hidden_size": 12, "num_attention_heads": 5}}, "text_config: hidden_size = 12 is not divisible"),
    ("clip", {"vision_config": {"num_key_value_heads": 2}}, "vision_config: num_key_value_heads"),
    ("clip", {"vision_config": {"model_type": "vit"}}, "vision_config: model_type"),
    ("clip", {"text_config": 3}, "an object or null"),
]


@pytest.mark.parametrize(("kind", "changes", "words"), REFUSED)
def test_what_the_class_does_not_build_is_refused(kind: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        load({"model_type": kind, **changes})
    assert str(caught.value).isprintable()


def test_the_older_name_of_a_part_of_clip_goes_before_the_newer() -> None:
    narrow = {"hidden_size": 64, "num_attention_heads": 4}
    both = {"text_config": {"hidden_size": 128, "num_attention_heads": 4}, "text_config_dict": narrow}
    assert load({"model_type": "clip", **both}) == load({"model_type": "clip", "text_config": narrow})


def test_fields_of_their_own_go_before_what_the_name_of_t5s_feed_forward_says() -> None:
    said = {"model_type": "umt5", "feed_forward_proj": "relu", "is_gated_act": True, "dense_act_fn": "gelu_new"}
    assert load(said) == load({"model_type": "umt5"})


def test_clip_compares_every_text_with_every_image_and_caches_nothing() -> None:
    """Both encoders at b = 3 and b = 5; the products of the similarities alone grow with b²."""
    model = load("clip-vit-base-32")
    (three, five), width = (model.budget(Step.forward(b, 7)).work().forward for b in (3, 5)), 512
    assert 3 * five - 5 * three == width * (3 * 5**2 - 5 * 3**2)
    assert sum(model.budget(Step.prefill(3, 7)).cache(widths("bf16"), "transformers").values()) == 0
    with pytest.raises(UndefinedError):
        model.budget(Step.decode(3, 8))


def test_a_window_of_modernbert_sees_as_far_ahead_as_behind() -> None:
    """Of 200 positions 64 on both sides in 14 of the 22 layers, all in the others: counted distance by distance."""
    budget, layers = load("modernbert-base").budget(Step.forward(1, 200)), Counter[int]()
    for line in budget.lines:
        if line.path.endswith(".scores"):
            layers[line.visible] += line.copies
    assert layers == {200 * 200: 8, 200 + 2 * sum(200 - distance for distance in range(1, 65)): 14}


@pytest.mark.parametrize("name", ["opus-mt-fr-en", "pegasus-large"])
def test_stored_sinusoids_count_and_do_not_train(name: str) -> None:
    config = presets()[name]["config"]
    budget = load(name).budget(Step.train(1, 3, 3))
    tables = [weight for line in budget.lines for weight in line.weights if line.path.endswith(".position")]
    assert sum(table.numel for table in tables) == 2 * config["max_position_embeddings"] * config["d_model"]
    assert not any(table.grad for table in tables)
