"""An alias that goes from one release to another, on a real ledger, walked by hand.

Listeners record, analysers read, dispatchers close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Row, Table, select

from hilum.assemble import Close, assemble
from hilum.domain import (
    Advance,
    ComparisonJob,
    Document,
    Job,
    NewDocument,
    ReadingJob,
    ReadingState,
    Release,
    ReportJob,
    ResultState,
    StudyJob,
    StudyState,
)
from hilum.errors import Retry
from hilum.pipeline import back_off
from hilum.processes.comparison_handler import CompareHandler
from hilum.receive.headers.patient import identity_of
from hilum.settings import Pipeline
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.rollouts.rollouts import Rollouts
from tests.support.ledger.arrivals import QUIET_SECONDS, arrival_of
from tests.support.ledger.database import rows
from tests.support.ledger.street import Clock
from tests.support.reports.results import LOGITS, NAMESPACE, make_release

CONFIGURED = "chest@1"
_SR_CLASS = "1.2.840.10008.5.1.4.1.1.88.34"


def releases(*versions: str) -> dict[str, Release]:
    """Releases of one alias."""
    made = [make_release(name="chest", version=version) for version in versions]
    return {release.id: release for release in made}


def kept(release: str) -> KeptManifest:
    """What a ledger keeps of a release that no server loads."""
    return KeptManifest(release, f"digest of {release}", "")


class Rolling:
    """One installation whose settings name chest@1; chest@2 and chest@3 can follow.

    `says` are a release's logits where they differ.
    """

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.ledger, self.rollouts = Ledger(url, self.clock), Rollouts(url, self.clock)
        self.releases = releases("1", "2", "3")
        self.says: dict[str, tuple[float, ...]] = {}
        self._compare = CompareHandler(self.releases, NAMESPACE)

    def close(self) -> None:
        """Give the connections back."""
        self.ledger.close()
        self.rollouts.close()

    def receive(
        self, study: str, number: int, configured: str = CONFIGURED, header_revision: int = 1
    ) -> RecordOutcome:
        """One image arrives; its route names `configured`."""
        uid = f"{study}.{number}"
        came = {
            "digest": f"d{uid}-{header_revision}",
            "received_at": self.clock.now,
            "calling_ae_title": "CR1",
        }
        (outcome,) = self.ledger.record(
            [arrival_of(uid, study, (configured,), maximum_wait_seconds=120.0, **came)]
        )
        return outcome

    def claim(self, stage: str, limit: int = 100) -> list[Job]:
        """What is due at a stage."""
        return self.ledger.claim(stage, limit, "worker", 60.0)

    def read(self, *names: str, limit: int = 100) -> list[str]:
        """Due images are read; with `names`, by these releases only. By whom they were."""
        jobs = [job for job in self.claim("analyse", limit) if isinstance(job, ReadingJob)]
        chosen = [job for job in jobs if not names or job.release in names]
        self.ledger.advance("analyse", [(job.lease, self._reading(job.release)) for job in chosen])
        for job in jobs:
            if job not in chosen:
                self.ledger.retry("analyse", job.lease, "not yet", 0.0, counts=False)
        return [job.release for job in chosen]

    def _reading(self, release: str) -> Advance:
        logits = list(self.says.get(release, LOGITS))
        return Advance(
            ReadingState.ANALYSED,
            {"logits": logits, "view": "PA", "preprocessing_version": "hp1-0"},
        )

    def close_studies(self) -> None:
        """The quiet period passes; what waits for no reading closes."""
        self.clock.now += QUIET_SECONDS + 1
        for job in self.claim("assemble"):
            assert isinstance(job, StudyJob)
            decided = assemble(job, self.releases, NAMESPACE, self.clock.now, identity_of)
            assert isinstance(decided, Close)
            assert self.ledger.advance(
                "assemble", [(job.lease, Advance(StudyState.CLOSED, results=decided.results))]
            ) == [True]

    def compare(self) -> int:
        """Studies that a shadow read along are compared, as a dispatcher does it; how many were."""
        return sum(
            self._compare_one(job)
            for job in self.claim("compare")
            if isinstance(job, ComparisonJob)
        )

    def _compare_one(self, job: ComparisonJob) -> bool:
        try:
            decided = asyncio.run(self._compare.handle(job))
        except Retry as error:
            pause = error.after_seconds or back_off(1, Pipeline())
            self.ledger.retry("compare", job.lease, error.detail, pause, counts=False)
            return False
        return self.ledger.advance("compare", [(job.lease, decided)]) == [True]

    def report(self) -> list[tuple[str, str]]:
        """Each due result gets a document for `pacs`; study and release of each."""
        jobs = [job for job in self.claim("report") if isinstance(job, ReportJob)]
        for job in jobs:
            document = Document(
                "sr",
                "application/dicom",
                b"bytes",
                "1.2.840.10008.5.1.4.1.1.88.34",
                job.result.identifiers["sr"],
                "2.25.1",
            )
            decided = Advance(ResultState.REPORTED, documents=[NewDocument(document, ("pacs",))])
            assert self.ledger.advance("report", [(job.lease, decided)]) == [True]
        return [(job.result.study_instance_uid, job.result.release) for job in jobs]

    def rows(self, table: Table, **values: Any) -> list[Row[Any]]:
        """Rows of a table with these values, by id."""
        query = (
            select(table)
            .where(*(table.c[name] == value for name, value in values.items()))
            .order_by(table.c.id)
        )
        return rows(self.ledger, query)


def by_study(rows: list[Row[Any]], name: str) -> Mapping[str, set[Any]]:
    """What rows say of each study."""
    found: dict[str, set[Any]] = {}
    for row in rows:
        found.setdefault(row.study_instance_uid, set()).add(getattr(row, name))
    return found


@pytest.fixture
def rolling(ledger_url: str) -> Iterator[Rolling]:
    """Rollouts over an empty ledger."""
    with closing(Rolling(ledger_url)) as opened:
        yield opened
