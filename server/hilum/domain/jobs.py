"""Claimed rows with the data that their stage needs, and the decisions of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hilum.domain.commitment import CommitmentRequest
from hilum.domain.documents import Document, NewDocument
from hilum.domain.images import Instance, Reading
from hilum.domain.priority import Priority
from hilum.domain.results import Result
from hilum.domain.studies import Study


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to advance one row: valid only while the row holds this token (fencing)."""

    row_id: int
    token: str
    attempts: int
    lapses: int
    waited_seconds: float = 0.0
    has_lapsed: bool = False
    """It was taken from a worker that died, perhaps of it: so it comes alone."""


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A claimed reading, with the image it is about."""

    lease: Lease
    release: str
    priority: Priority
    instance: Instance


@dataclass(frozen=True, slots=True)
class StudyJob:
    """A claimed study with all its images, all their readings and the current results.

    Rejected images are among them. There is one current result for each release.

    `superseded_digests`: by release, source digests of results that are not current, of a study
    that has a current one.
    """

    lease: Lease
    study: Study
    instances: tuple[Instance, ...]
    readings: tuple[Reading, ...]
    current_results: tuple[Result, ...]
    superseded_digests: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportJob:
    """A claimed result with the images that it names, and the documents that new ones replace.

    `delivered_reports`: for each destination the newest earlier structured report that it may
    hold, of any SOP Class. `holders`: for each kind that is made where a destination takes it, the
    destinations that may hold an earlier document.
    """

    lease: Lease
    result: Result
    study: Study
    instances: tuple[Instance, ...]
    predecessors: Mapping[str, Document]
    delivered_reports: Mapping[str, Document] = field(default_factory=dict)
    holders: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComparisonJob:
    """A claimed comparison.

    `shadow` is its study as the shadow alone saw it: its readings, and its result so far.

    `reported` None: the release that speaks for the study has not said anything yet.
    """

    lease: Lease
    release: str
    shadow_release: str
    shadow: StudyJob
    reported: Result | None


@dataclass(frozen=True, slots=True)
class DeliveryJob:
    """A claimed delivery: the document, with facts for metrics and for the check of weights.

    `identifiers` are the result's: the UIDs under which a document of another SOP Class would go.
    `is_current`: the result was not superseded while another try had the delivery. `delivered_at`:
    the destination has it since then, and it is sent again.
    """

    lease: Lease
    destination: str
    document: Document
    study_instance_uid: str
    release: str
    is_trained: bool
    last_received_at: float
    quiet_until: float
    identifiers: Mapping[str, str] = field(default_factory=dict)
    calling_ae_title: str = ""
    peer_address: str = ""
    is_current: bool = True
    delivered_at: float | None = None


@dataclass(frozen=True, slots=True)
class CommitmentJob:
    """A claimed request.

    `is_duplicate`: another one with this Transaction UID was open when it came.
    """

    lease: Lease
    request: CommitmentRequest
    requested_at: float
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class Advance:
    """A decision of a stage; the loop writes it and the rows that follow in one transaction.

    `values` are further columns of the claimed row. `results` follow a study, `documents` a result,
    or a delivery whose receiver wants the same report in another SOP Class.
    """

    state: StrEnum
    values: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[Result] = ()
    documents: Sequence[NewDocument] = ()


Job = ReadingJob | StudyJob | ComparisonJob | ReportJob | DeliveryJob | CommitmentJob
