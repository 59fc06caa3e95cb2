"""Do the towers of a zero-shot release say what another implementation says?

    python -m load_tests.zero_shot.parity [--quick] [--result load_tests/results/bench-zero-shot.json]

Both sizes of CheXzero, with weights from a seed and the published vocabulary, come through `hilum
models import` to ONNX. Compared with Hugging Face's CLIP of the same weights: tokens, embeddings of
prompts, and similarities through torch, ONNX Runtime and OpenVINO, in float32. Timings have no part
in this. transformers and the vocabulary are installed apart, in state/zero-shot-peers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hilum.models.build import export
from hilum.models.formats import safetensors
from hilum.models.formats.triton_model import open_engine
from hilum.models.importing import release_folder
from hilum.models.importing.request import ImportRequest
from hilum.models.known_answers import canary
from hilum.models.manifest import manifest
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.prompts import PromptsTable
from hilum.models.networks import architectures
from load_tests.load.measure import Goal, circumstances
from load_tests.zero_shot.checkpoints import HEAD, VIT_B16_320, VIT_B32, ClipSizes, checkpoint
from testing.serving import REPOSITORY

ENGINES: Final = ("onnxruntime", "openvino")
BATCHES: Final = (1, 5)
SIZES: Final = {"ViT-B/32, 224 px": VIT_B32, "ViT-B/16, 320 px": VIT_B16_320}
_RESULT: Final = REPOSITORY / "load_tests/results/bench-zero-shot.json"
_MEAN: Final = 101.48761
_STD: Final = 83.43944
_RENAMES: Final = (
    (r"^visual\.class_embedding$", "vision_model.embeddings.class_embedding"),
    (r"^visual\.positional_embedding$", "vision_model.embeddings.position_embedding.weight"),
    (r"^visual\.conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual\.ln_pre\.", "vision_model.pre_layrnorm."),
    (r"^visual\.ln_post\.", "vision_model.post_layernorm."),
    (r"^visual\.proj$", "visual_projection.weight"),
    (r"^visual\.transformer\.resblocks\.", "vision_model.encoder.layers."),
    (r"^transformer\.resblocks\.", "text_model.encoder.layers."),
    (r"^token_embedding\.", "text_model.embeddings.token_embedding."),
    (r"^positional_embedding$", "text_model.embeddings.position_embedding.weight"),
    (r"^ln_final\.", "text_model.final_layer_norm."),
    (r"^text_projection$", "text_projection.weight"),
    (r"\.ln_1\.", ".layer_norm1."),
    (r"\.ln_2\.", ".layer_norm2."),
    (r"\.attn\.out_proj\.", ".self_attn.out_proj."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 some do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the smaller network only")
    parser.add_argument("--result", type=Path, default=_RESULT)
    asked = parser.parse_args(words)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    before = circumstances()
    chosen = list(SIZES.items())[: 1 if asked.quick else None]
    rows = [_row(name, sizes) for name, sizes in chosen]
    found = goals(rows)
    for goal in found:
        print(f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.2g} (<= {goal.goal:g})")  # fmt: skip
    asked.result.write_text(
        json.dumps(as_json(rows, found, before), indent=1) + "\n", encoding="utf-8"
    )
    return 0 if all(goal.holds for goal in found) else 1


def _row(name: str, sizes: ClipSizes) -> dict[str, Any]:
    tensors = {key: tensor.half().float() for key, tensor in checkpoint(sizes).items()}
    vocabulary = _vocabulary()
    with tempfile.TemporaryDirectory() as scratch:
        read = _imported(tensors, vocabulary, Path(scratch))
        prompts = read.table.prompts
        assert prompts is not None
        theirs = _hugging_face(sizes, tensors)
        positive, negative = _their_prompts(theirs, prompts)
        weights = safetensors.read(read.path.parent / "weights.safetensors")
        embeddings = max(
            _apart(weights["positive_prompts"], positive),
            _apart(weights["negative_prompts"], negative),
        )
        compared = dict(_similarities(read, theirs, positive - negative, Path(scratch)))
        tokens = _differing_tokens(prompts, vocabulary, Path(scratch))
    print(f"{name:20}{embeddings:10.1e}{max(compared.values()):10.1e}", flush=True)
    return {
        "network": name,
        "tensors": len(tensors),
        "prompts": sum(len(pair.positive) + len(pair.negative) for pair in prompts.pairs),
        "prompts_with_other_tokens": tokens,
        "embeddings": embeddings,
        "similarities": compared,
    }


def _vocabulary() -> Path:
    """CLIP's file, as the package open-clip-torch carries it; nothing of that package is imported."""
    found = importlib.util.find_spec("open_clip")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "bpe_simple_vocab_16e6.txt.gz"


def _imported(tensors: Mapping[str, Tensor], vocabulary: Path, folder: Path) -> Manifest:
    source = folder / "best.pt"
    torch.save({name: tensor.half() for name, tensor in tensors.items()}, source)
    request = ImportRequest(source, tokenizer=vocabulary)
    made = release_folder.import_release("chexzero", request, "compared", "1", folder / "out")
    source.unlink()
    return manifest.read(made.folder / manifest.FILE_NAME)


