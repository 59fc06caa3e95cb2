"""`erase`: all that the ledger and the archive hold of a patient. The Patient ID goes into no log and no row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hilum import telemetry
from hilum.errors import ConfigurationError
from hilum.receive.patient import Patient, is_file_of
from hilum.receive.refusals import CannotUnderstand
from hilum.settings import Settings
from hilum.store.archive import Archive
from hilum.store.erasure import Erasure

_log = telemetry.logger("wiring")


@dataclass(slots=True)
class ErasureReport:
    """What was erased, or would be. Everything but counts would say who it was.

    `delivered`: documents by destination that only their receivers can delete. `quarantined`: files in quarantine. `unreadable`: files
    in quarantine of which nobody can say whose they are. `arriving`: files without a row yet; do it again.
    """

    studies: int = 0
    images: int = 0
    documents: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    quarantined: int = 0
    unreadable: int = 0
    arriving: int = 0
    files_left: int = 0
    is_rewritten: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether no file of the patient is left, whatever the ledger's free pages hold."""
        return not (self.arriving or self.files_left)

    @property
    def is_complete(self) -> bool:
        """Whether nothing of it has to be done again."""
        return self.is_rewritten and self.is_gone

    def said(self, *, is_dry_run: bool) -> str:
        """For a person, one line a fact."""
        verb = "would be erased; add --yes" if is_dry_run else "erased"
        lines = [f"{self.studies} studies, {self.images} images, {self.documents} documents, {self.quarantined} files in quarantine {verb}"]
        lines += [f"{count} documents were delivered to {name}: ask there for their deletion" for name, count in self.delivered.items()]
        if self.unreadable:
            lines.append(f"{self.unreadable} files in quarantine cannot be read, so nobody can say whose they are: look at them")
        if self.arriving:
            lines.append(f"{self.arriving} files of this patient have just arrived: do it again")
        if self.files_left:
            lines.append(f"{self.files_left} files could not be deleted; the server goes on trying, its log says why")
        if not (is_dry_run or self.is_rewritten):
            lines.append("the ledger was not rewritten, so its free pages may hold old bytes: do it again at a quiet hour")
        return "\n".join(lines)


def erase(settings: Settings, patient: Patient, *, is_dry_run: bool = False, has_to_rewrite: bool = True) -> ErasureReport:
    """Find the patient's studies by their stored headers and erase them. Safe to repeat after any crash.

    Reads every header once: about a million a minute. Raises ConfigurationError where there is no archive.
    """
    archive = Archive(settings.archive_dir)
    if not archive.is_there:
        raise ConfigurationError([f"archive: there is none in {archive.root}; run this where the archive is mounted."])
    telemetry.silence_libraries()
    erasure = Erasure(settings.ledger_url, archive)
    try:
        report = _erase(erasure, archive, patient, is_dry_run=is_dry_run)
        if not is_dry_run:
            report.files_left = _remove_files(erasure)
            report.is_rewritten = has_to_rewrite and erasure.rewrite()
            _log.info("erased", studies=report.studies, images=report.images, is_complete=report.is_complete)
        return report
    finally:
        erasure.close()


def _erase(erasure: Erasure, archive: Archive, patient: Patient, *, is_dry_run: bool) -> ErasureReport:
    report = ErasureReport()
    for study_uid in sorted(_studies(erasure, patient)):
        found = erasure.look(study_uid) if is_dry_run else erasure.erase_study(study_uid)
        report.studies += found.studies
        report.images += found.images
        report.documents += found.documents
        report.delivered += found.delivered
    for path in _quarantined(archive, patient, report):
        report.quarantined += 1
        if not is_dry_run:
            erasure.erase_quarantined(path)
    report.arriving = sum(_is_of(file, patient) is True for file in archive.unindexed())
    return report


def _studies(erasure: Erasure, patient: Patient) -> set[str]:
    return {study_uid for study_uid, syntax, header in erasure.headers() if _names(patient, header, syntax)}


def _names(patient: Patient, header: bytes, transfer_syntax_uid: str) -> bool:
    try:
        return patient.is_of(header, transfer_syntax_uid)
    except CannotUnderstand:
        return False  # it was read up to its pixels when it was stored


def _quarantined(archive: Archive, patient: Patient, report: ErasureReport) -> Iterator[str]:
    for file in archive.quarantined():
        answer = _is_of(file, patient)
        report.unreadable += answer is None
        if answer:
            yield str(file.relative_to(archive.root))


def _is_of(file: Path, patient: Patient) -> bool | None:
    """None: nobody can say."""
    try:
        return is_file_of(file, patient)
    except FileNotFoundError:
        return False
    except (CannotUnderstand, OSError):
        return None


def _remove_files(erasure: Erasure) -> int:
    """How many could not be deleted; housekeeping goes on trying."""
    left = 0
    while removed := erasure.remove_files():
        left += sum(item.problem is not None for item in removed)
    return left
