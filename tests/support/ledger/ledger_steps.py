"""The steps of a study, each by one verb of the ledger."""

from __future__ import annotations

from hilum.domain import (
    Advance,
    Outcome,
    ReadingState,
    Result,
    StudyJob,
    StudyState,
)
from hilum.store.ledger import Arrival, Ledger
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.street import RELEASE


def arrival(
    number: int = 1, study: str = "1.2.3", releases: tuple[str, ...] = (RELEASE,), **changes: object
) -> Arrival:
    return arrival_of(f"1.2.3.{number}", study, releases, **changes)


def result_for(
    study: str, digest: str, created_at: float, supersedes_id: int | None = None
) -> Result:
    return Result(
        study,
        RELEASE,
        digest,
        1,
        Outcome.ANALYSED,
        None,
        (),
        (),
        False,
        False,
        "hp1",
        {"sr": f"2.25.{created_at:.0f}"},
        {},
        created_at,
        supersedes_id,
    )


def analyse_all(ledger: Ledger, state: ReadingState = ReadingState.ANALYSED) -> None:
    jobs = ledger.claim("analyse", 100, "a", 60)
    assert all(
        ledger.advance("analyse", [(job.lease, Advance(state, {"logits": [0.5]})) for job in jobs])
    )


def close_study(
    ledger: Ledger, digest: str, created_at: float, supersedes_id: int | None = None
) -> StudyJob:
    (job,) = ledger.claim("assemble", 1, "d", 60)
    assert isinstance(job, StudyJob)
    new = result_for(job.study.study_instance_uid, digest, created_at, supersedes_id)
    assert ledger.advance("assemble", [(job.lease, Advance(StudyState.CLOSED, results=[new]))]) == [
        True
    ]
    return job
