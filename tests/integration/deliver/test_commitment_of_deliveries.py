"""Storage commitment as SCU: a destination is asked to keep what it accepted (PS3.4 annex J)."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydicom.uid import generate_uid

from hilum.domain import Advance, DeliveryState
from hilum.processes.commitment_loop import CommitmentLoop
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.settings import DicomDestination, Pipeline, SenderDestination, Settings
from hilum.store.ledger import Ledger
from hilum.store.queue import asked_commitments
from testing.phantoms.phantom import make_study
from testing.serving import free_ports
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.street import Clock, Street
from tests.support.machine.waiting import wait_for
from tests.support.peers.commitment_scp import (
    ScriptedCommitmentScp,
    report_over,
    reporting,
)
from tests.support.peers.committing import PUSH_MODEL
from tests.support.peers.peers import Orthanc, StoreScp
from tests.support.reports.results import make_release
from tests.support.server.listening import ListenerProcess, make_settings

OWNER = "dispatcher-of-the-test"


@dataclass
class House:
    """A listener, and the ledger's rows; the loop of the destination is turned by hand."""

    listener: ListenerProcess
    ledger: Ledger
    street: Street
    settings: Settings
    studies: int = 0

    def deliver(self, sender: str = "CR1") -> int:
        """A document that the destination has accepted; the id of its delivery."""
        self.studies += 1
        self.street.receive(f"1.{self.studies}", 1, calling_ae_title=sender)
        self.street.read()
        self.street.assemble()
        self.street.report()
        (job,) = self.street.claim("deliver")
        columns = asked_commitments.due(time.time() - 1)
        self.street.ledger.advance(
            "deliver", [(job.lease, Advance(DeliveryState.DELIVERED, columns))]
        )
        return job.lease.row_id

    def loop(self, scp: ScriptedCommitmentScp | int, **changes: Any) -> CommitmentLoop:
        port = scp if isinstance(scp, int) else scp.port
        destination = self.settings.destinations["pacs"].model_copy(
            update={"port": port, **changes}
        )
        assert isinstance(destination, DicomDestination)
        quick = Pipeline(backoff_seconds=0.05, poll_seconds=0.05)
        reports = TakenReports(self.settings, self.ledger)
        return CommitmentLoop("pacs", destination, self.ledger, quick, OWNER, reports)

    def row(self, delivery_id: int) -> dict[str, Any]:
        (found,) = self.listener.rows(f"SELECT * FROM delivery WHERE id = {delivery_id}")
        return dict(found)

    def commitment(self, delivery_id: int) -> str | None:
        found = self.row(delivery_id)["commitment"]
        return None if found is None else str(found)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("commitment-scu")
    settings = make_settings(folder / "state", storage_commitment=False)
    pacs = DicomDestination(
        host="127.0.0.1",
        ae_title="PACS",
        commitment=True,
        commitment_tries=2,
        commitment_wait_seconds=0.0,
        timeout_seconds=10.0,
    )
    settings = settings.model_copy(update={"destinations": {"pacs": pacs}})
    with (
        ListenerProcess(settings) as listener,
        closing(Ledger(settings.ledger_url)) as ledger,
        closing(Ledger(settings.ledger_url, clock := Clock(time.time() - 10_000))) as past,
    ):
        yield House(listener, ledger, Street(past, clock), settings)


def test_a_report_on_the_association_of_the_request_commits(house: House) -> None:
    one, other = house.deliver(), house.deliver()
    with ScriptedCommitmentScp() as scp:
        scp.then = scp.report_here
        house.loop(scp, commitment_wait_seconds=60.0).turn()
        assert scp.reported.get(timeout=60) == 0
        asked = scp.next_request()
    assert (asked.calling, len(asked.references)) == ("HILUM", 2)
    assert [house.commitment(item) for item in (one, other)] == ["committed", "committed"]
    assert house.row(one)["state"] == "delivered"


def test_the_loop_asks_by_itself_until_it_is_stopped(house: House) -> None:
    item = house.deliver()

    async def serve(loop: CommitmentLoop) -> None:
        running = asyncio.create_task(loop.run())
        while house.commitment(item) != "committed":
            assert not running.done()
            await asyncio.sleep(0.05)
        loop.stop()
        await running

    with ScriptedCommitmentScp() as scp:
        scp.then = scp.report_here
        asyncio.run(serve(house.loop(scp, commitment_wait_seconds=60.0)))


