"""From an author's checkpoint to a release folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from hilum.cli.frame import Config, explained, models_app, settings_of
from hilum.cli.releases import new_model
from hilum.errors import ConfigurationError
from hilum.verbs import OF_FILES, performs


@models_app.command("import")
@performs(OF_FILES)
def import_model(
    kind: Annotated[
        str,
        typer.Argument(
            help=(
                "onnx, chexzero, densenet121, resnet50, torchxrayvision, or vit (timm, Hugging"
                " Face)."
            )
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            help=(
                "The checkpoint: .safetensors, .pt, .pth … With --download: the name of a published"
                " release."
            )
        ),
    ],
    name: Annotated[str, typer.Option(help="Of the release: small letters, digits and _.")],
    version: Annotated[str, typer.Option(help="Of the release: letters, digits and points.")] = "1",
    out: Annotated[
        Path | None, typer.Option(help="Folder of releases. Default: models.manifests.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help=(
                "Order of the outputs: a known one (nih_14, chexpert_14 …), or a file, one label a"
                " line."
            )
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="How images were prepared: docs/models/recipes.md. Default: that of the kind."
        ),
    ] = None,
    activation: Annotated[
        str | None,
        typer.Option(help="sigmoid, softmax or none. Default: that of the kind."),
    ] = None,
    published: Annotated[
        str | None, typer.Option(help="Which release of torchxrayvision a file of another name is.")
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Fetch SOURCE, a release of torchxrayvision, from its project's releases.",
        ),
    ] = False,
    sha256: Annotated[
        str | None, typer.Option(help="With --download: the digest that the file must have.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Kind chexzero: your prompts.toml, docs/models/zero_shot.md. Default: its own for"
                " the 14 findings of CheXpert."
            )
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Kind chexzero: CLIP's vocabulary, bpe_simple_vocab_16e6.txt.gz."),
    ] = None,
    tokenizer_sha256: Annotated[
        str | None,
        typer.Option(help="Digest of the vocabulary. Default: that of CLIP's published file."),
    ] = None,
    config: Config = None,
) -> None:
    """Make a release folder (manifest.toml, weights.safetensors) from a checkpoint.

    Pickles are read in a locked process.
    """
    settings = settings_of(config)
    folder = out or settings.manifests_dir
    of_prompts = {
        "--prompts": prompts,
        "--tokenizer": tokenizer,
        "--tokenizer-sha256": tokenizer_sha256,
    }
    if kind == "onnx":
        with explained():
            _refuse(
                kind,
                {
                    "--recipe": recipe,
                    "--activation": activation,
                    "--published": published,
                    "--download": download,
                    "--sha256": sha256,
                    **of_prompts,
                },
                "edit the manifest that it begins",
            )
        new_model(Path(source), config, name, version, labels, folder)
        return
    from hilum.models.importing import release_folder  # noqa: PLC0415 - imports torch and onnx
    from hilum.models.importing.kinds import ImportRequest  # noqa: PLC0415 - the same

    with explained(), tempfile.TemporaryDirectory() as scratch:
        if kind != "chexzero":
            _refuse(kind, of_prompts, "it has no prompts")
        path = release_folder.checkpoint(source, sha256, Path(scratch), is_fetched=download)
        request = ImportRequest(
            path, labels, recipe, activation, published, prompts, tokenizer, tokenizer_sha256
        )
        made = release_folder.import_release(kind, request, name, version, folder)
    print(f"{made.folder}: {', '.join(sorted(path.name for path in made.folder.iterdir()))}")
    for line in made.to_edit:
        print(f"  edit: {line.strip()}")
    print(f"then: hilum models check {name}@{version}, hilum models build {name}@{version}")


@models_app.command("prompts")
@performs(OF_FILES)
def new_prompts(
    release: Annotated[str, typer.Argument(help="A zero-shot release, name@version.")],
    prompts: Annotated[
        Path, typer.Option(help="Your findings and their words: docs/models/zero_shot.md.")
    ],
    version: Annotated[
        str | None, typer.Option(help="Of the new release. Default: the next number.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="The vocabulary that the manifest names. Default: the one beside it."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of weights files that you bring.")
    ] = None,
    config: Config = None,
) -> None:
    """Make a new version of a zero-shot release that is asked for other findings or other words.

    The text tower runs once, here. The server never runs it.
    """
    settings = settings_of(config)
    from hilum.models.manifest import catalogue, manifest  # noqa: PLC0415 - imports torch and onnx
    from hilum.models.zero_shot import new_version  # noqa: PLC0415 - the same

    folder = settings.manifests_dir
    with explained():
        path = catalogue.choose(catalogue.paths(folder), [release])[release]
        request = new_version.PromptsRequest(prompts, version, tokenizer, weights)
        made = new_version.with_prompts(manifest.read(path), request, folder)
    name = made.folder.name
    print(f"{made.folder}: {made.findings} findings, {made.prompts} prompts")
    if made.left_out:
        print(f"without {', '.join(made.left_out)} of {release}: they belong to its prompts")
    print(f"then: hilum models check {name}, hilum models build {name}")


def _refuse(kind: str, options: Mapping[str, object], why: str) -> None:
    """Refuse options that would have no effect."""
    if given := ", ".join(option for option, value in options.items() if value):
        raise ConfigurationError([f"kind {kind} takes no {given}: {why}"])
