"""`erase`: deletes all data of a patient or of one study from the ledger and the archive.

Patient ID and UID go into no log and no row.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hilum.domain import JSON
from hilum.errors import ConfigurationError
from hilum.libraries import silence_libraries
from hilum.observability import telemetry
from hilum.receive.headers.patient import (
    BEGINNING_BYTES,
    HeaderOwner,
    OneStudy,
    Patient,
    is_file_of,
    is_object_of,
)
from hilum.receive.statuses import CannotUnderstand
from hilum.settings import Settings
from hilum.store.admin.erase import Erased, Erasure
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.audit.log import AuditLog, Deed
from hilum.verbs import Thing

_log = telemetry.logger("services")


@dataclass(slots=True)
class ErasureReport:
    """The counts of an erasure, done or planned. More than counts would identify the patient.

    `delivered`: documents by destination that only their receivers can delete. `tried`: documents
    that receivers may have. `quarantined`: files in quarantine. `unreadable`: files in quarantine
    whose patient is unknown. `arriving`: files without a row yet; erase again.
    """

    studies: int = 0
    images: int = 0
    documents: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    quarantined: int = 0
    unreadable: int = 0
    arriving: int = 0
    files_left: int = 0
    is_rewritten: bool = False

    def add(self, found: Erased) -> None:
        """Add the counts of one study."""
        self.studies += found.studies
        self.images += found.images
        self.documents += found.documents
        self.delivered += found.delivered
        self.tried += found.tried

    @property
    def is_gone(self) -> bool:
        """Whether no file of the patient or study is left.

        Free pages of the ledger may still hold bytes.
        """
        return not (self.arriving or self.files_left)

    @property
    def is_complete(self) -> bool:
        """Whether no step of the erasure has to be repeated."""
        return self.is_rewritten and self.is_gone

    def said(self, *, is_dry_run: bool, whose: str = "patient") -> str:
        """Return the report for a person, one line a fact. `whose`: patient or study."""
        verb = "would be erased; add --yes" if is_dry_run else "erased"
        lines = [
            (
                f"{self.studies} studies, {self.images} images, {self.documents} documents,"
                f" {self.quarantined} files in quarantine {verb}"
            )
        ]
        lines += [
            f"{count} documents were delivered to {name}: ask there for their deletion"
            for name, count in self.delivered.items()
        ]
        lines += [
            f"{count} documents may have reached {name}: look for them there"
            for name, count in self.tried.items()
        ]
        if self.unreadable:
            lines.append(
                f"{self.unreadable} files in quarantine cannot be read, so nobody can say whose"
                " they are: look at them"
            )
        if self.arriving:
            lines.append(f"{self.arriving} files of this {whose} have just arrived: do it again")
        if self.files_left:
            lines.append(
                f"{self.files_left} files could not be deleted; the server goes on trying, its log"
                " says why"
            )
        if not (is_dry_run or self.is_rewritten):
            lines.append(
                "the ledger was not rewritten, so its free pages may hold old bytes: do it again at"
                " a quiet hour"
            )
        return "\n".join(lines)


def erase(
    settings: Settings,
    owner: Patient | OneStudy,
    *,
    is_dry_run: bool = False,
    has_to_rewrite: bool = True,
    deed: Deed | None = None,
) -> ErasureReport:
    """Erase a patient's studies, or one study. Safe to repeat after any crash.

    A patient's studies are found by stored headers and reports. If the images of a study have
    another patient's headers by now, only the reports that name this patient are erased. The search
    repeats until it finds no more. Each search for a patient reads every header and report, about a
    million headers a minute. Raises ConfigurationError where there is no archive.
    """
    archive = open_archive(settings)
    if not archive.is_there:
        raise ConfigurationError(
            [f"archive: there is none in {archive.address}; run this where the archive is mounted."]
        )
    silence_libraries()
    erasure = Erasure(settings.ledger_url, archive)
    try:
        if deed is not None:
            _begin(settings, deed, owner, is_dry_run=is_dry_run)
        report = _erase(erasure, archive, owner, is_dry_run=is_dry_run)
        if deed is not None:
            deed.count = report.studies
        if not is_dry_run:
            report.files_left = _remove_files(erasure)
            report.is_rewritten = has_to_rewrite and erasure.rewrite()
            _log.info(
                "erased",
                studies=report.studies,
                images=report.images,
                is_complete=report.is_complete,
            )
        return report
    finally:
        erasure.close()


def _begin(settings: Settings, deed: Deed, owner: Patient | OneStudy, *, is_dry_run: bool) -> None:
    """Write the row of the audit without which no erasure starts.

    A digest stands for the patient, and for the study, whose UID is to be gone.
    """
    with contextlib.closing(AuditLog(settings.ledger_url)) as log:
        if isinstance(owner, OneStudy):
            deed.about(Thing.STUDY, log.digest(owner.study_instance_uid))
        else:
            deed.about(Thing.PATIENT, log.digest(owner.patient_id))
        deed.detail = "dry run" if is_dry_run else None
        log.begin(deed)


def _erase(
    erasure: Erasure, archive: Archive, owner: Patient | OneStudy, *, is_dry_run: bool
) -> ErasureReport:
    report = ErasureReport()
    while True:
        # In this order: a file that gets its row between the two looks has been counted as
        # arriving.
        report.arriving = sum(_is_of(file, owner) is True for file in archive.unindexed())
        if not _erase_rows(erasure, owner, report, is_dry_run=is_dry_run) or is_dry_run:
            break
    for path in _quarantined(archive, owner, report):
        report.quarantined += 1
        if not is_dry_run:
            erasure.erase_quarantined(path)
    if not is_dry_run:
        for path in _left(erasure, archive, owner):
            erasure.hasten(path)
    return report


def _erase_rows(
    erasure: Erasure, owner: Patient | OneStudy, report: ErasureReport, *, is_dry_run: bool
) -> bool:
    """Erase all rows that one search finds; return whether there were any."""
    studies, results = (
        ({owner.study_instance_uid}, {})
        if isinstance(owner, OneStudy)
        else _of_patient(erasure, owner)
    )
    verbs = (
        (erasure.look, erasure.look_at_results)
        if is_dry_run
        else (erasure.erase_study, erasure.erase_documents)
    )
    found = [verbs[0](study_uid) for study_uid in sorted(studies)]
    found += [
        verbs[1](ids) for study_uid, ids in sorted(results.items()) if study_uid not in studies
    ]
    for item in found:
        report.add(item)
    return any(item.studies or item.documents for item in found)


def _of_patient(erasure: Erasure, patient: Patient) -> tuple[set[str], dict[str, set[int]]]:
    """Return the patient's studies, and by study the results that name the patient."""
    studies = _studies(erasure, patient)
    results = _results(erasure, patient)
    return (
        studies | {study_uid for study_uid in results if not erasure.has_images(study_uid)},
        results,
    )


