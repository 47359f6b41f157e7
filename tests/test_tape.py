"""Rules whose figures can be worked out by hand; torch holds the rest to account in the tests of the twins."""

import itertools

import pytest

from blockcalc.blocks.attention import Attention
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.norm import LayerNorm, RMSNorm
from blockcalc.blocks.position import RelativeBias, RelativeKeys
from blockcalc.blocks.wiring import Parallel, Residual
from blockcalc.budget import widths
from blockcalc.errors import UndefinedError
from blockcalc.model import trace
from blockcalc.tape import visible_pairs
from blockcalc.tensor import Kernels, Step


@pytest.mark.parametrize("window", [None, 1, 2, 3, 7, 20])
def test_visible_pairs_are_the_ones_in_the_mask(window):
    """Counted one by one: query i of the last t of s positions sees j when j <= i, and i - j < window."""
    for s in range(1, 13):
        for t in range(1, s + 1):
            reach = window or s
            mask = sum(1 for i, j in itertools.product(range(s - t, s), range(s)) if j <= i and i - j < reach)
            assert visible_pairs(t, s, causal=True, window=window) == mask


def test_bidirectional_attention_sees_everything():
    assert visible_pairs(3, 7, causal=False) == 21


@pytest.mark.parametrize("window", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("s", range(1, 13))
def test_a_window_both_ways_is_a_band(s, window):
    mask = sum(1 for i, j in itertools.product(range(s), range(s)) if abs(i - j) < window)
    assert visible_pairs(s, s, causal=False, window=window) == mask


def test_a_long_sliding_window():
    # 1024·1025/2 + (32768 − 1024)·1024, https://github.com/ROCm/aiter/pull/5665
    assert visible_pairs(32768, 32768, causal=True, window=1024) == 33_030_656


def test_a_rectangle_of_causal_attention():
    # queries at 6..9 of 10 see 7 + 8 + 9 + 10 = 34 pairs; 2·34·(8 + 16), https://github.com/facebookresearch/xformers/pull/1402
    assert 2 * visible_pairs(4, 10, causal=True) * (8 + 16) == 1632


@pytest.mark.parametrize(("dtype", "copies"), [("fp32", 1), ("bf16", 2)])
def test_two_norms_of_one_tensor_keep_it_once_in_fp32_and_a_cast_each_in_bf16(dtype, copies):
    """x (2·3·5) in fp32 is its own cast; besides 1/rms of 6 rows each, and nothing of a norm without a gain."""
    norm = RMSNorm(gain=False)
    both = Parallel(branches=tuple(Residual(name=name, branch=norm, before=norm) for name in "ab"))
    kept = trace(both, Step.train(2, 3), 5).activations(widths(dtype)).bytes
    # the two outer norms read x, the two inner ones their results
    assert kept == 4 * (30 * copies + 6 + 6) + 2 * 4 * (30 + 6)


def test_layer_norm_in_bf16_keeps_its_input_and_two_narrow_statistics():
    # 512·2·1024 values and 2·1024 statistics of two bytes, https://github.com/cli99/llm-analysis/issues/18
    kept = trace(LayerNorm(), Step.train(2, 512), 1024).activations(widths("bf16"))
    assert kept.bytes == 2_097_152 + 2 * 2_048


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (MLA(n=3, c=7, q=None, p=5, r=4, u=11), "keys are 9 wide and values 11"),
        (Attention(n=2, k=2, h=4, position=RelativeBias(m=5, n=2)), "position bias"),
        (Attention(n=2, k=2, h=4, softcap=True), "soft-capped"),
    ],
)
def test_flash_attention_that_no_kernel_computes_is_refused_with_the_reason(attention, reason):
    with pytest.raises(UndefinedError, match=reason):
        trace(attention, Step.train(1, 6), 13, Kernels(attention="flash"))


@pytest.mark.parametrize(
    ("attention", "dropout", "reason"),
    [
        (Attention(n=2, k=2, h=4, position=RelativeKeys(m=5)), "none", "a vector a pair"),
        (Attention(n=2, k=2, h=4, softcap=True), "mask", "soft-capped scores with dropout"),
        (MLA(n=3, c=7, q=None, p=5, r=4, u=11, absorbed=True), "none", "absorbed latents run forward alone"),
        (Attention(n=2, k=2, h=264), "none", "keys are 264 wide"),
    ],
)
def test_fused_attention_that_no_published_kernel_computes_is_refused_with_the_reason(attention, dropout, reason):
    kernels = Kernels(attention="fused", dropout=dropout)
    with pytest.raises(UndefinedError, match=f"fused attention: .*{reason}"):
        trace(attention, Step.train(1, 6), 13, kernels)
    if "pair" not in reason:  # forward, and without dropout, there is one
        trace(attention, Step.forward(1, 6), 13, kernels)


def test_fused_attention_keeps_no_mask_and_with_dropout_a_seed():
    """q, k, v and the output of 2·6 positions in bf16, x, and an fp32 number a row and head; a seed is two int64."""
    attention = Attention(n=4, k=2, h=8, w=3)
    kept, seeded = (
        trace(attention, Step.train(2, 6), 10, Kernels(attention="fused", dropout=dropout)).activations(widths("bf16"))
        for dropout in ("none", "mask")
    )
    assert kept.buffers == 0
    assert kept.bytes == 2 * 12 * (10 + 2 * 4 * 8 + 2 * 2 * 8) + 4 * 12 * 4
    assert seeded.bytes == kept.bytes + 16


def test_both_ways_cannot_decode():
    with pytest.raises(UndefinedError, match="nothing to decode"):
        trace(Attention(n=2, k=2, h=4, causal=False), Step.decode(1, 6), 8)


def test_a_decode_step_reads_what_a_window_cache_holds():
    """One query, w keys: the cache holds w − 1 and the new one joins them."""
    windowed = trace(Attention(n=3, k=3, h=5, w=4), Step.decode(2, 100), 7)
    pairs = {line.pairs for line in windowed.lines if line.kind == "attention"}
    assert pairs == {4}
