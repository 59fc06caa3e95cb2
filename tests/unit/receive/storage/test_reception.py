"""What an object is to us, when the ledger cannot say."""

from __future__ import annotations

import pytest
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalMammographyXRayImageStorageForPresentation,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    SecondaryCaptureImageStorage,
)

from hilum.receive.headers import file_meta
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.sinks import StoreOutcome
from hilum.receive.statuses import (
    DataSetDoesNotMatch,
    OutOfResources,
    SopClassNotNegotiated,
    UnsupportedObject,
    answer,
)
from hilum.receive.storage.dispatcher import EquipmentIdentity
from tests.support.ledger.storing import element, uid_element
from tests.support.server.reception import MAKER, ReceptionRig
from tests.support.server.taking import StoreRequest, store

SR = "1.2.840.10008.5.1.4.1.1.88.34"


def request(
    sop_class: str,
    uid: str = "2.25.77",
    maker: EquipmentIdentity = MAKER,
    context: str | None = None,
    calling: str = "PACS",
) -> StoreRequest:
    encoded = b"".join(
        (
            uid_element(0x00080016, sop_class),
            uid_element(0x00080018, uid),
            element(0x00080070, b"LO", _even(maker.manufacturer)),
            element(0x00181000, b"LO", _even(maker.serial)),
            uid_element(0x0020000D, "1.2.3"),
            uid_element(0x0020000E, "1.2.3.1"),
        )
    )
    return StoreRequest(
        FileMeta(sop_class, uid, ExplicitVRLittleEndian, calling, "HILUM"),
        context or sop_class,
        memoryview(encoded),
    )


def _even(text: str) -> bytes:
    return (text + " " * (len(text) % 2)).encode()


def test_what_says_that_we_made_it_needs_no_ledger(reception_rig: ReceptionRig) -> None:
    reception_rig.take_ledger_away()
    assert store(request(SR), reception_rig.reception.taker) is StoreOutcome.OWN_DOCUMENT
    assert (
        store(request(SecondaryCaptureImageStorage), reception_rig.reception.taker)
        is StoreOutcome.OWN_DOCUMENT
    )
    assert not list(reception_rig.archive.unindexed())


def test_without_the_ledger_nobody_knows_whether_a_changed_report_is_ours_so_it_may_come_again(
    reception_rig: ReceptionRig,
) -> None:
    other = EquipmentIdentity("Archive", "7")
    reception_rig.take_ledger_away()
    for sop_class in (SR, SecondaryCaptureImageStorage):
        with pytest.raises(OutOfResources) as caught:
            store(request(sop_class, maker=other), reception_rig.reception.taker)
        assert answer(caught.value).status == 0xA700
    assert (
        store(request(SR, uid="1.2.840.1", maker=other), reception_rig.reception.taker)
        is StoreOutcome.OTHER_OBJECT
    ), "no UID of ours"


def test_a_sender_of_one_class_may_send_no_other_whatever_way_it_comes(
    reception_rig: ReceptionRig,
) -> None:
    dx = DigitalXRayImageStorageForPresentation
    with pytest.raises(SopClassNotNegotiated, match=r"not in senders\.CR1\.sop_classes"):
        store(
            request(dx, maker=EquipmentIdentity("", ""), calling="CR1"),
            reception_rig.reception.taker,
        )
    assert (
        store(request(dx, maker=EquipmentIdentity("", "")), reception_rig.reception.taker)
        is StoreOutcome.IMAGE
    )
    assert (
        store(
            request(
                ComputedRadiographyImageStorage, "1.2.9", EquipmentIdentity("", ""), calling="CR1"
            ),
            reception_rig.reception.taker,
        )
        is StoreOutcome.IMAGE
    )


def test_a_class_that_is_never_taken_is_named_with_what_to_send(
    reception_rig: ReceptionRig,
) -> None:
    mammography = DigitalMammographyXRayImageStorageForPresentation
    for calling, said in (
        ("PACS", "Send CR, DX or SC images; SOP Class is Digital Mammography X-Ray"),
        ("CR1", "not in senders.CR1.sop_"),
    ):
        with pytest.raises(SopClassNotNegotiated) as caught:
            store(
                request(mammography, maker=EquipmentIdentity("", ""), calling=calling),
                reception_rig.reception.taker,
            )
        assert said in answer(caught.value).comment
    assert caught.value.advice.endswith(
        "For Presentation. Send Computed Radiography Image Storage only"
    )


@pytest.mark.parametrize(
    "maker",
    [
        EquipmentIdentity("Hilum project", ""),
        EquipmentIdentity("", "5e71a1"),
        EquipmentIdentity("Hilum project", "5e71a2"),
    ],
)
def test_another_installation_is_somebody_else(
    reception_rig: ReceptionRig, maker: EquipmentIdentity
) -> None:
    assert (
        store(request(SR, maker=maker), reception_rig.reception.taker) is StoreOutcome.OTHER_OBJECT
    )
    with pytest.raises(UnsupportedObject) as caught:
        store(request(SR, maker=maker, calling="STRICT"), reception_rig.reception.taker)
    assert answer(caught.value).status == 0x0122
    assert len(answer(caught.value).comment) == len(caught.value.comment)
    assert (
        store(request(SecondaryCaptureImageStorage, maker=maker), reception_rig.reception.taker)
        is StoreOutcome.IMAGE
    )


def test_a_report_under_a_wrong_command_is_refused_as_an_image_is(
    reception_rig: ReceptionRig,
) -> None:
    with pytest.raises(SopClassNotNegotiated):
        store(request(SR, context=SecondaryCaptureImageStorage), reception_rig.reception.taker)
    wrong = request(SR)
    with pytest.raises(DataSetDoesNotMatch):
        store(
            StoreRequest(
                FileMeta(SR, "2.25.78", ExplicitVRLittleEndian, "PACS", "HILUM"), SR, wrong.data_set
            ),
            reception_rig.reception.taker,
        )


@pytest.mark.parametrize("address", ["", "10.0.0.7", "fd00::5", "10.0.0.71"])
def test_the_address_of_the_sender_survives_in_the_file(address: str) -> None:
    meta = FileMeta(SR, "1.2.3", ExplicitVRLittleEndian, "PACS", "HILUM", address)
    encoded = file_meta.encode(meta)
    assert file_meta.decode(encoded) == (meta, len(encoded))


def test_pydicom_reads_the_same_meta_information() -> None:
    from io import BytesIO

    from pydicom import dcmread

    found = dcmread(
        BytesIO(
            file_meta.encode(
                FileMeta(SR, "1.2.3", ExplicitVRLittleEndian, "PACS", "HILUM", "10.0.0.7")
            )
        )
    )
    assert found.file_meta.SendingPresentationAddress == "dicom://10.0.0.7"
    assert found.file_meta.ReceivingApplicationEntityTitle == "HILUM"