def _studies(erasure: Erasure, patient: Patient) -> set[str]:
    return {
        study_uid
        for study_uid, syntax, header in erasure.headers()
        if _names(patient, header, syntax)
    }


def _results(erasure: Erasure, patient: Patient) -> dict[str, set[int]]:
    """Return, by study, the results whose reports name the patient.

    Its images may have got another header since, or have moved to another study.
    """
    found: dict[str, set[int]] = {}
    for study_uid, result_id, media_type, content in erasure.documents():
        if _is_report_of(patient, media_type, content):
            found.setdefault(study_uid, set()).add(result_id)
    return found


def _is_report_of(patient: Patient, media_type: str, content: bytes) -> bool:
    try:
        return (
            _is_json_of(patient, content)
            if media_type == JSON.media_type
            else is_object_of(content, patient)
        )
    except CannotUnderstand:
        return False  # Hilum wrote it


def _is_json_of(patient: Patient, content: bytes) -> bool:
    if json.dumps(patient.patient_id, ensure_ascii=False)[1:-1].encode() not in content:
        return False  # most are ruled out without being parsed
    study = json.loads(content).get("study", {})
    patient_id, issuer = (
        (study.get(name) or "").strip() for name in ("patient_id", "issuer_of_patient_id")
    )
    return patient_id == patient.patient_id and patient.issuer in (None, issuer)


def _names(patient: Patient, header: bytes, transfer_syntax_uid: str) -> bool:
    try:
        return patient.is_of(header, transfer_syntax_uid)
    except CannotUnderstand:
        return False  # it was read up to its pixels when it was stored


def _quarantined(archive: Archive, owner: HeaderOwner, report: ErasureReport) -> Iterator[str]:
    for file in archive.quarantined():
        path = str(file.relative_to(archive.root))
        answer = _is_stored_of(archive, path, owner)
        report.unreadable += answer is None
        if answer:
            yield path


def _left(erasure: Erasure, archive: Archive, owner: HeaderOwner) -> list[str]:
    """Return paths of the patient's or the study's files that wait for their deletion.

    An earlier header stays for an hour.
    """
    return [path for path in erasure.left_files() if _is_stored_of(archive, path, owner)]


def _is_stored_of(archive: Archive, path: str, owner: HeaderOwner) -> bool | None:
    """Return whether the object of a row is the owner's; None: unknown. Raises StoreAway."""
    try:
        with archive.local(path, first_bytes=BEGINNING_BYTES) as file:
            return _is_of(file, owner)
    except FileNotFoundError:
        return False


def _is_of(file: Path, owner: HeaderOwner) -> bool | None:
    """Return whether the file is the owner's; None: unknown."""
    try:
        return is_file_of(file, owner)
    except FileNotFoundError:
        return False
    except (CannotUnderstand, OSError):
        return None


def _remove_files(erasure: Erasure) -> int:
    """Return the number of files that could not be deleted; housekeeping tries again."""
    left = 0
    while removed := erasure.remove_files():
        left += sum(item.problem is not None for item in removed)
    return left
