"""What is no image: which SOP Classes, who lets it go, and what must be refused all the same."""

from __future__ import annotations

import struct

import pytest
from pydicom.uid import UID, ExplicitVRLittleEndian, JPEGBaseline8Bit

from hilum.observability import telemetry
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.policy import association_policy
from hilum.receive.policy.association_policy import Policy
from hilum.receive.policy.other_objects import is_other
from hilum.receive.sinks import StoreOutcome
from hilum.receive.statuses import CannotUnderstand, SopClassNotNegotiated
from hilum.settings import Receive, Sender
from tests.support.ledger.storing import uid_element
from tests.support.objects.header_bombs import BOMBS, bomb_in
from tests.support.server.reception import ReceptionRig
from tests.support.server.taking import StoreRequest, receive

NO_IMAGES = {
    "Basic Text SR": "1.2.840.10008.5.1.4.1.1.88.11",
    "Key Object Selection": "1.2.840.10008.5.1.4.1.1.88.59",
    "X-Ray Radiation Dose SR": "1.2.840.10008.5.1.4.1.1.88.67",
    "Mammography CAD SR": "1.2.840.10008.5.1.4.1.1.88.50",
    "Procedure Log": "1.2.840.10008.5.1.4.1.1.88.40",
    "Grayscale Softcopy Presentation State": "1.2.840.10008.5.1.4.1.1.11.1",
    "Encapsulated PDF": "1.2.840.10008.5.1.4.1.1.104.1",
    "Encapsulated CDA": "1.2.840.10008.5.1.4.1.1.104.2",
    "Segmentation": "1.2.840.10008.5.1.4.1.1.66.4",
    "Raw Data": "1.2.840.10008.5.1.4.1.1.66",
    "RT Structure Set": "1.2.840.10008.5.1.4.1.1.481.3",
    "RT Plan": "1.2.840.10008.5.1.4.1.1.481.5",
    "12-lead ECG": "1.2.840.10008.5.1.4.1.1.9.1.1",
    "RT Beams Delivery Instruction": "1.2.840.10008.5.1.4.34.7",
    "Hanging Protocol": "1.2.840.10008.5.1.4.38.1",
    "a class that is newer than the table": "1.2.840.10008.5.1.4.1.1.999.1",
    "a private class": "1.2.124.113532.3500.7",
}
NOT_LET_GO = {
    "DX": "1.2.840.10008.5.1.4.1.1.1.1",
    "CT": "1.2.840.10008.5.1.4.1.1.2",
    "Enhanced CT": "1.2.840.10008.5.1.4.1.1.2.1",
    "Mammography": "1.2.840.10008.5.1.4.1.1.1.2",
    "US Multi-frame": "1.2.840.10008.5.1.4.1.1.3.1",
    "Enhanced US Volume": "1.2.840.10008.5.1.4.1.1.6.2",
    "RT Image": "1.2.840.10008.5.1.4.1.1.481.1",
    "Whole Slide": "1.2.840.10008.5.1.4.1.1.77.1.6",
    "Verification": "1.2.840.10008.1.1",
    "Study Root Find": "1.2.840.10008.5.1.4.1.2.2.1",
    "Modality Worklist": "1.2.840.10008.5.1.4.31",
    "Storage Commitment": "1.2.840.10008.1.20.1",
    "Basic Grayscale Print": "1.2.840.10008.5.1.1.9",
    "a DICOMDIR": "1.2.840.10008.1.3.10",
    "no UID": "SR",
    "nothing": "",
}


@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_image_has_its_context_accepted_in_any_transfer_syntax(name: str) -> None:
    sop_class = NO_IMAGES[name]
    assert is_other(sop_class)
    found = association_policy.supported([sop_class], Policy(Receive(), {}).terms("ANY"))
    assert found[sop_class][0] == ExplicitVRLittleEndian
    if name not in (
        "Basic Text SR",
        "Key Object Selection",
    ):  # for our own ones, and for rejection notes, the three without pixels do
        assert JPEGBaseline8Bit in found[sop_class]


@pytest.mark.parametrize("name", NOT_LET_GO)
def test_images_of_other_kinds_and_other_services_are_not_let_go(name: str) -> None:
    assert not is_other(NOT_LET_GO[name])


