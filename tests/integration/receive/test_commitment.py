"""Storage commitment as SCP, asked by pynetdicom and by Orthanc (PS3.4 annex J)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import XRayRadiationDoseSRStorage, generate_uid
from pynetdicom.dimse_primitives import N_ACTION

from hilum.settings import Settings
from testing.phantoms.phantom import make_study
from testing.serving import free_ports
from tests.support.machine.waiting import wait_for
from tests.support.objects.notes import wire
from tests.support.peers.certificates import Authority
from tests.support.peers.committing import (
    PUSH_MODEL,
    CommitmentScu,
    Dispatcher,
    Pair,
    action_information,
    ask,
    with_address,
)
from tests.support.peers.peers import Orthanc, StoreScp
from tests.support.peers.raw_scu import DX, RawScu, stop_reading
from tests.support.server.listening import ListenerProcess, make_settings

CR = "1.2.840.10008.5.1.4.1.1.1"


def images(seed: int) -> list[Dataset]:
    return make_study(seed=seed, views=("PA", "AP"), rows=64, columns=64)


def store(port: int, study: list[Dataset]) -> list[Pair]:
    """Acknowledged; their rows may follow."""
    with RawScu(port, sop_class_uid=study[0].SOPClassUID) as scu:
        assert [scu.store(wire(image), image.SOPInstanceUID) for image in study] == [(0, "")] * len(
            study
        )
    return [(str(image.SOPClassUID), str(image.SOPInstanceUID)) for image in study]


def commitments(listener: ListenerProcess) -> list[dict[str, Any]]:
    return [dict(row) for row in listener.rows("SELECT * FROM commitment ORDER BY id")]


def ended(listener: ListenerProcess, transaction_uid: str) -> dict[str, Any]:
    """The row, once nothing more will happen to it."""
    query = (
        f"SELECT * FROM commitment WHERE transaction_uid = '{transaction_uid}' AND state IN"
        " ('reported', 'dead')"
    )
    return dict(wait_for(lambda: listener.rows(query), what="the end of a commitment")[0])


@dataclass
class House:
    """A listener, the stage *commit*, and an Orthanc that is not started yet.

    NOBODY has no address.
    """

    listener: ListenerProcess
    dispatcher: Dispatcher
    ports: dict[str, int]
    orthanc: Orthanc | None = None
    tls: ssl.SSLContext | None = None

    def scu(
        self, ae_title: str, statuses: tuple[int, ...] = (), tls: ssl.SSLContext | None = None
    ) -> CommitmentScu:
        return CommitmentScu(ae_title, statuses, self.ports[ae_title], tls)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    orthanc = Orthanc("ORTHANC")
    ports = dict(
        zip(
            ("MODALITY", "TWICE", "AWAY", "REFUSING", "KILLED", "ENCRYPTED"),
            free_ports(6),
            strict=True,
        )
    )
    folder = tmp_path_factory.mktemp("commitment")
    settings = with_address(
        make_settings(folder / "state", commitment_wait_seconds=0.0),
        ORTHANC=orthanc.dicom_port,
        **ports,
    )
    settings, tls = encrypted(settings, Authority(folder / "certificates"))
    with ListenerProcess(settings) as listener, Dispatcher(settings) as dispatcher:
        yield House(listener, dispatcher, ports, orthanc, tls)


def encrypted(settings: Settings, authority: Authority) -> tuple[Settings, ssl.SSLContext]:
    """Mutual authentication with ENCRYPTED; its side of it."""
    theirs, ours = authority.identity("modality", "DNS:modality.test"), authority.identity("hilum")
    files = {"ca_file": authority.file, "certificate_file": ours.certificate, "key_file": ours.key}
    peer = settings.commitment["ENCRYPTED"].model_copy(
        update={"tls": True, "tls_server_name": "modality.test", **files}
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.load_cert_chain(theirs.certificate, theirs.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return (
        settings.model_copy(update={"commitment": {**settings.commitment, "ENCRYPTED": peer}}),
        context,
    )


@pytest.fixture(scope="module")
def listener(house: House) -> ListenerProcess:
    return house.listener


@pytest.fixture
def nobody() -> Iterator[CommitmentScu]:
    with CommitmentScu("NOBODY") as asking:
        yield asking


def test_over_the_association_of_the_request_all_are_committed(
    listener: ListenerProcess, nobody: CommitmentScu
) -> None:
    kept, transaction_uid = store(listener.port, images(1)), generate_uid()
    with nobody.associated(listener.port) as assoc:
        assert ask(assoc, action_information(transaction_uid, kept)) == 0
        report = nobody.next_report()
        assert (report.event_type, report.transaction_uid, report.committed, report.failed) == (
            1,
            transaction_uid,
            kept,
            {},
        )
        assert report.is_same_association
        row = ended(listener, transaction_uid)
    assert (row["state"], row["committed"], row["failed"], json.loads(row["instances"])) == (
        "reported",
        2,
        0,
        [],
    )


@pytest.mark.filterwarnings(
    "ignore:Invalid value for VR UI:UserWarning"
)  # of pydicom in the test's own client
def test_what_is_not_kept_fails_with_its_reason(
    listener: ListenerProcess, nobody: CommitmentScu
) -> None:
    (first, second), absent = store(listener.port, images(2)), (DX, generate_uid())
    conflicting, discarded = (CR, second[1]), (XRayRadiationDoseSRStorage, generate_uid())
    earlier = (DX, "999.999.01.7")  # as an earlier version took it
    with RawScu(listener.port, sop_class_uid=XRayRadiationDoseSRStorage) as scu:
        assert scu.store(bytes(64), discarded[1]) == (0, "")
    with nobody.associated(listener.port) as assoc:
        assert (
            ask(
                assoc,
                action_information(
                    generate_uid(), [first, conflicting, absent, discarded, earlier]
                ),
            )
            == 0
        )
        report = nobody.next_report()
    assert (report.event_type, report.committed) == (2, [first])
    assert report.failed == {
        conflicting: 0x0119,
        absent: 0x0112,
        discarded: 0x0112,
        earlier: 0x0112,
    }


def test_an_association_goes_on_after_a_report(
    listener: ListenerProcess, nobody: CommitmentScu
) -> None:
    study = images(3)
    classes = {str(image.SOPClassUID) for image in study}
    with nobody.associated(listener.port, *classes) as assoc:
        for image in study:
            assert assoc.send_c_store(image).Status == 0
            pair = (str(image.SOPClassUID), str(image.SOPInstanceUID))
            assert ask(assoc, action_information(generate_uid(), [pair])) == 0
            assert nobody.next_report().committed == [pair]


def test_an_object_that_comes_before_the_answer_to_a_report_is_stored(
    listener: ListenerProcess, nobody: CommitmentScu
) -> None:
    first, second = images(13)
    transaction_uid = generate_uid()
    with nobody.associated(
        listener.port, *{str(image.SOPClassUID) for image in (first, second)}
    ) as assoc:
        assert assoc.send_c_store(first).Status == 0
        nobody.may_answer.clear()
        assert (
            ask(
                assoc,
                action_information(
                    transaction_uid, [(str(first.SOPClassUID), str(first.SOPInstanceUID))]
                ),
            )
            == 0
        )
        assert nobody.next_report().event_type == 1
        assert assoc.send_c_store(second).Status == 0
        nobody.may_answer.set()
        assert ended(listener, transaction_uid)["state"] == "reported"


def test_who_releases_and_has_no_address_leaves_a_dead_report(
    listener: ListenerProcess, nobody: CommitmentScu
) -> None:
    transaction_uid = generate_uid()
    assert nobody.ask(listener.port, transaction_uid, store(listener.port, images(4))) == 0
    row = ended(listener, transaction_uid)
    assert (row["state"], row["reason"]) == ("dead", "no_address")
    assert "[commitment.NOBODY]" in row["detail"]
    assert nobody.reports.empty()


BAD: dict[str, tuple[Dataset | None, int, str, int]] = {
    "unknown action type": (action_information("1.2.3", [(DX, "1.2.4")]), 2, "", 0x0123),
    "another SOP Instance": (action_information("1.2.3", [(DX, "1.2.4")]), 1, "1.2.3.4", 0x0112),
    "no Action Information": (None, 1, "", 0x0115),
    "no Transaction UID": (action_information(None, [(DX, "1.2.4")]), 1, "", 0x0115),
    "no sequence": (action_information("1.2.3", None), 1, "", 0x0115),
    "an empty sequence": (action_information("1.2.3", []), 1, "", 0x0115),
    "an item without UID": (action_information("1.2.3", [(DX, "")]), 1, "", 0x0115),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_request_is_refused_and_owes_nothing(
    listener: ListenerProcess, case: str
) -> None:
    information, action_type, instance_uid, expected = BAD[case]
    before = len(commitments(listener))
    with CommitmentScu("WRONG") as scu, scu.associated(listener.port) as assoc:
        named = {"instance_uid": instance_uid} if instance_uid else {}
        assert ask(assoc, information, action_type, **named) == expected
        assert assoc.is_established
    assert len(commitments(listener)) == before


@pytest.mark.parametrize(
    ("lacking", "expected"), [("RequestedSOPClassUID", 0x0118), ("ActionTypeID", 0x0123)]
)
def test_a_command_that_lacks_what_it_needs_is_answered(
    listener: ListenerProcess, lacking: str, expected: int
) -> None:
    request = N_ACTION()
    request.MessageID, request.RequestedSOPClassUID = 7, PUSH_MODEL
    request.RequestedSOPInstanceUID, request.ActionTypeID = "1.2.840.10008.1.20.1.1", 1
    setattr(request, lacking, None)
    with CommitmentScu("WRONG") as scu, scu.associated(listener.port) as assoc:
        stop_reading(assoc)
        assoc.dimse.send_msg(request, 1)
        response = assoc.dimse.get_msg(block=True)[1]
        assert response.Status == expected
        assert response.MessageIDBeingRespondedTo == 7


def test_a_refused_request_says_what_to_change(listener: ListenerProcess) -> None:
    with CommitmentScu("ADVISED") as scu, scu.associated(listener.port) as assoc:
        assert ask(assoc, action_information("1.2.3", [])) == 0x0115
    (row,) = wait_for(
        lambda: listener.rows("SELECT * FROM association WHERE calling_ae_title = 'ADVISED'")
    )
    assert row["reason"] == "0x0115"
    assert "Referenced SOP Sequence" in row["advice"]


def test_a_transaction_uid_in_use_fails_and_leaves_the_first_request_alone(house: House) -> None:
    (first, second), transaction_uid = store(house.listener.port, images(5)), generate_uid()
    with house.scu("TWICE") as scu:
        scu.may_answer.clear()
        assert scu.ask(house.listener.port, transaction_uid, [first]) == 0
        reports = [scu.next_report()]
        assert scu.ask(house.listener.port, transaction_uid, [second]) == 0
        scu.may_answer.set()
        reports.append(scu.next_report())
    assert [(report.event_type, report.committed, report.failed) for report in reports] == [
        (1, [first], {}),
        (2, [], {second: 0x0131}),
    ]


def test_to_an_address_it_goes_on_an_association_of_our_own(house: House) -> None:
    kept, transaction_uid = store(house.listener.port, images(6)), generate_uid()
    with house.scu("MODALITY") as scu:
        assert scu.ask(house.listener.port, transaction_uid, kept) == 0
        report = scu.next_report()
        assert (report.event_type, report.transaction_uid, report.committed) == (
            1,
            transaction_uid,
            kept,
        )
        assert (report.is_same_association, report.calling) == (False, "HILUM")
        assert ended(house.listener, transaction_uid)["state"] == "reported"
        assert (
            scu.ask(house.listener.port, transaction_uid, kept) == 0
        )  # who asks again has lost his report
        assert scu.next_report().committed == kept


def test_an_asker_that_is_away_or_cannot_gets_it_later(house: House) -> None:
    kept, transaction_uid = store(house.listener.port, images(7)), generate_uid()
    with CommitmentScu("AWAY") as asking:  # on another port
        assert asking.ask(house.listener.port, transaction_uid, kept) == 0
    tried = (
        f"SELECT * FROM commitment WHERE transaction_uid = '{transaction_uid}' AND detail LIKE 'no"
        " DICOM answer%'"
    )
    wait_for(lambda: house.listener.rows(tried), what="a try that met nobody")
    with house.scu("AWAY", (0x0213,)) as back:
        assert [back.next_report().committed for _ in range(2)] == [kept, kept]
        assert ended(house.listener, transaction_uid)["state"] == "reported"


def test_a_refused_report_is_dead_and_can_be_requeued(house: House) -> None:
    kept, transaction_uid = store(house.listener.port, images(8)), generate_uid()
    with house.scu("REFUSING", (0x0117,)) as scu:
        assert scu.ask(house.listener.port, transaction_uid, kept) == 0
        assert (ended(house.listener, transaction_uid)["reason"], scu.next_report().committed) == (
            "report_refused",
            kept,
        )
        ledger = house.listener.ledger()
        assert ledger.requeue("commit", reason="report_refused") == 1
        ledger.close()
        assert scu.next_report().committed == kept


def test_an_address_where_nobody_takes_reports_leaves_a_dead_one(house: House) -> None:
    kept, transaction_uid = store(house.listener.port, images(12)), generate_uid()
    with StoreScp("REFUSING", port=house.ports["REFUSING"]), CommitmentScu("REFUSING") as asking:
        assert asking.ask(house.listener.port, transaction_uid, kept) == 0
        row = ended(house.listener, transaction_uid)
    assert (row["state"], row["reason"]) == ("dead", "sop_class_refused")


def test_a_request_survives_kill_9_of_everybody(house: House) -> None:
    """The listener dies after its Success, the dispatcher while the requester has the report and has not answered."""
    kept, transaction_uid = store(house.listener.port, images(9)), generate_uid()
    with house.scu("KILLED") as scu:
        scu.may_answer.clear()
        assert scu.ask(house.listener.port, transaction_uid, kept) == 0
        house.listener.kill()
        assert scu.next_report().committed == kept
        house.dispatcher.kill()
        scu.may_answer.set()
        house.dispatcher.start()
        assert scu.next_report().committed == kept
        assert ended(house.listener, transaction_uid)["state"] == "reported"
        house.listener.start()
        assert scu.ask(house.listener.port, generate_uid(), kept) == 0
        assert scu.next_report().transaction_uid != transaction_uid, (
            "once it is answered it is not sent again"
        )


def test_a_listener_that_dies_with_the_association_leaves_its_report_to_be_decided(
    house: House, nobody: CommitmentScu
) -> None:
    settings = house.listener.settings
    patient = settings.model_copy(
        update={"receive": settings.receive.model_copy(update={"commitment_wait_seconds": 600.0})}
    )
    transaction_uid = generate_uid()
    with ListenerProcess(patient) as other, nobody.associated(other.port) as assoc:
        assert ask(assoc, action_information(transaction_uid, [(DX, generate_uid())])) == 0
        other.kill()
        ledger = other.ledger()
        assert ledger.end_leases("listener-1", is_clean=False) == 1  # as the supervisor does
        ledger.close()
        assert ended(other, transaction_uid)["reason"] == "no_address"


def test_over_tls_both_sides_are_who_they_say(house: House) -> None:
    kept = store(house.listener.port, images(11))
    with house.scu("ENCRYPTED", tls=house.tls) as scu, CommitmentScu("ENCRYPTED") as asking:
        assert asking.ask(house.listener.port, generate_uid(), kept) == 0
        assert scu.next_report().committed == kept


def test_over_tls_the_association_of_the_request_carries_objects_requests_and_reports(
    tmp_path: Path, nobody: CommitmentScu
) -> None:
    authority = Authority(tmp_path / "certificates")
    own, trust = (
        authority.identity("hilum", "IP:127.0.0.1"),
        ssl.create_default_context(cafile=str(authority.file)),
    )
    files = {"tls_port": 2762, "tls_certificate_file": own.certificate, "tls_key_file": own.key}
    study = images(14)
    with ListenerProcess(
        make_settings(tmp_path / "state", commitment_wait_seconds=0.0, **files)
    ) as listener:
        classes = {str(image.SOPClassUID) for image in study}
        with nobody.associated(listener.tls_port, *classes, tls=trust) as assoc:
            for image in study:
                assert assoc.send_c_store(image).Status == 0
                pair = (str(image.SOPClassUID), str(image.SOPInstanceUID))
                assert ask(assoc, action_information(generate_uid(), [pair])) == 0
                report = nobody.next_report()
                assert (report.committed, report.is_same_association) == ([pair], True)


def test_orthanc_asks_and_takes_the_report(house: House) -> None:
    assert house.orthanc is not None
    with house.orthanc as pacs:
        described = {"AET": "HILUM", "Host": "127.0.0.1", "Port": house.listener.port}
        pacs.request("/modalities/hilum", "PUT", json.dumps(described).encode())
        kept, absent = store(house.listener.port, images(10)), (DX, generate_uid())
        order = {"DicomInstances": [list(pair) for pair in (*kept, absent)], "Timeout": 30}
        asked = json.loads(
            pacs.request("/modalities/hilum/storage-commitment", "POST", json.dumps(order).encode())
        )
        answer = wait_for(lambda: answered(pacs, asked["Path"]), what="Orthanc's report")
    assert answer["Status"] == "Failure"
    assert sorted(item["SOPInstanceUID"] for item in answer["Success"]) == sorted(
        uid for _, uid in kept
    )
    assert [(item["SOPInstanceUID"], item["FailureReason"]) for item in answer["Failures"]] == [
        (absent[1], 0x0112)
    ]


def answered(pacs: Orthanc, path: str) -> dict[str, Any] | None:
    found = dict(pacs.get(path))
    return None if found["Status"] == "Pending" else found
