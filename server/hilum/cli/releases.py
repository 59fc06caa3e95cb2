"""Releases: checks before they are served, and drafts of new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import Config, explained, models_app, settings_of
from hilum.settings import Settings
from hilum.verbs import OF_FILES, performs

if TYPE_CHECKING:
    from hilum.models.facts import FactLine

Weights = Annotated[Path | None, typer.Option(help="Folder of weights files that you bring.")]


@models_app.command("check")
@performs(OF_FILES)
def check_models(
    releases: Annotated[
        list[str] | None,
        typer.Argument(help="Releases, name@version; none: models.releases and those of routes."),
    ] = None,
    config: Config = None,
    weights: Weights = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Let engines, or the Tritons of the settings, answer known images, too."
        ),
    ] = False,
    tensorrt_rtx: Annotated[
        bool,
        typer.Option(
            "--tensorrt-rtx",
            help="Also build tensorrt engines without a GPU: docs/models/profiles.md.",
        ),
    ] = False,
) -> None:
    """Check releases before they are served: problems, with remedies.

    Manifest, weights, golden cases, built trees. A PROBLEM is refused at a build. A QUESTION is
    not, and waits for your answer. Exit status 1 while there is one of either.
    """
    settings = settings_of(config)
    from hilum.models.facts import FactVerdict  # noqa: PLC0415 - imports onnx

    count = Counter[FactVerdict]()
    with explained():
        chosen = tuple(releases or settings.active_releases)
        for line in _checked(
            settings, chosen, weights, is_run=run, is_built_by_tensorrt=tensorrt_rtx
        ):
            print(f"{line.verdict:7} {line.release_id} {line.text}")
            count[line.verdict] += 1
    problems = count[FactVerdict.PROBLEM]
    questions = count[FactVerdict.QUESTION]
    asked = f", {_counted(questions, 'question')}" if questions else ""
    print(f"{_counted(problems, 'problem')}{asked}")
    raise typer.Exit(1 if problems or questions else 0)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _checked(
    settings: Settings,
    releases: tuple[str, ...],
    weights: Path | None,
    *,
    is_run: bool,
    is_built_by_tensorrt: bool,
) -> Iterator[FactLine]:
    """Known images go to the engine in this process, or to the Tritons that the settings name."""
    from hilum.models.build import tensorrt_rtx  # noqa: PLC0415 - as above
    from hilum.models.facts import Places  # noqa: PLC0415 - as above
    from hilum.models.inspection.check import check  # noqa: PLC0415 - as above

    places = Places(settings.manifests_dir, settings.built_dir, weights)
    is_elsewhere = bool(settings.triton.addresses)
    more = (tensorrt_rtx.facts,) if is_built_by_tensorrt else ()
    yield from check(releases, places, is_run=is_run and not is_elsewhere, more=more)
    if is_run and is_elsewhere:
        from hilum.services.releases.check_release import ask  # noqa: PLC0415 - imports grpc

        for release in releases:
            yield from ask(settings, release)


@models_app.command("show")
@performs(OF_FILES)
def show_model(
    release: Annotated[str, typer.Argument(help="Release, name@version.")], config: Config = None
) -> None:
    """Show a release: labels and codes, input, how numbers come about, weights, built profiles."""
    settings = settings_of(config)
    from hilum.models.inspection.show import show  # noqa: PLC0415 - reads the terminology

    with explained():
        for line in show(release, settings.manifests_dir, settings.built_dir):
            print(line)


@models_app.command("new")
@performs(OF_FILES)
def new_model(
    file: Annotated[Path, typer.Argument(help="An ONNX file.")],
    config: Config = None,
    name: Annotated[str | None, typer.Option(help="Of the release; else the file's.")] = None,
    version: Annotated[str, typer.Option(help="Of the release.")] = "1",
    labels: Annotated[
        str | None,
        typer.Option(
            help="A file with one label a line, or a known order: see docs/models/terminology.md."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of manifests; else that of models.manifests.")
    ] = None,
) -> None:
    """Begin a release: a commented manifest from an ONNX file, its guesses with their reasons.

    Fields that only you know are marked EDIT.
    """
    settings = settings_of(config)
    from hilum.models.scaffold.draft import draft  # noqa: PLC0415 - imports onnx

    with explained():
        drafted = draft(file, name, version, labels, out or settings.manifests_dir)
    print(f"{drafted.manifest}: {drafted.edits} places say EDIT and wait for you")
    print(
        f"then: hilum models check {drafted.release_id} && hilum models build {drafted.release_id}"
    )
