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
            help="onnx, densenet121, resnet50, torchxrayvision, or vit (timm, Hugging Face)."
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
    config: Config = None,
) -> None:
    """Make a release folder (manifest.toml, weights.safetensors) from a checkpoint.

    Pickles are read in a locked process.
    """
    settings = settings_of(config)
    folder = out or settings.manifests_dir
    if kind == "onnx":
        with explained():
            _refuse(
                {
                    "--recipe": recipe,
                    "--activation": activation,
                    "--published": published,
                    "--download": download,
                    "--sha256": sha256,
                }
            )
        new_model(Path(source), config, name, version, labels, folder)
        return
    from hilum.models.importing import release_folder  # noqa: PLC0415 - imports torch and onnx
    from hilum.models.importing.kinds import ImportRequest  # noqa: PLC0415 - the same

    with explained(), tempfile.TemporaryDirectory() as scratch:
        path = release_folder.checkpoint(source, sha256, Path(scratch), is_fetched=download)
        made = release_folder.import_release(
            kind, ImportRequest(path, labels, recipe, activation, published), name, version, folder
        )
    print(f"{made.folder}: manifest.toml, weights.safetensors")
    for line in made.to_edit:
        print(f"  edit: {line.strip()}")
    print(f"then: hilum models check {name}@{version}, hilum models build {name}@{version}")


def _refuse(options: Mapping[str, object]) -> None:
    """Refuse options that would have no effect: the author edits the draft instead."""
    if given := ", ".join(option for option, value in options.items() if value):
        raise ConfigurationError([f"kind onnx takes no {given}: edit the manifest that it begins"])
