"""Studies that walk down the street on a real ledger, without pixels or models.

For tests of what reads the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table

from hilum.domain import (
    Advance,
    Code,
    Decision,
    DeliveryState,
    Document,
    Finding,
    Instance,
    Job,
    Label,
    NewDocument,
    Outcome,
    Priority,
    ReadingJob,
    ReadingState,
    Release,
    ReportJob,
    Result,
    ResultState,
    SourceImage,
    StudyJob,
    StudyState,
    source_digest,
)
from hilum.store.ledger import Arrival, Ledger
from tests.support.ledger.arrivals import BEGAN_AT, QUIET_SECONDS, arrival_of
from tests.support.ledger.database import rows

RELEASE = "densenet121_untrained@1"
EFFUSION = Code("60046008", "SCT", "Pleural effusion")
SR_CLASS = "1.2.840.10008.5.1.4.1.1.88.34"
HEADER = b"\x10\0\x10\0PN\x08\0DOE^JANE"
SR_BYTES = b"\x00" * 128 + b"DICM the bytes of a report"


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = BEGAN_AT) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Street:
    """Drives the ledger's verbs as the processes do, one study at a time, and moves the clock along."""

    def __init__(
        self, ledger: Ledger, clock: Clock, destinations: tuple[str, ...] = ("pacs",)
    ) -> None:
        self.ledger, self.clock, self.destinations = ledger, clock, destinations
        self.withheld: Mapping[str, str] = {}  # by destination, the reason

    def receive(
        self,
        study: str,
        *numbers: int,
        priority: Priority = Priority.LIVE,
        calling_ae_title: str = "CR1",
        release: str = RELEASE,
    ) -> None:
        """Images arrive."""
        arrivals = [
            self._arrival(study, number, priority, calling_ae_title, release) for number in numbers
        ]
        self.ledger.record(arrivals)

    def _arrival(
        self, study: str, number: int, priority: Priority, calling_ae_title: str, release: str
    ) -> Arrival:
        uid = f"{study}.{number}"
        said = {
            "path": f"studies/{uid}.dcm",
            "size_bytes": 1000,
            "received_at": self.clock.now,
            "header": HEADER,
        }
        return arrival_of(
            uid,
            study,
            (release,),
            priority=priority,
            maximum_wait_seconds=120.0,
            calling_ae_title=calling_ae_title,
            **said,
        )

    def claim(self, stage: str, limit: int = 100) -> list[Job]:
        """Everything that is due at a stage."""
        return self.ledger.claim(stage, limit, "worker-1", 60.0)

    def read(self, state: ReadingState = ReadingState.ANALYSED, reason: str | None = None) -> None:
        """All due images are read."""
        values: Mapping[str, object] = {
            "logits": [0.5],
            "view": "PA",
            "preprocessing_version": "hp1-0",
            "timings": {"infer": 0.02},
        }
        if state is not ReadingState.ANALYSED:
            values = {"reason": reason, "detail": "as the test says"}
        self.ledger.advance(
            "analyse", [(job.lease, Advance(state, values)) for job in self.claim("analyse")]
        )

    def assemble(self, outcome: Outcome = Outcome.ANALYSED) -> None:
        """The quiet period passes and all due studies close with one result."""
        self.clock.now += QUIET_SECONDS
        for job in self.claim("assemble"):
            assert isinstance(job, StudyJob)
            decided = Advance(StudyState.CLOSED, results=[self._result(job, outcome)])
            self.ledger.advance("assemble", [(job.lease, decided)])

    def _result(self, job: StudyJob, outcome: Outcome) -> Result:
        release = job.readings[0].release
        sources = [
            (item.sop_instance_uid, item.header_revision, item.pixel_digest)
            for item in job.instances
        ]
        analysed = [item for item in job.readings if item.state is ReadingState.ANALYSED]
        uids = tuple(item.sop_instance_uid for item in analysed)
        finding = Finding(
            "effusion", "Pleural effusion", EFFUSION, 0.5, 0.62, None, 0.5, Decision.UNDECIDED, uids
        )
        previous = next(iter(job.current_results), None)
        return Result(
            study_instance_uid=job.study.study_instance_uid,
            release=release,
            source_digest=source_digest(sources, release),
            revision=previous.revision + 1 if previous else 1,
            outcome=outcome,
            reason=None if outcome is Outcome.ANALYSED else "no_analysed_image",
            findings=(finding,) if uids else (),
            source_images=tuple(_source_image(item) for item in job.instances),
            is_trained=False,
            is_calibrated=False,
            preprocessing_version="hp1-0",
            identifiers={"sr": f"2.25.{job.study.id}{len(job.instances)}"},
            timings={"assemble": 0.001},
            created_at=self.clock.now,
            supersedes_id=previous.id if previous else None,
        )

    def report(self) -> None:
        """All due results get an SR and a JSON document; the SR goes to every destination."""
        for job in self.claim("report"):
            assert isinstance(job, ReportJob)
            uid = job.result.identifiers["sr"]
            sr = Document("sr", "application/dicom", SR_BYTES, SR_CLASS, uid, f"{uid}.0")
            documents = [
                NewDocument(sr, self.destinations, self.withheld),
                NewDocument(Document("json", "application/json", b'{"outcome":"analysed"}'), ()),
            ]
            self.ledger.advance(
                "report", [(job.lease, Advance(ResultState.REPORTED, documents=documents))]
            )

    def deliver(self, seconds: float = 0.5) -> None:
        """All due deliveries are accepted, so many seconds later."""
        jobs = self.claim("deliver")
        self.clock.now += seconds
        self.ledger.advance(
            "deliver", [(job.lease, Advance(DeliveryState.DELIVERED)) for job in jobs]
        )

    def walk(
        self, study: str, *numbers: int, release: str = RELEASE, calling_ae_title: str = "CR1"
    ) -> None:
        """A study from the door to the PACS."""
        self.receive(study, *numbers, release=release, calling_ae_title=calling_ae_title)
        self.read()
        self.assemble()
        self.report()
        self.deliver()

    def rows(self, table: Table) -> list[Any]:
        """All rows of a table of the ledger, in the order of their ids."""
        return rows(self.ledger, table)

    def beat(self, name: str, role: str, *, is_ready: bool = True, detail: str = "") -> None:
        """A heartbeat now."""
        self.ledger.beat(
            name, role, 100, started_at=self.clock.now - 60, is_ready=is_ready, detail=detail
        )

    def jobs_of(self, stage: str) -> list[ReadingJob]:
        """Claimed readings, for tests that leave them in work."""
        return [job for job in self.claim(stage) if isinstance(job, ReadingJob)]


def _source_image(item: Instance) -> SourceImage:
    uids = (item.sop_instance_uid, item.sop_class_uid, item.series_instance_uid)
    return SourceImage(
        *uids,
        view="PA",
        is_used=True,
        reason=None,
        scores={"effusion": 0.62},
        logits={"effusion": 0.5},
    )


def release(name: str = "densenet121_untrained", *, is_trained: bool = False) -> Release:
    """A release as the catalogue would give it."""
    return Release(
        name=name,
        version="1",
        architecture="densenet121",
        triton_name=f"{name}__1",
        input_spec={"recipe": "torchxrayvision_224"},
        labels=(Label("effusion", "Pleural effusion", EFFUSION, "verified", 0.5),),
        activation="sigmoid",
        aggregation="max",
        precision="fp32",
        engine="openvino",
        is_trained=is_trained,
        is_frontal_only=True,
        calibration=None,
        manufacturer="Hilum project",
        intended_use="research",
        licence="Apache-2.0",
        source="drawn at random",
        weights_sha256="0" * 64,
    )
