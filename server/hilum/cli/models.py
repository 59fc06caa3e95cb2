"""Releases, and what they see of an image."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from hilum.cli.frame import (
    Config,
    app,
    explained,
    models_app,
    settings_of,
)


@models_app.command("list")
def list_models(config: Config = None) -> None:
    """List the releases that have a manifest: trained or not, built or not, reading or not."""
    settings = settings_of(config)
    from hilum.models.build import is_built  # noqa: PLC0415 - needs the export tools' folder only
    from hilum.models.catalogue import load_catalogue  # noqa: PLC0415 - the same

    with explained():
        catalogue = load_catalogue(settings.manifests_dir)
    for name, item in sorted(catalogue.items()):
        words = [
            "trained" if item.is_trained else "UNTRAINED",
            f"{item.engine} {item.precision}",
            "built" if is_built(item, settings.built_dir) else "not built",
            "reads every image" if name in settings.active_releases else "not in models.releases",
        ]
        print(f"{name:32} {', '.join(words)}")


@models_app.command("build")
def build_models(
    releases: Annotated[list[str] | None, typer.Argument(help="Releases, name@version; none: models.releases and those of routes.")] = None,
    config: Config = None,
    weights: Annotated[Path | None, typer.Option(help="Folder of weights files that you bring.")] = None,
    profile: Annotated[str, typer.Option(help="embedded, or onnxruntime for a Triton that you run.")] = "embedded",
) -> None:
    """Build the Triton model repository from the manifests: ONNX first, then the profile. Nothing is downloaded."""
    settings = settings_of(config)
    from hilum.models.build import build  # noqa: PLC0415 - imports torch and onnx

    chosen = tuple(releases or settings.active_releases)
    with explained():
        build(chosen, settings.manifests_dir, settings.built_dir, profile, weights, lambda line: print(line, file=sys.stderr))
    print(f"{', '.join(chosen)}: built in {settings.built_dir / profile}")


@app.command()
def prepare(
    file: Annotated[Path, typer.Argument(help="A DICOM file.")],
    release: Annotated[str, typer.Option(help="Release, name@version.")],
    out: Annotated[Path, typer.Option(help="The wire tensor (C, H, W) as a NumPy file.")],
    png: Annotated[Path | None, typer.Option(help="The same as a picture, stretched to 8 bits.")] = None,
    config: Config = None,
) -> None:
    """Write what a release's model sees of an image, or say why it would not be analysed. JSON on standard output."""
    settings = settings_of(config)
    from hilum.wiring.preparing import prepare_file  # noqa: PLC0415 - imports torch

    with explained():
        answer = prepare_file(settings, file, release, out, png)
    print(json.dumps(answer, indent=2))
    raise typer.Exit(0 if answer["outcome"] == "prepared" else 1)
