"""What is no new image, through the real listener.

Our own documents, rejection notes, and which senders may connect at all.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import ImplicitVRLittleEndian, SecondaryCaptureImageStorage

from hilum.domain import DeliveryJob, DeliveryState, Document
from hilum.errors import Refused
from hilum.processes.dispatcher import DeliverHandler
from hilum.settings import Pipeline, SenderDestination
from hilum.store.ledger import Ledger
from testing.phantoms.phantom import make_instance, make_study
from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.objects.header_bombs import BOMBS, bomb_in
from tests.support.objects.notes import KOS, TITLES, key_objects, own_page, own_report, wire
from tests.support.peers.peers import StoreScp
from tests.support.peers.raw_scu import DX, RawScu, rejection_of
from tests.support.reports.results import LEASE
from tests.support.server.listening import ListenerProcess, make_settings, unindexed

REPORTS = {
    "1.2.840.10008.5.1.4.1.1.88.34": "Comprehensive 3D SR",
    "1.2.840.10008.5.1.4.1.1.88.33": "Comprehensive SR",
    "1.2.840.10008.5.1.4.1.1.88.22": "Enhanced SR",
    "1.2.840.10008.5.1.4.1.1.88.11": "Basic Text SR",
}


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    archives = {
        name: {"may_reject": True}
        for name in (*(f"IOCM{title}" for title in TITLES), "IMPLICITPACS")
    }
    strict = {
        name: {"other_objects": "refuse"}
        for name in (
            "STRICT",
            "STRICTKOS",
            "STRICTPRIVATE",
            "STRICTUNTITLED",
            "STRICTSHEET",
            "STRICTPDF",
            "STRICTGSPS",
            "STRICT2PDF",
        )
    }
    with ListenerProcess(
        make_settings(tmp_path_factory.mktemp("objects") / "state", {**archives, **strict})
    ) as running:
        yield running


@pytest.fixture(scope="module")
def ledger(listener: ListenerProcess) -> Iterator[Ledger]:
    opened = listener.ledger()
    yield opened
    opened.close()


def association_of(listener: ListenerProcess, calling: str) -> dict[str, Any]:
    (row,) = wait_for(
        lambda: listener.rows(f"SELECT * FROM association WHERE calling_ae_title = '{calling}'")
    )
    return dict(row)


def images(seed: int) -> list[Dataset]:
    return make_study(seed=seed, views=("PA", "AP"), rows=64, columns=64)


def store_images(
    listener: ListenerProcess, study: list[Dataset], calling: str = "MODALITY"
) -> None:
    """Acknowledged and recorded."""
    with RawScu(listener.port, calling=calling) as scu:
        assert [scu.store(wire(image), image.SOPInstanceUID) for image in study] == [(0, "")] * len(
            study
        )
    uid = study[0].StudyInstanceUID
    wait_for(
        lambda: (
            len(listener.rows(f"SELECT * FROM instance WHERE study_instance_uid = '{uid}'"))
            == len(study)
        )
    )


def send(
    listener: ListenerProcess, dataset: Dataset, calling: str, **changes: Any
) -> tuple[int, str]:
    for keyword, value in changes.items():
        setattr(dataset, keyword, value)
    with RawScu(listener.port, sop_class_uid=dataset.SOPClassUID, calling=calling) as scu:
        return scu.store(wire(dataset), dataset.SOPInstanceUID)


def known(listener: ListenerProcess, uid: str) -> int:
    return len(listener.rows(f"SELECT * FROM instance WHERE sop_instance_uid = '{uid}'"))


@pytest.mark.parametrize(
    "name", ["empty items", "empty items of a defined length", "private elements", "deep"]
)
def test_a_header_of_millions_of_items_is_refused_and_the_association_goes_on(
    listener: ListenerProcess, name: str
) -> None:
    bomb = bomb_in(BOMBS[name]())
    with RawScu(listener.port, calling="BOMBER") as scu:
        status, comment = scu.store(bomb, "1.2.3.4")
        assert status == 0xC000
        assert comment.endswith("before Pixel Data; send less")
        assert scu.store(data_set("1.2.3.5.6"), "1.2.3.5.6") == (0, "")
    assert known(listener, "1.2.3.4") == 0


@pytest.mark.parametrize("sop_class", REPORTS, ids=REPORTS.values())
def test_our_own_report_is_acknowledged_counted_and_forgotten(
    listener: ListenerProcess, ledger: Ledger, sop_class: str
) -> None:
    report, calling = own_report(images(1), ledger.serial), f"PACS{sop_class[-2:]}"
    assert send(listener, report, calling, SOPClassUID=sop_class) == (0, "")
    row = association_of(listener, calling)
    assert (row["own_documents"], row["stored"], row["refused"], row["reason"]) == (1, 0, 0, None)
    assert known(listener, report.SOPInstanceUID) == 0
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


@pytest.mark.parametrize("calling", ["PAGES", "STRICT"])
@pytest.mark.parametrize("kind", ["sheet", "pdf", "gsps"])
def test_our_own_page_is_acknowledged_counted_and_never_read_as_input(
    listener: ListenerProcess, ledger: Ledger, kind: str, calling: str
) -> None:
    page, title = own_page(images(11), ledger.serial, kind), f"{calling}{kind.upper()}"
    assert send(listener, page, title) == (0, "")
    row = association_of(listener, title)
    assert (row["own_documents"], row["stored"], row["refused"], row["reason"]) == (1, 0, 0, None)
    assert known(listener, page.SOPInstanceUID) == 0
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


@pytest.mark.parametrize("kind", ["sheet", "pdf", "gsps"])
def test_our_own_page_is_known_by_its_uid_when_an_archive_has_changed_its_header(
    listener: ListenerProcess, ledger: Ledger, kind: str
) -> None:
    page, title = own_page(images(12), ledger.serial, kind), f"CHANGED{kind.upper()}"
    store_result(listener, page.SOPInstanceUID)
    assert send(listener, page, title, Manufacturer="Archive", DeviceSerialNumber="7") == (0, "")
    assert association_of(listener, title)["own_documents"] == 1
    assert known(listener, page.SOPInstanceUID) == 0


def test_a_pdf_of_another_program_is_refused_where_that_is_set(listener: ListenerProcess) -> None:
    page = own_page(images(13), "another-serial", "pdf")
    status, comment = send(listener, page, "STRICT2PDF")
    assert (status, comment) == (
        0x0122,
        "Only our own reports are taken here, and discarded; send images",
    )


def test_our_own_report_is_known_by_its_uid_when_an_archive_has_changed_its_header(
    listener: ListenerProcess, ledger: Ledger
) -> None:
    report = own_report(images(2), ledger.serial)
    changed = {"Manufacturer": "Archive", "DeviceSerialNumber": "7"}
    assert send(listener, report, "CHANGED1", **changed) == (0, "")
    assert association_of(listener, "CHANGED1")["own_documents"] == 0, "it is one of somebody else"
    store_result(listener, report.SOPInstanceUID)
    assert send(listener, report, "CHANGED2", **changed) == (0, "")
    assert association_of(listener, "CHANGED2")["own_documents"] == 1


def store_result(listener: ListenerProcess, uid: str) -> None:
    """A document with this UID, as if it had been reported."""
    import sqlite3

    with sqlite3.connect(listener.settings.site.state_dir / "ledger.sqlite") as connection:
        connection.execute(
            "INSERT INTO result (study_instance_uid, release, source_digest, revision, state, priority,"
            " due_at, outcome, content, identifiers, created_at, is_current) VALUES ('9.9', 'r@1',"
            " ?, 1, 'reported', 1, 0, 'analysed', '{}', '{}', 0, 1)",
            (uid[-20:],),
        )
        connection.execute(
            "INSERT INTO document (result_id, kind, media_type, sop_instance_uid, content,"
            " created_at) SELECT max(id), 'sr', 'application/dicom', ?, x'00', 0 FROM result",
            (uid,),
        )


OTHERS = {
    "SR": "1.2.840.10008.5.1.4.1.1.88.33",
    "dose SR": "1.2.840.10008.5.1.4.1.1.88.67",
    "presentation state": "1.2.840.10008.5.1.4.1.1.11.1",
    "PDF": "1.2.840.10008.5.1.4.1.1.104.1",
    "structure set": "1.2.840.10008.5.1.4.1.1.481.3",
    "private": "1.2.124.113532.3500.7",
}


def test_what_is_no_image_is_acknowledged_counted_and_not_kept(listener: ListenerProcess) -> None:
    """On the association of an image, whose archive would give up the study if one of them were refused."""
    from pynetdicom import AE

    image, application = images(85)[0], AE("OTHERS")
    for sop_class in (DX, KOS, *OTHERS.values()):
        application.add_requested_context(sop_class, ["1.2.840.10008.1.2.1"])
    association = application.associate("127.0.0.1", listener.port, ae_title="HILUM")
    others = [own_report(images(3), "another-serial") for _ in OTHERS]
    for report, sop_class in zip(others, OTHERS.values(), strict=True):
        report.SOPClassUID = report.file_meta.MediaStorageSOPClassUID = sop_class
    for dataset in (*others, others[0], key_objects([image], "113000"), image):
        assert association.send_c_store(dataset).Status == 0
    association.release()
    row = association_of(listener, "OTHERS")
    assert (row["outcome"], row["reason"], row["stored"], row["refused"]) == (
        "released",
        "other_objects_discarded",
        1,
        0,
    )
    assert row["own_documents"] == 0
    assert (
        "Acknowledged and not kept, being no images: 2 Comprehensive SR Storage, 1 X-Ray"
        in row["advice"]
    )
    wait_for(lambda: known(listener, image.SOPInstanceUID))
    assert not any(known(listener, report.SOPInstanceUID) for report in others)
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


def test_what_is_no_image_is_refused_where_that_is_set_with_what_to_send(
    listener: ListenerProcess,
) -> None:
    report = own_report(images(3), "another-serial")
    status, comment = send(listener, report, "STRICT")
    assert (status, comment) == (
        0x0122,
        "Only our own reports are taken here, and discarded; send images",
    )
    row = association_of(listener, "STRICT")
    assert (row["reason"], row["refused"], row["own_documents"]) == ("0x0122", 1, 0)
    assert "send images" in row["advice"]
    assert known(listener, report.SOPInstanceUID) == 0


@pytest.mark.filterwarnings(
    "ignore:Invalid value for VR UI:UserWarning"
)  # of pydicom in the test's own client
@pytest.mark.parametrize("uid", ["999.999.01.7", "3.1.2", "1.2.", "1.2.x", "1.2..3", "0.0"])
def test_what_is_no_uid_names_no_object(listener: ListenerProcess, uid: str) -> None:
    """In the command, and in the data set."""
    with RawScu(listener.port, calling="NOUID") as scu:
        status, comment = scu.store(data_set(uid), uid)
        assert (status, comment.startswith("Affected SOP Instance UID in the command ")) == (
            0xC000,
            True,
        )
        assert scu.store(data_set(uid), "1.2.3.4.9")[0] in (0xC000, 0xA900)
    assert known(listener, uid) == 0


def test_a_secondary_capture_is_an_image_unless_it_is_ours(
    listener: ListenerProcess, ledger: Ledger
) -> None:
    picture = make_instance(4, modality="SC", rows=32, columns=32)
    ours = {"Manufacturer": "Hilum project", "DeviceSerialNumber": ledger.serial}
    assert send(
        listener, make_instance(5, modality="SC", rows=32, columns=32), "HEATMAP", **ours
    ) == (0, "")
    assert association_of(listener, "HEATMAP")["own_documents"] == 1
    assert send(listener, picture, "CAPTURE") == (0, "")
    wait_for(lambda: known(listener, picture.SOPInstanceUID))
    assert picture.SOPClassUID == SecondaryCaptureImageStorage
    assert association_of(listener, "CAPTURE")["stored"] == 1


@pytest.mark.parametrize(
    "title", [title for title in TITLES if title != "113000"], ids=lambda title: TITLES[title]
)
def test_a_rejection_note_takes_its_images_out_of_the_study(
    listener: ListenerProcess, title: str
) -> None:
    study = images(int(title))
    store_images(listener, study)
    note = key_objects(study[1:], title)
    assert send(listener, note, f"IOCM{title}") == (0, "")
    kept, removed = listener.rows(
        f"SELECT * FROM instance WHERE study_instance_uid = '{study[0].StudyInstanceUID}' ORDER"
        " BY id"
    )
    assert (kept["is_removed"], removed["is_removed"]) == (0, 1)
    assert removed["removal_reason"].replace("_", " ") == TITLES[title].lower()
    (reading,) = listener.rows(f"SELECT * FROM reading WHERE instance_id = {removed['id']}")
    assert (reading["state"], reading["reason"]) == ("not_analysed", "rejected")
    row = association_of(listener, f"IOCM{title}")
    assert (row["stored"], row["refused"]) == (1, 0)
    (rejection,) = listener.rows(
        f"SELECT * FROM rejection WHERE note_uid = '{note.SOPInstanceUID}'"
    )
    assert (rejection["sop_instance_uid"], rejection["calling_ae_title"]) == (
        study[1].SOPInstanceUID,
        f"IOCM{title}",
    )
    assert send(listener, note, f"AGAIN{title}") == (0, "")


def test_a_note_of_somebody_else_is_acknowledged_has_no_effect_and_is_seen(
    listener: ListenerProcess,
) -> None:
    study = images(82)
    store_images(listener, study)
    assert send(listener, key_objects(study, "113001"), "ANYBODY") == (
        0,
        "",
    ), "a failure would let a router send it for ever"
    assert not listener.rows(
        f"SELECT * FROM instance WHERE study_instance_uid = '{study[0].StudyInstanceUID}' AND"
        " is_removed"
    )
    row = association_of(listener, "ANYBODY")
    assert (row["outcome"], row["reason"], row["stored"]) == (
        "released",
        "rejection_note_not_permitted",
        1,
    )
    assert "may_reject" in row["advice"]
    assert study[0].SOPInstanceUID not in row["advice"]


def test_the_same_pixels_for_another_patient_from_somebody_else_change_nothing(
    listener: ListenerProcess,
) -> None:
    image, *_ = images(83)
    store_images(listener, [image])
    assert send(
        listener, image, "SWAPPER", PatientID="OTHER-ID", PatientName="SWAPPED^PATIENT"
    ) == (0, "")
    (held,) = wait_for(
        lambda: listener.rows(
            f"SELECT * FROM conflict WHERE sop_instance_uid = '{image.SOPInstanceUID}'"
        )
    )
    assert (held["kind"], held["state"], held["calling_ae_title"]) == ("header", "held", "SWAPPER")
    (row,) = listener.rows(
        f"SELECT * FROM instance WHERE sop_instance_uid = '{image.SOPInstanceUID}'"
    )
    assert (row["header_revision"], b"SWAPPED" in row["header"]) == (1, False)
    assert send(listener, image, "MODALITY") == (0, ""), "the image's own sender may"
    wait_for(
        lambda: listener.rows(
            f"SELECT 1 FROM instance WHERE sop_instance_uid = '{image.SOPInstanceUID}' AND"
            " header_revision = 2"
        )
    )


def test_a_note_right_behind_its_image_on_one_association_is_not_lost(
    listener: ListenerProcess,
) -> None:
    """The row of the image may come after the note."""
    from pynetdicom import AE

    study = images(77)
    application = AE("ROUTER")
    for sop_class in (DX, KOS):
        application.add_requested_context(sop_class, ["1.2.840.10008.1.2.1"])
    association = application.associate("127.0.0.1", listener.port, ae_title="HILUM")
    for dataset in (*study, key_objects(study, "113001")):
        assert association.send_c_store(dataset).Status == 0
    association.release()
    query = (
        f"SELECT * FROM instance WHERE study_instance_uid = '{study[0].StudyInstanceUID}' AND"
        " is_removed"
    )
    wait_for(lambda: len(listener.rows(query)) == 2)
    (row,) = listener.rows(
        f"SELECT * FROM study WHERE study_instance_uid = '{study[0].StudyInstanceUID}'"
    )
    assert row["open_readings"] == 0


def test_key_objects_that_reject_nothing_are_no_images_like_others(
    listener: ListenerProcess,
) -> None:
    study = images(78)
    private = key_objects(study, "113001")
    private.ConceptNameCodeSequence[0].CodingSchemeDesignator = "99OTHER"
    untitled = key_objects(study, "113001")
    untitled.ConceptNameCodeSequence = []
    for name, note in (
        ("KOS", key_objects(study, "113000")),
        ("PRIVATE", private),
        ("UNTITLED", untitled),
    ):
        assert send(listener, note, f"STRICT{name}")[0] == 0x0122
        assert send(listener, note, name) == (0, "")
        assert association_of(listener, name)["reason"] == "other_objects_discarded"
    assert not listener.rows(
        f"SELECT * FROM instance WHERE study_instance_uid = '{study[0].StudyInstanceUID}'"
    )


def test_rejection_notes_that_say_nothing_are_refused(listener: ListenerProcess) -> None:
    study = images(78)
    empty = key_objects(study, "113001")
    empty.ContentSequence = []
    assert send(listener, empty, "EMPTYNOTE") == (0xC000, "The rejection note names no instance")
    bad = key_objects(study, "113001")
    for item in bad.ContentSequence:
        if "ReferencedSOPSequence" in item:
            item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID = "1.2.x"
    assert send(listener, bad, "BADUID")[0] == 0xC000
    assert not listener.rows("SELECT * FROM rejection WHERE sop_instance_uid = '1.2.x'")


def test_a_note_of_broken_bytes_is_refused_and_the_association_goes_on(
    listener: ListenerProcess,
) -> None:
    note = key_objects(images(79), "113001")
    good = wire(note)
    with RawScu(listener.port, sop_class_uid=KOS, calling="BROKENNOTE") as scu:
        for broken in (good[:-7], good[:200], b"\xff" * 64, good[: len(good) // 2] + bytes(40)):
            status, comment = scu.store(broken, note.SOPInstanceUID)
            assert status in (0xC000, 0xA900)
            assert comment
        deep = scu.store(deeply_nested(note, 5000), note.SOPInstanceUID)
        assert deep == (0xC000, "Sequences more than 64 deep before Pixel Data; send less")
        assert scu.store(good, note.SOPInstanceUID)[0] == 0
        assert scu.echo() == 0
    assert association_of(listener, "BROKENNOTE")["refused"] == 5


def deeply_nested(note: Dataset, depth: int) -> bytes:
    """The same note with a content tree of so many levels."""
    shallow = deepcopy(note)
    del shallow.ContentSequence
    opened = struct.pack("<HH2sHL", 0x0040, 0xA730, b"SQ", 0, 0xFFFFFFFF) + struct.pack(
        "<HHL", 0xFFFE, 0xE000, 0xFFFFFFFF
    )
    closed = struct.pack("<HHLHHL", 0xFFFE, 0xE00D, 0, 0xFFFE, 0xE0DD, 0)
    return wire(shallow) + opened * depth + closed * depth


def test_a_note_in_implicit_little_endian(listener: ListenerProcess) -> None:
    from pynetdicom import AE

    study = images(80)
    store_images(listener, study, "IMPLICIT")
    note = key_objects(study[:1], "113037")
    note.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    application = AE("IMPLICITPACS")
    application.add_requested_context(KOS, [ImplicitVRLittleEndian])
    association = application.associate("127.0.0.1", listener.port, ae_title="HILUM")
    assert association.send_c_store(note).Status == 0
    association.release()
    assert listener.rows(
        f"SELECT * FROM instance WHERE sop_instance_uid = '{study[0].SOPInstanceUID}' AND"
        " is_removed"
    )


def test_the_address_of_the_sender_is_kept_for_the_way_back(listener: ListenerProcess) -> None:
    study = images(81)
    store_images(listener, study, "WAYBACK")
    for table in ("instance", "study"):
        row, *_ = listener.rows(
            f"SELECT * FROM {table} WHERE study_instance_uid = '{study[0].StudyInstanceUID}'"
        )
        assert (row["peer_address"], row["calling_ae_title"]) == ("127.0.0.1", "WAYBACK")


def test_addresses_outside_the_ranges_are_rejected_with_advice(tmp_path: Path) -> None:
    with ListenerProcess(
        make_settings(tmp_path / "state", peers=("10.0.0.0/8", "::1/128"))
    ) as listener:
        assert rejection_of(RawScu(listener.port, calling="STRANGER").assoc)
        row = association_of(listener, "")
        assert (row["outcome"], row["reason"]) == ("rejected", "peer_address_not_allowed")
        assert "receive.peers" in row["advice"]


def test_one_sender_too_often_is_rejected_for_now_and_others_are_not(tmp_path: Path) -> None:
    limits = {"ROUTER": {"maximum_associations": 1}, "BANNED": {"maximum_associations": 0}}
    settings = make_settings(tmp_path / "state", limits, peers=("127.0.0.0/8",))
    with ListenerProcess(settings) as listener, RawScu(listener.port, calling="ROUTER") as first:
        assert first.assoc.is_established
        assert rejection_of(RawScu(listener.port, calling="ROUTER").assoc)
        with (
            RawScu(listener.port, calling="CR1") as other,
            RawScu(listener.port, calling="CR1") as another,
        ):
            assert other.store(data_set("1.2.3"), "1.2.3")[0] == another.echo() == 0
        assert rejection_of(RawScu(listener.port, calling="BANNED").assoc)
        first.assoc.release()
        wait_for(lambda: RawScu(listener.port, calling="ROUTER").assoc.is_established)
        for calling in ("ROUTER", "BANNED"):
            query = (
                f"SELECT * FROM association WHERE calling_ae_title = '{calling}' AND outcome ="
                " 'rejected'"
            )
            wait_for(
                lambda rejected=query: listener.rows(rejected)
            )  # written after the answer is on the wire
            row, *_ = listener.rows(
                query
            )  # more than one of ROUTER, if the first was still leaving when the next came
            assert row["reason"] == "limit_of_sender_exceeded"
            assert f"senders.{calling}.maximum_associations" in row["advice"]


def test_a_report_goes_back_to_the_sender_of_its_study(ledger: Ledger) -> None:
    report = own_report(images(90), ledger.serial)
    document = Document(
        "sr",
        "application/dicom",
        whole(report),
        str(report.SOPClassUID),
        str(report.SOPInstanceUID),
    )
    with StoreScp("CR1") as scp, StoreScp("CR2") as other:
        destination = SenderDestination(ports={"CR1": scp.port, "CR2": other.port})
        handler = DeliverHandler("back", destination, None, Pipeline())  # type: ignore[arg-type] # nothing is derived here

        def job(calling: str) -> DeliveryJob:
            return DeliveryJob(
                LEASE, "back", document, "1.2.3", "r@1", True, 0.0, 0.0, {}, calling, "127.0.0.1"
            )

        async def deliver() -> None:
            for calling in ("CR1", "CR2", "CR1"):
                assert (await handler.handle(job(calling))).state is DeliveryState.DELIVERED
            with pytest.raises(Refused, match="sender_unknown"):
                await handler.handle(job("CR3"))

        asyncio.run(deliver())
        handler.close()
        for received in (scp.files(), other.files()):
            assert [dcmread(file).SOPInstanceUID for file in received] == [report.SOPInstanceUID]


def whole(dataset: Dataset) -> bytes:
    from io import BytesIO

    target = BytesIO()
    dataset.save_as(target, enforce_file_format=True)
    return target.getvalue()
