"""Each cost rule broken in turn, and what notices: the twins in ``blockcalc verify``, or a figure worked out by hand."""

import contextlib
import inspect
import sys
import textwrap

import pytest
import torch

from blockcalc import load, widths
from blockcalc.budget import Budget
from blockcalc.recorder import Recorder
from blockcalc.refmodel.verify import verify_block, verify_model
from blockcalc.rules import attention
from blockcalc.rules.attention import AttentionRules
from blockcalc.rules.delta import DeltaRules
from blockcalc.rules.elementwise import Elementwise
from blockcalc.rules.kernels import AttentionKernels
from blockcalc.rules.linear import Linear
from blockcalc.rules.mixture import MixtureRules
from blockcalc.rules.scan import ScanRules
from blockcalc.rules.state import StateRules
from blockcalc.tensor import Step

VIT = {
    "model_type": "vit", "hidden_size": 14, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 11,
    "image_size": 12, "patch_size": 4, "num_channels": 3, "num_labels": 5,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 13,
    "vocab_size": 29, "num_key_value_heads": 1,
}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 14, "d_kv": 6, "d_ff": 11, "num_layers": 2, "num_heads": 3, "vocab_size": 23}

RULES = [
    (Linear, "_adapted", "return self.add(f\"{name}.lora\", out, high)", "return out", "adapters"),
    (Linear, "linear", "saved=(x,) if weight.grad else ()", "saved=()", "mlp"),
    (Linear, "linear", "work = x.numel * product(made)", "work = x.numel", "gated-mlp"),
    (Linear, "linear", "dinput=work if x.grad else 0", "dinput=2 * work", "mha"),
    (Linear, "linear", "dweight=work if weight.grad else 0", "dweight=0", "mlp"),
    (Linear, "linear", "if bias:", "if False:", "mha-biased"),
    (Linear, "linear", "tuple(sizes), each)", "tuple(sizes))", "mla-absorbed"),
    (Linear, "convolution", "work = out.numel * taps * c", "work = out.numel * c", VIT),
    (Linear, "convolution", "saved=(x,) if weights[0].grad else ()", "saved=()", VIT),
    (Linear, "lookup", "saved=(ids,) if table.grad else ()", "saved=()", LLAMA),
    (Linear, "product", "dinput=(a.grad + b.grad) * work", "dinput=work", "linear-attention"),
    (Linear, "product", "saved=self._factors(a, b)", "saved=()", "linear-attention"),
    (Elementwise, "add", "out = self.like(terms[0])", "out = terms[0]", "alone: a sum keeps nothing and is a new tensor"),
    (Elementwise, "scale", "saved=(x,) if trains else ()", "saved=()", "nanochat-block"),
    (Elementwise, "shift", "(weight,))", "())", VIT),
    (Elementwise, "prepend", "x[\"t\"] + 1", "x[\"t\"]", VIT),
    (Elementwise, "mul", "saved=self._factors(a, b)", "saved=()", "gated-mlp"),
    (Elementwise, "_factors", "((b,) if a.grad else ())", "()", "gated-mlp"),
    (Elementwise, "divide", "saved=(a, b)", "saved=(a,)", "linear-attention"),
    (Elementwise, "reduce", "if name != axis", "if True", "squeeze-excitation"),
    (Elementwise, "concat", "a.sizes[-1] + b.sizes[-1]", "a.sizes[-1]", "mla"),
    (Elementwise, "act", "x if keeps == \"input\" else out", "out", "mlp"),
    (Elementwise, "layer_norm", "self.tensor(*rows), self.tensor(*rows))", "self.tensor(*rows))", "layernorm"),
    (Elementwise, "layer_norm", "range(gain + bias)", "range(gain)", "layernorm"),
    (Elementwise, "rms_norm", "wide.cast_of = x", "pass", "alone: nothing else keeps x here; test_tape has two norms of one x"),
    (Elementwise, "rms_norm", "(wide, inverse) if x.grad", "(wide,) if x.grad", "rmsnorm"),
    (Elementwise, "rms_norm", "if trains:", "if False:", "rmsnorm"),
    (Elementwise, "rms_norm", "own if weight is None else (weight,)", "own", "altup"),
    (Elementwise, "deviation", "saved=(x, out)", "saved=(x,)", "sparse-mlp"),
    (Elementwise, "cross_entropy", "role), targets, scalar)", "role), scalar)", LLAMA),
    (Elementwise, "cross_entropy", "role), targets, scalar)", "role), targets)", LLAMA),
    (Elementwise, "dropout", "saved=(noise,)", "saved=()", "alone: test_refmodel_models has the twins that drop out"),
    (Elementwise, "gated", "saved=(gate, up)", "saved=(gate,)", "alone: test_refmodel_fused has the twins of fused kernels"),
    (AttentionRules, "rotate", "half(r)", "r", "gqa"),
    (AttentionRules, "cache", "smaller(step.s - step.t, window - 1)", "0", "alone: test_tape counts a decode step"),
    (AttentionRules, "cache", "\"window\", window, expanded", "\"window\", window + 1, expanded", "window"),
    (AttentionRules, "attention", "forward=b * n * h,", "forward=b * h,", "mha"),
    (AttentionRules, "attention", "forward=b * n * u,", "forward=b * u,", "mha"),
    (AttentionRules, "attention", "dinput=(q.grad + k.grad) * b * n * h", "dinput=b * n * h", "mha"),
    (AttentionRules, "attention", "saved=(mask,)", "saved=()", "alone: a mask is a buffer, and buffers are alive anyway"),
    (AttentionRules, "attention", "(t, s), \"mask\")", "(t, s), \"index\")", "mha"),
    (AttentionRules, "attention", "if softcap:", "if False:", "softcap"),
    (AttentionRules, "_softmax", "s + 1", "s", "sinks"),
    (AttentionRules, "_own", "(b, s, n, h)", "(b, s, x.sizes[2], h)", "gqa"),
    (AttentionRules, "attention", "mask_name, bias, softcap,", "mask_name, None, softcap,", "relative-bias"),
    (AttentionRules, "slopes", "(\"n\",), (n,)", "(\"n\", \"s\"), (n, s)", "alibi"),
    (AttentionRules, "slopes", "(n, s), \"activation\"", "(n, s), \"statistic\"", "alibi"),
    (AttentionKernels, "_flash", "(t, k[\"s\"]), \"activation\"", "(t, k[\"s\"]), \"mask\"", "window"),
    (AttentionKernels, "_flash", "(n, t, k[\"s\"])", "(t, k[\"s\"])", "alibi"),
    (AttentionKernels, "_without_flash", "if h != u", "if False", "mla"),
    (AttentionKernels, "_fused", "() if scores.bias is None else (scores.bias,)", "()", "relative-bias"),
    (AttentionKernels, "_fused", "if scores.sinks else ()", "if False else ()",
     "alone: test_refmodel_blocks counts the parameters that every kernel has"),
    (AttentionKernels, "_fused", "(2,), \"index\"", "(2,), \"statistic\"", "alone: test_tape counts a seed"),
    (AttentionKernels, "_without_fused", "if scores.relative", "if False", "relative-keys"),
    (AttentionKernels, "_at_once", "v, out, rows,", "v, rows,", "alone: W_O keeps the output too"),
    (AttentionKernels, "_at_once", "v, out, rows,", "v, out,", "mha"),
    (AttentionKernels, "_at_once", "saved=(q, k, v,", "saved=(q, v,", "mla"),
    (AttentionKernels, "_at_once", "forward=b * n * (h + u)", "forward=b * n * 2 * h", "mla"),
    (AttentionKernels, "_at_once", "3 * h + 2 * u", "2 * h + 2 * u", "mha"),
    (AttentionKernels, "_at_once", "3 * h + 2 * u", "2 * h + 3 * u", "mla"),
    (AttentionRules, "_relative", "(a.grad + rows.grad) * work", "work", "relative-keys"),
    (StateRules, "causal_convolution", "work = out.numel * taps", "work = out.numel", "short-convolution"),
    (StateRules, "causal_convolution", "x[\"t\"] + taps - 1", "x[\"t\"]", "short-convolution"),
    (StateRules, "causal_convolution", "saved=(x,) if trains else ()", "saved=()", "short-convolution"),
    (StateRules, "causal_convolution", "dinput=work if x.grad else 0", "dinput=0", "short-convolution"),
    (StateRules, "causal_convolution", "dweight=work if trains else 0", "dweight=taps * work", "short-convolution"),
    (StateRules, "remember", "\"state\", None", "\"cross\", None", "alone: test_refmodel_cache has the bytes by kind"),
    (StateRules, "remember", "sizes, role", "(*sizes[:-1], 2), role", "short-convolution"),
    (StateRules, "_decodes", "return 1", "return 0", "alone: test_refmodel_cache counts a decode step"),
    (DeltaRules, "pace", "\"input\"", "\"output\"", "gated-delta-net"),
    (DeltaRules, "forget", "\"statistic\", trained", "\"activation\", trained", "gated-delta-net"),
    (DeltaRules, "unit", "saved=(wide, inverse)", "saved=(wide,)", "gated-delta-net"),
    (DeltaRules, "delta_rule", "\"statistic\")", "\"state\")", "gated-delta-net"),
    (DeltaRules, "_in_chunks", "rows.copies *= smaller(1, chunks - 1)", "pass", "gated-delta-net"),
    (DeltaRules, "_in_chunks", "(chunk, chunk), \"mask\"", "(chunk, chunk), \"index\"", "gated-delta-net"),
    (DeltaRules, "_in_chunks", "places[:3])", "places)", "gated-delta-net"),
    (DeltaRules, "_chunked", "\"statistic\"", "\"activation\"", "gated-delta-net"),
    (DeltaRules, "_exponential", "\"statistic\"", "\"activation\"", "gated-delta-net"),
    (DeltaRules, "_solve", "right.numel * system[\"y\"]", "right.numel", "gated-delta-net"),
    (DeltaRules, "_solve", "saved=(system, out)", "saved=(system,)", "gated-delta-net"),
    (DeltaRules, "_through", "chunks - 1 if", "chunks if", "gated-delta-net"),
    (DeltaRules, "_through", "forward=chunks * work", "forward=work", "gated-delta-net"),
    (DeltaRules, "_through", "saved=self._factors(rows, states)", "saved=(states,)", "gated-delta-net"),
    (DeltaRules, "_to_next", "(chunks - 1) * work", "chunks * work", "gated-delta-net"),
    (DeltaRules, "_to_next", "saved=self._factors(rows, new)", "saved=()", "gated-delta-net"),
    (ScanRules, "state_space", "self.scale(\"skip\", wide, self.weight((\"n\",), (n,), \"vector\"))", "wide", "mamba2-mixer"),
    (ScanRules, "state_space", "forward=state.numel", "", "alone: test_refmodel_cache counts a decode step"),
    (ScanRules, "_scanned", "self.mul(\"scores_decay\", scores, between)", "scores", "mamba2-mixer"),
    (ScanRules, "_passed_on", "chunks + 1, h, u", "chunks, h, u", "mamba2-mixer"),
    (ScanRules, "selective_scan", "(batch, t + 1, f, h)", "(batch, t, f, h)", "mamba-mixer"),
    (ScanRules, "selective_scan", "saved=self._factors(moved, b)", "saved=()", "mamba-mixer"),
    (ScanRules, "selective_scan", "dinput=(states.grad + c.grad) * work", "dinput=work", "mamba-mixer"),
    (MixtureRules, "route", "saved=(scored, index)", "saved=(scored,)", "moe"),
    (MixtureRules, "route", "saved=(kept, total)", "saved=(kept,)", "moe"),
    (MixtureRules, "route", "\"expert_mul\", weights, numbers", "\"expert_mul\", numbers, numbers", "moe-normed"),
    (MixtureRules, "route", "if scaled else kept", "if False else kept", "moe-normed"),
    (MixtureRules, "dispatch", "saved=(tokens,)", "saved=()", "alone: the combination keeps the same tokens"),
    (MixtureRules, "combine", "weighed, tokens)", "tokens)", "moe"),
    (MixtureRules, "combine", "*self._factors(rows, sorted_weights)", "rows", "moe"),
    (MixtureRules, "spread", "saved=(weights, index)", "saved=(weights,)", "moe-dense"),
    (MixtureRules, "weigh", "saved=self._factors(x, scores)", "saved=(x,)", "moe-dense"),
    (Recorder, "weight", "role, self._stored", "role, 1", "moe"),
    (Recorder, "once", "1, 1, 1", "self._copies, self._stored, self._active", T5),
    (Recorder, "_loop", "self._copies * (copies - 1)", "self._copies * copies", LLAMA),
    (Recorder, "_checkpoint", "line.saved, line.recomputed = (), again", "line.recomputed = again", "mha"),
    (Recorder, "_checkpoint", "saved=tuple(kept)", "saved=()", "mha"),
    (Budget, "_kept", "kept[carry.before] = here", "pass", LLAMA),
    (Budget, "_kept", "counts[carry.after] = 0", "pass", "alone: no layer here saves its own output"),
    (Budget, "_cache_of_one", "elif axis != \"b\":", "elif axis not in (\"b\", \"k\"):", "gqa"),
]  # fmt: skip


