"""An installation without processes on a real ledger and archive, walked by hand.

And a child that dies inside a decision.

`python -m tests.support.ledger.deciding ROOT URL CONFLICT BOUNDARY` replaces by that conflict and kills itself at a durable boundary.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Row, Table

from hilum.assemble import Close, assemble
from hilum.domain import (
    Advance,
    DeliveryState,
    Document,
    Job,
    NewDocument,
    Priority,
    ReadingState,
    Release,
    ReportJob,
    ResultState,
    StudyJob,
    StudyState,
)
from hilum.receive.headers import file_meta
from hilum.receive.headers.patient import identity_of
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.same_bytes import sha256_of
from hilum.store.admin.decisions import Decisions
from hilum.store.archive.archive import Archive
from hilum.store.intake.received import Arrival
from hilum.store.intake.record import RecordOutcome
from hilum.store.ledger import Ledger
from tests.support.ledger.database import rows
from tests.support.ledger.storing import data_set, meta
from tests.support.ledger.street import Clock
from tests.support.reports.results import LOGITS, NAMESPACE, make_release

_ROOT = Path(__file__).resolve().parents[3]
# Where the child dies, and how many moves of files are done by then.
BOUNDARIES = {"after the commit": 0, "after the first move": 1, "after the last move": 2}


class Site:
    """One installation. `release` reads everything; without it nothing is configured any more."""

    def __init__(self, folder: Path, url: str, release: Release | None = None) -> None:
        self.url, self.clock = url, Clock()
        self.ledger = Ledger(url, self.clock)
        self.archive = Archive(folder / "archive", "listener-1")
        self.decisions = Decisions(url, self.archive, describe, sha256_of, self.clock)
        self.release = release or make_release()
        self.is_configured = True

    def close(self) -> None:
        """Give the connections back."""
        self.decisions.close()
        self.ledger.close()

    def receive(
        self,
        uid: str,
        *,
        study: str = "1.2.3",
        sender: str = "MODALITY",
        may_correct: bool | None = None,
        not_analysed: str = "",
        **content: Any,
    ) -> RecordOutcome:
        """An object arrives and gets its row and its place."""
        with self.archive.begin() as incoming:
            incoming.write(
                file_meta.encode(dataclasses.replace(meta(uid), calling_ae_title=sender))
            )
            incoming.write(data_set(uid, study=study, **content))
            file = incoming.commit()
        self.archive.place(file)
        arrival = Arrival(
            describe(file),
            Priority.LIVE,
            (self.release.id,),
            10.0,
            60.0,
            may_correct=may_correct,
            not_analysed=not_analysed,
        )
        (outcome,) = self.ledger.record([arrival])
        if outcome.is_conflict:
            self.archive.quarantine(file)
        else:
            (self.archive.discard if outcome is RecordOutcome.DUPLICATE else self.archive.settle)(
                file
            )
        return outcome

    def claim(self, stage: str) -> list[Job]:
        """Everything that is due."""
        return self.ledger.claim(stage, 100, "worker", 60.0)

    def read(self, **values: Any) -> None:
        """All due readings end as analysed, or as `values` say."""
        usual = {"logits": list(LOGITS), "view": "PA", "preprocessing_version": "hp1-0"}
        state = values.pop("state", ReadingState.ANALYSED)
        decided = Advance(state, values or usual)
        self.ledger.advance("analyse", [(job.lease, decided) for job in self.claim("analyse")])

    def assemble(self) -> None:
        """The quiet period passes, and what is complete closes."""
        self.clock.now += 11
        releases = {self.release.id: self.release} if self.is_configured else {}
        for job in self.claim("assemble"):
            assert isinstance(job, StudyJob)
            decided = assemble(
                job, releases, NAMESPACE, self.clock.now, identity_of, self.ledger.begin_epoch()
            )
            assert isinstance(decided, Close)
            assert self.ledger.advance(
                "assemble", [(job.lease, Advance(StudyState.CLOSED, results=decided.results))]
            ) == [True]

    def report(self) -> list[ReportJob]:
        """Each due result gets a document for `pacs`."""
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
        return jobs

    def deliver(self) -> None:
        """The PACS takes what is due."""
        self.ledger.advance(
            "deliver",
            [(job.lease, Advance(DeliveryState.DELIVERED)) for job in self.claim("deliver")],
        )

    def walk(self) -> list[ReportJob]:
        """Whatever is due goes the whole street; the results that were reported."""
        self.read()
        self.assemble()
        jobs = self.report()
        self.deliver()
        return jobs

    def rows(self, table: Table) -> list[Row[Any]]:
        """All rows, by id."""
        return rows(self.ledger, table)

    def content(self, path: str) -> bytes:
        """The data set at a row's path, wherever the file lies."""
        with self.archive.open(path) as stream:
            whole = stream.read()
        return whole[file_meta.decode(whole)[1] :]

    def files(self) -> set[str]:
        """Relative paths of everything in the archive, locks left out."""
        found = (
            str(file.relative_to(self.archive.root)) for file in self.archive.root.rglob("*.dcm")
        )
        return set(found)


def replace_until_killed(folder: Path, url: str, conflict_id: int, boundary: str) -> None:
    """Run the child until it kills itself."""
    command = [
        sys.executable,
        "-m",
        "tests.support.ledger.deciding",
        str(folder),
        url,
        str(conflict_id),
        boundary,
    ]
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=_ROOT, timeout=60
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr


def main(folder: Path, url: str, conflict_id: int, boundary: str) -> None:
    """The child. Death comes from the operating system's rename, the outermost seam."""
    decisions = Decisions(url, Archive(folder / "archive"), describe, sha256_of)
    os.rename = _die(os.rename, BOUNDARIES[boundary])
    decisions.replace(conflict_id)


def _die(real: Callable[..., None], moves: int) -> Callable[..., None]:
    """The real function so many times; then the end, at once after the last."""
    left = moves

    def function(*arguments: Any, **keywords: Any) -> None:
        nonlocal left
        if left:
            real(*arguments, **keywords)
            left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    return function


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
