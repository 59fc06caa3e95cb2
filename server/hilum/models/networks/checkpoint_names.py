"""Tensor names of published checkpoints → the names of our networks.

Ours are torchvision's for CNNs, timm's for vision transformers, OpenAI's for CLIP. A tensor that no
rule knows keeps its name, so that an error names it as its author did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import torch
from torch import Tensor

from hilum.errors import ConfigurationError

Tensors = Mapping[str, Tensor]

# torchvision before 0.3 wrote "norm.1" and "conv.2"; the CheXNet checkpoints still have it.
_OLD_DENSENET: Final = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
# A head of one layer inside a Sequential, as the CheXNet family wraps it with a sigmoid or a
# dropout.
_WRAPPED_HEAD: Final = re.compile(r"^(classifier|fc|head)\.\d\.")
# Not weights: torchxrayvision keeps its operating points in a buffer.
BESIDE_WEIGHTS: Final = frozenset({"op_threshs"})

# The tensor that identifies a family. Its prefix is removed from every other name of the file.
_ANCHORS: Final[Mapping[str, tuple[str, ...]]] = {
    "clip_vit": ("visual.conv1.weight",),
    "densenet121": ("features.conv0.weight",),
    "resnet50": ("layer1.0.conv1.weight",),
    "vit": ("patch_embed.proj.weight", "embeddings.patch_embeddings.projection.weight"),
    "vit_b16": ("conv_proj.weight",),
}
_HUGGING_FACE: Final = (
    (re.compile(r"^embeddings\.cls_token$"), "cls_token"),
    (re.compile(r"^embeddings\.position_embeddings$"), "pos_embed"),
    (re.compile(r"^embeddings\.patch_embeddings\.projection\."), "patch_embed.proj."),
    (re.compile(r"^encoder\.layer\.(\d+)\.layernorm_before\."), r"blocks.\1.norm1."),
    (re.compile(r"^encoder\.layer\.(\d+)\.layernorm_after\."), r"blocks.\1.norm2."),
    (
        re.compile(r"^encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)\."),
        r"blocks.\1.attn.\2.",
    ),
    (re.compile(r"^encoder\.layer\.(\d+)\.attention\.output\.dense\."), r"blocks.\1.attn.proj."),
    (re.compile(r"^encoder\.layer\.(\d+)\.intermediate\.dense\."), r"blocks.\1.mlp.fc1."),
    (re.compile(r"^encoder\.layer\.(\d+)\.output\.dense\."), r"blocks.\1.mlp.fc2."),
    (re.compile(r"^layernorm\."), "norm."),
    (re.compile(r"^classifier\."), "head."),
)
_LAYER: Final = r"^encoder\.layers\.encoder_layer_(\d+)\."
_TORCHVISION: Final = (
    (re.compile(r"^class_token$"), "cls_token"),
    (re.compile(r"^encoder\.pos_embedding$"), "pos_embed"),
    (re.compile(r"^conv_proj\."), "patch_embed.proj."),
    (re.compile(_LAYER + r"ln_([12])\."), r"blocks.\1.norm\2."),
    (re.compile(_LAYER + r"self_attention\.in_proj_"), r"blocks.\1.attn.qkv."),
    (re.compile(_LAYER + r"self_attention\.out_proj\."), r"blocks.\1.attn.proj."),
    # Dropout, which does nothing in use, stands between its linear layers and after them.
    (re.compile(_LAYER + r"mlp\.0\."), r"blocks.\1.mlp.fc1."),
    (re.compile(_LAYER + r"mlp\.3\."), r"blocks.\1.mlp.fc2."),
    (re.compile(r"^encoder\.ln\."), "norm."),
    (re.compile(r"^heads\.head\."), "head."),
)
_PARTS: Final = ("query", "key", "value")


def canonical(architecture: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors by our names.

    Raises ConfigurationError when the file is of another family.
    """
    plain = _without_prefix(architecture, tensors)
    rename = _RENAMES.get(architecture, _unchanged)
    known = {rename(name): tensor for name, tensor in plain.items() if name not in BESIDE_WEIGHTS}
    if len(known) < len(set(plain) - BESIDE_WEIGHTS):
        problem = "with one linear layer as its head: export it to ONNX with its authors' code"
        raise ConfigurationError([f"no {architecture} {problem}"])
    return known


def _without_prefix(architecture: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors by torchvision's or timm's names."""
    prefix, anchor = _prefix(architecture, tensors)
    plain = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    if architecture != "vit" or not anchor.startswith("embeddings."):
        return plain
    # The head is beside the encoder, outside of its prefix; "module." may precede both.
    outer = prefix.removesuffix("vit.")
    return _packed(
        {
            _renamed(name.removeprefix(outer), _HUGGING_FACE): tensor
            for name, tensor in plain.items()
        }
    )


def is_hugging_face(tensors: Tensors) -> bool:
    """Whether a ViT has the names of transformers."""
    return any(name.endswith(_ANCHORS["vit"][1]) for name in tensors)


def _prefix(architecture: str, tensors: Tensors) -> tuple[str, str]:
    for anchor in _ANCHORS[architecture]:
        found = sorted(
            (name for name in tensors if name == anchor or name.endswith(f".{anchor}")), key=len
        )
        if found:
            return found[0].removesuffix(anchor), anchor
    wanted = " or ".join(_ANCHORS[architecture])
    some = ", ".join(sorted(tensors)[:4])
    raise ConfigurationError([f"no {architecture}: it lacks {wanted}; its tensors are {some} …"])


def _unchanged(name: str) -> str:
    return name


def _densenet(name: str) -> str:
    return _WRAPPED_HEAD.sub(r"\1.", _OLD_DENSENET.sub(r"\1\2.", name))


def _wrapped(name: str) -> str:
    return _WRAPPED_HEAD.sub(r"\1.", name)


_RENAMES: Final[Mapping[str, Callable[[str], str]]] = {
    "densenet121": _densenet,
    "resnet50": _wrapped,
    "vit": _wrapped,
    "vit_b16": lambda name: _renamed(name, _TORCHVISION),
}


def _renamed(name: str, rules: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, ours in rules:
        if pattern.match(name):
            return pattern.sub(ours, name)
    return name


def _packed(tensors: Tensors) -> dict[str, Tensor]:
    """Stack query, key and value one below the other, as timm has them."""
    packed = dict(tensors)
    for name in [name for name in tensors if ".attn.query." in name]:
        parts = [name.replace(".query.", f".{part}.") for part in _PARTS]
        if all(part in packed for part in parts):
            packed[name.replace(".query.", ".qkv.")] = torch.cat(
                [packed.pop(part) for part in parts]
            )
    return packed
