"""A task performer against a strict worklist manager, over a real ledger."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from hilum.domain import (
    Advance,
    DeliveryState,
    Outcome,
    Priority,
    ReadingState,
    RuleDecision,
    Workitem,
    WorkitemReason,
    WorkitemState,
)
from hilum.services.workitems.performer import TaskPerformer
from hilum.settings import Settings
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.queue.study_progress import StudyProgressView
from hilum.store.queue.workitems import Workitems
from hilum.store.retention.history import forget
from hilum.store.schema import codec, tables
from hilum.workitems.client import ManagerAway, UpsClient
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import SR_CLASS, Clock, Street
from tests.support.peers.worklist_manager import (
    CANCELED,
    COMPLETED,
    IN_PROGRESS,
    SCHEDULED,
    WorklistManager,
    input_of,
    item,
)
from tests.support.retrieve.web_server import Received, Reply, WebServer, dicom_json, reply

STUDY = "1.2.3"
UID = "1.2.840.1"


@dataclass
class Bench:
    """A ledger, a manager and performers of it."""

    street: Street
    manager: WorklistManager
    server: WebServer
    stack: contextlib.ExitStack
    settings: dict[str, Any] = field(default_factory=dict)
    destination: dict[str, Any] = field(
        default_factory=lambda: {"kind": "dicom", "ae_title": "ARCHIVE"}
    )

    @property
    def items(self) -> Workitems:
        """The rows."""
        items = Workitems(self.street.ledger.url, self.street.clock)
        self.stack.callback(items.close)
        return items

    def performer(self) -> TaskPerformer:
        """Another performer, as another process has it."""
        section = {
            "url": f"{self.server.url}/ups",
            "workitem_codes": [{"value": "CXR", "scheme": "99SITE", "meaning": "Chest"}],
            "station_name_code": {"value": "HILUM", "scheme": "99SITE", "meaning": "Hilum"},
            "destination": "pacs",
            "timeout_seconds": 20.0,
            **self.settings,
        }
        settings = Settings.model_validate(
            {"destinations": {"pacs": self.destination}, "workitems": {"ris": section}}
        )
        studies = StudyProgressView(self.street.ledger.url)
        client = UpsClient("ris", settings.workitems["ris"], threading.Event())
        self.stack.callback(studies.close)
        self.stack.callback(client.close)
        ledger = self.street.ledger
        return TaskPerformer(
            "ris", settings, self.items, studies, client, ledger, self.street.clock
        )

    def turn(self) -> None:
        """One turn of a performer that begins anew."""
        self.performer().turn()

    def row(self, uid: str = UID) -> Workitem:
        """An item as the ledger has it."""
        found = self.items.find("ris", uid)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path, clock: Clock) -> Iterator[Bench]:
    """On SQLite: the steps are those of the manager."""
    with contextlib.closing(Ledger(migrated_sqlite(tmp_path), clock)) as ledger:
        yield from _benches(Street(ledger, clock))


@pytest.fixture
def any_bench(street: Street) -> Iterator[Bench]:
    """On SQLite and on a real PostgreSQL, for what the rows decide."""
    yield from _benches(street)


def _benches(street: Street) -> Iterator[Bench]:
    manager = WorklistManager()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(manager.server())
        yield Bench(street, manager, server, stack)


def fault(method: str, ending: str, answer: Reply) -> Any:
    """A fault of each request of this method whose path ends so."""

    def asked(request: Received) -> Reply | None:
        is_meant = request.method == method and request.path.endswith(ending)
        return answer if is_meant else None

    return asked


def test_an_item_is_completed_with_the_report_that_the_archive_accepted(any_bench: Bench) -> None:
    any_bench.manager.add(item())

    any_bench.turn()
    assert any_bench.manager.state(UID) == IN_PROGRESS
    assert any_bench.row().state is WorkitemState.CLAIMED
    assert any_bench.manager.items[UID].transaction_uid == any_bench.row().transaction_uid

    any_bench.street.walk(STUDY, 1, 2)
    any_bench.turn()
    assert any_bench.manager.state(UID) == COMPLETED
    assert any_bench.row().state is WorkitemState.COMPLETED
    performed = any_bench.manager.performed(UID)
    (output,) = performed.OutputInformationSequence
    (reference,) = output.ReferencedSOPSequence
    assert output.StudyInstanceUID == STUDY
    assert reference.ReferencedSOPClassUID == SR_CLASS
    assert reference.ReferencedSOPInstanceUID == "2.25.12"
    assert output.DICOMRetrievalSequence[0].RetrieveAETitle == "ARCHIVE"
    assert performed.PerformedStationNameCodeSequence[0].CodeValue == "HILUM"
    assert performed.PerformedWorkitemCodeSequence[0].CodeValue == "CXR"


def test_a_study_that_is_read_already_completes_its_item_at_once(bench: Bench) -> None:
    bench.street.walk(STUDY, 1)
    bench.manager.add(item())
    bench.turn()
    assert bench.manager.state(UID) == COMPLETED


def test_of_two_performers_one_has_an_item(bench: Bench) -> None:
    bench.manager.add(item())
    theirs = "2.25.77"
    original = bench.manager.faults

    def claimed_between(request: Received) -> Reply | None:
        if request.method == "PUT":
            bench.manager.faults = original
            held = bench.manager.items[UID]
            held.data.ProcedureStepState = IN_PROGRESS
            held.transaction_uid = theirs
        return None

    bench.manager.faults = claimed_between
    bench.turn()
    assert bench.row().state is WorkitemState.TAKEN
    assert bench.row().reason is WorkitemReason.CLAIMED_BY_ANOTHER
    assert bench.row().detail == "HTTP 409: another Transaction UID holds the item (C301)"
    bench.street.walk(STUDY, 1)
    bench.turn()
    assert bench.manager.items[UID].transaction_uid == theirs
    assert bench.manager.state(UID) == IN_PROGRESS


def test_two_hosts_write_one_row_and_claim_an_item_once(any_bench: Bench) -> None:
    any_bench.manager.add(item())
    first = any_bench.items.begin("ris", UID, "2.25.1", STUDY)
    assert first is not None
    assert any_bench.items.begin("ris", UID, "2.25.2", STUDY) is None
    any_bench.turn()
    assert any_bench.manager.items[UID].transaction_uid == "2.25.1"


def test_one_process_asks_a_manager_until_its_lease_is_over(any_bench: Bench) -> None:
    items = any_bench.items
    assert items.hold("ris", "a", 60.0)
    assert items.hold("ris", "a", 60.0)
    assert not items.hold("ris", "b", 60.0)
    assert items.hold("other", "b", 60.0)
    any_bench.street.clock.now += 61.0
    assert items.hold("ris", "b", 60.0)
    items.give_back("ris", "a")
    assert not items.hold("ris", "a", 60.0)
    items.give_back("ris", "b")
    assert items.hold("ris", "a", 60.0)


def test_the_lease_of_a_process_that_died_is_ended_with_its_others(any_bench: Bench) -> None:
    assert any_bench.items.hold("ris", "host:dispatcher:1", 60.0)
    any_bench.street.ledger.end_leases("host:dispatcher:1", is_clean=False)
    assert any_bench.items.hold("ris", "host:dispatcher:2", 60.0)


def test_a_claim_whose_answer_was_lost_is_ours_by_its_transaction_uid(bench: Bench) -> None:
    bench.manager.add(item())
    bench.manager.losing = ("PUT", "/state")
    with contextlib.suppress(ManagerAway):
        bench.turn()
    assert bench.manager.state(UID) == IN_PROGRESS
    before = bench.row()

    bench.turn()
    assert bench.row().state is WorkitemState.CLAIMED
    assert bench.row().transaction_uid == before.transaction_uid
    bench.street.walk(STUDY, 1)
    bench.turn()
    assert bench.manager.state(UID) == COMPLETED
    assert len(bench.items.latest(10)) == 1


def test_the_transaction_uid_is_in_the_ledger_before_the_claim(bench: Bench) -> None:
    bench.manager.add(item())
    seen = []

    def look(request: Received) -> Reply | None:
        if request.method == "PUT":
            seen.append((bench.row().state, bench.row().transaction_uid.encode() in request.body))
        return None

    bench.manager.faults = look
    bench.turn()
    assert seen == [(WorkitemState.CLAIMING, True)]


def test_a_completion_whose_answer_was_lost_is_a_completion(bench: Bench) -> None:
    bench.street.walk(STUDY, 1)
    bench.manager.add(item())
    puts = []

    def lose_the_second(request: Received) -> Reply | None:
        if request.method == "PUT":
            puts.append(request)
            bench.manager.losing = ("PUT", "/state") if len(puts) == 2 else None
        return None

    bench.manager.faults = lose_the_second
    with contextlib.suppress(ManagerAway):
        bench.turn()
    assert bench.manager.state(UID) == COMPLETED
    bench.turn()
    assert (bench.row().state, bench.row().reason) == (WorkitemState.COMPLETED, None)


def test_an_item_that_its_owner_cancels_before_the_claim_is_not_claimed(bench: Bench) -> None:
    bench.manager.add(item())

    def cancel(request: Received) -> Reply | None:
        if request.method == "PUT":
            bench.manager.items[UID].data.ProcedureStepState = CANCELED
        return None

    bench.manager.faults = cancel
    bench.turn()
    assert bench.row().state is WorkitemState.CANCELLED
    assert bench.row().reason is WorkitemReason.ENDED_BY_MANAGER


@pytest.mark.parametrize("state", [CANCELED, COMPLETED])
def test_an_item_that_its_owner_ends_after_the_claim_is_closed(bench: Bench, state: str) -> None:
    bench.manager.add(item())
    bench.turn()
    bench.manager.end(UID, state)
    bench.street.walk(STUDY, 1)
    bench.turn()
    assert bench.row().state is WorkitemState.CANCELLED
    assert bench.row().reason is WorkitemReason.ENDED_BY_MANAGER
    assert "UnifiedProcedureStepPerformedProcedureSequence" not in bench.manager.items[UID].data


def test_an_item_that_the_manager_has_lost_is_not_asked_for_again(bench: Bench) -> None:
    bench.manager.add(item())
    bench.turn()
    del bench.manager.items[UID]
    bench.turn()
    assert bench.row().state is WorkitemState.FAILED
    assert bench.row().reason is WorkitemReason.UNKNOWN_TO_MANAGER
    asked = len(bench.server.received)
    bench.turn()
    assert bench.server.paths()[asked:] == ["/ups/workitems"]


def test_a_manager_that_was_restored_gets_the_same_claim_again(bench: Bench) -> None:
    bench.manager.add(item())
    bench.turn()
    held = bench.manager.items[UID]
    transaction = held.transaction_uid
    held.data.ProcedureStepState = SCHEDULED
    held.transaction_uid = ""
    bench.turn()
    bench.turn()
    assert (bench.manager.state(UID), held.transaction_uid) == (IN_PROGRESS, transaction)


def test_the_output_names_only_what_was_accepted(any_bench: Bench) -> None:
    any_bench.street.destinations = ("pacs", "other")
    any_bench.manager.add(item())
    any_bench.street.receive(STUDY, 1)
    any_bench.street.read()
    any_bench.street.assemble()
    any_bench.street.report()
    jobs = {job.destination: job for job in any_bench.street.claim("deliver")}  # type: ignore[union-attr]
    deliver = any_bench.street.ledger.advance
    deliver("deliver", [(jobs["other"].lease, Advance(DeliveryState.DELIVERED))])
    any_bench.turn()
    assert any_bench.manager.state(UID) == IN_PROGRESS, "the delivery that counts is on its way"
    dead = Advance(DeliveryState.DEAD, {"reason": "document_refused", "detail": "no"})
    deliver("deliver", [(jobs["pacs"].lease, dead)])
    any_bench.turn()
    assert any_bench.manager.state(UID) == CANCELED
    progress = any_bench.manager.progress(UID)
    assert progress.ReasonForCancellation == (
        "The archive did not take the result. (dead: document_refused)"
    )
    (code,) = progress.ProcedureStepDiscontinuationReasonCodeSequence
    assert (code.CodeValue, code.CodingSchemeDesignator) == ("110513", "DCM")
    assert any_bench.row().state is WorkitemState.CANCELLED
    assert any_bench.row().reason is WorkitemReason.NOT_DELIVERED


def test_a_study_without_an_analysed_image_cancels_its_item(bench: Bench) -> None:
    bench.manager.add(item())
    bench.street.receive(STUDY, 1)
    bench.street.read(ReadingState.NOT_ANALYSED, "not_frontal")
    bench.street.assemble(Outcome.NOT_ANALYSED)
    bench.street.report()
    bench.street.deliver()
    bench.turn()
    assert bench.manager.state(UID) == CANCELED
    assert bench.row().reason is WorkitemReason.NOT_ANALYSED


def test_images_that_do_not_come_in_time_cancel_their_item(bench: Bench) -> None:
    bench.settings = {"image_wait_seconds": 600}
    bench.manager.add(item())
    bench.turn()
    bench.street.clock.now += 599.0
    bench.turn()
    assert bench.manager.state(UID) == IN_PROGRESS
    bench.street.clock.now += 2.0
    bench.turn()
    assert bench.manager.state(UID) == CANCELED
    assert bench.row().reason is WorkitemReason.IMAGES_MISSING


def test_an_item_waits_for_the_images_that_it_names(bench: Bench) -> None:
    bench.manager.add(item(images=(f"{STUDY}.1", f"{STUDY}.2")))
    bench.street.walk(STUDY, 1)
    bench.turn()
    assert bench.manager.state(UID) == IN_PROGRESS
    bench.street.walk(STUDY, 2)
    bench.turn()
    (output,) = bench.manager.performed(UID).OutputInformationSequence
    (reference,) = output.ReferencedSOPSequence
    assert reference.ReferencedSOPInstanceUID == "2.25.12", "the report on both"


def test_an_item_without_a_study_is_cancelled_with_the_reason(bench: Bench) -> None:
    bench.manager.add(item("1.2.840.1", study=None))
    two = item("1.2.840.2")
    two.InputInformationSequence.append(input_of("1.2.4"))
    bench.manager.add(two)
    bench.turn()
    assert bench.row("1.2.840.1").reason is WorkitemReason.NO_STUDY
    assert bench.row("1.2.840.2").reason is WorkitemReason.SEVERAL_STUDIES
    assert bench.manager.state("1.2.840.1") == bench.manager.state("1.2.840.2") == CANCELED


@pytest.mark.parametrize("ignores_search", [False, True])
def test_only_ready_items_of_our_codes_are_claimed(bench: Bench, ignores_search: bool) -> None:
    bench.manager.ignores_search = ignores_search
    bench.manager.add(item("1.2.840.1", readiness="UNAVAILABLE"))
    bench.manager.add(item("1.2.840.2", readiness="INCOMPLETE"))
    bench.manager.add(item("1.2.840.3", code=("CXR", "99OTHER")))
    bench.manager.add(item("1.2.840.4", code=("*", "99SITE")))
    bench.manager.add(item("1.2.840.5"))
    bench.manager.end("1.2.840.5", COMPLETED)
    bench.turn()
    assert bench.items.latest(10) == []
    methods = {request.method for request in bench.server.received}
    assert methods == {"GET"}


def test_the_most_urgent_items_are_claimed_first_and_not_more_than_allowed(bench: Bench) -> None:
    bench.settings = {"maximum_items": 2}
    for number, priority in enumerate(("LOW", "MEDIUM", "HIGH", "HIGH", "MEDIUM")):
        bench.manager.add(item(f"1.2.840.{number}", f"1.2.{number}", priority=priority))
    bench.turn()
    claimed = [row.workitem_uid for row in bench.items.open_items("ris")]
    assert claimed == ["1.2.840.2", "1.2.840.3"]
    bench.street.walk("1.2.3", 1)
    bench.turn()
    assert bench.manager.state("1.2.840.3") == COMPLETED
    assert [row.workitem_uid for row in bench.items.open_items("ris")] == ["1.2.840.2", "1.2.840.1"]


def test_an_urgent_item_makes_its_study_urgent(any_bench: Bench) -> None:
    any_bench.manager.add(item(priority="HIGH"))
    any_bench.street.receive(STUDY, 1)
    any_bench.turn()
    (row,) = any_bench.street.rows(tables.reading)
    assert row.priority == Priority.URGENT
    (row,) = any_bench.street.rows(tables.study)
    assert row.worklist["source"] == "ris"


def test_an_item_of_usual_priority_leaves_its_study_as_it_is(bench: Bench) -> None:
    bench.manager.add(item(priority="MEDIUM"))
    bench.street.receive(STUDY, 1)
    bench.turn()
    (row,) = bench.street.rows(tables.reading)
    assert row.priority == Priority.LIVE


def test_a_rule_that_gives_a_priority_has_precedence_over_an_item(bench: Bench) -> None:
    bench.manager.add(item(priority="HIGH"))
    bench.street.receive(STUDY, 1)
    decision = RuleDecision("thorax", "digest", priority="live")
    values = codec.decision_values(decision)
    with open_engine(bench.street.ledger.url).begin() as connection:
        connection.execute(update(tables.study).values(values))
    bench.turn()
    (row,) = bench.street.rows(tables.reading)
    assert row.priority == Priority.LIVE


@pytest.mark.parametrize(
    "uid", ["../../admin", "1.2.3?x=1", "1.2.*", "", "1." * 40, "1.2\r\nHost: x", "é.1", "0.0"]
)
def test_an_item_with_a_hostile_uid_is_left_alone(bench: Bench, uid: str) -> None:
    hostile = item().to_json_dict()
    hostile["00080018"]["Value"] = [uid]
    answer = dicom_json([hostile])
    bench.manager.faults = fault("GET", "/workitems", answer)
    bench.turn()
    assert bench.server.paths() == ["/ups/workitems"] * len(bench.server.received)
    assert bench.items.latest(10) == []


@pytest.mark.parametrize(
    "body",
    [
        b"[1, 2]",
        b'[{"00080018": 5}]',
        b'[{"00080018": {"vr": "UI", "Value": {"a": 1}}}]',
        b'[{"00080018": {"vr": "UI", "Value": [null]}, "00741000": []}]',
        b'{"00404018": {"vr": "SQ", "Value": [7, {"00080100": "x"}]}}',
    ],
)
def test_a_malformed_search_claims_nothing(bench: Bench, body: bytes) -> None:
    bench.manager.faults = fault("GET", "/workitems", reply(200, body))
    with contextlib.suppress(ManagerAway):
        bench.turn()
    assert bench.items.latest(10) == []


def test_a_malformed_item_does_not_hold_up_the_others(bench: Bench) -> None:
    bench.manager.add(item("1.2.840.1"))
    bench.manager.add(item("1.2.840.2", "1.2.4"))
    bench.manager.faults = fault("GET", "/workitems/1.2.840.1", reply(200, b"{not json"))
    bench.turn()
    assert bench.manager.state("1.2.840.1") == SCHEDULED
    assert bench.manager.state("1.2.840.2") == IN_PROGRESS
    bench.manager.faults = fault("GET", "/workitems/1.2.840.2", reply(500))
    bench.turn()
    assert bench.manager.state("1.2.840.1") == IN_PROGRESS


def test_an_item_in_trouble_leaves_its_place_to_another(bench: Bench) -> None:
    bench.settings = {"maximum_items": 1}
    for number in range(1, 7):
        bench.manager.add(item(f"1.2.840.{number}", f"1.2.{number}"))
    performer = bench.performer()
    performer.turn()
    bench.manager.faults = fault("GET", "/workitems/1.2.840.1", reply(500))
    performer.turn()
    assert bench.manager.state("1.2.840.2") == IN_PROGRESS
    assert bench.manager.state("1.2.840.3") == SCHEDULED


def test_of_items_in_trouble_four_times_as_many_are_claimed_at_most(bench: Bench) -> None:
    bench.settings = {"maximum_items": 1}
    for number in range(1, 7):
        bench.manager.add(item(f"1.2.840.{number}", f"1.2.{number}"))
    bench.manager.faults = fault("PUT", "/state", reply(500))
    performer = bench.performer()
    for _ in range(8):
        performer.turn()
    assert len(bench.items.open_items("ris")) == 4


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (reply(404), "correct `url`"),
        (reply(401), "other credentials"),
        (reply(403), "have it allowed"),
        (reply(500), "its log may say why"),
        (reply(503, b"", {"Retry-After": "120"}), "overloaded"),
        (reply(302, b"", {"Location": "http://elsewhere"}), "it redirects"),
        (reply(200, b"<html>"), "the root of UPS-RS"),
    ],
)
def test_a_manager_that_cannot_be_searched_is_named_with_advice(
    bench: Bench, answer: Reply, advice: str
) -> None:
    bench.manager.faults = fault("GET", "/workitems", answer)
    with pytest.raises(ManagerAway, match="ris: ") as raised:
        bench.turn()
    assert advice in raised.value.detail
    assert raised.value.after_seconds == (120.0 if "overloaded" in advice else None)


def test_while_the_manager_is_away_a_finished_item_waits(bench: Bench) -> None:
    bench.manager.add(item())
    bench.turn()
    bench.street.walk(STUDY, 1)
    bench.manager.faults = lambda _: reply(503)
    with pytest.raises(ManagerAway):
        bench.turn()
    assert bench.row().state is WorkitemState.CLAIMED
    bench.manager.faults = lambda _: None
    bench.turn()
    assert bench.row().state is WorkitemState.COMPLETED


def test_an_end_that_is_refused_again_and_again_needs_a_person(bench: Bench) -> None:
    bench.street.walk(STUDY, 1)
    bench.manager.add(item())
    refusal = reply(409, b"", {"Warning": "299 ris: C304 Doe^Jane"})

    def refuse(request: Received) -> Reply | None:
        return refusal if request.method == "PUT" and b"COMPLETED" in request.body else None

    bench.manager.faults = refuse
    for _ in range(5):
        assert bench.row().state is WorkitemState.COMPLETING if bench.items.latest(1) else True
        bench.turn()
    assert bench.row().state is WorkitemState.FAILED
    assert bench.row().reason is WorkitemReason.REFUSED_BY_MANAGER
    assert bench.row().detail == "HTTP 409: it misses attributes for the final state (C304)"


def test_a_stow_archive_is_named_by_its_address(bench: Bench) -> None:
    bench.destination = {"kind": "stow", "url": "https://pacs.example.org/dicom-web/"}
    bench.street.walk(STUDY, 1)
    bench.manager.add(item())
    bench.turn()
    (output,) = bench.manager.performed(UID).OutputInformationSequence
    (place,) = output.WADORSRetrievalSequence
    assert place.RetrieveURL == (
        f"https://pacs.example.org/dicom-web/studies/{STUDY}/series/2.25.11.0"
    )


def test_the_sender_is_the_place_where_its_objects_are(bench: Bench) -> None:
    bench.destination = {"kind": "sender", "ports": {"CR1": 104}}
    bench.street.walk(STUDY, 1)
    bench.manager.add(item())
    bench.turn()
    (output,) = bench.manager.performed(UID).OutputInformationSequence
    assert output.DICOMRetrievalSequence[0].RetrieveAETitle == "CR1"


def test_a_manager_may_want_our_title_in_the_address(bench: Bench) -> None:
    bench.settings = {"requester_ae_title": "HILUM AI"}
    bench.manager.add(item())
    bench.turn()
    assert f"/ups/workitems/{UID}/state/HILUM%20AI" in bench.server.paths()


def test_an_erased_study_leaves_no_uid_in_its_items_and_cancels_those_that_wait(
    any_bench: Bench, tmp_path: Path
) -> None:
    any_bench.manager.add(item())
    any_bench.street.receive(STUDY, 1)
    any_bench.turn()
    assert any_bench.row().study_instance_uid == STUDY
    with contextlib.closing(
        Erasure(any_bench.street.ledger.url, Archive(tmp_path / "archive"))
    ) as erasure:
        erasure.erase_study(STUDY)
    assert any_bench.row().study_instance_uid not in ("", STUDY)
    any_bench.turn()
    assert any_bench.row().reason is WorkitemReason.ERASED
    assert any_bench.manager.state(UID) == CANCELED


def test_items_that_ended_long_ago_leave_the_ledger(any_bench: Bench) -> None:
    any_bench.manager.add(item("1.2.840.1", study=None))
    any_bench.manager.add(item("1.2.840.2"))
    any_bench.turn()
    with open_engine(any_bench.street.ledger.url).begin() as connection:
        assert forget(connection, "workitems", any_bench.street.clock.now + 1.0) == 1
    assert [row.workitem_uid for row in any_bench.items.latest(10)] == ["1.2.840.2"]
