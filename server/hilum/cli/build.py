"""Releases made from releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hilum.cli.frame import Config, explained, models_app, settings_of
from hilum.errors import ConfigurationError
from hilum.verbs import OF_FILES, performs


@models_app.command("quantise")
@performs(OF_FILES)
def quantise_model(
    release: Annotated[str, typer.Argument(help="A trained release in f32, name@version.")],
    calibration: Annotated[
        Path, typer.Option(help="Folder of images (.dcm, .npy) that show the range of activations.")
    ],
    cases: Annotated[
        Path | None,
        typer.Option(help="CSV file: a column `file`, and one of 1, 0 or nothing for each label."),
    ] = None,
    scores_only: Annotated[
        bool,
        typer.Option(
            "--scores-only",
            help=(
                "Without cases: compare scores on each fourth image, and no area under the ROC"
                " curve."
            ),
        ),
    ] = False,
    version: Annotated[
        str | None, typer.Option(help="Of the new release. Default: the old one with .int8.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of weights files that you bring.")
    ] = None,
    config: Config = None,
) -> None:
    """Make an int8 release; it is kept only if it passes the manifest's limits (quantisation).

    The limits are for scores and areas. A report is written in any case.
    """
    settings = settings_of(config)
    from hilum.models.manifest import catalogue  # noqa: PLC0415 - imports onnx, as the next
    from hilum.models.quantisation.quantise import QuantisationRequest, quantise  # noqa: PLC0415

    with explained():
        _require_truth(cases, is_left_out=scores_only)
        (read,) = catalogue.choose(
            catalogue.load_manifests(settings.manifests_dir, [release]), [release]
        ).values()
        order = QuantisationRequest(
            version or f"{read.release.version}.int8", calibration, cases, weights
        )
        outcome = quantise(read, order, settings.manifests_dir, settings.built_dir)
    judgement = outcome.judgement
    verdict = "accepted" if judgement.is_accepted else "refused"
    print(f"{outcome.release_id}: {verdict}; report: {outcome.report}")
    for problem in judgement.problems:
        print(f"  {problem}")
    raise typer.Exit(0 if judgement.is_accepted else 1)


def _require_truth(cases: Path | None, *, is_left_out: bool) -> None:
    """Raise ConfigurationError unless cases are given, or left out on purpose."""
    if (cases is None) != is_left_out:
        problem = (
            "give --cases with the truth; or --scores-only: then no area under the ROC curve is"
            " compared"
        )
        raise ConfigurationError([problem])
