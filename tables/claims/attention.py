"""Statements on heads, on what they share, and on caches."""

from __future__ import annotations

from .claim import Claim, about, at_least, at_most, equal

CLAIMS = (
    Claim(
        "multihead-free", "D1 1.7, D2 one", "n heads of width d/n cost the 4d² of one head, and about the same computation.",
        "holds if",
        "Parameters and matmul FLOPs are equal for any n that divides d; the elements of the softmax grow with n. Where the"
        " head width is free of d the projections are not d × d: n·h is 2048 in Qwen3-0.6B (d = 1024) and 4096 in Gemma-7B (d"
        " = 3072).",
        condition="the heads are d/n wide",
        measured=(equal("FLOPs of four heads over those of one, by torch", 1, "condition"),),
    ),
    Claim(
        "low-rank-head", "D1 1.7", "One head works in a subspace of only d/n dimensions.", "holds",
        "Its form W_Q W_Kᵀ, and so its score matrix of however many tokens, has rank h at most.",
        measured=(equal("rank of the form, d = 12, h = 3", 3), equal("rank of its scores of 9 tokens", 3)),
    ),
    Claim(
        "gqa-cache", "D1 1.5", "Cache bytes are in proportion to the key-value heads: 32 heads in 4 groups need 1/8.",
        "holds",
        "Keys and values have k·h entries a token and layer, whatever the number of query heads.",
        measured=(equal("cache of 32 key-value heads over that of 4, on tensors", 8),),
    ),
    Claim(
        "gqa-training", "D1 1.5 and 1.7", "Shared key-value heads are a trick of inference; training uses all heads.",
        "corrected",
        "Mistral-7B, Llama-3 and Qwen2 are trained with them: their weights have k·h rows of keys, not n·h. (Ainslie et al."
        " 2023 convert a model trained otherwise, and then train on.)",
    ),
    Claim(
        "kv-mqa-gqa-mla", "D1, the table at the end",
        "From multi-head to multi-query, grouped and latent attention, 2017 to 2023.", "corrected",
        "The order of the caches is 2nh, 2h, 2kh, c + r elements a token and layer. Latent attention is of 2024. DeepSeek-V3"
        " holds 576 instead of the 40,960 of its expanded keys and values.",
    ),
    Claim(
        "qk-half", "D1, the table at the end", "One matrix for Q and K would save half of the parameters.", "corrected",
        "It saves d²: half of Q and K, a quarter of the attention, a twelfth of a block with f = 4d.",
    ),
    Claim(
        "cross-share", "D1 1.5", "Heads can share keys and values but not queries: all heads would ask the same question.",
        "holds if",
        "With keys of its own each head still looks elsewhere: the forms of shared queries are the transposes of those of"
        " shared keys, with as many degrees of freedom. Parameters saved are equal too. What differs is the cache, which"
        " holds no query; how well either trains is not tested here.",
        condition="the keys are shared as well",
        measured=(
            equal("degrees of freedom of three heads' forms that share keys, d = 6, h = 2", 44, "aside"),
            equal("of three that share queries", 44, "aside"),
            at_least("how far two heads' weights differ, one query, keys of their own", 0.01, "against"),
            equal("one query and one key", 0, "condition"),
        ),
    ),
    Claim(
        "kv-tied", "D1 1.5", "Keys and values could come from one projection.", "holds",
        "It runs, with d² parameters less. The cache halves only if keys are cached as they are projected: rotated keys are"
        " no values, and then both are held. The article finds no experiment on quality, and none is done here.",
        measured=(equal("parameters saved at d = 12", 144),),
    ),
    Claim(
        "attention-linear", "D2, why it is needed", "Attention is linear mixing, so that stacks of it stay linear.",
        "corrected",
        "It is linear in the values at fixed weights. The weights come from x, so it is not linear in x, one layer or many.",
        measured=(
            at_least("how far f(x + y) is from f(x) + f(y)", 0.01, "against"),
            at_most("the same in the values at fixed weights", 1e-12),
        ),
    ),
    Claim(
        "permutation", "D3 4", "Attention gives exactly the same result for shuffled tokens.", "corrected",
        "The outputs are shuffled alike: it is equivariant, and what does not change is each token's own output. With a"
        " causal mask or with positions not even that holds.",
        measured=(
            at_most("shuffled input against shuffled output", 1e-12, "aside"),
            at_least("shuffled input against unshuffled output", 0.01, "against"),
            at_least("against shuffled output, causal mask", 0.01, "aside"), at_least("rotations", 0.01, "aside"),
        ),
    ),
    Claim(
        "two-attn", "D1 8.1", "A second attention, or a second feed-forward, doubles parameters and FLOPs.", "corrected",
        "It doubles that branch. The block grows from 12d² to 16d² with two attentions (1.33 ×) and to 20d² with two"
        " feed-forwards (1.67 ×).",
    ),
    Claim(
        "kv-exact", "D1 7.5", "A KV cache changes nothing in the result: it is exact, not an approximation.", "holds",
        "A prefill of five tokens and four single steps give the logits of one pass over nine, to rounding.",
        measured=(at_most("largest difference of the logits, fp64", 1e-12),),
    ),
    Claim(
        "dynamic-cache", "D1, appendix", "A dynamic cache is allocated anew in each step, a static one is not.", "holds",
        "Appending concatenates: a new storage a step, and the old and the new one alive at once. A static cache is written"
        " in place, at its full length from the start.",
        measured=(
            equal("storages of the keys in 8 steps, appended", 8), equal("allocated once", 1),
            equal("most elements alive in a step, 24 a token: those of 7 and 8 tokens", 360, "aside"),
            equal("difference of what both hold", 0, "aside"),
        ),
    ),
    Claim(
        "head-pruning", "D1 1.7 and the end", "38 of 48 heads can be pruned for 0.15 BLEU; 96 heads can lose 40%.",
        "not testable here",
        "Both need trained models. What a head weighs can be counted. The closing text joins two experiments of one paper"
        " (Michel et al. 2019): the 96 heads are those of a translation encoder, the 40% are BERT's on MultiNLI.",
    ),
    Claim(
        "qk-norm", "D1 4.5", "Normed queries and keys keep scores from growing until the softmax saturates.", "holds if",
        "Vectors of norm √h give |q·k|/√h ≤ √h, which equal ones reach. nanochat multiplies both by 1.2, which makes it"
        " 1.44·√h. A learned gain lifts the bound. Parameters: none, 2h a layer, or (n + k)h where the norm is over all heads"
        " (OLMo 2).",
        condition="the norm has no learned gain",
        measured=(
            at_most("largest |score| over √h, inputs of size 1000", 1, "condition"),
            about("the same of q = k", 1, 1e-06, "aside"), at_least("with gains of 3", 2, "against"),
        ),
    ),
    Claim(
        "three-paradigms", "D3 9",
        "An encoder sees both sides, a decoder only itself and what is before; the mask makes the difference.", "holds",
        "The gradient of the first output by the last token is exactly 0 under the causal mask, and is not without.",
        measured=(equal("gradient of the first output by the last token, causal mask", 0), at_least("without a mask", 0.001)),
    ),
    Claim(
        "bert-probing", "D1 1.2 and 1.4",
        "In BERT, nearest neighbours of X, Q and K hardly overlap, and heads encode syntax.", "not testable here",
        "It needs a trained BERT. The article itself calls the disjoint subspaces a judgement of experience.",
    ),
)  # fmt: skip
