"""One result on the page of a study.

It shows the findings, the documents with their deliveries, and the origin of the numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hilum.api.pages.findings import FindingRow, caveats, finding_rows
from hilum.api.pages.formatting import Chip, Moment, chip, count, document_words, meaning, moment
from hilum.domain import Release, kind_of

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """A document and its ways to the destinations."""

    id: int
    kind: str
    uid: str
    size: str
    caption: str
    predecessor: str
    ways: Sequence[tuple[str, Chip, str]]


@dataclass(frozen=True, slots=True)
class ResultBox:
    """A result of one release."""

    id: int
    release: str
    revision: int
    state: Chip
    outcome: Chip
    words: str
    failure: str
    caveats: Sequence[Chip]
    is_trained: bool
    is_calibrated: bool
    findings: Sequence[FindingRow]
    documents: Sequence[DocumentLine]
    provenance: Sequence[tuple[str, str]]
    created: Moment | None


def result_box(study: Item, result: Item, release: Release | None, now: float) -> ResultBox:
    """Return the box of a row of `LedgerViews.study`.

    `release` None: its manifest is not active any more.
    """
    said = [meaning(result["failure"]), result["detail"] or ""]
    return ResultBox(
        id=result["id"],
        release=result["release"],
        revision=result["revision"],
        state=chip(result["state"]),
        outcome=chip(result["outcome"]),
        words=meaning(result["reason"]),
        failure=" ".join(part for part in said if part),
        caveats=caveats(result),
        is_trained=result.get("is_trained") is not False,
        is_calibrated=result.get("is_calibrated") is not False,
        findings=finding_rows(result),
        documents=[_document_line(item) for item in result["documents"]],
        provenance=list(_provenance(study, result, release)),
        created=moment(result["created_at"], now),
    )


def _document_line(paper: Item) -> DocumentLine:
    return DocumentLine(
        id=paper["id"],
        kind=document_words(paper["kind"]),
        uid=paper["sop_instance_uid"] or "",
        size=f"{paper['size_bytes'] / 1000:.1f} kB",
        caption=kind_of(paper["kind"]).caption,
        predecessor=paper["predecessor_uid"] or "",
        ways=[
            (way["destination"], chip(way["state"]), _way_words(way)) for way in paper["deliveries"]
        ],
    )


def _way_words(way: Item) -> str:
    said = [
        meaning(way["reason"]),
        way["detail"] or "",
        count(way["attempts"], "attempt") if way["attempts"] > 1 else "",
    ]
    return "; ".join(part for part in said if part)


def _provenance(study: Item, result: Item, release: Release | None) -> Iterator[tuple[str, str]]:
    """Return the origin of the numbers.

    The facts of the manifest are those of today; a release keeps them for life.
    """
    yield "Release", result["release"]
    if release is None:
        yield "Manifest", "not active any more"
    else:
        yield from _of_manifest(release)
    yield "Preprocessing", result.get("preprocessing_version") or "none"
    used = {
        item["precision"]
        for image in study["images"]
        for item in image["readings"]
        if item["release"] == result["release"]
    }
    yield "Precision used", ", ".join(sorted(used - {None})) or "not recorded"
    yield "Source digest", result["source_digest"]


def _of_manifest(release: Release) -> Iterator[tuple[str, str]]:
    yield "Weights", "untrained, drawn at random" if not release.is_trained else "trained"
    yield "Weights SHA-256", release.weights_sha256
    yield (
        "Calibration",
        "none"
        if release.calibration is None
        else str(release.calibration.get("method", "recorded")),
    )
    if release.operating_points is not None:
        yield (
            "Operating points",
            "{criterion} Measured on: {measured_on}".format(**release.operating_points),
        )
    yield "Architecture", release.architecture
    yield "Engine", f"{release.engine} {release.precision}"
    yield "Aggregation over images", release.aggregation
    yield "Manufacturer", release.manufacturer
    yield "Intended use", release.intended_use
    yield "Source", release.source
    yield "Licence", release.licence
