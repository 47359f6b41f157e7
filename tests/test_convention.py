"""Each named convention against figures that its users print."""

import pytest

from blockcalc import CONVENTIONS, InputError, UndefinedError, flops, load
from blockcalc.tensor import Kernels, Step

LLAMA_3_8B = "llama-3-8b"


def train(name, b, t, convention, changes=None, **more):
    return flops(load(name, changes).budget(Step.train(b, t), **more), convention)


def gpt(layers, width, vocab):
    """A GPT of the Megatron papers: biases and norms do not enter their formulas."""
    return {"n_layer": layers, "n_embd": width, "n_head": 8, "vocab_size": vocab, "n_inner": 4 * width, "n_positions": 2048}


def test_torch_and_exact_differ_by_the_masked_half():
    """Llama-3-8B at 8192: 57.93 and 51.47 GFLOP a token under 6N-like counting with the input table left out."""
    full, visible = (train(LLAMA_3_8B, 1, 8192, c).total / 8192 for c in ("torch", "exact"))
    assert full > visible
    # 12·32 layers·4096·(8192 − 8193/2) fewer a token
    assert full - visible == 12 * 32 * 4096 * (8192 - 8193 / 2)


def test_torchtitan():
    # 6·(8,030,261,248 − 525,336,576) + 12·32·4096·8192 = 57,914,449,920, https://github.com/pytorch/torchtitan/issues/452
    assert train(LLAMA_3_8B, 1, 8192, "torchtitan").total == 57_914_449_920 * 8192
    # Mixtral at 1024: 79.98 T, https://github.com/AI-Hypercomputer/maxtext/pull/678
    assert train("mixtral-8x7b", 1, 1024, "torchtitan").total == 79_978_221_797_376


def test_palm():
    found = train("gpt2", 1, 1024, "palm")
    assert found.total == 1024 * (6 * 124_439_808 + 12 * 12 * 768 * 1024)
    assert found.backward == 2 * found.forward


def test_nanogpt_leaves_out_the_position_table():
    assert train("gpt2", 1, 1024, "nanogpt").total == 1024 * (6 * (124_439_808 - 1024 * 768) + 12 * 12 * 768 * 1024)


def test_kaplan_leaves_out_embeddings_and_attention():
    assert train("gpt2", 1, 1024, "kaplan").total == 1024 * 6 * (124_439_808 - (50257 + 1024) * 768)


def test_megatron_2021_counts_the_layers_four_times():
    # 18.4B GPT, 40 layers of 6144, 128 GPUs at 50.51 samples a second: 125.18 with recomputation and 94.27 TFLOP/s without,
    # https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/98
    per_gpu = 50.51 / 128 / 1e12
    changes = gpt(40, 6144, 51200)
    assert round(train("gpt2", 1, 2048, "megatron-2021", changes).total * per_gpu, 2) == 125.18
    assert round(train("gpt2", 1, 2048, "megatron-2022", changes).total * per_gpu, 4) == 94.2667
    s, l, d, v = 2048, 40, 6144, 51200
    right = 96 * 3 * s * l * d * d + 16 * 3 * s * s * l * d + 6 * 3 * s * d * v
    assert train("gpt2", 3, s, "megatron-2021", changes).total == right


def test_megatron_2022_names_what_a_checkpoint_runs_again():
    """Selective recomputation runs both products of the scores once more: 4·b·s²·l·d. (The paper's equation adds 12.)"""
    changes = gpt(4, 64, 100)
    plain = train("gpt2", 1, 128, "megatron-2022", changes)
    again = train("gpt2", 1, 128, "megatron-2022", changes, recompute="selective")
    assert again.recompute == 4 * 128 * 128 * 4 * 64
    assert again.total - again.recompute == plain.total


def test_megatron_lm_halves_causal_attention_and_leaves_the_router_out():
    b, t, l, d, n, e = 1, 64, 32, 4096, 32, 8
    torch, lm = (train("mixtral-8x7b", b, t, c).forward for c in ("torch", "megatron-lm"))
    assert torch - lm == 2 * t * t * n * 128 * l + 2 * t * d * e * l
    bert = [train("bert-base", 1, 64, c).forward for c in ("torch", "megatron-lm")]
    assert bert[0] == bert[1]


def test_chinchilla_is_its_list():
    b, s, v, d, f, l, n = 1, 128, 50257, 768, 3072, 12, 12
    layer = 2 * 3 * s * d * d + 2 * s * s * d + 3 * n * s * s + 2 * s * s * d + 2 * s * d * d + 2 * s * 2 * d * f
    forward = 2 * s * v * d + l * layer + 2 * s * d * v
    found = train("gpt2", b, s, "chinchilla")
    assert (found.forward, found.total) == (forward, 3 * forward)
    assert train("gpt2", b, s, "chinchilla", kernels=Kernels(attention="flash")).forward == forward


@pytest.mark.parametrize("convention", ["palm", "kaplan", "nanogpt", "chinchilla", "megatron-2021", "megatron-2022"])
@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "t5-base"])
def test_what_a_convention_is_not_defined_for_is_refused(name, convention):
    with pytest.raises(UndefinedError, match=f"^{convention}: defined for"):
        train(name, 1, 64, convention)


@pytest.mark.parametrize("convention", ["chinchilla", "megatron-2021", "megatron-2022"])
def test_the_formulas_of_plain_feed_forwards_are_refused_for_gated_ones(convention):
    with pytest.raises(UndefinedError, match="gate"):
        train("llama-7b", 1, 64, convention)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_forward_pass_has_no_backward_and_macs_are_multiply_adds(convention):
    found = flops(load("gpt2").budget(Step.forward(2, 64)), convention)
    assert found.backward is None
    assert found.total == found.forward
    softmax = 3 * 12 * 12 * 2 * 64 * 64 if convention == "chinchilla" else 0
    assert 2 * found.macs == found.total - softmax


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_training_step_is_three_forwards_in_every_convention(convention):
    found = train("gpt2", 2, 64, convention)
    assert found.backward == 2 * found.forward


def test_an_unknown_convention_lists_the_known_ones():
    with pytest.raises(InputError, match="torch, exact, palm"):
        flops(load("gpt2").budget(Step.forward(1, 1)), "best")
