"""What the pages ask the ledger, the same on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from hilum.domain import Advance, DeliveryState, Outcome, ReadingState
from hilum.store.queries.studies import StudyFilter
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.street import Street


def front(street: Street, views: LedgerViews, chosen: StudyFilter | None = None) -> dict[str, dict]:
    found = views.front(
        chosen or StudyFilter(),
        limit=10,
        cursor=None,
        failing_before=street.clock.now,
        configured={},
    )
    return {item["study_instance_uid"]: item for item in found["studies"]}


def test_lines_have_findings_and_say_what_they_are_worth(
    street: Street, views: LedgerViews
) -> None:
    street.walk("1.2.1", 1)
    (result,) = front(street, views)["1.2.1"]["results"]
    assert (result["is_trained"], result["is_calibrated"]) == (False, False)
    assert [(item["key"], item["score"], item["decision"]) for item in result["findings"]] == [
        ("effusion", 0.62, "undecided")
    ]


def test_what_needs_a_person_is_found_whatever_stage_it_is_in(
    street: Street, views: LedgerViews
) -> None:
    street.walk("1.2.1", 1)
    street.receive("1.2.2", 1)
    street.read(ReadingState.FAILED, "worker_crashed")
    street.assemble(Outcome.NOT_ANALYSED)
    street.report()
    street.deliver()
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    dead = Advance(DeliveryState.DEAD, {"reason": "refused_0122"})
    street.ledger.advance("deliver", [(job.lease, dead) for job in street.claim("deliver")])
    everything, stuck = front(street, views), front(street, views, StudyFilter(needs_person=True))
    assert set(stuck) == {"1.2.2", "1.2.3"}
    assert {uid: item["failed_readings"] for uid, item in everything.items()} == {
        "1.2.1": 0,
        "1.2.2": 1,
        "1.2.3": 0,
    }


def test_an_image_is_found_in_its_own_study_only(street: Street, views: LedgerViews) -> None:
    street.receive("1.2.1", 1)
    found = views.stored_image("1.2.1", "1.2.1.1")
    assert found is not None
    assert (found["path"], found["is_removed"], found["pixels_removed_at"]) == (
        "studies/1.2.1.1.dcm",
        False,
        None,
    )
    assert views.stored_image("1.2.2", "1.2.1.1") is None
    assert views.stored_image("1.2.1", "1.2.1.2") is None
