"""What a study costs the ledger, in statements.

A careless query more is paid for with every study. docs/figures/cpu.md names them.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from hilum.assemble import Close, assemble
from hilum.domain import (
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    Job,
    NewDocument,
    ReadingState,
    Release,
    ReportJob,
    ResultState,
    StudyJob,
    StudyState,
)
from hilum.receive.headers.patient import identity_of
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.queue.hand_off import Reservation
from tests.support.ledger.database import statements
from tests.support.ledger.ledger_steps import arrival
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.reports.results import make_release

# Claim and advance of a study of two images, without BEGIN and COMMIT.
_MOST = {"analyse": (6, 3), "assemble": (7, 4), "report": (6, 5), "deliver": (5, 1)}
# Of a wave of eight such studies. Rows whose ids somebody needs are inserted one by one: results,
# documents, deliveries.
_MOST_OF_EIGHT = {"analyse": (6, 3), "assemble": (7, 11)}
# Advances of one dispatcher that hands on to itself: no claim between.
_HANDED_ON = {"assemble": 4, "report": 6, "deliver": 1}
_EIGHT_HANDED_ON = {"assemble": 11, "report": 27, "deliver": 1}


def test_statements_of_a_study(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    migrate(url)
    ledger, release = Ledger(url), make_release()
    ledger.record(
        [
            dataclasses.replace(arrival(number, releases=(release.id,)), quiet_seconds=0.0)
            for number in (1, 2)
        ]
    )
    require_no_more(_MOST, ledger, release)


def test_statements_of_a_wave(tmp_path: Path) -> None:
    """Eight studies at once take hardly more of them than one does."""
    ledger, release = Ledger(migrated_sqlite(tmp_path)), make_release()
    _record(ledger, release, studies=8)
    require_no_more(_MOST_OF_EIGHT, ledger, release)


@pytest.mark.parametrize(("studies", "expected"), [(1, _HANDED_ON), (8, _EIGHT_HANDED_ON)])
def test_statements_of_studies_that_are_handed_on(
    tmp_path: Path, studies: int, expected: Mapping[str, int]
) -> None:
    ledger, release = Ledger(migrated_sqlite(tmp_path)), make_release()
    _record(ledger, release, studies)
    _served(ledger, "analyse", release)
    assert ledger.acquire_destination("pacs", "worker", 600)
    jobs, reservations = (
        ledger.claim("assemble", 8, "worker", 60),
        {name: Reservation("worker", 8, 60) for name in (None, "pacs")},
    )
    counts = {}
    for stage in _HANDED_ON:
        with statements(ledger) as said:
            _, jobs = ledger.advance_and_hand_off(
                stage,
                [(job, _decided(job, release)) for job in jobs],
                _reservations_of(stage, reservations),
            )
        counts[stage] = len(said)
    assert all(count <= expected[stage] for stage, count in counts.items()), counts


def require_no_more(most: Mapping[str, tuple[int, int]], ledger: Ledger, release: Release) -> None:
    """Serve these stages with at most so many statements of the claim and of the advance."""
    for stage, (claim, advance) in most.items():
        claimed, advanced = _served(ledger, stage, release)
        assert claimed <= claim, (stage, claimed)
        assert advanced <= advance, (stage, advanced)


def _record(ledger: Ledger, release: Release, studies: int) -> None:
    """Two images of each, which nobody waits for any longer."""
    images = [arrival(number, f"1.2.{number // 2}", (release.id,)) for number in range(2 * studies)]
    ledger.record([dataclasses.replace(image, quiet_seconds=0.0) for image in images])


def _reservations_of(
    stage: str, reservations: Mapping[str | None, Reservation]
) -> dict[str | None, Reservation]:
    """Those whom the loop of this stage would ask: of a delivery nobody."""
    asked = {"assemble": None, "report": "pacs"}
    return {asked[stage]: reservations[asked[stage]]} if stage in asked else {}


def _served(ledger: Ledger, stage: str, release: Release) -> tuple[int, int]:
    """Statements of the claim and of the advance."""
    with statements(ledger) as claimed:
        jobs = ledger.claim(stage, 16, "worker", 60)
    with statements(ledger) as advanced:
        written = ledger.advance(stage, [(job.lease, _decided(job, release)) for job in jobs])
    assert written
    assert all(written)
    return len(claimed), len(advanced)


def _decided(job: Job, release: Release) -> Advance:
    if isinstance(job, StudyJob):
        decided = assemble(job, {release.id: release}, uuid.NAMESPACE_OID, time.time(), identity_of)
        assert isinstance(decided, Close)
        return Advance(StudyState.CLOSED, results=decided.results)
    if isinstance(job, ReportJob):
        return Advance(ResultState.REPORTED, documents=[_document("sr", "pacs"), _document("json")])
    return Advance(DeliveryState.DELIVERED) if isinstance(job, DeliveryJob) else _analysed(release)


def _analysed(release: Release) -> Advance:
    return Advance(ReadingState.ANALYSED, {"logits": [0.0] * len(release.labels), "view": "PA"})


def _document(kind: str, *destinations: str) -> NewDocument:
    return NewDocument(
        Document(kind, "application/dicom", b"", sop_instance_uid=f"2.25.{uuid.uuid4().int}"),
        destinations,
    )
