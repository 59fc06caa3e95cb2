"""What real senders do: Orthanc, DCMTK and pynetdicom, odd PDU sizes, several contexts, an operations window, C-ECHO and C-CANCEL."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from pydicom import uid
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit
from pynetdicom import AE
from pynetdicom.association import Association
from pynetdicom.pdu_primitives import AsynchronousOperationsWindowNegotiation
from pynetdicom.sop_class import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    SecondaryCaptureImageStorage,
    Verification,
)

from testing.peers import Orthanc
from testing.phantoms.phantom import make_instance, save, uid_for
from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.peers.peers import missing, require_program
from tests.support.peers.wire import (
    CANCEL_RQ,
    ECHO_RQ,
    RELEASE,
    Wire,
    command,
    message,
    pdu,
    pdv,
    store,
)
from tests.support.server.listening import ListenerProcess, data_set_of, make_settings


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    with ListenerProcess(make_settings(tmp_path_factory.mktemp("clients") / "state")) as running:
        yield running


@pytest.fixture(scope="module")
def drawn() -> Callable[..., Dataset]:
    """A small image with a SOP Instance UID of its own."""

    def draw(*key: object, modality: str = "DX", syntax: str = ExplicitVRLittleEndian) -> Dataset:
        made = make_instance(
            11, modality=modality, rows=500, columns=300, transfer_syntax_uid=syntax
        )
        made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = uid_for("clients", *key)
        return made

    return draw


def stored(listener: ListenerProcess, uid: str) -> bytes:
    """The data set with this SOP Instance UID, as soon as it has its row."""
    row = wait_for(
        lambda: listener.rows(f"SELECT path FROM instance WHERE sop_instance_uid = '{uid}'"),
        what="the row",
    )[0]
    return data_set_of(listener.archive.locate(row["path"]))


def associate(listener: ListenerProcess, *extended: object) -> Association:
    ae = AE("CLIENT")
    ae.dimse_timeout = 10.0  # how long an answer is waited for that pynetdicom has lost, see below
    ae.add_requested_context(DigitalXRayImageStorageForPresentation, [ExplicitVRLittleEndian])
    ae.add_requested_context(DigitalXRayImageStorageForPresentation, [ImplicitVRLittleEndian])
    ae.add_requested_context(ComputedRadiographyImageStorage, [JPEGBaseline8Bit])
    ae.add_requested_context(SecondaryCaptureImageStorage, [ImplicitVRLittleEndian])
    ae.add_requested_context(Verification)
    return ae.associate("127.0.0.1", listener.port, ae_title="HILUM", ext_neg=list(extended))


NO_IMAGES = (
    uid.ComprehensiveSRStorage,
    uid.KeyObjectSelectionDocumentStorage,
    uid.XRayRadiationDoseSRStorage,
    uid.GrayscaleSoftcopyPresentationStateStorage,
    uid.EncapsulatedPDFStorage,
)


def test_orthanc_sends_what_it_has(
    listener: ListenerProcess, drawn: Callable[..., Dataset], tmp_path: Path
) -> None:
    """A study of images and what others have said of them, which Orthanc would not send at all if one object of it were refused."""
    if Orthanc.program() is None:
        missing("Orthanc, from Debian's orthanc")
    files = [
        save(drawn("orthanc", listener.port, number), tmp_path / f"{number}.dcm")
        for number in range(6)
    ]
    others = [drawn("orthanc", "other", listener.port, number) for number in range(len(NO_IMAGES))]
    for other, sop_class in zip(others, NO_IMAGES, strict=True):
        del other.PixelData
        other.SOPClassUID = other.file_meta.MediaStorageSOPClassUID = sop_class
    sent = [*(save(other, tmp_path / f"{other.SOPInstanceUID}.dcm") for other in others), *files]
    with Orthanc(tmp_path / "orthanc") as peer:
        api = f"http://127.0.0.1:{peer.http_port}"
        instances = [
            httpx.post(f"{api}/instances", content=file.read_bytes(), timeout=30).json()["ID"]
            for file in sent
        ]
        httpx.put(
            f"{api}/modalities/hilum", json=["HILUM", "127.0.0.1", listener.port], timeout=30
        ).raise_for_status()
        answer = httpx.post(f"{api}/modalities/hilum/store", json=instances, timeout=60).json()
        assert (answer["InstancesCount"], answer["FailedInstancesCount"]) == (len(sent), 0)
    row = wait_for(
        lambda: listener.rows(
            "SELECT * FROM association WHERE calling_ae_title = 'ORTHANC' AND stored = 6"
        ),
        what="its row",
    )[0]
    assert (row["outcome"], row["reason"], row["refused"]) == (
        "released",
        "other_objects_discarded",
        0,
    )
    assert not listener.rows(
        f"SELECT 1 FROM instance WHERE sop_instance_uid = '{others[0].SOPInstanceUID}'"
    )
    for number, file in enumerate(files):
        assert stored(
            listener, uid_for("clients", "orthanc", listener.port, number)
        ) == data_set_of(file)


def test_pynetdicom_stores_in_several_contexts_with_echoes_between(
    listener: ListenerProcess, drawn: Callable[..., Dataset], tmp_path: Path
) -> None:
    kinds = [
        ("DX", ExplicitVRLittleEndian),
        ("DX", ImplicitVRLittleEndian),
        ("CR", JPEGBaseline8Bit),
        ("SC", ImplicitVRLittleEndian),
        ("DX", ExplicitVRLittleEndian),
    ]
    sent = [
        drawn("contexts", listener.port, number, modality=kind, syntax=syntax)
        for number, (kind, syntax) in enumerate(kinds)
    ]
    files = [save(dataset, tmp_path / f"{number}.dcm") for number, dataset in enumerate(sent)]
    # pynetdicom 3.0.4, with any acceptor: its reactor thread may take an answer away from the
    # thread that waits for it (_run_reactor).
    assert any(is_answered_throughout(associate(listener), files) for _ in range(3))
    for dataset, file in zip(sent, files, strict=True):
        assert stored(listener, dataset.SOPInstanceUID) == data_set_of(file)


def is_answered_throughout(association: Association, files: list[Path]) -> bool:
    """C-STORE and C-ECHO in turns.

    False: an answer was lost on the client's own side, which then has waited for it in vain.
    """
    for file in files:
        for send in (partial(association.send_c_store, file), association.send_c_echo):
            if "Status" not in (answer := send()):
                return False
            assert answer.Status == 0
    association.release()
    assert association.is_released
    return True


def test_an_operations_window_is_not_granted_and_requests_sent_in_spite_of_it_are_answered_in_order(
    listener: ListenerProcess,
) -> None:
    """PS3.7 D.3.3.3: without an answer the window is 1, 1."""
    window = AsynchronousOperationsWindowNegotiation()
    window.maximum_number_operations_invoked, window.maximum_number_operations_performed = 5, 5
    association = associate(listener, window)
    assert association.is_established
    assert association.acceptor.asynchronous_operations == (1, 1)
    assert association.send_c_echo().Status == 0
    association.release()
    uids = [f"1.2.700.{listener.port}.{number}" for number in range(4)]
    with Wire(listener.port) as wire:
        wire.send(
            *(
                message(store(uid, message_id=number), data_set(uid))
                for number, uid in enumerate(uids, 1)
            )
        )
        answers = [wire.response() for _ in uids]
    assert [(answer[0x0120], answer[0x0900]) for answer in answers] == [
        (bytes((number, 0)), b"\0\0") for number in range(1, 5)
    ]
    assert [stored(listener, uid) for uid in uids] == [data_set(uid) for uid in uids]


@pytest.mark.parametrize("pdu_bytes", [4_096, 16_384, 50_002, 131_072])
def test_dcmtk_cuts_into_pdus_of_any_size(
    listener: ListenerProcess, drawn: Callable[..., Dataset], tmp_path: Path, pdu_bytes: int
) -> None:
    dataset = drawn("pdu", listener.port, pdu_bytes)
    file = save(dataset, tmp_path / "a.dcm")
    program = require_program("storescu", "dcmtk")
    arguments = [
        "-R",
        "-xe",
        "-aec",
        "HILUM",
        "--max-send-pdu",
        str(pdu_bytes),
        "127.0.0.1",
        str(listener.port),
        str(file),
    ]
    subprocess.run(
        [program, *arguments], check=True, timeout=60, env={**os.environ, "TCP_NODELAY": "1"}
    )
    assert stored(listener, dataset.SOPInstanceUID) == data_set_of(file)


@pytest.mark.parametrize("pdu_bytes", [4 << 10, 65_537, 256 << 10, 1 << 20])
def test_pdus_of_4_kib_to_1_mib_with_echo_and_cancel_between_objects(
    listener: ListenerProcess, pdu_bytes: int
) -> None:
    first, second = (f"1.2.800.{listener.port}.{pdu_bytes}.{number}" for number in range(2))
    encoded = {uid: data_set(uid, pixels=bytes(1_500_001)) for uid in (first, second)}
    with Wire(listener.port) as wire:
        for uid, content in encoded.items():
            wire.send(
                message(store(uid), content, pdu_bytes=pdu_bytes),
                message(command(CANCEL_RQ), context=3),
            )
            assert wire.status() == 0
            wire.send(message(command(ECHO_RQ), context=3))
            assert wire.status() == 0
        wire.send(RELEASE)
        assert wire.next_pdu()[0] == 6
    assert {uid: stored(listener, uid) for uid in encoded} == encoded


def test_fragments_of_both_command_and_data_set_share_pdus(listener: ListenerProcess) -> None:
    uid = f"1.2.900.{listener.port}"
    asked, encoded = store(uid), data_set(uid)
    items = [
        pdv(asked[:9], is_command=True, is_last=False),
        pdv(asked[9:], is_command=True),
        pdv(encoded[:100], is_last=False),
    ]
    items += [
        pdv(b"", is_last=False),
        pdv(encoded[100:9_000], is_last=False),
        pdv(encoded[9_000:], is_last=False),
        pdv(b""),
    ]
    with Wire(listener.port) as wire:
        wire.send(
            *(pdu(4, b"".join(items[begin : begin + 2])) for begin in range(0, len(items), 2))
        )
        assert wire.status() == 0
    assert stored(listener, uid) == encoded


def test_dcmsend_sends_a_folder_of_several_classes_in_one_go(
    listener: ListenerProcess, drawn: Callable[..., Dataset], tmp_path: Path
) -> None:
    if shutil.which("dcmsend") is None:
        missing("dcmsend, from Debian's dcmtk")
    sent = [
        drawn("dcmsend", listener.port, kind, number, modality=kind)
        for kind in ("DX", "CR", "SC")
        for number in range(3)
    ]
    folder = tmp_path / "folder"
    folder.mkdir()
    files = [save(dataset, folder / f"{number}.dcm") for number, dataset in enumerate(sent)]
    arguments = ["+sd", "-aec", "HILUM", "127.0.0.1", str(listener.port), str(folder)]
    subprocess.run(
        ["dcmsend", *arguments], check=True, timeout=60, env={**os.environ, "TCP_NODELAY": "1"}
    )
    for dataset, file in zip(sent, files, strict=True):
        assert stored(listener, dataset.SOPInstanceUID) == data_set_of(file)