def test_an_unexpected_error_puts_the_request_off_and_the_loop_goes_on(house: House) -> None:
    item = house.deliver()
    refuse = (
        "CREATE TRIGGER refused BEFORE UPDATE OF commitment ON delivery"
        " WHEN NEW.commitment = 'asked' BEGIN SELECT RAISE(ABORT, ''); END"
    )
    with closing(sqlite3.connect(house.settings.site.state_dir / "ledger.sqlite")) as connection:
        connection.execute(refuse)
        with ScriptedCommitmentScp() as scp:
            house.loop(scp).turn()
            asked = scp.next_request()
        connection.execute("DROP TRIGGER refused")
    row = house.row(item)
    assert (row["commitment"], row["commitment_tries"]) == ("due", 1)
    assert row["detail"] == "unexpected IntegrityError; see the log"
    with reporting(house.listener.port) as association:
        assert report_over(association, asked.transaction_uid, asked.references) == 0
    assert house.commitment(item) == "committed", "its report is taken all the same"


def test_a_report_on_an_association_of_the_scp_commits_after_a_restart(house: House) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp() as scp:
        house.loop(scp).turn()
        asked = scp.next_request()
    assert house.commitment(item) == "asked"
    house.listener.kill()
    house.listener.start()
    with reporting(house.listener.port) as association:
        (context,) = association.accepted_contexts
        assert (context.abstract_syntax, context.as_scp) == (PUSH_MODEL, True)
        assert report_over(association, asked.transaction_uid, asked.references) == 0
        assert house.commitment(item) == "committed"
        again = report_over(association, asked.transaction_uid, asked.references)
        assert again == 0, "it has lost our answer"
    assert house.commitment(item) == "committed"


def test_a_scp_that_proposes_no_role_is_understood_too(house: House) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp() as scp:
        house.loop(scp).turn()
        asked = scp.next_request()
    with reporting(house.listener.port, proposes_role=False) as association:
        (context,) = association.accepted_contexts
        context._as_scp = True  # pynetdicom refuses to send without the role
        assert report_over(association, asked.transaction_uid, asked.references) == 0
    assert house.commitment(item) == "committed"


def test_what_the_scp_does_not_keep_is_sent_again_and_then_needs_a_person(house: House) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp() as scp, reporting(house.listener.port) as association:
        house.loop(scp).turn()
        first = scp.next_request()
        failed = dict.fromkeys(first.references, 0x0112)
        assert report_over(association, first.transaction_uid, (), failed) == 0
        row = house.row(item)
        assert (row["state"], row["commitment"]) == ("due", None)
        house.street.clock.now = time.time() + 120
        (job,) = house.street.claim("deliver")
        due = asked_commitments.due(time.time() - 1)
        house.street.ledger.advance("deliver", [(job.lease, Advance(DeliveryState.DELIVERED, due))])
        house.loop(scp).turn()
        second = scp.next_request()
        assert second.references == first.references
        failed = dict.fromkeys(second.references, 0x0213)
        assert report_over(association, second.transaction_uid, (), failed) == 0
    row = house.row(item)
    assert (row["state"], row["reason"]) == ("dead", "commitment_failed")
    assert "0x0213, resource limitation" in row["detail"]


def test_reports_that_are_wrong_are_refused_and_change_nothing(house: House) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp() as scp:
        house.loop(scp).turn()
        asked = scp.next_request()
    uid, named = asked.transaction_uid, asked.references
    with reporting(house.listener.port) as association:
        assert report_over(association, generate_uid(), named) == 0x0115, "unknown transaction"
        assert report_over(association, uid, named, instance_uid="1.2.3") == 0x0112
        assert report_over(association, uid, named, event_type=3) == 0x0113
        assert report_over(association, uid, ()) == 0x0115, "it names no object"
        assert report_over(association, uid, [("1.2", "")]) == 0x0115
        assert report_over(association, "not-a-uid", named) == 0x0115
        assert house.commitment(item) == "asked"
        stranger = [("1.2.840.10008.5.1.4.1.1.1", "1.2.3.4")]
        assert report_over(association, uid, [*named, *stranger]) == 0
    assert house.commitment(item) == "committed"
    row = house.listener.association_of("PACS")
    assert row["calling_ae_title"] == "PACS"


def test_a_stranger_gets_no_context_and_cannot_report(house: House) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp() as scp:
        house.loop(scp).turn()
        scp.next_request()
    with (
        pytest.raises(AssertionError),
        reporting(house.listener.port, "STRANGER"),
    ):
        pass
    failure = TakenReports(house.settings, house.ledger).take({}, "1.2.840.10008.1.2", b"", "CT1")
    assert failure is not None
    assert failure.label == "0x0211"
    assert house.commitment(item) == "asked"


