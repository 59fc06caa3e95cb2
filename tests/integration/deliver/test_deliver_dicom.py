"""C-STORE to real receivers: DCMTK's storescp, Orthanc, and a pynetdicom SCP that answers what a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pytest
from pydicom.filereader import read_file_meta_info, read_preamble
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian, JPEGBaseline8Bit
from pynetdicom import AE, evt

from hilum.deliver import FileState, UnknownOutcome, open_client, send
from hilum.deliver.cstore import DicomClient
from hilum.domain import Document
from hilum.errors import Refused, Retry
from hilum.report import build_documents
from hilum.settings import Destination, DicomDestination
from testing.phantoms.phantom import make_instance, make_study, save
from tests.support.machine.waiting import wait_for
from tests.support.peers.peers import Orthanc, StoreScp, free_port
from tests.support.reports.results import CONTEXT, make_release, report_of


def documents(count: int) -> list[Document]:
    release = make_release()
    studies = [make_study(seed, views=("PA",), rows=32, columns=32) for seed in range(count)]
    return [
        build_documents(report_of(study, release), release, CONTEXT, ("sr",))[0]
        for study in studies
    ]


@pytest.fixture(scope="module")
def reports() -> list[Document]:
    return documents(3)


def data_set(content: bytes) -> bytes:
    """The bytes behind the File Meta Information, whose length is its first element (PS3.10 7.1)."""
    file = BytesIO(content)
    read_preamble(file, force=False)
    start = file.tell()
    return content[start + 12 + int.from_bytes(content[start + 8 : start + 12], "little") :]


def destination(port: int, ae_title: str, **changes) -> Destination:
    return DicomDestination(
        **{"port": port, "ae_title": ae_title, "timeout_seconds": 10.0, **changes}
    )


def client_to(port: int, ae_title: str = "PACS", **changes) -> contextlib.closing[DicomClient]:
    """A client for a `with` block."""
    return contextlib.closing(DicomClient("pacs", destination(port, ae_title, **changes)))


@dataclass
class Receiver:
    """What a pynetdicom SCP saw.

    `statuses` are given in turn, then Success; None breaks the association instead.
    """

    port: int
    statuses: list[int | None]
    stored: list[bytes] = field(default_factory=list)
    opened: int = 0
    released: int = 0

    def answer(self, event: evt.Event) -> int:
        self.stored.append(event.request.DataSet.getvalue())
        status = self.statuses.pop(0) if self.statuses else 0x0000
        if status is None:
            event.assoc.abort()
            return 0xC000
        return status


@contextlib.contextmanager
def receiver(*statuses: int | None, port: int | None = None) -> Iterator[Receiver]:
    seen = Receiver(port or free_port(), list(statuses))
    application = AE("PACS")
    application.add_supported_context(Comprehensive3DSRStorage, ExplicitVRLittleEndian)

    def opened(_event: evt.Event) -> None:
        seen.opened += 1

    def released(_event: evt.Event) -> None:
        seen.released += 1

    handlers = [
        (evt.EVT_C_STORE, seen.answer),
        (evt.EVT_ESTABLISHED, opened),
        (evt.EVT_RELEASED, released),
    ]
    server = application.start_server(("127.0.0.1", seen.port), block=False, evt_handlers=handlers)
    try:
        yield seen
    finally:
        server.shutdown()


def test_storescp_gets_the_stored_bytes_over_one_association(reports):
    with StoreScp() as peer, client_to(peer.port, peer.ae_title) as client:
        for report in reports:
            client.deliver(report)
        client.deliver(reports[0])
        received = {
            path.name.removeprefix("SR3."): data_set(path.read_bytes()) for path in peer.files()
        }
        assert received == {report.sop_instance_uid: data_set(report.content) for report in reports}
        assert peer.associations() == 1


def test_orthanc_keeps_the_stored_bytes_and_takes_them_twice(reports):
    with Orthanc() as peer, client_to(peer.dicom_port, peer.ae_title) as client:
        for report in (*reports, reports[0]):
            client.deliver(report)
        assert len(peer.instances()) == len(reports)
        for report in reports:
            (identifier,) = peer.find(report.sop_instance_uid)
            assert data_set(peer.file(identifier)) == data_set(report.content)


def test_a_pacs_without_the_sr_class_is_a_refusal_that_says_what_to_do(reports):
    with StoreScp(refuse_sr=True) as peer:
        client = open_client(
            "pacs", destination(peer.port, peer.ae_title, calling_ae_title="HILUM_A")
        )
        with pytest.raises(
            Refused,
            match=r"Comprehensive 3D SR Storage.*enable this SOP Class for our AE Title HILUM_A",
        ) as caught:
            client.deliver(reports[0])
        assert caught.value.reason == "sop_class_refused"
        assert peer.files() == []


def test_a_pacs_that_is_down_is_an_outage_and_gets_the_report_when_it_is_up(reports):
    port = free_port()
    with client_to(port, "STORESCP") as client:
        with pytest.raises(Retry, match=f"no DICOM answer from 127.0.0.1:{port}") as caught:
            client.deliver(reports[0])
        assert caught.value.is_outage
        with StoreScp(port=port) as peer:
            client.deliver(reports[0])
            assert len(peer.files()) == 1


def test_a_pacs_that_restarts_gets_a_new_association(reports):
    with StoreScp() as peer, client_to(peer.port, peer.ae_title) as client:
        client.deliver(reports[0])
        peer.stop()
        peer.start()
        with contextlib.suppress(Retry):  # the first try may meet the old association while it dies
            client.deliver(reports[1])
        client.deliver(reports[1])
        assert len(peer.files()) == 2


def test_a_rejected_association_says_why(reports):
    with StoreScp(extra=("--refuse",)) as peer, client_to(peer.port, peer.ae_title) as client:
        with pytest.raises(Retry, match="rejected the association") as caught:
            client.deliver(reports[0])
        assert caught.value.is_outage


def test_an_ae_title_that_the_pacs_does_not_answer_to_names_the_remedy(reports):
    with (
        Orthanc(DicomCheckCalledAet=True) as peer,
        client_to(peer.dicom_port, "WRONG") as client,
        pytest.raises(Retry, match=r"\(1,1,7\).*WRONG"),
    ):
        client.deliver(reports[0])


@pytest.mark.parametrize("option", ["--abort-after", "--abort-during"])
def test_a_broken_association_leaves_the_outcome_unknown(option, reports):
    with (
        StoreScp(extra=(option,)) as peer,
        client_to(peer.port, peer.ae_title) as client,
        pytest.raises(UnknownOutcome, match="the same bytes are sent again"),
    ):
        client.deliver(reports[0])


def test_no_answer_in_time_leaves_the_outcome_unknown(reports):
    with (
        StoreScp(extra=("--sleep-during", "5")) as peer,
        client_to(peer.port, peer.ae_title, timeout_seconds=1.0) as client,
        pytest.raises(UnknownOutcome, match="within 1 s"),
    ):
        client.deliver(reports[0])


def test_a_port_that_never_answers_is_an_outage(reports):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        with (
            client_to(silent.getsockname()[1], timeout_seconds=0.5) as client,
            pytest.raises(Retry, match="no DICOM answer"),
        ):
            client.deliver(reports[0])


def test_an_unknown_outcome_is_resolved_by_the_same_bytes_on_a_new_association(reports):
    with receiver(None) as seen, client_to(seen.port) as client:
        with pytest.raises(UnknownOutcome):
            client.deliver(reports[0])
        client.deliver(reports[0])
        assert seen.stored == [data_set(reports[0].content)] * 2
        assert seen.opened == 2


def test_a_refused_document_leaves_the_association_for_the_next(reports):
    with receiver(0xA900, 0xA700) as seen, client_to(seen.port) as client:
        with pytest.raises(Refused, match="0xA900"):
            client.deliver(reports[0])
        with pytest.raises(Retry, match="0xA700"):
            client.deliver(reports[1])
        client.deliver(reports[2])
        assert seen.opened == 1


def test_an_idle_association_is_released_and_the_next_document_opens_another(reports):
    with receiver() as seen:
        with client_to(seen.port, idle_release_seconds=0.2) as client:
            client.deliver(reports[0])
            wait_for(lambda: seen.released == 1)
            client.deliver(reports[1])
        wait_for(lambda: (seen.opened, seen.released) == (2, 2))


def test_a_machine_without_a_thread_to_spare_keeps_no_association_for_ever(reports, monkeypatch):
    def no_thread(_timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    with receiver() as seen, client_to(seen.port, idle_release_seconds=0.2) as client:
        with monkeypatch.context() as full:
            full.setattr(threading.Timer, "start", no_thread)
            with pytest.raises(RuntimeError):
                client.deliver(reports[0])
        client.deliver(reports[1])
        wait_for(lambda: (seen.opened, seen.released) == (1, 1))


def test_documents_in_a_row_share_one_timer(reports):
    with receiver() as seen, client_to(seen.port) as client:
        timers = set()
        for report in reports:
            client.deliver(report)
            timers |= {item for item in threading.enumerate() if item.name == "idle-pacs"}
        assert len(timers) == 1


def test_closing_leaves_no_thread_behind(reports):
    with receiver() as seen:
        before = {thread.name for thread in threading.enumerate()}
        client = open_client("pacs", destination(seen.port, "PACS"))
        client.deliver(reports[0])
        client.close()
        client.close()
        wait_for(
            lambda: (
                not [
                    item
                    for item in threading.enumerate()
                    if item.name.startswith("idle-pacs") and item.is_alive()
                ]
            )
        )
        wait_for(lambda: {thread.name for thread in threading.enumerate()} <= before)


def test_small_packets_are_not_held_back(reports):
    """Nagle's algorithm and delayed acknowledgements together cost 40 ms a document.

    Both are switched off on our side.
    """
    with receiver() as seen, client_to(seen.port) as client:
        client.deliver(reports[0])
        connection = client._association._wire._socket  # the option can be seen nowhere else
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_json_does_not_go_to_a_pacs():
    client = open_client("pacs", destination(free_port(), "PACS"))
    with pytest.raises(Refused, match="no DICOM object"):
        client.deliver(Document("json", "application/json", b"{}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, dataset in enumerate(make_study(2, "CR", rows=32, columns=32)):
        save(dataset, tmp_path / f"{number}.dcm")
    below = tmp_path / "below"
    below.mkdir()
    save(
        make_instance(3, modality="CR", rows=32, columns=32, transfer_syntax_uid=JPEGBaseline8Bit),
        below / "jpeg.dcm",
    )
    return tmp_path


def contents(paths: list[Path]) -> list[bytes]:
    return sorted(data_set(path.read_bytes()) for path in paths)


def test_send_sends_each_file_in_its_own_syntax_byte_for_byte(folder):
    heard = []
    with StoreScp() as peer:
        report = send(
            [folder],
            "127.0.0.1",
            peer.port,
            peer.ae_title,
            progress=lambda item, done, total: heard.append((done, total)),
        )
        assert report.is_ok
        assert heard == [(1, 3), (2, 3), (3, 3)]
        assert sorted(data_set(path.read_bytes()) for path in peer.files()) == sorted(
            data_set(item.path.read_bytes()) for item in report.files
        )
        assert peer.associations() == 1
        assert report.sent_bytes == sum(item.path.stat().st_size for item in report.files)


def test_send_reports_what_is_no_dicom_and_sends_the_rest(folder):
    (folder / "notes.txt").write_text("not an image")
    (folder / "empty.dcm").write_bytes(b"")
    (folder / "half.dcm").write_bytes(b"\0" * 128 + b"DICM")
    with StoreScp() as peer:
        report = send([folder, folder / "absent.dcm"], "127.0.0.1", peer.port, peer.ae_title)
    states = {item.path.name: item.state for item in report.files}
    assert states["notes.txt"] is states["empty.dcm"] is FileState.SKIPPED
    assert states["half.dcm"] is states["absent.dcm"] is FileState.FAILED
    assert report.count(FileState.SENT) == 3
    assert not report.is_ok
    assert all(item.detail for item in report.files if item.state is not FileState.SENT)


def test_send_names_the_class_that_is_refused(folder, reports):
    (folder / "report.dcm").write_bytes(reports[0].content)
    with StoreScp(refuse_sr=True) as peer:
        report = send(
            [folder / "0.dcm", folder / "report.dcm"], "127.0.0.1", peer.port, peer.ae_title
        )
        only = send([folder / "report.dcm"], "127.0.0.1", peer.port, peer.ae_title)
    assert [item.state for item in report.files] == [FileState.SENT, FileState.REFUSED]
    assert "Comprehensive 3D SR Storage" in report.files[1].detail
    assert [item.state for item in only.files] == [FileState.REFUSED]


def test_send_to_nobody_fails_every_file(folder):
    report = send([folder], "127.0.0.1", free_port(), "NOBODY")
    assert {item.state for item in report.files} == {FileState.FAILED}
    assert all("no DICOM answer" in item.detail for item in report.files)


def test_send_nothing_is_not_ok(tmp_path):
    assert not send([tmp_path], "127.0.0.1", free_port(), "NOBODY").is_ok


def test_send_goes_on_after_a_broken_association(folder):
    with StoreScp(extra=("--abort-after",)) as peer:
        report = send([folder], "127.0.0.1", peer.port, peer.ae_title)
        assert {item.state for item in report.files} == {FileState.FAILED}
        assert peer.associations() == 3
    assert all("it may have arrived" in item.detail for item in report.files)


def test_send_says_that_only_the_syntax_is_refused(tmp_path):
    dataset = make_instance(3, modality="CR", rows=32, columns=32)
    plain = save(dataset, tmp_path / "plain.dcm")
    dataset = make_instance(
        4, modality="CR", rows=32, columns=32, transfer_syntax_uid=JPEGBaseline8Bit
    )
    jpeg = save(dataset, tmp_path / "jpeg.dcm")
    with StoreScp(refuse_sr=True) as peer:  # its profile takes no compressed syntax either
        report = send([plain, jpeg], "127.0.0.1", peer.port, peer.ae_title)
    assert [item.state for item in report.files] == [FileState.SENT, FileState.REFUSED]
    assert "JPEG Baseline" in report.files[1].detail
    assert report.files[1].detail.endswith("convert the file")


def test_send_sends_what_a_radiology_archive_holds(test_data):
    """Real files of many classes, syntaxes and oddities.

    Each ends with a state, and the whole ones arrive.
    """
    with StoreScp() as peer:
        report = send([test_data / "dicom"], "127.0.0.1", peer.port, peer.ae_title)
        sent = {
            read_file_meta_info(item.path).MediaStorageSOPInstanceUID
            for item in report.files
            if item.state is FileState.SENT
        }
        assert len(peer.files()) == len(sent) > 35
    ended = {
        item.path.stem: item.state for item in report.files if item.state is not FileState.SENT
    }
    assert ended == {
        "bad_meta": FileState.FAILED,
        "meta_missing_tsyntax": FileState.FAILED,
        "nested_private_sq": FileState.FAILED,
        "no_meta": FileState.SKIPPED,
        "deflated_image": FileState.FAILED,
        "dx_thorax_of_a_dog_mono1_inverse": FileState.FAILED,
        "htj2k_lossless_rgb": FileState.REFUSED,
        "jpeg_lossless_p14": FileState.REFUSED,
        "jpegxl_multiframe": FileState.REFUSED,
    }
