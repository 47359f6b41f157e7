"""Statements on the feed-forward network."""

from __future__ import annotations

from .claim import Claim, about, at_least, at_most, equal

CLAIMS = (
    Claim(
        "ffn-gpt2", "D1 6.1", "GPT-2's feed-forward has 2 × 768 × 3072 = 4.7M parameters, biases aside.", "holds",
        "4,718,592 without biases and 4,722,432 with them.",
    ),
    Claim(
        "ffn-relu", "D1 7.5, D2 two", "A plain feed-forward has 2·d·f parameters, 8d² at f = 4d.", "holds",
        "Two matrices, d × f and f × d.",
    ),
    Claim(
        "ffn-collapse", "D1 6.2", "Widening from d to 4d serves the nonlinearity: it is the room that it works in.", "holds",
        "Without an activation the two matrices are one, of rank d at most, and nothing is won.",
        measured=(
            equal("rank of W_up W_down, d = 6, f = 24", 6), at_most("how far it is from additive without activation", 1e-12),
            at_least("with ReLU", 0.01, "aside"),
        ),
    ),
    Claim(
        "per-position", "D1 5.2, D2 two, D3 2",
        "The feed-forward acts on each position by itself, attention across positions.", "holds",
        "Changing one token leaves the other positions' outputs of a feed-forward exactly as they were.",
        measured=(equal("change of the other positions, feed-forward", 0), at_least("attention", 0.01)),
    ),
    Claim(
        "glu-12d2", "D1 7.5", "A gated feed-forward at f = 4d has 12d² parameters.", "holds",
        "Three matrices of 4d².",
    ),
    Claim(
        "third-matrix", "D1 7.5", "Three matrices instead of two are 50% more parameters at one width.", "holds",
        "3df against 2df. The article goes on to shrink f, which takes it back.",
    ),
    Claim(
        "palm-4d", "D1 7.5", "PaLM 540B kept the unshrunk 4d.", "holds",
        "Its sizes: 18,432 wide, 73,728 hidden.",
    ),
    Claim(
        "glu-unshrunk", "D1 8.3", "Unshrunk, the gated feed-forward would be 1.5 × the attention.", "corrected",
        "12d² is 3 × the attention's 4d², and 1.5 × the plain feed-forward's 8d².",
    ),
    Claim(
        "swiglu-8-3", "D1 7.5, D2 five",
        "A gated feed-forward has the plain one's parameters at f = 8d/3; LLaMA rounds 4096's to 11008.", "holds",
        "Solved from the two closed forms. Rounded up to a multiple of 256 it is 10,922.67 → 11,008 at d = 4096, which makes"
        " 8.0625 d² of 8 d².",
    ),
    Claim(
        "llama-width", "D1 7.2", "LLaMA's hidden width is about 2.67 d.", "holds if",
        "8/3 = 2.667 before it is rounded up; the 11,008 of LLaMA-7B are 2.6875 d.",
        condition="it is taken before rounding",
    ),
    Claim(
        "shazeer-768", "D1, appendix", "The GLU ablations were done at d = 768, with equal parameters.", "holds",
        "3072 plain and 2048 gated: 4,718,592 parameters either way.",
    ),
    Claim(
        "mistral-rounding", "D1 7.5", "Mistral rounds 8d/3 to a multiple of 128.", "corrected",
        "That would be 11,008 at d = 4096. Mistral-7B has 14,336, which is 3.5 d.",
    ),
    Claim(
        "qwen-8-3", "D1 7.5", "Qwen and later models followed LLaMA to 8/3.", "corrected",
        "The first Qwen-7B did (11,008 at 4096, 2.69 d). Qwen2-7B has 5.29 d, Qwen2.5-72B 3.61, Qwen3-8B 3.0.",
    ),
    Claim(
        "swiglu-flops", "D1 7.7", "Plain and gated feed-forward both cost 8d² FLOPs a token.", "corrected",
        "8d² multiply-adds, which are 16d² FLOPs. That both are equal holds.",
    ),
    Claim(
        "swiglu-activation", "D1 7.8", "SwiGLU's hidden tensor is a third smaller, so that it saves activation memory.",
        "corrected",
        "One tensor is smaller, but there are more of them. Besides the input autograd keeps 4d a token with ReLU, 8d with"
        " GELU and 32d/3 with SwiGLU; 8d if activation and product are one kernel, 16d/3 if the product is computed again:"
        " never less than ReLU.",
        measured=(
            equal("elements a token kept besides the input, d = 24: ReLU, 4d", 96, "aside"), equal("GELU, 8d", 192, "aside"),
            equal("SwiGLU, 32d/3", 256, "against"),
        ),
    ),
    Claim(
        "silu-min", "D1 7.4", "SiLU's least value is about −0.278.", "holds",
        "Where the derivative vanishes x + 1 = −eˣ, so x = −1 − W(1/e) and the value is −W(1/e) = −0.278464543, W being"
        " Lambert's. The slope at 0 is 1/2.",
        measured=(about("least value on a fine grid", -0.278464543, 1e-08), about("slope at 0", 0.5, 1e-12, "aside")),
    ),
    Claim(
        "activations", "D1 6.3", "SiLU (2017) and Swish (2019) are one function; GELU and GLU are of 2016, SwiGLU of 2020.",
        "corrected",
        "They are one function. Swish is of 2017 (Ramachandran et al., arXiv:1710.05941).",
        measured=(at_most("largest difference of SiLU and x·σ(x) from −20 to 20", 1e-14),),
    ),
    Claim(
        "sigmoid-gate", "D1 7.4",
        "A sigmoid's gate is between 0 and 1 and only damps; SiLU's can turn the sign and passes large values.", "holds",
        "σ is positive and below 1. SiLU is negative for every negative x, and x·σ(x) → x.",
        measured=(
            at_least("least sigmoid from −8 to 8", 0), at_most("greatest sigmoid", 1), at_most("least SiLU", -0.2),
            at_least("SiLU(8)/8", 0.999),
        ),
    ),
    Claim(
        "se-net", "D1 7.6", "A gated feed-forward is the same idea as SE-Net: shared weights compute a gain a channel.",
        "corrected",
        "Its gate is computed at each position (b·t·f numbers). Squeeze and excitation averages over the positions first and"
        " has one gain a channel and sequence (b·d).",
        measured=(
            equal("change of the other positions when one token changes, gated feed-forward", 0, "aside"),
            at_least("squeeze and excitation", 0.001, "against"),
        ),
    ),
    Claim(
        "attn-ffn-ratio", "D1 8.3 and 8.4",
        "Industry has settled at attention : feed-forward from 1 : 2 to 1 : 4: LLaMA, Mistral, Qwen.", "corrected",
        "1 : 2 holds for 4d² against 8d² and for LLaMA-7B. With grouped heads the attention is smaller: Mistral-7B and"
        " Llama-3-8B have 4.20, Gemma-7B 4.50, Llama-3-70B 4.67, Qwen2.5-72B 4.81, Qwen2-7B 6.94.",
    ),
    Claim(
        "ffn-twice", "D1 8.3, D2 two and six, D3 7", "The feed-forward has twice the parameters of the attention.", "holds",
        "8d² against 4d², plain at f = 4d or gated at 8d/3, with n·h = k·h = d.",
    ),
    Claim(
        "ratio-any-d", "D2, hands on", "The proportions are the same at any d: the feed-forward is twice the attention.",
        "holds",
        "There is no d in the ratio. The feed-forward's share of a block with its norms, 2d/(3d + 1), does depend on it.",
    ),
    Claim(
        "ffn-two-layers", "D1 8.3", "With a second feed-forward they are 4 × the attention.", "holds",
        "16d² against 4d².",
    ),
    Claim(
        "glu-not-swiglu", "D2 five", "SwiGLU is (W₁x) ⊙ sigmoid(W₃x), then W₂, with f from 4d to about 8d/3.", "corrected",
        "That is GLU. SwiGLU's gate is SiLU(W₃x). The parameters and the width are the same.",
        measured=(at_least("largest difference of both with the same weights", 0.01, "against"),),
    ),
    Claim(
        "quantise", "D2, in production",
        "Feed-forward and embeddings are the bulk of the parameters, so quantise them first.", "holds",
        "In Llama-3-8B the feed-forwards are 70.2% and the embedding and the head 13.1%.",
    ),
    Claim(
        "gpt2-activation", "D1 8.6", "GPT-2 uses ReLU, GPT-3 and BERT use GELU.", "corrected",
        "GPT-2 uses GELU too, in its tanh form. The article's own appendix says so of nanoGPT.",
    ),
    Claim(
        "gate-statistics", "D1 7.6", "A certain share of SwiGLU's gates is closed.", "not testable here",
        "It needs a trained model. The article finds no source for such a share either.",
    ),
    Claim(
        "ppl-gain", "D1 7.7", "SwiGLU gains 0.3 to 0.4 of perplexity over ReLU at no cost.", "not testable here",
        "The gain needs training. The cost is counted under swiglu-flops and swiglu-activation.",
    ),
)  # fmt: skip
