"""Studies that go through the dispatcher's own handlers on a real ledger.

Without pixels, models or other processes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from pydicom.dataset import Dataset

from hilum.domain import (
    Advance,
    DeliveryState,
    Document,
    NewDocument,
    ReadingState,
    Release,
    ReportJob,
    ResultState,
)
from hilum.errors import Refused
from hilum.processes.dispatcher import AssembleHandler, DeliverHandler, ReportHandler
from hilum.processes.report_pool import ReportPool
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from tests.support.ledger.arrivals import arrival_of
from tests.support.reports.results import LOGITS, instance_of


class InThisProcess(ReportPool):
    """The pool of report processes, without one."""

    def __init__(self) -> None:
        super().__init__(1)

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run it here."""
        return function(*args, **kwargs)


class Dispatcher:
    """The stages of one study after another, in this process."""

    def __init__(self, settings: Settings, release: Release) -> None:
        self.settings = settings
        self.release = release
        self.ledger = Ledger(settings.ledger_url)

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def read(self, dataset: Dataset) -> str:
        """Store and read one image of a study whose quiet period is over; the study's UID."""
        instance = instance_of(dataset, path=f"{dataset.SOPInstanceUID}.dcm")
        changes = {
            field.name: getattr(instance, field.name)
            for field in dataclasses.fields(instance)
            if field.name not in ("id", "received_at")
        }
        uid, study = str(dataset.SOPInstanceUID), str(dataset.StudyInstanceUID)
        arrival = arrival_of(
            uid, study, (self.release.id,), received_at=time.time() - 60, **changes
        )
        self.ledger.record([dataclasses.replace(arrival, quiet_seconds=0.0)])
        values = {"logits": list(LOGITS), "view": "PA", "preprocessing_version": "hp1-0"}
        self._advance("analyse", lambda _: Advance(ReadingState.ANALYSED, values))
        return study

    def assemble(self) -> None:
        """Decide the results of all studies that are due."""
        handler = AssembleHandler({self.release.id: self.release}, self.ledger)
        self._advance("assemble", lambda job: asyncio.run(handler.handle(job)))

    def report(self) -> list[NewDocument]:
        """Build the documents of all results; where each of them goes."""
        releases = {self.release.id: self.release}
        handler = ReportHandler(self.settings, releases, self.ledger, InThisProcess())
        decided = self._advance("report", lambda job: asyncio.run(handler.handle(job)))
        return [document for advance in decided for document in advance.documents]

    def store(self, make: Any, destinations: tuple[str, ...]) -> Document:
        """Store a document that `make` makes of the next result."""
        made: list[Document] = []

        def handle(job: ReportJob) -> Advance:
            made.append(make(job))
            documents = [NewDocument(made[0], destinations)]
            return Advance(ResultState.REPORTED, documents=documents)

        self._advance("report", handle)
        return made[0]

    def deliver(self, name: str) -> list[Advance]:
        """Send what is due for one destination."""
        destination = self.settings.destinations[name]
        handler = DeliverHandler(name, destination, InThisProcess(), self.settings.pipeline)
        try:
            return self._advance(
                "deliver", lambda job: asyncio.run(_delivered(handler, job)), destination_name=name
            )
        finally:
            handler.close()

    def _advance(self, stage: str, handle: Any, **claim: Any) -> list[Advance]:
        jobs = self.ledger.claim(stage, 10, "worker-1", 60.0, **claim)
        decided = [(job.lease, handle(job)) for job in jobs]
        self.ledger.advance(stage, decided)
        return [advance for _, advance in decided]


async def _delivered(handler: DeliverHandler, job: Any) -> Advance:
    """What the loop makes of a refusal: the delivery needs a person."""
    try:
        return await handler.handle(job)
    except Refused as error:
        return Advance(DeliveryState.DEAD, {"reason": error.reason, "detail": error.detail})
