"""Statements on whole blocks and models, on mixtures and adapters."""

from __future__ import annotations

from .claim import Claim, about, equal

CLAIMS = (
    Claim(
        "block-512", "D2 six",
        "A block 512 wide with f = 2048 has 1,048,576 + 2,097,152 + 2,048 = 3,147,776 parameters, 66.6% of them the"
        " feed-forward's.", "holds",
        "Without biases. With all that torch's own layer has they are 3,152,384.",
        measured=(
            equal("parameters of torch's encoder layer", 3152384, "aside"), equal("of the twin without biases", 3147776),
        ),
    ),
    Claim(
        "stack-512", "D2, hands on", "Six of them have 18,886,656 parameters, and a table of 32,000 words 16,384,000.",
        "holds",
        "Six equal blocks, and v·d.",
    ),
    Claim(
        "transformer-base", "D2 six",
        "The original base model: 12d² and 16d² a layer, 44M in 12 layers, a table of 19M, 63M of the 65M reported.", "holds",
        "44.04M and 18.94M. All biases and norms add 98,304; torch's own model has two norms, 2,048, more.",
        measured=(equal("parameters of torch's Transformer base", 44140544, "aside"),),
    ),
    Claim(
        "block-768", "D3 2 and 7",
        "6 × 768 in and out, 12 heads of 64, 768 → 3072 → 768; the feed-forward outweighs Q, K and V.", "holds",
        "4.72M against 1.77M, or 2.36M with W_O.",
        measured=(equal("rows of the output", 6), equal("entries of a row", 768)),
    ),
    Claim(
        "nanogpt-sizes", "D3 2, D1 appendix",
        "nanoGPT's defaults are 12 layers, 12 heads, width 768, f = 4d, without rotations or gates.", "holds",
        "They are GPT-2 small's.",
    ),
    Claim(
        "same-blocks", "D3 9", "Encoder-only, decoder-only and encoder-decoder models are built of the very same block.",
        "corrected",
        "The first two are, up to the mask. The decoder of an encoder-decoder has cross-attention and one more norm: 4d² +"
        " 6d with biases, 1,051,648 at d = 512, and a cache for the encoder's output.",
        measured=(equal("parameters that torch's decoder layer has more than its encoder layer", 1051648, "against"),),
    ),
    Claim(
        "dense-coupling", "D3 11", "In a dense model twice the parameters cost each token twice the computation.", "holds",
        "Two FLOPs a parameter of the matrices; embeddings and attention scores, which have no parameters, aside.",
    ),
    Claim(
        "moe-mixtral", "D1 9.4", "Mixtral 8x7B has 8 × 7B ≈ 47B parameters, of which 2 × 7B = 14B are active.", "corrected",
        "46,702,792,704 and 12,879,925,248. Eight times Mistral-7B would be 57.93B and twice 14.48B: the attention is there"
        " once.",
    ),
    Claim(
        "moe-params", "D1 8.6",
        "Turning the feed-forward into a mixture raises capacity and leaves the parameters as they are.", "corrected",
        "The feed-forward grows e-fold, plus a router of e·d; what one token uses, and its FLOPs, a-fold. Mixtral has 6.45 ×"
        " the parameters of Mistral-7B, 1.78 × active.",
    ),
    Claim(
        "moe-fine", "D1 9.4", "DeepSeek-V2 has finer experts, and shared ones.", "holds",
        "160 experts 0.3 d wide and a shared one, against Mixtral's 8 experts 3.5 d wide: 235,741,434,880 parameters,"
        " 21,375,800,320 active.",
    ),
    Claim(
        "expert-utilisation", "D3 11",
        "Mixtures such as DeepSeek-V3 and Mixtral store hundreds of billions and use tens of billions.", "holds if",
        "DeepSeek-V3 has 671.03B and 37.55B (36.63B without the input table, which is its card's 37B). Mixtral 8x7B stores"
        " 46.70B.",
        condition="the model is DeepSeek-V3",
    ),
    Claim(
        "moe-not-flops", "D1 9.4", "Few active parameters are not little computation.", "corrected",
        "FLOPs are two a token and active parameter of the mixture. It is the traffic that does not follow: a batch of b"
        " tokens touches e(1 − (1 − a/e)^b) experts, if it chooses evenly, and reads the weights of all of them.",
        measured=(about("distinct of 8 experts, 8 tokens, 2 each: mean of 20,000 draws", 7.199, 0.03, "aside"),),
    ),
    Claim(
        "lora", "D2, hands on and in production", "Adapters on Q and V alone save parameters.", "holds",
        "r(in + out) a matrix, of which r² change nothing. Frozen weights save the FLOPs of their own gradients and the"
        " inputs kept for them. What a model learns by it is under fine-tuning.",
        measured=(equal("degrees of freedom of B A, 7 to 5 through 2: 2·12 − 4", 20, "aside"),),
    ),
    Claim(
        "fine-tuning", "D2, hands on and in production", "To teach a model facts or style, adapt the feed-forward too.",
        "not testable here",
        "It speaks of what trained models learn.",
    ),
    Claim(
        "masking-15", "D3 9", "BERT is trained by guessing 15% of the words.", "not testable here",
        "It is a choice of the training, with no trace in the model's counts.",
    ),
    Claim(
        "decoder-only", "D3 10", "Decoder-only models won because generation is the more general task.", "not testable here",
        "A judgement on history.",
    ),
    Claim(
        "memory", "D2 two, D3 7", "The feed-forward stores a model's knowledge.", "not testable here",
        "It needs trained models; both articles call it a tendency. Its share of the parameters is under ffn-twice.",
    ),
    Claim(
        "sandwich", "D1 8.4 and 8.5", "The order of attention and feed-forward matters more than their ratio.",
        "not testable here",
        "It is Press et al.'s result of training. In any order the parameters and FLOPs are the same: see the block"
        " sandwich-order.",
    ),
)  # fmt: skip
