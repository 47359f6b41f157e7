"""Statements on norms, residuals and depth."""

from __future__ import annotations

from .claim import Claim, about, at_least, at_most, equal, shown

CLAIMS = (
    Claim(
        "residual-count", "D1 4.1 and 8.2", "l blocks add to the stream 2l times, 3l times with a second feed-forward.",
        "holds",
        "Counted in the trace, and in the graph that autograd builds.",
        measured=(equal("sums in the graph of three blocks", 6), equal("with a second feed-forward", 9)),
    ),
    Claim(
        "no-residual", "D1 3.3, D2 three", "Without residuals no gradient comes through a deep stack.", "holds if",
        "At initialisation, in 24 blocks with Xavier weights, 32 wide: without norms the gradient of the first block is"
        " gone. With a norm before each branch it comes through without residuals, so it is not the residual alone that"
        " carries it. How such a stack trains is not tested here.",
        condition="there are no norms either",
        measured=(
            at_most("gradient of the first of 24 blocks, neither residuals nor norms", 1e-05, "condition"),
            at_least("norms without residuals", 0.01, "against"), at_least("norms and residuals", 0.01, "aside"),
        ),
    ),
    Claim(
        "identity-layer", "D3 3", "A layer whose branches return zero copies its input.", "holds if",
        "A pre-norm block then adds nothing. A post-norm block still normalises the stream.",
        condition="the norms stand before the branches, as in the article's six steps",
        measured=(
            equal("largest difference from the identity, pre-norm", 0, "condition"), at_least("post-norm", 0.1, "against"),
            at_most("post-norm from Norm(x)", 0.0001, "aside"),
        ),
    ),
    Claim(
        "norm-params", "D1 4.4, D2 four and five",
        "LayerNorm has a gain and a bias, RMSNorm only a gain, nanochat's norms have nothing.", "holds",
        "2d, d and 0 parameters.",
    ),
    Claim(
        "final-norm", "D1 4.3, D2 four", "A pre-norm stack needs one more norm behind its last layer.", "holds",
        "2l + 1 norms: 25 in GPT-2, 65 in LLaMA-7B. Post-norm stacks end with one anyway.",
    ),
    Claim(
        "norm-share", "D2 six", "Two layer norms are about 0.07% of a block.", "holds",
        "1/(3d + 1) of it, 0.065% at d = 512.",
    ),
    Claim(
        "norm-independent", "D2 four",
        "LayerNorm takes no statistics over the batch: neither length nor other sequences matter.", "holds",
        "A token's norm is exactly the same whatever stands beside it.",
        measured=(equal("change with the other tokens", 0), equal("change with the other sequences", 0)),
    ),
    Claim(
        "rmsnorm-centre", "D1 4.4, D2 five", "RMSNorm leaves out the mean and the bias, and nothing else.", "holds",
        "LayerNorm is RMSNorm of the centred vector; d parameters less.",
        measured=(
            at_most("LayerNorm(x) against RMSNorm(x − mean), large x", 1e-06), at_least("against RMSNorm(x)", 0.1, "aside"),
        ),
    ),
    Claim(
        "rmsnorm-time", "D1 4.4", "RMSNorm takes 7 to 64% less time.", "not testable here",
        "The figures are a paper's, on its models and hardware. What --verify shows is the ratio on the machine it runs on,"
        " where torch composes RMSNorm of several operations on a CPU and may well be the slower one.",
        measured=(shown("time of LayerNorm over that of RMSNorm, this machine"),),
    ),
    Claim(
        "postln-gradient", "D1 4.2, D3 8",
        "Post-norm has large gradients near the output at initialisation, pre-norm has not.", "holds if",
        "Xavier weights on tokens of unit size: at the last block of 24 post-norm has several times pre-norm's gradient."
        " Along the depth it is flat, while pre-norm's last falls as 1/√l. With everything drawn from N(0, 0.02), the tables"
        " too, it is the other way round: the small stream makes the norms amplify.",
        condition="weights are Xavier's, and the two are compared at the last block",
        measured=(
            at_least("post over pre, last of 24 blocks, Xavier", 2, "condition"),
            at_most("the same, all from N(0, 0.02)", 0.5, "against"),
            at_most("post-norm, last block over first, Xavier", 3, "aside"),
            about("pre-norm, last of 24 over last of 6, Xavier: 1/√4", 0.5, 0.2, "aside"),
        ),
    ),
    Claim(
        "postln-stream", "D1 4.2", "Under post-norm nothing ever rescales the residual stream.", "corrected",
        "The norm is of the sum, so it rescales the stream behind every branch: each token has RMS 1. It is under pre-norm"
        " that nothing does.",
        measured=(
            about("least RMS of a token behind 24 post-norm blocks", 1, 0.001, "against"),
            about("greatest RMS", 1, 0.001, "against"),
        ),
    ),
    Claim(
        "residual-scale", "D1 4.1", "The stream only ever adds up: its scale grows with the depth.", "holds if",
        "Branches add nearly at right angles, so that the mean squares add: RMS is close to the root of their sum.",
        condition="the norms stand before the branches",
        measured=(
            at_least("RMS behind 24 pre-norm blocks over that before", 3, "condition"),
            about("over the root of the sum of the branches' mean squares", 1, 0.15, "aside"),
            about("RMS behind 24 post-norm blocks over that before", 1, 0.1, "against"),
        ),
    ),
    Claim(
        "embedding-share", "D1 4.1", "The deeper the model, the smaller is the embedding's share of the stream.", "holds",
        "At initialisation, pre-norm: the cosine of the stream with what entered it falls.",
        measured=(about("cosine behind 1 block", 0.73, 0.15), about("behind 6", 0.39, 0.15), about("behind 24", 0.2, 0.15)),
    ),
    Claim(
        "deepnet", "D1 8.2", "DeepNet gives each residual branch two learnable constants α and β.", "corrected",
        "Both are constants of the depth and no parameters: α scales the residual, β the initialisation (Wang et al. 2022,"
        " arXiv:2203.00555, section 3.2).",
    ),
    Claim(
        "depth-table", "D1 9.1", "GPT-2 small, medium and large have 12, 24 and 36 blocks, LLaMA-7B 32, the 70B 80.", "holds",
        "The presets' numbers of layers, with their parameters.",
    ),
    Claim(
        "depth-96", "D3 1", "Blocks are stacked 12, 24, 96 times or more.", "holds",
        "GPT-3 has 96; 96 × 12 × 12288² is 173.9B of its 174.6B.",
    ),
    Claim(
        "albert", "D1 8.6 and 9.3", "Sharing one block across 12 layers saves about 90% of the parameters.", "corrected",
        "ALBERT-base has 89.3% less than BERT-base, but sharing saves 71.2% of the model (91.7% of the encoder), which is"
        " 79.7% of the saving. The rest is the factorised embedding and a vocabulary a little smaller.",
    ),
    Claim(
        "kaplan-shape", "D1 9.2", "The best ratio of width to depth is near 100.", "not testable here",
        "The best ratio needs training. Those of the presets are listed; the others are named.",
    ),
    Claim(
        "head-dim", "D1 9.5", "Heads are usually 64 to 128 wide.", "holds",
        "Counted over all presets. Gemma, PaLM and GPT-J have 256; the latent heads of DeepSeek 192.",
    ),
    Claim(
        "scaling-width", "D1 9.5", "LLaMA grows from 32 to 80 layers, from 4096 to 8192 in width and from 32 to 64 heads.",
        "holds",
        "LLaMA-7B and 65B.",
    ),
    Claim(
        "depth-knob", "D1 9.5", "One knob, the depth, sets width, heads and the rest.", "holds",
        "nanochat's sizes are d = 64l with heads 128 wide, so that all counts are polynomials of l. Whether hyper-parameters"
        " carry over from small to large, which is the point of it, is not tested here.",
    ),
    Claim(
        "nanochat", "D1 4.4 and appendix",
        "nanochat has four scalar parameters, norms without gains, and squared ReLU at f = 4d.", "holds",
        "They are per layer or once. Its block has more besides: value embeddings with gates, a smear gate, λx + λ₀x₀. It is"
        " declared as karpathy_nanochat; transformers' own nanochat has none of these.",
    ),
    Claim(
        "mixer", "D1 5.3", "MLP-Mixer needs inputs of one fixed size; attention takes any.", "holds",
        "The parameters of token mixing depend on the number of positions, those of attention do not.",
        measured=(equal("8 positions are refused by token mixing made for 7", 1), equal("by attention", 0)),
    ),
    Claim(
        "orders", "D1 9.5", "20 tokens a parameter turned round is off by nearly three orders of magnitude.", "holds",
        "20 against 1/20 is 400 ×, 2.6 orders.",
    ),
    Claim(
        "chinchilla", "D1 9.5", "About 20 tokens a parameter: Chinchilla has 70B parameters and 1.4T tokens.", "holds",
        "By 6ND that is 5.88 · 10²³ FLOPs; at 20 tokens a parameter a budget C is spent by N = √(C/120) parameters.",
    ),
    Claim(
        "warmup", "D1 4.2", "Pre-norm networks train without warm-up and match the baseline.", "not testable here",
        "It is Xiong et al.'s result of training. The gradients at initialisation are under postln-gradient.",
    ),
)  # fmt: skip
