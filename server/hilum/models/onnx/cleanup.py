"""ONNX graphs tidied: repeated and unused nodes are removed, and nodes are sorted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import onnx

_GRAPHS = frozenset({onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS})


def shared(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return the same graph without equal constants and repeated nodes. In place.

    A graph with graphs inside (If, Loop) is left as it is: those may name any tensor.
    """
    if any(attribute.type in _GRAPHS for node in graph.node for attribute in node.attribute):
        return graph
    kept_name = _without_equal_constants(graph)
    seen: dict[object, Sequence[str]] = {}
    kept: list[onnx.NodeProto] = []
    outputs = {each.name for each in graph.output}
    for node in graph.node:
        node.input[:] = [kept_name.get(name, name) for name in node.input]
        first = seen.setdefault(_work(node), node.output)
        if first is node.output or outputs & set(node.output):
            kept.append(node)
        else:
            kept_name.update(zip(node.output, first, strict=True))
    replace_nodes(graph, kept)
    return graph


def pruned(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return the same graph without nodes and constants that no output needs. In place."""
    needed = {each.name for each in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed.update(names_read(node))
    replace_nodes(graph, reversed(kept))
    constants = [each for each in graph.initializer if each.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(constants)
    return graph


def sorted_nodes(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return the same graph with each node behind those whose outputs it reads. In place.

    Otherwise the order stays as it was.
    """
    made_by = {name: node for node in graph.node for name in node.output}
    kept: list[onnx.NodeProto] = []
    done: set[str] = set()
    open_nodes = list(reversed(graph.node))
    while open_nodes:
        node = open_nodes[-1]
        needed = [
            made_by[name] for name in names_read(node) if name in made_by and name not in done
        ]
        open_nodes += needed
        if not needed:
            open_nodes.pop()
            if not done & set(node.output):
                kept.append(node)
            done.update(node.output)
    replace_nodes(graph, kept)
    return graph


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Replace the nodes of a graph. In place."""
    chosen = list(nodes)
    del graph.node[:]
    graph.node.extend(chosen)


def _without_equal_constants(graph: onnx.GraphProto) -> dict[str, str]:
    """Remove repeated constants; return the name of each with the name of its equal that stays."""
    first: dict[str, str] = {}
    renamed: dict[str, str] = {}
    kept: list[onnx.TensorProto] = []
    for constant in graph.initializer:
        stays = first.setdefault(_content(constant), constant.name)
        if stays == constant.name:
            kept.append(constant)
        else:
            renamed[constant.name] = stays
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return renamed


def _content(constant: onnx.TensorProto) -> str:
    name = constant.name
    constant.name = ""
    digest = hashlib.sha256(constant.SerializeToString(deterministic=True)).hexdigest()
    constant.name = name
    return digest


def _work(node: onnx.NodeProto) -> object:
    """Return a key that is equal for two nodes with equal outputs."""
    attributes = sorted(
        attribute.SerializeToString(deterministic=True) for attribute in node.attribute
    )
    return node.domain, node.op_type, tuple(node.input), tuple(attributes), len(node.output)


def names_read(node: onnx.NodeProto) -> set[str]:
    """Return the inputs of a node, and of the graphs inside it."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            names |= {name for each in inner.node for name in names_read(each)} | {
                each.name for each in inner.output
            }
    return names
