"""Joins labels with scores, and makes the cases that statistics are of: images or studies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hilum.errors import ConfigurationError
from hilum.evaluate.cases.scores import IMAGE_UID, STUDY_UID, ImageIndex, ScoreTable
from hilum.evaluate.cases.truth import LabelledCase, TruthTable, age_band
from hilum.evaluate.protocol.protocol import Protocol
from hilum.evaluate.statistics.areas import Floats

_SHOWN = 5
Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class JoinCounts:
    """Counts of joined images, and of those without a partner.

    `missing`: labelled, without a score; the first of their names. `unlabelled`: images with scores
    that no label names. `disagreeing`: studies whose images have different labels.
    """

    images: int
    studies: int
    patients: int
    missing: int
    missing_names: tuple[str, ...]
    unlabelled: int
    unlabelled_names: tuple[str, ...]
    disagreeing: int = 0
    patient_key: str = "study"


@dataclass(frozen=True, slots=True)
class EvaluatedCases:
    """The cases. `truth`, `scores`: a row a case, a column a class; NaN: none.

    `keys`: the name of each case in the labels. `studies`: of its study. `findings`: the release's
    finding of each class. `left_out`: classes that the release lacks, with the finding that was
    looked for. `groups`: by kind of subgroup, the group of each case.
    """

    keys: Sequence[str]
    unit: str
    aggregation: str
    classes: tuple[str, ...]
    findings: tuple[str, ...]
    truth: Floats
    scores: Floats
    patients: Numbers
    groups: Mapping[str, Sequence[str]]
    studies: Sequence[str]
    left_out: Mapping[str, str]
    counts: JoinCounts

    def part(self, rows: Numbers, columns: Sequence[int]) -> EvaluatedCases:
        """Return some cases and classes. The other cases count as those without a score."""
        return dataclasses.replace(
            self,
            keys=_at(self.keys, rows),
            classes=tuple(self.classes[number] for number in columns),
            findings=tuple(self.findings[number] for number in columns),
            truth=_block(self.truth, rows, columns),
            scores=_block(self.scores, rows, columns),
            patients=_numbers(self.patients[rows]),
            groups={kind: _at(names, rows) for kind, names in self.groups.items()},
            studies=_at(self.studies, rows),
            counts=self._counts_of(rows),
        )

    def _counts_of(self, rows: Numbers) -> JoinCounts:
        others = _at(self.keys, np.setdiff1d(np.arange(len(self.keys)), rows))
        return dataclasses.replace(
            self.counts,
            images=len(rows) if self.unit == "image" else self.counts.images,
            studies=len(set(_at(self.studies, rows))),
            patients=len(np.unique(self.patients[rows])),
            missing=self.counts.missing + len(others),
            missing_names=(*self.counts.missing_names, *others)[:_SHOWN],
        )


def _numbers(patients: Numbers) -> Numbers:
    return np.unique(patients, return_inverse=True)[1]


def _at(names: Sequence[str], rows: Iterable[int]) -> list[str]:
    return [names[row] for row in rows]


def _block(values: Floats, rows: Numbers, columns: Sequence[int]) -> Floats:
    return values[rows][:, list(columns)]


@dataclass(frozen=True, slots=True)
class JoinChoices:
    """How labels and scores find each other. `findings`: the finding of a class, over the protocol.

    `join`: the column of the results that the labels name. Empty `unit`, `aggregation`: as in the
    protocol.
    """

    join: str = "origin"
    unit: str = ""
    aggregation: str = ""
    findings: Mapping[str, str] | None = None


def join(
    protocol: Protocol, truth: TruthTable, table: ScoreTable, choices: JoinChoices
) -> EvaluatedCases:
    """Return the cases. Raises ConfigurationError where nothing fits, or a name is not unique."""
    _require_column(table, choices.join)
    picked, left_out = _picked(truth, table, {**protocol.findings, **(choices.findings or {})})
    pairs = _pairs(protocol, truth, table, choices.join)
    unit = choices.unit or protocol.unit
    joined = _joined(truth, table, pairs, picked)
    images = joined.cases_of_images(truth, table, pairs, left_out, is_study=unit == "study")
    if unit == "image":
        return images
    return _cases_of_studies(images, choices.aggregation or _usual_aggregation(protocol))


def _usual_aggregation(protocol: Protocol) -> str:
    return "max" if protocol.aggregation == "none" else protocol.aggregation


def _require_column(table: ScoreTable, name: str) -> None:
    if name not in table.names:
        known = ", ".join(table.names)
        problem = f"{table.source}: there is no column {name!r}; --join names one of {known}"
        raise ConfigurationError([problem])


def _joined(
    truth: TruthTable,
    table: ScoreTable,
    pairs: Sequence[tuple[int, int]],
    picked: Sequence[tuple[int, int]],
) -> _Joined:
    rows, images = _columns(pairs)
    ours, theirs = (each.tolist() for each in _columns(picked))
    return _Joined(
        cases=[truth.cases[row] for row in rows],
        images=_image_names(table, images),
        uids=_uids(table, images),
        truth=_block(truth.truth, rows, ours),
        scores=_block(table.scores, images, theirs),
        classes=tuple(_at(truth.classes, ours)),
        findings=tuple(_at(table.findings, theirs)),
    )


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    first, second = np.array(pairs, dtype=np.intp).T
    return first, second


def _cases_of_studies(images: EvaluatedCases, aggregation: str) -> EvaluatedCases:
    """Return a case a study: one positive image makes it positive."""
    names, first, studies = np.unique(images.studies, return_index=True, return_inverse=True)
    merged = _mean if aggregation == "mean" else _highest
    counts = dataclasses.replace(images.counts, disagreeing=_disagreeing(studies, images.truth))
    return dataclasses.replace(
        images,
        keys=names.tolist(),
        unit="study",
        aggregation=aggregation,
        truth=_highest(studies, images.truth),
        scores=merged(studies, images.scores),
        patients=images.patients[first],
        groups=_groups_of_studies(studies, images.groups),
        studies=names.tolist(),
        counts=counts,
    )


def _groups_of_studies(
    studies: Numbers, groups: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    return {kind: _shared(studies, names) for kind, names in groups.items()}


def _highest(studies: Numbers, values: Floats) -> Floats:
    found = np.full((int(studies.max()) + 1, values.shape[1]), -np.inf)
    np.maximum.at(found, studies, np.where(np.isnan(values), -np.inf, values))
    return np.where(np.isinf(found), np.nan, found)


def _disagreeing(studies: Numbers, truth: Floats) -> int:
    """Return how many studies have images with different labels."""
    return int((_highest(studies, truth) > -_highest(studies, -truth)).any(axis=1).sum())


def _mean(studies: Numbers, values: Floats) -> Floats:
    total = np.zeros((int(studies.max()) + 1, values.shape[1]))
    count = np.zeros_like(total)
    np.add.at(total, studies, np.nan_to_num(values))
    np.add.at(count, studies, ~np.isnan(values))
    with np.errstate(invalid="ignore"):
        mean: Floats = total / count
    return mean


def _picked(
    truth: TruthTable, table: ScoreTable, wanted: Mapping[str, str]
) -> tuple[list[tuple[int, int]], dict[str, str]]:
    """Return the column of each class in both tables, and the classes that the release lacks."""
    known = {name: number for number, name in enumerate(table.findings)}
    picked = []
    left_out = {}
    for number, name in enumerate(truth.classes):
        finding = wanted.get(name, name)
        if (column := known.get(finding, known.get(name))) is not None:
            picked.append((number, column))
        else:
            left_out[name] = finding
    if not picked:
        raise _no_class(truth, table)
    return picked, left_out


def _no_class(truth: TruthTable, table: ScoreTable) -> ConfigurationError:
    problem = (
        f"{table.source}: no class of the labels is a finding of {table.release}. Classes:"
        f" {', '.join(truth.classes)}. Findings: {', '.join(table.findings)}. --map"
        " CLASS=FINDING joins them"
    )
    return ConfigurationError([problem])


def _pairs(
    protocol: Protocol, truth: TruthTable, table: ScoreTable, column: str
) -> list[tuple[int, int]]:
    """Return pairs of a row of the labels and an image of the scores."""
    is_study = protocol.labelled == "study"
    index = _index(table, column, is_study=is_study)
    names = _names(truth, is_study=is_study)
    found = [index.find(name) for name in names]
    if not is_study and column != STUDY_UID:
        _require_one(table, names, found)
    if not any(found):
        raise _no_pair(table, column, names[0])
    _require_own(table, names, found)
    return [(row, image) for row, images in enumerate(found) for image in images]


def _no_pair(table: ScoreTable, column: str, ours: str) -> ConfigurationError:
    theirs = next(iter(table.names[column]), "nothing")
    problem = (
        f"{table.source}: no label fits an image. Labels have {ours!r}, its column {column} has"
        f" {theirs!r}; --key and --join name other columns"
    )
    return ConfigurationError([problem])


def _index(table: ScoreTable, column: str, *, is_study: bool) -> ImageIndex:
    by_folder = is_study and column not in (STUDY_UID, IMAGE_UID)
    return ImageIndex(column, table.names[column], is_folder=by_folder)


def _names(truth: TruthTable, *, is_study: bool) -> list[str]:
    return [case.study if is_study else case.image for case in truth.cases]


def _require_one(table: ScoreTable, names: Sequence[str], found: Sequence[Sequence[int]]) -> None:
    several = [(name, len(rows)) for name, rows in zip(names, found, strict=True) if len(rows) > 1]
    if several:
        name, count = several[0]
        problem = (
            f"{table.source}: {len(several)} names of the labels fit several images, such as"
            f" {name!r} ({count}): name the images by more of their paths, or one campaign"
        )
        raise ConfigurationError([problem])


def _require_own(table: ScoreTable, names: Sequence[str], found: Sequence[Sequence[int]]) -> None:
    """Raise where two labels name one image: it would count twice."""
    first: dict[int, str] = {}
    for name, images in zip(names, found, strict=True):
        for image in images:
            if (other := first.setdefault(image, name)) != name:
                problem = (
                    f"{table.source}: the labels {other!r} and {name!r} fit the same image"
                    f" {_image_name(table, image)!r}: leave one, or name both by more of their"
                    " paths"
                )
                raise ConfigurationError([problem])


@dataclass(frozen=True, slots=True)
class _Joined:
    """Rows with a label and a score, an image each."""

    cases: list[LabelledCase]
    images: list[str]
    uids: list[str]
    truth: Floats
    scores: Floats
    classes: tuple[str, ...]
    findings: tuple[str, ...]

    def cases_of_images(
        self,
        truth: TruthTable,
        table: ScoreTable,
        pairs: Sequence[tuple[int, int]],
        left_out: Mapping[str, str],
        *,
        is_study: bool,
    ) -> EvaluatedCases:
        """Return a case an image. `is_study`: studies are made of them, so each needs a name."""
        studies = self._studies(needed=is_study)
        patients, patient_key = self._patients(studies)
        counts = _counts(truth, table, pairs, studies, patients)
        return EvaluatedCases(
            keys=self._keys(),
            unit="image",
            aggregation="none",
            classes=self.classes,
            findings=self.findings,
            truth=self.truth,
            scores=self.scores,
            patients=patients,
            groups=self._groups(),
            studies=studies,
            left_out=left_out,
            counts=dataclasses.replace(counts, patient_key=patient_key),
        )

    def _keys(self) -> list[str]:
        """Return the name of each image as the labels have it, else as the scores have it."""
        return [case.image or name for case, name in zip(self.cases, self.images, strict=True)]

    def _studies(self, *, needed: bool) -> list[str]:
        """Return the name of each image's study; of an image alone that of the image."""
        names = [case.study or uid for case, uid in zip(self.cases, self.uids, strict=True)]
        if needed and not all(names):
            raise ConfigurationError(
                ["neither labels nor results name the studies: give --unit image, or a column"]
            )
        return [name or image for name, image in zip(names, self.images, strict=True)]

    def _patients(self, studies: Sequence[str]) -> tuple[Numbers, str]:
        """Return the number of each image's patient, and the word for a patient."""
        names = [case.patient for case in self.cases]
        if all(names):
            return np.unique(names, return_inverse=True)[1], "patient"
        return np.unique(list(studies), return_inverse=True)[1], "study"

    def _groups(self) -> dict[str, list[str]]:
        """Return the groups of each image by kind, of kinds that tell images apart."""
        found = {
            "view": [case.view or "not known" for case in self.cases],
            "sex": [case.sex or "not known" for case in self.cases],
            "age": [age_band(case.age) or "not known" for case in self.cases],
        }
        return {kind: names for kind, names in found.items() if len(set(names)) > 1}


