"""Rules from the logits of several networks to those of one.

Each rule exists in numbers, and as nodes of an ONNX graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hilum.domain import Release

Array = np.ndarray[Any, np.dtype[Any]]
RULE_NODE: Final = "hilum_rule_"
"""Beginning of these nodes' names.

They stay in float32 where the networks do not.
"""
_NAME: Final = "hilum_{}".format
Part = tuple[list[onnx.NodeProto], list[TensorProto]]


def mean_score(member_logits: Array, activation: str) -> Array:
    """(B, k, L) → (B, L): logits whose scores are the means of the members' scores.

    Computed in double precision. With s for sigmoid: logit(mean s(x)) = log Σ s(x) - log Σ s(-x),
    because 1 - s(x) = s(-x).

    Softmax: log(mean softmax(x)), whose own softmax is that mean, because it sums to 1. Neither
    forms a score that rounds to 1.
    """
    x = member_logits.astype(np.float64)
    if activation == "sigmoid":
        return _log_sum_exp(_log_sigmoid(x)) - _log_sum_exp(_log_sigmoid(-x))
    if activation == "softmax":
        return _log_sum_exp(x - np.logaddexp.reduce(x, axis=2, keepdims=True)) - math.log(
            x.shape[1]
        )
    mean: Array = x.mean(1)
    return mean


def _log_sigmoid(x: Array) -> Array:
    value: Array = -np.logaddexp(0, -x)
    return value


def _log_sum_exp(x: Array) -> Array:
    value: Array = np.logaddexp.reduce(x, axis=1)
    return value


def is_linear(release: Release) -> bool:
    """Whether the logits are the mean of the members' logits.

    Then the mean of their activation maps is exact, too.
    """
    return release.rule == "mean_logit" or release.activation == "none"


def rule_nodes(release: Release, prefixes: Sequence[str]) -> Part:
    """Return nodes from the members' `<prefix>logits` to `member_logits` and `logits`.

    `<prefix>cam` becomes `cam` where the release has maps.
    """
    logits = [f"{prefix}logits" for prefix in prefixes]
    shape = np.array([0, 1, len(release.labels)], np.int64)
    constants = [numpy_helper.from_array(shape, _NAME("row_shape"))]
    nodes = list(_member_logits(prefixes))
    if is_linear(release):
        nodes.append(helper.make_node("Mean", logits, ["logits"]))
    else:
        more, more_constants = _RULES[release.activation](logits)
        nodes += more
        constants += more_constants
    nodes += _mean_maps(prefixes) if release.has_cam else []
    for number, node in enumerate(nodes):
        node.name = f"{RULE_NODE}{number}"
    return nodes, constants


def _member_logits(prefixes: Sequence[str]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that stack the members' logits: (B, L) each → (B, k, L)."""
    for prefix in prefixes:
        inputs = [f"{prefix}logits", _NAME("row_shape")]
        yield helper.make_node("Reshape", inputs, [f"{prefix}row"])
    rows = [f"{prefix}row" for prefix in prefixes]
    yield helper.make_node("Concat", rows, ["member_logits"], axis=1)


def _mean_of_sigmoids(logits: Sequence[str]) -> Part:
    """Return nodes of the mean of sigmoids, from log s(x) and log s(-x) of each member."""
    nodes = [node for one in logits for node in _log_sigmoids(one)]
    nodes += _log_sum("yes", [f"{one}_yes" for one in logits])
    nodes += _log_sum("no", [f"{one}_no" for one in logits])
    nodes.append(helper.make_node("Sub", [_NAME("yes"), _NAME("no")], ["logits"]))
    return nodes, [
        numpy_helper.from_array(np.array([value], np.float32), _NAME(name))
        for name, value in (("zero", 0), ("one", 1))
    ]


def _log_sigmoids(one: str) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of log s(x) and log s(-x), with s for sigmoid.

    log s(x) = min(x, 0) - log(1 + e^-|x|), and log s(-x) = log s(x) - x.
    """
    for operator, inputs, output in (
        ("Min", (one, _NAME("zero")), "low"),
        ("Abs", (one,), "size"),
        ("Neg", (f"{one}_size",), "down"),
        ("Exp", (f"{one}_down",), "grown"),
        ("Add", (f"{one}_grown", _NAME("one")), "more"),
        ("Log", (f"{one}_more",), "log"),
        ("Sub", (f"{one}_low", f"{one}_log"), "yes"),
        ("Sub", (f"{one}_yes", one), "no"),
    ):
        yield helper.make_node(operator, inputs, [f"{one}_{output}"])


def _mean_of_softmaxes(logits: Sequence[str]) -> Part:
    nodes = [helper.make_node("LogSoftmax", [one], [f"{one}_share"], axis=1) for one in logits]
    nodes += _log_sum("shares", [f"{one}_share" for one in logits])
    nodes.append(helper.make_node("Sub", [_NAME("shares"), _NAME("log_count")], ["logits"]))
    return nodes, [
        numpy_helper.from_array(np.array([math.log(len(logits))], np.float32), _NAME("log_count"))
    ]


_RULES: Final = {"sigmoid": _mean_of_sigmoids, "softmax": _mean_of_softmaxes}


def _log_sum(name: str, terms: Sequence[str]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the logarithm of Σ e^t over the members.

    The largest is subtracted first, so nothing overflows and not all underflow.
    """
    largest = f"{_NAME(name)}_largest"
    total = f"{_NAME(name)}_total"
    yield helper.make_node("Max", terms, [largest])
    for term in terms:
        yield helper.make_node("Sub", [term, largest], [f"{term}_below"])
        yield helper.make_node("Exp", [f"{term}_below"], [f"{term}_part"])
    yield helper.make_node("Sum", [f"{term}_part" for term in terms], [total])
    yield helper.make_node("Log", [total], [f"{total}_log"])
    yield helper.make_node("Add", [f"{total}_log", largest], [_NAME(name)])


def _mean_maps(prefixes: Sequence[str]) -> Iterator[onnx.NodeProto]:
    """Yield the mean of maps in float32: the sum of half-precision maps would round twice."""
    wide = [f"{prefix}cam_wide" for prefix in prefixes]
    for prefix, one in zip(prefixes, wide, strict=True):
        yield helper.make_node("Cast", [f"{prefix}cam"], [one], to=TensorProto.FLOAT)
    yield helper.make_node("Mean", wide, [_NAME("cam")])
    yield helper.make_node("Cast", [_NAME("cam")], ["cam"], to=TensorProto.FLOAT16)
