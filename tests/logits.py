"""What a comparison of logits with transformers needs: a config, the two namings of its weights, and small sizes."""

from dataclasses import dataclass

import transformers_weights as weights

from blockcalc.refmodel.dispatch import BASE


@dataclass
class Case:
    """A config, and how to copy: their words and the twin's, in the order in which they are replaced."""

    config: dict
    words: dict
    split: object = weights.whole
    fold: object = weights.none
    settle: object = weights.none
    spread: float = 1.0  # of the drawn matrices, so that what is cut off is cut off
    dead: tuple = ()  # ends of the names of what no logit depends on


def without(config, *fields):
    """The config less the fields."""
    return {field: value for field, value in config.items() if field not in fields}


THETA = {"rope_theta": BASE, "rope_type": "default"}
KEYS = ("branch.k.bias",)  # one number more for all keys of a query
PLAIN = dict(
    vocab_size=53, hidden_size=24, intermediate_size=29, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=31,
    pad_token_id=None, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
GROUPED = dict(**PLAIN, num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=THETA)
WIDE = dict(**GROUPED, head_dim=10)
LAYER_NORM = dict(**PLAIN, num_key_value_heads=2, layer_norm_eps=1e-5)
ALTERNATING = dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"])
OLD = dict(vocab_size=53, pad_token_id=None, bos_token_id=0, eos_token_id=0)