def _shared(studies: Numbers, names: Sequence[str]) -> list[str]:
    """Return the group of each study: that of its images, or `several`."""
    found: dict[int, set[str]] = {}
    for study, name in zip(studies.tolist(), names, strict=True):
        found.setdefault(study, set()).add(name)
    return [
        next(iter(found[study])) if len(found[study]) == 1 else "several" for study in sorted(found)
    ]


def _counts(
    truth: TruthTable,
    table: ScoreTable,
    pairs: Sequence[tuple[int, int]],
    studies: Sequence[str],
    patients: Numbers,
) -> JoinCounts:
    missing = _missing(truth, pairs)
    used = {image for _, image in pairs}
    others = [number for number in range(len(table.scores)) if number not in used]
    return JoinCounts(
        images=len(used),
        studies=len(set(studies)),
        patients=len(np.unique(patients)),
        missing=len(missing),
        missing_names=tuple(missing[:_SHOWN]),
        unlabelled=len(others),
        unlabelled_names=tuple(_image_name(table, number) for number in others[:_SHOWN]),
    )


def _missing(truth: TruthTable, pairs: Sequence[tuple[int, int]]) -> list[str]:
    with_scores = {row for row, _ in pairs}
    return [
        case.image or case.study for row, case in enumerate(truth.cases) if row not in with_scores
    ]


def _image_name(table: ScoreTable, image: int) -> str:
    texts = (texts[image] for texts in table.names.values())
    return next((text for text in texts if text), f"image {image + 1}")


def _image_names(table: ScoreTable, images: Numbers) -> list[str]:
    return [_image_name(table, image) for image in images]


def _uids(table: ScoreTable, images: Numbers) -> list[str]:
    known = table.names.get(STUDY_UID)
    return [known[image] if known else "" for image in images]
