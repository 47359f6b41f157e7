"""``architectures`` decides the head."""

from __future__ import annotations

from typing import Any

from .config import Reading


def head_of(r: Reading, language_model: Any, pooled: Any = None) -> Any:
    """The head that the config's class has: *language_model*, *pooled* behind a bare encoder, a classifier, or none."""
    kind = class_of(r)
    if kind in ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration"):
        return language_model
    if kind in ("Model", "TextModel"):
        return pooled
    from ..heads import Classifier

    if kind == "ForQuestionAnswering":
        return Classifier(v=2, bias=True)
    return Classifier(v=labels(r), bias=kind == "ForTokenClassification" and r.token_bias)


def class_of(r: Reading) -> str:
    """What stands behind the family's name in the config's class; the family's usual class when the config names none.

    Files of a family whose classes are another's may call them by a name of its own, *published*.
    """
    found = r.config.get("architectures")
    if found is None or found == []:
        return str(r.classes[0])
    names = found if isinstance(found, list) else [found]
    prefixes = r.prefix, r.knobs.get("published", r.prefix)
    for kind in r.classes:
        if isinstance(names[0], str) and names[0].lower() in [f"{prefix}{kind}".lower() for prefix in prefixes]:
            return str(kind)
    raise r.refuse("architectures", "one of " + ", ".join(f"{r.prefix}{kind}" for kind in r.classes))


def token_bias(r: Reading) -> bool:
    """Whether a classifier of tokens has a bias, where the family's is transformers' common one."""
    found = r.config.get("token_classification_bias", True)
    if type(found) is not bool:
        raise r.refuse("token_classification_bias", "true or false")
    return found


def labels(r: Reading, default: int = 2) -> int:
    """The number of classes: ``num_labels``, or the length of ``id2label``, *default* when neither stands there."""
    found = r.config.get("num_labels")
    if found is None:
        names = r.config.get("id2label")
        if names is not None and not (isinstance(names, dict) and names):
            raise r.refuse("id2label", "an object with a name for each class")
        return default if names is None else len(names)
    if type(found) is not int or not 1 <= found <= 2**40:
        raise r.refuse("num_labels", "a whole number from 1 to 2**40")
    return found
