"""Statements on attention scores and on positions."""

from __future__ import annotations

from .claim import Claim, about, at_least, at_most, equal

CLAIMS = (
    Claim(
        "qkv-identity", "D1 1.1", "Attention with W_Q = W_K = W_V = I can be run.", "holds",
        "It has no projection parameters, W_O aside. What a token receives is a weighted mean of the visible tokens: it lies"
        " in their convex hull, which is tested with fewer tokens than entries, so that the test can fail.",
        measured=(
            at_most("distance of the outputs from the affine hull of the visible tokens", 1e-12),
            at_least("smallest weight of a visible token", 0),
            at_least("distance of a random vector from that hull", 0.1, "aside"),
        ),
    ),
    Claim(
        "value-span", "D1 1.2", "With W_V = I the output of attention cannot leave the affine space of the token vectors.",
        "holds",
        "The weights of a row add up to one. Another W_V moves the output out of that space, into the hull of the values.",
        measured=(
            at_most("distance of the outputs from the tokens' hull, W_V = I", 1e-12), at_least("with another W_V", 0.1),
        ),
    ),
    Claim(
        "symmetric-score", "D1 1.2 and 2.1",
        "One matrix for queries and keys forces a symmetric form, and so attention is symmetric.", "holds if",
        "x W Wᵀ xᵀ is symmetric. The softmax divides each row by its own sum, so the weights are not, tied or not.",
        condition="attention means the scores before mask and softmax",
        measured=(
            at_most("largest |S − Sᵀ| of scores, W_Q = W_K", 1e-12, "condition"),
            at_least("the same with separate matrices", 0.1, "aside"),
            at_least("the same of the weights, W_Q = W_K", 0.01, "against"),
        ),
    ),
    Claim(
        "pair-score", "D1 2.2",
        "Separate W_Q and W_K let one ordered pair of tokens have another score in 'cat chases mouse' than in 'mouse chases"
        " cat'.", "corrected",
        "Without positions the score of an ordered pair depends on the two tokens alone, and is the same in both sentences."
        " Separate matrices make the two directions of a pair differ; what tells the sentences apart is position.",
        measured=(
            at_most("score of the ordered pair, one sentence less the other", 1e-12, "against"),
            at_least("one direction of the pair less the other", 0.1, "aside"),
            at_least("the two sentences again, with rotary positions", 0.01, "aside"),
        ),
    ),
    Claim(
        "asymmetric-dof", "D1 2.4", "Tying W_Q and W_K leaves d(d + 1)/2 of d² degrees of freedom: d(d − 1)/2 are lost.",
        "holds if",
        "The dimension is that of the parameters less that of the group that changes no score: GL(h), h², for separate"
        " matrices and O(h), h(h − 1)/2, for a tied one. A head narrower than d loses h(2d − h − 1)/2.",
        condition="there is one head, as wide as the model (h = d)",
        measured=(
            equal("rank of the Jacobian of W_Q W_Kᵀ, d = 7, h = 3: 2dh − h²", 33, "aside"),
            equal("rank of that of W Wᵀ: dh − h(h − 1)/2", 18, "aside"), equal("the first at d = h = 5", 25, "condition"),
            equal("the second at d = h = 5", 15, "condition"),
        ),
    ),
    Claim(
        "symmetric-psd", "D1 2.4", "W_Q = W_K amounts to any learnable symmetric form.", "corrected",
        "W Wᵀ has no negative eigenvalue. The dimension is that of all symmetric forms, but the indefinite ones are out of"
        " reach.",
        measured=(
            at_least("least eigenvalue of W Wᵀ", -1e-12, "aside"),
            at_least("distance of a random symmetric form from the nearest W Wᵀ", 0.1, "against"),
        ),
    ),
    Claim(
        "hadamard", "D1 2.3", "Features that contain X_i − X_j or X_i ⊙ X_j tell i from j.", "corrected",
        "The product commutes, so it is the same both ways; the difference changes its sign.",
        measured=(
            equal("largest entry of X_i ⊙ X_j − X_j ⊙ X_i", 0, "against"),
            at_least("largest entry of (X_i − X_j) − (X_j − X_i)", 0.1),
        ),
    ),
    Claim(
        "position-symmetry", "D1 2.3", "Positional encodings do not make the scores of W_Q = W_K unsymmetric.", "holds if",
        "Vectors that are added and rotations keep the scores a Gram matrix, and a bias of |i − j| is symmetric itself. A"
        " learned bias of i − j (T5) or vectors by i − j on the keys (Shaw et al.) are not.",
        condition="positions are added to the input, rotate queries and keys, or bias by |i − j|",
        measured=(
            at_most("largest |S − Sᵀ|, learned vectors", 1e-10, "condition"), at_most("sinusoids", 1e-10, "condition"),
            at_most("rotations", 1e-10, "condition"), at_most("slopes (ALiBi)", 1e-10, "condition"),
            at_least("a learned bias of i − j", 0.01, "against"),
            at_least("learned vectors by i − j on the keys", 0.01, "against"),
        ),
    ),
    Claim(
        "qk-norm-asymmetry", "D1 4.5",
        "A norm of queries and keys bounds the scores and leaves W_Q ≠ W_K as unsymmetric as before.", "holds",
        "The norm acts on each vector by itself: separate projections still give unsymmetric scores, a tied one symmetric.",
        measured=(
            at_least("largest |S − Sᵀ|, normed, separate matrices", 0.01), at_most("the same, W_Q = W_K", 1e-12, "aside"),
        ),
    ),
    Claim(
        "causal-half", "D1 2.2", "Under a causal mask only the direction from later to earlier positions is computed.",
        "holds if",
        "The mask lets t(t + 1)/2 pairs through. The product written out computes all t² and then hides some, which is what"
        " torch counts; the convention 'exact' counts the visible ones.",
        condition="the kernel leaves hidden pairs out",
        measured=(equal("pairs that torch counts for 7 tokens, of 28 visible", 49, "against"),),
    ),
    Claim(
        "uniform-channels", "D1 3.5", "Attention weighs all channels alike: it has no attention to channels.", "holds if",
        "A head has one weight a pair of tokens for all its channels. Several heads weigh their own channels differently.",
        condition="there is one head",
        measured=(
            equal("how far the weights of an output's channels differ, one head", 0, "condition"),
            at_least("four heads", 0.01, "against"),
        ),
    ),
    Claim(
        "positions", "D3 5 and 6",
        "Position was encoded in four ways: computed sinusoids, learned vectors, distances, rotations of queries and keys.",
        "holds",
        "Sinusoids, rotations and slopes (ALiBi) have no parameters, a table one vector a position; T5's bias stands once a"
        " stack, Swin's in each layer, Shaw's vectors serve keys and values. With rotations or a bias the score of equal"
        " tokens depends on the distance alone.",
        measured=(
            at_most("drift of scores along a diagonal, rotations", 1e-12), at_most("a bias of i − j", 1e-12),
            at_most("slopes, but for a number a row", 1e-12), at_least("learned vectors", 0.01, "aside"),
        ),
    ),
    Claim(
        "learned-extrapolation", "D3 6", "Learned positions cannot be used beyond the length that they were trained for.",
        "holds",
        "The table has no such row. Sinusoids have a value at any position; whether a model is any good there is not tested"
        " here.",
        measured=(equal("position 9 of a table of 8 is refused", 1), equal("of sinusoids", 0, "aside")),
    ),
    Claim(
        "rope-two-lines", "D3 6", "Rotary embedding is two lines: q · cos + rotate_half(q) · sin, and the same for k.",
        "holds",
        "The two lines rotate pairs half a head apart. The paper rotates neighbours; scores agree once the entries of"
        " queries and keys are permuted alike, which is how weights are converted.",
        measured=(
            at_most("the two lines against the twin", 1e-12),
            at_most("scores by neighbours, entries permuted, against pairs half apart", 1e-12),
            at_least("the same without permuting", 0.01, "aside"),
        ),
    ),
    Claim(
        "sin-bounded", "D3 5", "The sinusoids of the original paper are bounded and regular.", "holds",
        "Entries are at most 1, the squared norm is d/2 at every position, and the product of two depends on their distance"
        " alone. Once W_Q and W_K stand between them the product depends on both positions.",
        measured=(
            at_most("largest entry, d = 64, 50 positions", 1), about("least squared norm, d/2", 32, 1e-09),
            about("greatest squared norm", 32, 1e-09), at_most("drift of the products along a diagonal", 1e-09),
            at_least("the same of projected ones", 0.01, "aside"),
        ),
    ),
    Claim(
        "extrapolation", "D3 6 and 13",
        "Rotary positions extrapolate to longer sequences; far beyond them the middle gets lost.", "not testable here",
        "It speaks of the quality of trained models. The angles themselves are defined at any position.",
    ),
)  # fmt: skip