def test_the_setting_of_a_sender_goes_before_that_for_all() -> None:
    dose = NO_IMAGES["X-Ray Radiation Dose SR"]
    asked = Policy(
        Receive(other_objects="refuse"), {"PACS": Sender(other_objects="discard"), "CR1": Sender()}
    )
    assert {
        name: bool(association_policy.supported([dose], asked.terms(name)))
        for name in ("PACS", "CR1", "ANY")
    } == {
        "PACS": True,
        "CR1": False,
        "ANY": False,
    }
    assert asked.terms("PACS").key("other_objects") == "senders.PACS.other_objects"


def request(sop_class: str, *more: bytes, uid: str = "1.2.3.4") -> StoreRequest:
    uids = (
        (0x00080016, sop_class),
        (0x00080018, uid),
        (0x0020000D, "1.2.3"),
        (0x0020000E, "1.2.3.1"),
    )
    encoded = b"".join(uid_element(*pair) for pair in uids) + b"".join(more)
    return StoreRequest(
        FileMeta(sop_class, uid, ExplicitVRLittleEndian, "PACS", "HILUM"),
        sop_class,
        memoryview(encoded),
    )


def counted() -> float:
    return float(telemetry.INSTANCES_RECEIVED.labels(outcome="other_object")._value.get())


PIXELS = struct.pack("<HH2sHL", 0x7FE0, 0x0010, b"OW", 0, 4) + bytes(4)


@pytest.mark.parametrize("name", [name for name in NO_IMAGES if name != "Key Object Selection"])
def test_what_is_no_image_is_counted_and_leaves_nothing(
    reception_rig: ReceptionRig, name: str
) -> None:
    before = counted()
    assert receive(request(NO_IMAGES[name]), reception_rig.reception) is StoreOutcome.OTHER_OBJECT
    assert counted() == before + 1
    assert not list(reception_rig.archive.unindexed())


def test_a_report_with_more_elements_than_are_read_and_one_that_cannot_be_read_are_let_go_like_others(
    reception_rig: ReceptionRig,
) -> None:
    for sop_class in (NO_IMAGES["Basic Text SR"], NO_IMAGES["RT Structure Set"]):
        bomb = bomb_in(BOMBS["empty items"]())
        for encoded in (bomb, b"\xff" * 64, b""):
            asked = StoreRequest(
                FileMeta(sop_class, "1.2.3.4", ExplicitVRLittleEndian, "PACS", "HILUM"),
                sop_class,
                memoryview(encoded),
            )
            assert receive(asked, reception_rig.reception) is StoreOutcome.OTHER_OBJECT


@pytest.mark.parametrize("name", ["a private class", "a class that is newer than the table"])
def test_of_a_class_that_nobody_knows_what_has_pixels_is_an_image_that_is_refused(
    reception_rig: ReceptionRig, name: str
) -> None:
    with pytest.raises(SopClassNotNegotiated, match="Send CR, DX or SC images"):
        receive(request(NO_IMAGES[name], PIXELS), reception_rig.reception)
    with pytest.raises(CannotUnderstand):
        receive(request(NO_IMAGES[name], b"\xff" * 64), reception_rig.reception)


def test_a_known_class_is_no_image_whatever_it_holds(reception_rig: ReceptionRig) -> None:
    assert (
        receive(request(NO_IMAGES["Segmentation"], PIXELS), reception_rig.reception)
        is StoreOutcome.OTHER_OBJECT
    )


def test_key_objects_that_cannot_be_read_might_be_a_rejection_note(
    reception_rig: ReceptionRig,
) -> None:
    with pytest.raises(CannotUnderstand):
        receive(request(NO_IMAGES["Key Object Selection"], b"\xff" * 64), reception_rig.reception)


def test_every_standard_storage_class_is_an_image_or_is_none() -> None:
    from pynetdicom.sop_class import _STORAGE_CLASSES

    neither = {
        UID(sop_class).name
        for sop_class in map(str, _STORAGE_CLASSES.values())
        if not is_other(sop_class) and "Image Storage" not in UID(sop_class).name
    }
    assert neither == {"Enhanced US Volume Storage"}
