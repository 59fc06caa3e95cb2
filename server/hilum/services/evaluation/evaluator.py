"""Labels and scores in, an evaluation out."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hilum.errors import ConfigurationError
from hilum.evaluate.cases.cases import EvaluatedCases, JoinChoices, join
from hilum.evaluate.cases.scores import ScoreTable
from hilum.evaluate.cases.truth import LabelChoices, TruthTable, read_truth
from hilum.evaluate.evaluation import Evaluation, beside, deviations_of, rules_of
from hilum.evaluate.measure import Bootstrap, measure
from hilum.evaluate.protocol.protocol import Protocol
from hilum.evaluate.statistics.areas import Floats
from hilum.models.manifest import catalogue
from hilum.models.manifest.label_names import concept_of
from hilum.services.evaluation.score_files import ScoreChoices, read_scores
from hilum.services.export import ExportTarget, export
from hilum.settings import Settings
from hilum.store.queries.exports import StudySelection


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """The input of an evaluation.

    `against`: a second file of scores for the same cases; None: no other. `facts`: digests of the
    release.
    """

    protocol: Protocol
    labels: Sequence[Path]
    scores: ScoreTable
    choices: LabelChoices = field(default_factory=LabelChoices)
    join: JoinChoices = field(default_factory=JoinChoices)
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    against: ScoreTable | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def evaluate(request: EvaluationRequest) -> Evaluation:
    """Return the evaluation. Raises ConfigurationError for bad input, and OSError."""
    protocol = request.protocol
    truth = read_truth(protocol, request.labels, request.choices)
    _require_map(truth, request.scores, request.join.findings or {})
    choices = dataclasses.replace(request.join, findings=_findings(protocol, truth, request.join))
    cases = join(protocol, truth, request.scores, choices)
    second = None
    if request.against is not None:
        cases, second = _common(cases, join(protocol, truth, request.against, choices))
    statistics = measure(
        cases, protocol.classes, request.scores.operating_points, request.bootstrap, second
    )
    deviations = deviations_of(protocol, request.choices, truth, cases)
    return Evaluation(
        protocol=protocol,
        rules=rules_of(protocol, request.choices),
        release=_named(request.scores, request.facts),
        against=_named(request.against, {}) if request.against else None,
        label_files={path.name: _sha256(path) for path in truth.files},
        truth=truth,
        cases=cases,
        statistics=statistics,
        not_read=request.scores.not_read,
        deviations=tuple(deviations),
        comparable_with=beside(protocol, deviations, statistics, request.scores),
    )


def scores_of_campaign(
    settings: Settings, campaign_id: int, choices: ScoreChoices, name: str
) -> ScoreTable:
    """Return the scores of a campaign from the ledger. Raises as `export` and `read_scores`."""
    releases = (choices.release,) if choices.release else ()
    selection = StudySelection(campaign_id=campaign_id, releases=releases)
    with tempfile.TemporaryDirectory(prefix="hilum-evaluate-") as folder:
        path = Path(folder) / "campaign.csv"
        export(settings, selection, ExportTarget(path))
        try:
            table = read_scores(path, choices)
        except ConfigurationError as error:
            raise ConfigurationError(
                [each.replace(str(path), f"campaign {name}") for each in error.problems]
            ) from error
    return dataclasses.replace(table, source=f"campaign {name}")


def facts_of(settings: Settings, release: str) -> dict[str, str]:
    """Return the digests of a release of this installation; none: it is not here."""
    if not settings.manifests_dir.is_dir():
        return {}
    manifest = catalogue.look(settings.manifests_dir).get(release)
    if manifest is None or isinstance(manifest, list):
        return {}
    found = manifest.release
    return {
        "manifest_sha256": found.digest,
        "weights_sha256": found.weights_sha256,
        "recipe": str(found.input_spec.get("name", "")),
        "calibration": str((found.calibration or {}).get("method", "none")),
    }


def _named(table: ScoreTable, facts: Mapping[str, str]) -> dict[str, str]:
    trained = {None: "not known", True: "yes", False: "no"}[table.is_trained]
    return {"name": table.release, "scores": table.source, "trained": trained, **facts}


def _findings(protocol: Protocol, truth: TruthTable, chosen: JoinChoices) -> dict[str, str]:
    """Return the finding of each class: a person's, the protocol's, or that of the terminology."""
    findings = {name: key for name in truth.classes if (key := concept_of(name))}
    return {**findings, **protocol.findings, **(chosen.findings or {})}


def _require_map(truth: TruthTable, scores: ScoreTable, chosen: Mapping[str, str]) -> None:
    """Raise for a class or a finding that is nowhere: the protocol's would be taken instead."""
    sides = (
        (chosen.keys() - set(truth.classes), "the labels have no such class", truth.classes),
        (
            set(chosen.values()) - set(scores.findings),
            f"{scores.release} has no such finding",
            scores.findings,
        ),
    )
    problems = [
        f"--map, {name!r}: {problem}; known: {', '.join(known)}"
        for unknown, problem, known in sides
        for name in sorted(unknown)
    ]
    if problems:
        raise ConfigurationError(problems)


def _common(first: EvaluatedCases, second: EvaluatedCases) -> tuple[EvaluatedCases, Floats]:
    """Return the cases and classes that both have scores of, and the second's scores."""
    for cases in (first, second):
        if len(set(cases.keys)) < len(cases.keys):
            problem = "--against: a label names several images, so no pair is certain"
            raise ConfigurationError([f"{problem}: give --unit study"])
    place = {key: row for row, key in enumerate(second.keys)}
    rows = np.array([row for row, key in enumerate(first.keys) if key in place], dtype=np.intp)
    names = [name for name in first.classes if name in second.classes]
    if not names or not len(rows):
        raise ConfigurationError(["--against: no case or no class has scores of both"])
    cases = first.part(rows, [first.classes.index(name) for name in names])
    other = second.part(
        np.array([place[key] for key in cases.keys], dtype=np.intp),
        [second.classes.index(name) for name in names],
    )
    either = np.isnan(cases.scores) | np.isnan(other.scores)
    lacking = {name: "lacked by the other" for name in first.classes if name not in names}
    cases = dataclasses.replace(
        cases,
        scores=np.where(either, np.nan, cases.scores),
        left_out={**first.left_out, **lacking},
    )
    return cases, np.where(either, np.nan, other.scores)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
