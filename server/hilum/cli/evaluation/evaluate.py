"""`hilum evaluate`: a release measured against labels."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hilum.cli.frame import Config, acting, app, ended, explained, migrated_settings, performs
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.evaluate.cases.scores import ScoreTable
    from hilum.evaluate.cases.truth import LabelChoices
    from hilum.evaluate.evaluation import Evaluation
    from hilum.evaluate.measures import ClassResult, Measured
    from hilum.evaluate.protocol.protocol import Protocol
    from hilum.evaluate.statistics.delong import PairedDifference
    from hilum.services.evaluation.score_files import ScoreChoices
    from hilum.settings import Settings

_FORMATS: Final = (".json", ".html")


@app.command()
@performs(Verb.EXPORT)
def evaluate(
    protocol: Annotated[
        str,
        typer.Argument(
            help="chexpert-valid, chexpert-test, nih-chestxray14, mimic-cxr-jpg, vindr-cxr, rsna,"
            " labels (a CSV of yours), or a TOML file of yours."
        ),
    ],
    labels: Annotated[
        list[Path], typer.Option(help="A file of labels of the data set, as it ships; repeatable.")
    ],
    results: Annotated[
        Path | None, typer.Option(help="Scores: .csv or .parquet of `hilum export`, or any CSV.")
    ] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Scores: those of this campaign, instead of --results.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="A folder of images that nothing has read yet: prints how to."),
    ] = None,
    release: Annotated[
        str, typer.Option(help="Release, name@version. Default: the only one of the scores.")
    ] = "",
    against: Annotated[
        Path | None,
        typer.Option(help="Scores of another release for the same cases: paired comparison."),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="File to write: .json, or .html with plots; repeatable."),
    ] = None,
    config: Config = None,
    join: Annotated[
        str, typer.Option(help="Column of the scores that the labels name.")
    ] = "origin",
    key: Annotated[
        str, typer.Option(help="Column of the labels that names an image. Default: the protocol's.")
    ] = "",
    patient: Annotated[str, typer.Option(help="Column of the labels with the patient.")] = "",
    study: Annotated[str, typer.Option(help="Column of the labels with the study.")] = "",
    finding: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="CLASS=FINDING", help="Finding of a class; repeatable."),
    ] = None,
    score: Annotated[
        str, typer.Option(help="Column of the export that counts: score, logit or probability.")
    ] = "score",
    score_prefix: Annotated[
        str, typer.Option(help="Of a CSV with a column for each class: how their names begin.")
    ] = "",
    uncertain: Annotated[
        str, typer.Option(help="Value of -1: u-ones, u-zeros, u-ignore, gloria, libauc.")
    ] = "",
    blank: Annotated[str, typer.Option(help="Value of an empty label: negative or ignored.")] = "",
    rows: Annotated[
        str, typer.Option(help="Of several rows for an image: majority, any or all.")
    ] = "",
    split: Annotated[str, typer.Option(help="all: each row, not the split.")] = "",
    views: Annotated[
        str, typer.Option(help="Only images of these views, such as PA,AP or frontal.")
    ] = "",
    unit: Annotated[str, typer.Option(help="A case: image or study.")] = "",
    aggregation: Annotated[str, typer.Option(help="From images to a study: max or mean.")] = "",
    bootstrap: Annotated[
        int, typer.Option(min=100, help="Resamples of patients for the intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples.")] = 20170209,
) -> None:
    """Measure a release against labels: AUROC, average precision, thresholds, calibration, groups.

    The scores come from `hilum export`, a campaign, or another CSV. Protocols: evaluate.md.
    """
    _require_words(
        (
            ("--blank", blank, ("negative", "ignored")),
            ("--rows", rows, ("majority", "any", "all")),
            ("--split", split, ("all",)),
            ("--unit", unit, ("image", "study")),
            ("--aggregation", aggregation, ("max", "mean")),
            ("--score", score, ("score", "logit", "probability")),
        )
    )
    _require_formats(out or ())
    if sum(source is not None for source in (results, campaign, images)) != 1:
        raise ended(2, "give the scores: one of --results, --campaign and --images")
    from hilum.evaluate.cases.cases import JoinChoices  # noqa: PLC0415 - imports numpy
    from hilum.evaluate.cases.truth import LabelChoices  # noqa: PLC0415 - the same
    from hilum.evaluate.measure import Bootstrap  # noqa: PLC0415 - the same
    from hilum.evaluate.protocol.protocol import load  # noqa: PLC0415 - the same
    from hilum.services.evaluation.evaluator import (  # noqa: PLC0415 - imports the ledger
        EvaluationRequest,
        facts_of,
    )
    from hilum.services.evaluation.evaluator import evaluate as evaluate_all  # noqa: PLC0415
    from hilum.services.evaluation.score_files import ScoreChoices, read_scores  # noqa: PLC0415

    with explained():
        chosen = _with_columns(load(protocol), key, patient, study)
        label_choices = LabelChoices(
            uncertain, blank, rows, split, tuple(filter(None, views.split(",")))
        )
        if images is not None:
            given = {
                "key": key,
                "patient": patient,
                "study": study,
                "uncertain": uncertain,
                "blank": blank,
                "rows": rows,
                "split": split,
                "views": views,
                "unit": unit,
                "aggregation": aggregation,
            }
            again = [protocol, *_repeated(given, finding or ())]
            _say_commands(chosen, label_choices, labels, images, release, again)
            return
        choices = ScoreChoices(release, score, score_prefix)
        settings = _settings(config, campaign)
        with _scores(settings, results, campaign, choices) as scores:
            found = evaluate_all(
                EvaluationRequest(
                    protocol=chosen,
                    labels=labels,
                    scores=scores,
                    choices=label_choices,
                    join=JoinChoices(join, unit, aggregation, _map(finding)),
                    bootstrap=Bootstrap(bootstrap, seed),
                    against=read_scores(against, ScoreChoices("", score, score_prefix))
                    if against
                    else None,
                    facts=facts_of(settings, scores.release) if settings else {},
                )
            )
        for path in out or ():
            path.write_text(_document(found, path.suffix), encoding="utf-8")
    _print(found)
    for path in out or ():
        print(f"written: {path}")
    if found.statistics.mean is None:
        raise ended(1, "no class of the protocol is defined: nothing was measured")


def _require_words(given: Sequence[tuple[str, str, tuple[str, ...]]]) -> None:
    for option, value, known in given:
        if value and value not in known:
            raise ended(2, f"{option} {value}: say {' or '.join(known)}")


def _require_formats(out: Sequence[Path]) -> None:
    for path in out:
        if path.suffix not in _FORMATS:
            raise ended(2, f"--out {path}: give a name that ends in .json or .html")


def _repeated(given: Mapping[str, str], findings: Sequence[str]) -> list[str]:
    """Return options as a shell takes them; those without a value are left out."""
    options = [f"--{name} {shlex.quote(value)}" for name, value in given.items() if value]
    return [*options, *(f"--map {shlex.quote(text)}" for text in findings)]


def _map(given: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for text in given or ():
        name, equals, finding = text.partition("=")
        if not equals or not name or not finding:
            raise ended(2, f"--map {text}: say CLASS=FINDING, as Effusion=pleural_effusion")
        found[name] = finding
    return found


def _with_columns(protocol: Protocol, key: str, patient: str, study: str) -> Protocol:
    """Return the protocol with other names of columns."""
    columns = protocol.columns.model_copy(
        update={
            name: value
            for name, value in (("image", key), ("patient", patient), ("study", study))
            if value
        }
    )
    files = protocol.files
    if key and protocol.name == "labels":
        files = (files[0].model_copy(update={"columns": (key,)}),)
    return protocol.model_copy(update={"columns": columns, "files": files})


def _settings(config: Path | None, campaign: str | None) -> Settings | None:
    """Return the settings: of a campaign they are needed, else only where they are there."""
    if campaign is not None:
        return migrated_settings(config)
    from hilum.settings.loading import load  # noqa: PLC0415 - seldom needed

    return load(config)


@contextmanager
def _scores(
    settings: Settings | None, results: Path | None, campaign: str | None, choices: ScoreChoices
) -> Iterator[ScoreTable]:
    from hilum.services.evaluation.score_files import read_scores  # noqa: PLC0415 - numpy

    if results is not None:
        yield read_scores(results, choices)
        return
    from hilum.services.evaluation.evaluator import scores_of_campaign  # noqa: PLC0415 - the ledger
    from hilum.store.campaigns.campaigns import Campaigns  # noqa: PLC0415 - the same

    assert settings is not None
    assert campaign is not None
    with acting(settings, None, Thing.CAMPAIGN, campaign) as deed:
        deed.detail = "for an evaluation"
        with closing(Campaigns(settings.ledger_url)) as campaigns:
            known = campaigns.find(campaign)
        if known is None:
            raise ended(2, f"there is no campaign {campaign}: `hilum campaign list` shows all")
        yield scores_of_campaign(settings, known.id, choices, campaign)


def _say_commands(
    protocol: Protocol,
    choices: LabelChoices,
    labels: Sequence[Path],
    images: Path,
    release: str,
    words: Sequence[str],
) -> None:
    """Print the commands that read a folder of images, after its images were looked for.

    `words`: those of this command that the last one repeats.
    """
    from hilum.services.evaluation.image_folder import look_for_images  # noqa: PLC0415 - numpy

    if "@" not in release:
        raise ended(2, "--images needs --release name@version: the release that shall read them")
    found = look_for_images(protocol, choices, labels, images)
    print(f"{found.found} of {found.labelled} labelled images are in {images}")
    for name in found.missing:
        print(f"hilum: missing: {name}", file=sys.stderr)
    _print_commands(protocol.name, found.plan_option, release, [*words, *_options(labels)])


def _options(labels: Sequence[Path]) -> list[str]:
    return [f"--labels {shlex.quote(str(path))}" for path in labels]


def _print_commands(protocol: str, plan_option: str, release: str, words: Sequence[str]) -> None:
    said = f"{release.partition('@')[0]}-{protocol}".lower()
    print("A campaign reads them as live images are read. Do this next:\n")
    print(f"hilum campaign plan {said} {plan_option}")
    print(f"hilum campaign run {said} --release {release}")
    print(f"hilum campaign status {said}")
    print(f"hilum evaluate {' '.join(words)} --campaign {said} --out {said}.html")


def _document(found: Evaluation, suffix: str) -> str:
    from hilum.evaluate.evaluation import as_json  # noqa: PLC0415 - imports numpy
    from hilum.evaluate.page.page import page  # noqa: PLC0415 - imports jinja2

    if suffix == ".json":
        return json.dumps(as_json(found), indent=1, allow_nan=False) + "\n"
    return page(found, datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"))


def _print(found: Evaluation) -> None:
    """Print a table of 80 columns, and each doubt on standard error."""
    from hilum.evaluate.doubts import doubts_of  # noqa: PLC0415 - imports numpy

    for text in doubts_of(found):
        print(f"hilum: {text}", file=sys.stderr)
    cases = found.cases
    unit = "studies" if cases.unit == "study" else "images"
    print(
        f"{found.release['name']} by {found.protocol.name} {found.protocol.version}:"
        f" {len(cases.truth)} {unit} of {cases.counts.patients} {_of_patients(found)}"
    )
    print(f"{'class':26}{'positive':>9}{'negative':>9}   {'AUROC (95 %)':24}{'AP':>6}")
    for item in found.statistics.classes:
        _print_class(item)
    mean = found.statistics.mean
    if mean is not None:
        words = f"mean of {len(mean.classes)}"
        print(f"{words:44}   {_in_words(mean.auroc):24}{mean.auprc.value:>6.3f}")
    if any(not item.is_in_mean for item in found.statistics.classes):
        print("* not in the mean")
    _print_difference(found)
    _print_comparable(found)


def _print_class(item: ClassResult) -> None:
    area = f"undefined: {item.undefined}" if item.undefined else _in_words(item.auroc)
    ap = f"{item.auprc.value:.3f}" if item.auprc else ""
    name = item.name if item.is_in_mean else f"{item.name} *"
    print(f"{name[:25]:26}{item.positives:>9}{item.negatives:>9}   {area:24}{ap:>6}")


def _of_patients(found: Evaluation) -> str:
    is_named = found.cases.counts.patient_key == "patient"
    return "patients" if is_named else "studies, each taken as a patient"


def _print_difference(found: Evaluation) -> None:
    if found.against is None:
        return
    print(f"\n{found.against['name']} minus {found.release['name']}")
    for item in found.statistics.classes:
        if item.difference is not None:
            print(f"{item.name[:25]:26}{_difference_in_words(item.difference)}")
    if found.statistics.mean_difference is not None:
        print(f"{'mean':26}{_in_words(found.statistics.mean_difference):>8}")


def _difference_in_words(item: PairedDifference) -> str:
    p = "-" if item.p is None else f"{item.p:.4f}"
    return f"{item.difference:>+8.3f} ({item.low:+.3f} to {item.high:+.3f})  p {p}"


def _print_comparable(found: Evaluation) -> None:
    for item in found.comparable_with:
        if item.is_comparable:
            print(f"may stand beside {item.system}: {item.auroc:.1f}")
    others = [item for item in found.comparable_with if not item.is_comparable]
    if others:
        print(f"not beside {', '.join(item.system for item in others)}: the JSON says why")


def _in_words(item: Measured | None) -> str:
    if item is None or item.low is None or item.high is None:
        return "" if item is None else f"{item.value:.3f} (no interval)"
    return f"{item.value:.3f} ({item.low:.3f} to {item.high:.3f})"
