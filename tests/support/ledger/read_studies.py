"""Studies with headers, readings by several releases, and real results, for tests of exports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydicom import Dataset, config
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset

from hilum.assemble import Close, assemble
from hilum.domain import (
    Advance,
    ExpectedImage,
    PlannedSeries,
    ReadingJob,
    ReadingState,
    Release,
    StudyJob,
    StudyState,
)
from hilum.receive.headers.patient import identity_of
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.ledger import Ledger
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.street import Clock
from tests.support.reports.results import LOGITS, NAMESPACE, make_release

CHEST = make_release(name="chest", version="1")
CHEST_2 = make_release(name="chest", version="2")
PATIENT, ACCESSION, NAME = "PID-0815", "0004711", "DOE^JANE"


class ReadStudies:
    """A ledger whose stages are walked by hand. `releases` read each image."""

    def __init__(self, ledger: Ledger, clock: Clock, *releases: Release) -> None:
        self.ledger = ledger
        self.clock = clock
        self.releases = {each.id: each for each in releases or (CHEST,)}

    def receive(
        self,
        study: str,
        *numbers: int,
        study_date: str = "20190301",
        patient_id: str = PATIENT,
        **changes: Any,
    ) -> None:
        """Images arrive."""
        header = header_of(study_date, patient_id)
        self.ledger.record(
            [
                arrival_of(
                    f"{study}.{number}",
                    study,
                    tuple(self.releases),
                    **{"header": header, "received_at": self.clock.now, **changes},
                )
                for number in numbers
            ]
        )

    def read(
        self, reasons: Mapping[str, str] | None = None, logits: tuple[float, ...] = LOGITS
    ) -> None:
        """All due images are read; `reasons`: by SOP Instance UID, of those without numbers."""
        advances = []
        for job in self.ledger.claim("analyse", 100_000, "worker", 60.0):
            assert isinstance(job, ReadingJob)
            reason = (reasons or {}).get(job.instance.sop_instance_uid)
            values: dict[str, Any] = {
                "logits": list(logits),
                "view": "PA",
                "preprocessing_version": "hp1-0",
            }
            decided = Advance(ReadingState.ANALYSED, values)
            if reason:
                values = {"reason": reason, "detail": "=1+1 is not a number"}
                decided = Advance(ReadingState.NOT_ANALYSED, values)
            advances.append((job.lease, decided))
        self.ledger.advance("analyse", advances)

    def assemble(self) -> None:
        """The quiet period passes, and each study without an open reading closes."""
        self.clock.now += 11
        for job in self.ledger.claim("assemble", 100_000, "worker", 60.0):
            assert isinstance(job, StudyJob)
            decided = assemble(job, self.releases, NAMESPACE, self.clock.now, identity_of)
            assert isinstance(decided, Close)
            self.ledger.advance(
                "assemble", [(job.lease, Advance(StudyState.CLOSED, results=decided.results))]
            )

    def walk(self, study: str, *numbers: int, **content: Any) -> None:
        """A study from its arrival to its results."""
        self.receive(study, *numbers, **content)
        self.read()
        self.assemble()


def plan(
    url: str,
    clock: Clock,
    name: str,
    listed: Mapping[PlannedSeries, tuple[ExpectedImage, ...]],
) -> int:
    """Write a campaign with this plan; its row id."""
    campaigns = Campaigns(url, clock)
    made = campaigns.create(name, "pacs", {})
    campaigns.add(made.id, PlanPart("", list(listed.items())))
    campaigns.end_plan(name)
    campaigns.close()
    return made.id


def header_of(study_date: str, patient_id: str = PATIENT) -> bytes:
    """The header of an image of one patient."""
    header = Dataset()
    with config.disable_value_validation():
        header.StudyDate = study_date
    header.AccessionNumber = ACCESSION
    header.PatientName = NAME
    header.PatientID = patient_id
    stream = DicomBytesIO()
    stream.is_implicit_VR = False
    stream.is_little_endian = True
    write_dataset(stream, header)
    return bytes(stream.getvalue())


def calibrated(release: Release) -> Release:
    """The release with a calibration by temperature."""
    return dataclasses.replace(release, calibration={"method": "temperature", "temperature": 2.0})