def _hugging_face(sizes: ClipSizes, tensors: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 - untyped
    from transformers import CLIPConfig, CLIPModel  # type: ignore[import-not-found]  # noqa: PLC0415

    one = {"hidden_act": "quick_gelu", "projection_dim": sizes.embedding}
    images = {
        **_transformer(sizes.width, sizes.layers),
        "image_size": sizes.side,
        "patch_size": sizes.patch,
    }
    texts = {
        **_transformer(sizes.text_width, sizes.text_layers),
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.context,
        "eos_token_id": sizes.vocabulary - 1,
        "bos_token_id": sizes.vocabulary - 2,
    }
    config = CLIPConfig(
        text_config={**one, **texts},
        vision_config={**one, **images},
        projection_dim=sizes.embedding,
    )
    model = CLIPModel(config)
    named = dict(_renamed(tensors))
    lacking = {
        name
        for name in set(model.state_dict()) - set(named)
        if not name.endswith(("position_ids", "logit_scale"))
    }
    assert not lacking, lacking
    model.load_state_dict(named, strict=False)
    return model.eval()


def _transformer(width: int, layers: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // HEAD,
    }


def _renamed(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """From OpenAI's names to those of transformers."""
    for name, tensor in tensors.items():
        theirs = name
        for pattern, replacement in _RENAMES:
            theirs = re.sub(pattern, replacement, theirs)
        if ".attn.in_proj_" in theirs:
            at, _, part = theirs.partition(".attn.in_proj_")
            for letter, piece in zip("qkv", tensor.chunk(3), strict=True):
                yield f"{at}.self_attn.{letter}_proj.{part}", piece
        else:
            yield theirs, tensor.T if name in {"visual.proj", "text_projection"} else tensor


@torch.no_grad()
def _their_prompts(theirs: Any, prompts: PromptsTable) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - untyped
    sides = ([pair.positive for pair in prompts.pairs], [pair.negative for pair in prompts.pairs])
    positive, negative = (
        torch.cat([_their_text(theirs, side[0].tokens) for side in each]) for each in sides
    )
    return positive, negative


def _their_text(theirs: Any, tokens: Sequence[int]) -> Tensor:  # noqa: ANN401 - untyped
    return functional.normalize(_features(theirs.get_text_features(torch.tensor([tokens]))))


def _features(found: Any) -> Tensor:  # noqa: ANN401 - a tensor, or since version 5 an output
    features = found if isinstance(found, Tensor) else found.pooler_output
    assert isinstance(features, Tensor)
    return features


@torch.no_grad()
def _similarities(
    read: Manifest,
    theirs: Any,  # noqa: ANN401 - untyped
    differences: Tensor,
    folder: Path,
) -> Iterator[tuple[str, float]]:
    """Largest differences of a logit, a difference of two similarities, by engine and batch."""
    weights = read.path.parent / "weights.safetensors"
    artefact = folder / "model.onnx"
    export.export(read, weights, artefact)
    served = architectures.ServedNetwork(export.network(read, weights), read.spec, has_cam=False)
    for size in BATCHES:
        images = np.concatenate([canary.known_image(read.spec, number) for number in range(size)])
        pixels = (torch.from_numpy(images).float().expand(-1, 3, -1, -1) - _MEAN) / _STD
        features = functional.normalize(_features(theirs.get_image_features(pixels)))
        expected = features @ differences.T
        yield f"torch {size}", _apart(served.eval()(torch.from_numpy(images))[0], expected)
        for engine in ENGINES:
            found = open_engine(artefact, engine, "f32", "all")(images)["logits"]
            yield f"{engine} {size}", _apart(torch.from_numpy(found), expected)


def _differing_tokens(prompts: PromptsTable, vocabulary: Path, folder: Path) -> int:
    """The number of prompts that transformers' tokenizer reads in another way."""
    tokenizer = _their_tokenizer(vocabulary, folder)
    texts = [prompt for pair in prompts.pairs for prompt in (*pair.positive, *pair.negative)]
    return sum(tuple(tokenizer(prompt.text)["input_ids"]) != prompt.tokens for prompt in texts)


def _their_tokenizer(vocabulary: Path, folder: Path) -> Any:  # noqa: ANN401 - untyped
    """CLIPTokenizer from vocab.json and merges.txt, made from the file as transformers' script does."""
    import gzip  # noqa: PLC0415

    from transformers import CLIPTokenizer  # noqa: PLC0415
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # type: ignore[import-not-found]  # noqa: PLC0415

    lines = gzip.decompress(vocabulary.read_bytes()).decode().split("\n")
    merges = lines[1 : VIT_B32.vocabulary - 514 + 1]
    letters = list(bytes_to_unicode().values())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    tokens += [*("".join(line.split()) for line in merges), "<|startoftext|>", "<|endoftext|>"]
    numbered = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(numbered), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
    return CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def goals(rows: Sequence[Mapping[str, Any]]) -> list[Goal]:
    """No other token, and at most 1e-4 of a similarity."""
    similarities = max(value for row in rows for value in row["similarities"].values())
    return [
        Goal("prompts with other tokens", sum(row["prompts_with_other_tokens"] for row in rows), "", 0),
        Goal("largest difference of a number of an embedding", max(row["embeddings"] for row in rows), "", 1e-4),
        Goal("largest difference of a similarity", similarities, "", 1e-4),
    ]  # fmt: skip


def as_json(
    rows: Sequence[Mapping[str, Any]], found: Sequence[Goal], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": "largest differences between a zero-shot release and Hugging Face's CLIP of the same random weights, float32",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **before,
        "transformers": metadata.version("transformers"),
        "rows": list(rows),
        "goals": [goal.as_json() for goal in found],
    }


if __name__ == "__main__":
    sys.exit(main())
