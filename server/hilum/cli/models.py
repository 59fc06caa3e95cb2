"""Releases, and the preprocessed images that they read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import (
    Config,
    app,
    explained,
    models_app,
    settings_of,
)
from hilum.verbs import OF_FILES, performs

if TYPE_CHECKING:
    from hilum.domain import Release


@models_app.command("list")
@performs(OF_FILES)
def list_models(config: Config = None) -> None:
    """List the releases that have a manifest: trained or not, built or not, reading or not."""
    settings = settings_of(config)
    from hilum.models.build.build import is_built  # noqa: PLC0415 - needs the export tools' folder only
    from hilum.models.manifest.catalogue import look  # noqa: PLC0415 - the same

    with explained():
        shelf = look(settings.manifests_dir)
    for name, found in shelf.items():
        if isinstance(found, list):
            problems = f"{len(found)} problem{'' if len(found) == 1 else 's'}"
            print(f"{name:32} {problems}: hilum models check {name}")
        else:
            is_ready = is_built(found.release, settings.built_dir)
            is_used = name in settings.active_releases
            print(f"{name:32} {_release_words(found.release, is_built=is_ready, is_used=is_used)}")


def _release_words(release: Release, *, is_built: bool, is_used: bool) -> str:
    words = (
        "trained" if release.is_trained else "UNTRAINED",
        f"{release.engine} {release.precision}",
        "built" if is_built else "not built",
        "reads images" if is_used else "neither in models.releases nor in a route or of a sender",
    )
    return ", ".join(words)


@models_app.command("build")
@performs(OF_FILES)
def build_models(
    releases: Annotated[
        list[str] | None,
        typer.Argument(help="Releases, name@version; none: models.releases and those of routes."),
    ] = None,
    config: Config = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of weights files that you bring.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "embedded (default); onnxruntime or tensorrt for a Triton that you run; may be"
                " repeated."
            )
        ),
    ] = None,
    accelerator: Annotated[
        str, typer.Option(help="Of the profile onnxruntime: none, cuda, tensorrt, tensorrt_fp16.")
    ] = "none",
) -> None:
    """Build the Triton model repositories from the manifests: ONNX first, then each profile.

    Nothing is downloaded.
    """
    settings = settings_of(config)
    from hilum.models.build.build import build  # noqa: PLC0415 - imports torch and onnx
    from hilum.services.releases.rebuild import require_replaceable  # noqa: PLC0415 - imports the ledger

    chosen = tuple(releases or settings.active_releases)
    profiles = tuple(dict.fromkeys(profile or ["embedded"]))
    with explained():
        require_replaceable(settings, chosen, profiles)
    for each in profiles:
        with explained():
            build(
                chosen,
                settings.manifests_dir,
                settings.built_dir,
                each,
                weights,
                lambda line: print(line, file=sys.stderr),
                accelerator if each == "onnxruntime" else "none",
            )
        print(f"{', '.join(chosen)}: built in {settings.built_dir / each}")


@app.command()
@performs(OF_FILES)
def prepare(
    file: Annotated[Path, typer.Argument(help="A DICOM file, or a PNG or JPEG file.")],
    release: Annotated[str, typer.Option(help="Release, name@version.")],
    out: Annotated[
        Path | None, typer.Option(help="The wire tensor (C, H, W) as a NumPy file.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="The same as a picture, stretched to 8 bits.")
    ] = None,
    explain: Annotated[
        Path | None,
        typer.Option(help="A picture of each step: pixels, levels, crop, tensor, histograms."),
    ] = None,
    config: Config = None,
) -> None:
    """Write the tensor that a release gets of an image, or say why it would not be analysed.

    JSON on standard output.
    """
    settings = settings_of(config)
    from hilum.services.prepare import PrepareRequest, prepare_file  # noqa: PLC0415 - imports torch

    with explained():
        answer = prepare_file(settings, file, release, PrepareRequest(out, png, explain))
    print(json.dumps(answer, indent=2))
    raise typer.Exit(0 if answer["outcome"] == "prepared" else 1)
