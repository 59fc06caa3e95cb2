"""The answer of a modality worklist makes work that waits urgent, and lowers nothing.

And live work has its share while urgent work fills every claim.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Table

from hilum.domain import DeliveryJob, Priority, WorklistAnswer
from hilum.store.ledger import Ledger
from hilum.store.queue.live_share import LATE_SECONDS, SHARE
from hilum.store.schema.tables import delivery, reading, result, study
from tests.support.ledger.street import Clock, Street

STAT = WorklistAnswer(("STAT",), "RIS@ris:104", 1.0, is_urgent=True)
ROUTINE = WorklistAnswer(("ROUTINE",), "RIS@ris:104", 1.0, is_urgent=False)


def priorities(street: Street, table: Table) -> list[Priority]:
    return [Priority(row.priority) for row in street.rows(table)]


def test_a_study_that_waits_becomes_urgent_and_overtakes(street: Street, ledger: Ledger) -> None:
    street.receive("1.1", 1)
    street.receive("1.2", 1, 2)

    written = ledger.take_worklist_answer("1.2", STAT)

    assert written == replace(STAT, has_raised=True)
    assert [job.instance.study_instance_uid for job in street.jobs_of("analyse")] == [
        "1.2",
        "1.2",
        "1.1",
    ]
    assert priorities(street, study) == [Priority.LIVE, Priority.URGENT]


def test_the_result_of_a_study_in_its_quiet_period_is_urgent(
    street: Street, ledger: Ledger
) -> None:
    street.receive("1.1", 1)
    street.read()

    ledger.take_worklist_answer("1.1", STAT)
    street.assemble()

    assert priorities(street, result) == [Priority.URGENT]


def test_readings_at_work_and_readings_that_ended_do_not_lower_the_result(
    street: Street, ledger: Ledger
) -> None:
    street.receive("1.1", 1, release="a@1")
    street.read()
    street.receive("1.1", 2, release="b@1")

    ledger.take_worklist_answer("1.1", STAT)
    street.read()
    street.assemble()

    assert priorities(street, result) == [Priority.URGENT]


def test_a_result_that_waits_for_its_report_is_urgent_and_so_are_its_deliveries(
    street: Street, ledger: Ledger
) -> None:
    street.receive("1.1", 1)
    street.read()
    street.assemble()

    written = ledger.take_worklist_answer("1.1", STAT)
    street.report()

    assert written == replace(STAT, has_raised=True)
    assert priorities(street, result) == [Priority.URGENT]
    assert priorities(street, delivery) == [Priority.URGENT]


def test_a_delivery_that_waits_is_urgent(street: Street, ledger: Ledger) -> None:
    street.receive("1.1", 1)
    street.read()
    street.assemble()
    street.report()

    ledger.take_worklist_answer("1.1", STAT)

    assert priorities(street, delivery) == [Priority.URGENT]
    assert priorities(street, result) == [Priority.LIVE], "it is reported already"


def test_a_study_that_is_delivered_is_left_alone(street: Street, ledger: Ledger) -> None:
    street.walk("1.1", 1)

    written = ledger.take_worklist_answer("1.1", STAT)

    assert written == STAT, "it raised nothing"
    for table in (study, reading, result, delivery):
        assert priorities(street, table) == [Priority.LIVE], table.name


def test_a_late_image_of_an_urgent_order_is_urgent(street: Street, ledger: Ledger) -> None:
    street.walk("1.1", 1)
    ledger.take_worklist_answer("1.1", STAT)

    street.receive("1.1", 2)

    assert priorities(street, reading) == [Priority.LIVE, Priority.URGENT]
    assert priorities(street, study) == [Priority.URGENT]


def test_a_routine_order_is_noted_and_lowers_nothing(street: Street, ledger: Ledger) -> None:
    street.receive("1.1", 1, priority=Priority.URGENT)

    ledger.take_worklist_answer("1.1", ROUTINE)

    assert priorities(street, reading) == [Priority.URGENT]
    assert priorities(street, study) == [Priority.URGENT]
    (row,) = street.rows(study)
    assert row.worklist["words"] == ["ROUTINE"]


def test_an_urgent_answer_stays_when_a_later_one_is_not(street: Street, ledger: Ledger) -> None:
    street.receive("1.1", 1)
    ledger.take_worklist_answer("1.1", STAT)

    kept = ledger.take_worklist_answer("1.1", ROUTINE)

    assert kept == replace(STAT, has_raised=True)
    assert priorities(street, study) == [Priority.URGENT]


def test_what_an_archive_is_read_again_for_stays_last(street: Street, ledger: Ledger) -> None:
    street.receive("1.1", 1, priority=Priority.REANALYSIS)

    ledger.take_worklist_answer("1.1", STAT)

    assert priorities(street, reading) == [Priority.REANALYSIS]
    assert priorities(street, study) == [Priority.REANALYSIS]


def test_an_answer_about_a_study_that_is_gone_writes_nothing(ledger: Ledger) -> None:
    assert ledger.take_worklist_answer("1.9", STAT) is None


def test_one_claim_of_four_takes_a_live_row_that_waits_too_long(
    street: Street, clock: Clock
) -> None:
    street.receive("1.1", 1)
    for number in range(2 * SHARE):
        street.receive(f"2.{number}", 1, priority=Priority.URGENT)
    clock.now += LATE_SECONDS

    taken = [street.claim("analyse", 1)[0].priority for _ in range(SHARE)]

    assert taken == [Priority.URGENT] * (SHARE - 1) + [Priority.LIVE]


def test_a_live_row_that_has_not_waited_so_long_waits_for_all_urgent_ones(
    street: Street, clock: Clock
) -> None:
    street.receive("1.1", 1)
    for number in range(2 * SHARE):
        street.receive(f"2.{number}", 1, priority=Priority.URGENT)
    clock.now += LATE_SECONDS - 1.0

    taken = [street.claim("analyse", 1)[0].priority for _ in range(2 * SHARE)]

    assert taken == [Priority.URGENT] * (2 * SHARE)


def test_the_live_share_of_a_claim_of_many_is_filled_up_with_urgent_ones(
    street: Street, clock: Clock
) -> None:
    street.receive("1.1", 1)
    for number in range(4 * SHARE):
        street.receive(f"2.{number}", 1, priority=Priority.URGENT)
    clock.now += LATE_SECONDS

    claims = [street.claim("analyse", 3) for _ in range(SHARE)]

    assert [job.priority for job in claims[-1]] == [
        Priority.LIVE,
        Priority.URGENT,
        Priority.URGENT,
    ]


def test_deliveries_to_one_destination_have_the_same_share(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    street.receive("1.1", 1)
    for number in range(2 * SHARE):
        street.receive(f"2.{number}", 1, priority=Priority.URGENT)
    street.read()
    street.assemble()
    street.report()
    clock.now += LATE_SECONDS

    jobs = [
        job
        for _ in range(SHARE)
        for job in ledger.claim("deliver", 1, "d", 60.0, destination_name="pacs")
    ]

    studies = [job.study_instance_uid for job in jobs if isinstance(job, DeliveryJob)]
    assert studies[-1] == "1.1"
    assert "1.1" not in studies[:-1]