def test_an_scp_that_is_away_is_asked_later_and_that_does_not_count(house: House) -> None:
    item = house.deliver()
    (port,) = free_ports(1)
    loop = house.loop(port)
    loop.turn()
    row = house.row(item)
    assert (row["commitment"], row["commitment_tries"]) == ("due", 0)
    assert "no DICOM answer" in row["detail"]
    with ScriptedCommitmentScp(port=port) as scp:
        wait_for(lambda: loop.turn() == 0.0 and not scp.asked.empty(), what="the next try")
        scp.next_request()
    assert house.commitment(item) == "asked"


@pytest.mark.parametrize(
    ("status", "words"), [(0x0110, "0x0110, processing failure"), (None, "gave no answer")]
)
def test_a_request_that_is_not_taken_counts(house: House, status: int | None, words: str) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp(statuses=[status]) as scp:
        house.loop(scp).turn()
    row = house.row(item)
    assert (row["state"], row["commitment"], row["commitment_tries"]) == ("delivered", "due", 1)
    assert words in row["detail"]


def test_a_receiver_without_storage_commitment_is_named_with_the_remedy(
    house: House, tmp_path: Path
) -> None:

    item = house.deliver()
    with StoreScp() as peer:
        house.loop(peer.port, ae_title=peer.ae_title).turn()
    row = house.row(item)
    assert "does not accept Storage Commitment Push Model: enable it" in row["detail"]
    assert (row["commitment"], row["commitment_tries"]) == ("due", 1)


def test_nothing_is_asked_while_the_destination_is_paused(house: House) -> None:
    item = house.deliver()
    with ScriptedCommitmentScp() as scp:
        house.ledger.pause("pacs", is_paused=True)
        try:
            house.loop(scp).turn()
            assert scp.asked.empty()
            assert house.commitment(item) == "due"
        finally:
            house.ledger.pause("pacs", is_paused=False)
        house.loop(scp).turn()
        scp.next_request()


def test_documents_that_go_back_to_senders_are_asked_of_each_sender(house: House) -> None:
    items = [house.deliver("CR1"), house.deliver("CR2"), house.deliver("CR1")]
    with sqlite3.connect(house.settings.site.state_dir / "ledger.sqlite") as connection:
        connection.execute("UPDATE study SET peer_address = '127.0.0.1'")
    with ScriptedCommitmentScp("CR1") as one, ScriptedCommitmentScp("CR2") as other:
        sender = SenderDestination(
            ports={"CR1": one.port, "CR2": other.port},
            commitment=True,
            commitment_wait_seconds=0.0,
        )
        settings = house.settings.model_copy(update={"destinations": {"pacs": sender}})
        reports = TakenReports(settings, house.ledger)
        loop = CommitmentLoop("pacs", sender, house.ledger, Pipeline(), OWNER, reports)
        loop.turn()
        loop.turn()
        asked = [one.next_request(), other.next_request()]
    assert [len(request.references) for request in asked] == [2, 1]
    assert [house.commitment(item) for item in items] == ["asked"] * 3


def test_orthanc_commits_to_what_it_has_and_not_to_what_was_deleted(tmp_path: Path) -> None:
    with Orthanc("ORTHANC") as pacs:
        release = make_release()
        settings = make_settings(tmp_path / "state")
        destination = DicomDestination(
            host="127.0.0.1",
            port=pacs.dicom_port,
            ae_title="ORTHANC",
            accept_untrained=True,
            commitment=True,
            commitment_wait_seconds=0.0,
        )
        settings = settings.model_copy(update={"destinations": {"pacs": destination}})
        with (
            ListenerProcess(settings) as listener,
            closing(Dispatcher(settings, release)) as stages,
            closing(Ledger(settings.ledger_url, lambda: time.time() + 60)) as later,
        ):
            described = {"AET": "HILUM", "Host": "127.0.0.1", "Port": listener.port}
            pacs.request("/modalities/hilum", "PUT", str(described).replace("'", '"').encode())
            for seed in (1, 2):
                stages.read(make_study(seed, views=("PA",), rows=32, columns=32)[0])
            stages.assemble()
            stages.report()
            stages.deliver("pacs")
            gone = pacs.instances()[0]
            pacs.request(f"/instances/{gone}", "DELETE")
            reports = TakenReports(settings, later)
            CommitmentLoop("pacs", destination, later, Pipeline(), OWNER, reports).turn()

            def ended() -> list[tuple[str, str | None]] | None:
                rows = listener.rows("SELECT state, commitment, detail FROM delivery")
                found = sorted((row["state"], row["commitment"]) for row in rows)
                return found if all(kind != "asked" for _, kind in found) else None

            assert wait_for(ended, what="Orthanc's report") == [
                ("delivered", "committed"),
                ("due", None),
            ]