def broken(owner, name, old, new):
    """The method with its source changed in one place."""
    source = textwrap.dedent(inspect.getsource(inspect.getattr_static(owner, name)))
    assert old in source, f"{owner.__name__}.{name} has no {old!r}: bring the mutation up to date"
    scope = dict(vars(sys.modules[owner.__module__]))
    exec(compile(source.replace(old, new, 1), f"<{name}, broken>", "exec"), scope)
    return scope[name]


def noticed(subject):
    """Does anything differ: a block at drawn sizes, a small model at its own."""
    if subject == "adapters":
        from blockcalc.tensor import Adapters

        budget = load(LLAMA).budget(Step.train(1, 4), adapters=Adapters(2, frozenset("q")))
        return any(line.kind == "add" and line.path.endswith(".lora") for line in budget.lines) is False
    verdicts = verify_model(load(subject)) if isinstance(subject, dict) else verify_block(subject, most=2)
    return any(not verdict.equal for verdict in verdicts)


CAUGHT = [rule for rule in RULES if not str(rule[4]).startswith("alone")]


@pytest.mark.parametrize(("owner", "name", "old", "new", "subject"), CAUGHT, ids=lambda value: str(value)[:40])
def test_a_broken_rule_is_noticed(owner, name, old, new, subject, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(owner, name, broken(owner, name, old, new))
    with contextlib.suppress(TypeError, ValueError, ArithmeticError, LookupError, RuntimeError):  # beyond counting: noticed too
        assert noticed(subject)


@pytest.mark.parametrize("subject", [VIT, LLAMA, T5], ids=lambda config: config["model_type"])
def test_the_small_models_are_equal_when_nothing_is_broken(subject):
    assert not noticed(subject)


def test_every_rule_has_a_mutation():
    """Methods of the rules, and the mechanics that multiply what they record."""
    for owner in (Linear, Elementwise, AttentionKernels, AttentionRules, StateRules, ScanRules, DeltaRules, MixtureRules):
        for name, method in vars(owner).items():
            if inspect.isfunction(method) or isinstance(method, staticmethod):
                covered = name in {rule[1] for rule in RULES if rule[0] is owner}
                assert covered or name in ("uncached", "check_whole", "widen"), f"{owner.__name__}.{name}"


@pytest.mark.parametrize(("old", "new"), [("m * (m - 1)", "m * (m + 1)"), ("return t * s", "return t"), ("up_to(s - t)", "0")])
def test_the_mask_counted_one_by_one_notices_a_broken_formula(old, new):
    source = textwrap.dedent(inspect.getsource(attention.visible_pairs))
    assert old in source
    scope = dict(vars(attention))
    exec(source.replace(old, new, 1), scope)
    mask = [(i, j) for i in range(3, 9) for j in range(9) if j <= i and i - j < 4]
    rectangle = scope["visible_pairs"](6, 9, causal=False)
    assert (scope["visible_pairs"](6, 9, causal=True, window=4), rectangle) != (len(mask), 54)


def test_the_bytes_of_a_role_are_those_of_its_type():
    assert widths("bf16")["statistic"] == 4
    assert widths("bf16")["activation"] == 2
