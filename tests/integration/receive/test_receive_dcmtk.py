"""The listener in its own process, against DCMTK's senders, raw bytes, a full disk and kill -9."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import (
    CTImageStorage,
    DigitalXRayImageStorageForProcessing,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
)

from testing.phantoms.phantom import make_instance, save, uid_for
from tests.support.ledger.storing import data_set, element
from tests.support.machine.waiting import wait_for
from tests.support.peers.peers import missing, require_program
from tests.support.peers.raw_scu import DX, RawScu
from tests.support.peers.wire import Wire, message, pdu, pdv, store
from tests.support.server.listening import ListenerProcess, data_set_of, make_settings, unindexed

STORED = "SELECT count(*) FROM instance"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    with ListenerProcess(make_settings(tmp_path / "state")) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    """One listener for the tests that tell their associations apart by the Calling AE Title."""
    with ListenerProcess(make_settings(tmp_path_factory.mktemp("shared") / "state")) as running:
        yield running


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[Path]]:
    """So many different small DX files, drawn once."""
    folder = tmp_path_factory.mktemp("images")
    base = make_instance(5, rows=256, columns=256)
    made: list[Path] = []

    def files(count: int) -> list[Path]:
        while len(made) < count:
            number = len(made)
            base.SOPInstanceUID = base.file_meta.MediaStorageSOPInstanceUID = uid_for(
                "receive", number
            )
            base.PixelData = number.to_bytes(2, "little") + base.PixelData[2:]
            made.append(save(base, folder / f"{number:04}.dcm"))
        return made[:count]

    return files


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [require_program(program, "dcmtk"), *map(str, arguments)]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "TCP_NODELAY": "1"},
    )


def storescu(
    listener: ListenerProcess, *arguments: object, called: str = "HILUM", calling: str = "STORESCU"
) -> subprocess.CompletedProcess[str]:
    return run(
        "storescu", "-v", "-aet", calling, "-aec", called, "127.0.0.1", listener.port, *arguments
    )


def count(listener: ListenerProcess, query: str = STORED) -> int:
    return int(listener.rows(query)[0][0])


def association_of(listener: ListenerProcess, calling: str) -> dict[str, object]:
    """The one association row of this sender."""
    return association(listener, f"calling_ae_title = '{calling}'")


def association(listener: ListenerProcess, condition: str = "1=1") -> dict[str, object]:
    """The one association row that fits; rows are written when an association has ended."""
    wait_for(lambda: count(listener, f"SELECT count(*) FROM association WHERE {condition}") == 1)
    return dict(listener.rows(f"SELECT * FROM association WHERE {condition}")[0])


CASES = [
    (modality, syntax, option)
    for modality in ("CR", "DX", "DX for processing", "SC")
    for syntax, option in (
        (ExplicitVRLittleEndian, "-xe"),
        (ImplicitVRLittleEndian, "-xi"),
        (JPEGBaseline8Bit, "-xy"),
    )
    if (modality, syntax) != ("DX for processing", JPEGBaseline8Bit)
]


def draw(number: int, modality: str, syntax: str) -> Dataset:
    intent = "FOR PROCESSING" if modality.endswith("processing") else "FOR PRESENTATION"
    return make_instance(
        number,
        modality=modality[:2],
        rows=64,
        columns=64,
        transfer_syntax_uid=syntax,
        presentation_intent=intent,
    )


def test_each_class_and_syntax_arrives_bit_for_bit(
    listener: ListenerProcess, tmp_path: Path
) -> None:
    sent = {}
    for number, (modality, syntax, option) in enumerate(CASES):
        dataset = draw(number, modality, syntax)
        file = save(dataset, tmp_path / f"{number}.dcm")
        answer = storescu(listener, "-R", option, file)
        assert "Received Store Response (Success)" in answer.stderr, answer.stderr
        sent[dataset.SOPInstanceUID] = (data_set_of(file), syntax)
    wait_for(lambda: count(listener) == len(CASES))
    assert listener.data_sets() == {uid: encoded for uid, (encoded, _) in sent.items()}
    recorded = {
        row["sop_instance_uid"]: row["transfer_syntax_uid"]
        for row in listener.rows("SELECT * FROM instance")
    }
    assert recorded == {uid: syntax for uid, (_, syntax) in sent.items()}
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


def test_echo(shared: ListenerProcess) -> None:
    assert (
        run("echoscu", "-v", "-aet", "ECHO", "-aec", "HILUM", "127.0.0.1", shared.port).returncode
        == 0
    )
    row = association_of(shared, "ECHO")
    assert (row["outcome"], row["peer_address"], row["called_ae_title"], row["advice"]) == (
        "released",
        "127.0.0.1",
        "HILUM",
        None,
    )


def test_dcmsend_sends_a_folder(
    listener: ListenerProcess, images: Callable[[int], list[Path]]
) -> None:
    files = images(12)
    answer = run("dcmsend", "-aec", "HILUM", "127.0.0.1", listener.port, *files)
    assert answer.returncode == 0, answer.stderr
    wait_for(lambda: count(listener) == 12)
    assert sorted(listener.data_sets().values()) == sorted(data_set_of(file) for file in files)
    assert association(listener)["stored"] == 12


def test_an_unknown_called_ae_title_is_rejected_with_advice(
    shared: ListenerProcess, images: Callable[[int], list[Path]]
) -> None:
    answer = storescu(shared, *images(1), called="WRONG", calling="LOST")
    assert "Reason: Called AE Title Not Recognized" in answer.stderr
    row = association_of(shared, "LOST")
    assert (row["outcome"], row["reason"], row["called_ae_title"]) == (
        "rejected",
        "called_ae_title_not_recognised",
        "WRONG",
    )
    assert "HILUM" in str(row["advice"])


def test_a_calling_ae_title_outside_the_allow_list_is_rejected(
    tmp_path: Path, images: Callable[[int], list[Path]]
) -> None:
    settings = make_settings(
        tmp_path / "state", calling_ae_titles=("ROUTER",), ae_titles=("HILUM", "CHEST")
    )
    with ListenerProcess(settings) as listener:
        assert "Calling AE Title Not Recognized" in storescu(listener, *images(1)).stderr
        assert storescu(listener, *images(1), called="CHEST", calling="ROUTER").returncode == 0
        assert (
            association(listener, "outcome = 'rejected'")["reason"]
            == "calling_ae_title_not_recognised"
        )
        assert association(listener, "outcome = 'released'")["called_ae_title"] == "CHEST"


def test_one_association_too_many_is_rejected_for_now(tmp_path: Path) -> None:
    with ListenerProcess(make_settings(tmp_path / "state", maximum_associations=2)) as listener:
        with RawScu(listener.port) as first, RawScu(listener.port) as second:
            assert first.assoc.is_established
            assert second.assoc.is_established
            answer = run("echoscu", "-v", "-aec", "HILUM", "127.0.0.1", listener.port)
            assert "Rejected Transient" in answer.stderr
            assert "Local Limit Exceeded" in answer.stderr
        assert association(listener, "outcome = 'rejected'")["reason"] == "local_limit_exceeded"
        assert run("echoscu", "-aec", "HILUM", "127.0.0.1", listener.port).returncode == 0


def test_a_ct_is_refused_in_the_negotiation_and_the_row_says_what_to_send(
    shared: ListenerProcess, tmp_path: Path
) -> None:
    dataset = draw(1, "SC", ExplicitVRLittleEndian)
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = CTImageStorage
    answer = storescu(shared, "-R", save(dataset, tmp_path / "ct.dcm"), calling="CT")
    assert answer.returncode != 0
    row = association_of(shared, "CT")
    assert (row["reason"], row["stored"]) == ("sop_class_not_accepted", 0)
    assert (
        row["advice"]
        == "SOP Classes not accepted: CT Image Storage. Send CR, DX and Secondary Capture images"
        " only."
    )


def test_a_video_syntax_is_refused_with_result_4(shared: ListenerProcess) -> None:
    with RawScu(shared.port, transfer_syntax_uid="1.2.840.10008.1.2.4.100", calling="VIDEO") as scu:
        assert [context.result for context in scu.assoc.rejected_contexts] == [4]
        assert scu.echo() == 0
    row = association_of(shared, "VIDEO")
    assert row["reason"] == "transfer_syntax_not_accepted"
    assert "Propose Explicit VR Little Endian" in str(row["advice"])


def test_what_is_not_dicom_gets_an_abort_and_a_row(shared: ListenerProcess) -> None:
    tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)
    nonsense = (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        tls,
        bytes(100),
        b"\x01\x00\x00\x00\x00\x04abcd",
    )
    for content in nonsense:
        with socket.create_connection(("127.0.0.1", shared.port), timeout=20) as connection:
            connection.sendall(content)
            assert connection.recv(100)[:1] == b"\x07"  # A-ABORT
    wait_for(
        lambda: (
            count(
                shared,
                "SELECT coalesce(sum(count), 0) FROM association WHERE outcome = 'not_dicom'",
            )
            == len(nonsense)
        )
    )
    for row in shared.rows("SELECT * FROM association WHERE outcome = 'not_dicom'"):
        assert "without TLS" in row["advice"]
        assert row["calling_ae_title"] == ""
    assert (
        run("echoscu", "-aet", "AFTERWARDS", "-aec", "HILUM", "127.0.0.1", shared.port).returncode
        == 0
    )


def test_health_checks_cost_no_association(tmp_path: Path) -> None:
    with ListenerProcess(make_settings(tmp_path / "state", maximum_associations=1)) as listener:
        for _ in range(40):
            socket.create_connection(("127.0.0.1", listener.port)).close()
        wait_for(
            lambda: run("echoscu", "-aec", "HILUM", "127.0.0.1", listener.port).returncode == 0
        )
        assert association(listener)["outcome"] == "released"


def test_a_request_that_stops_in_its_middle_is_cut_off(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "state", acse_timeout_seconds=0.5)
    with (
        ListenerProcess(settings) as listener,
        socket.create_connection(("127.0.0.1", listener.port), timeout=20) as connection,
    ):
        connection.sendall(b"\x01\x00\x00\x00\x01")
        assert connection.recv(100) == b""


def test_requests_that_cannot_be_stored_are_answered_and_leave_nothing(
    shared: ListenerProcess,
) -> None:
    good = data_set("1.2.3")
    with RawScu(shared.port, calling="SLOPPY") as scu:
        wrong = {
            "study": scu.store(data_set("1.2.3", study=""), "1.2.3"),
            "instance": scu.store(element(0x00080016, b"UI", DX.encode() + b"\0"), "1.2.3"),
            "other instance": scu.store(good, "1.2.4"),
            "garbage": scu.store(b"\xff" * 1000, "1.2.3"),
            "nothing": scu.store(b"", "1.2.3"),
            "no affected UID": scu.store(good, None),
            "bad affected UID": scu.store(good, "1.2.x"),
            "other class": scu.store(
                good, "1.2.3", sop_class_uid=DigitalXRayImageStorageForProcessing
            ),
        }
        assert {name: f"{status:04X}" for name, (status, _) in wrong.items()} == {
            "study": "C000",
            "instance": "C000",
            "other instance": "A900",
            "garbage": "C000",
            "nothing": "C000",
            "no affected UID": "C000",
            "bad affected UID": "C000",
            "other class": "0122",
        }
        assert wrong["study"][1] == "Study Instance UID (0020,000D) is missing; fill it in"
        assert all(comment for _, comment in wrong.values())
        assert scu.store(good, "1.2.3")[0] == 0
        assert scu.echo() == 0
    row = association_of(shared, "SLOPPY")
    assert (row["outcome"], row["stored"], row["refused"]) == ("released", 1, len(wrong))
    assert str(row["advice"]).startswith("8 C-STORE refused, the last with 0x0122")
    wait_for(lambda: not list(unindexed(shared.archive)))
    assert shared.data_sets()["1.2.3"] == good
    assert "P1" not in shared.log.read_text()


def test_an_object_beyond_the_limit_is_refused_in_bounded_memory_and_the_association_kept(
    tmp_path: Path,
) -> None:
    with (
        ListenerProcess(
            make_settings(tmp_path / "state", maximum_object_bytes=1 << 20)
        ) as listener,
        RawScu(listener.port) as scu,
    ):
        assert scu.echo() == 0
        assert listener.child is not None
        before = _peak_memory_kib(listener.child.pid)
        status, comment = scu.store(data_set("1.2.3", pixels=bytes(100 << 20)), "1.2.3")
        assert (f"{status:04X}", comment) == ("A700", "Larger than the limit of 1 MiB")
        assert _peak_memory_kib(listener.child.pid) - before < 50 << 10
        assert scu.store(data_set("1.2.4"), "1.2.4")[0] == 0


def _peak_memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def test_eight_associations_at_once(
    listener: ListenerProcess, images: Callable[[int], list[Path]]
) -> None:
    files = images(48)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda share: storescu(listener, "-R", *files[share::8]), range(8)))
    assert [answer.returncode for answer in answers] == [0] * 8
    wait_for(lambda: count(listener) == 48)
    assert sorted(listener.data_sets().values()) == sorted(data_set_of(file) for file in files)


def test_a_connection_that_breaks_inside_an_object_leaves_nothing(shared: ListenerProcess) -> None:
    with Wire(shared.port, calling="BROKEN") as wire:
        # A P-DATA-TF of a data set fragment that promises more than it brings, then RST.
        wire.send(
            message(store("1.2.3")),
            pdu(4, pdv(data_set("1.2.3", pixels=bytes(100_000)), is_last=False))[:50_000],
        )
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    row = association_of(shared, "BROKEN")
    assert (row["outcome"], row["reason"], row["stored"]) == ("aborted", "connection_lost", 0)
    wait_for(lambda: not list(unindexed(shared.archive)), what="the files in their places")


def test_an_idle_association_is_aborted_and_a_stalled_one_cut(tmp_path: Path) -> None:
    with ListenerProcess(make_settings(tmp_path / "state", network_timeout_seconds=1)) as listener:
        idle, stalled = (
            RawScu(listener.port, calling="IDLE"),
            RawScu(listener.port, calling="STALLED"),
        )
        stalled.assoc.dul.socket.socket.sendall(
            b"\x04\0\0\x01\0\0\0\0"
        )  # 65536 bytes promised, two sent
        wait_for(
            lambda: (
                count(listener, "SELECT count(*) FROM association WHERE outcome = 'aborted'") == 2
            )
        )
        wait_for(lambda: not idle.assoc.is_established)
        assert association_of(listener, "IDLE")["reason"] == "aborted_here"
        for scu in (idle, stalled):
            scu.assoc.kill()


def test_the_end_lets_a_request_in_progress_finish(listener: ListenerProcess) -> None:
    answers: list[tuple[int, str]] = []
    with RawScu(listener.port) as scu, RawScu(listener.port) as idle:
        assert scu.echo() == 0
        large = data_set("1.2.3", pixels=bytes(64 << 20))
        sender = threading.Thread(target=lambda: answers.append(scu.store(large, "1.2.3")))
        sender.start()
        wait_for(lambda: scu.assoc.dul.to_provider_queue.qsize() > 0)
        assert listener.stop() == 0
        sender.join(20)
        assert answers == [(0, "")]
        wait_for(lambda: not idle.assoc.is_established)
    assert list(listener.data_sets().values()) == [large]
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")
    assert [row["reason"] for row in listener.rows("SELECT reason FROM association")] == [
        "shutdown",
        "shutdown",
    ]


def test_two_processes_share_the_socket_and_one_may_go(
    listener: ListenerProcess, images: Callable[[int], list[Path]]
) -> None:
    other = listener.start_another("listener-2")
    try:
        files = iter(images(200))
        sent: list[Path] = []
        while len(_folders(listener)) < 2:  # the faster one at accepting gets the association
            sent += (four := list(itertools.islice(files, 4)))
            with ThreadPoolExecutor(4) as pool:
                assert set(
                    pool.map(lambda file: storescu(listener, "-R", file).returncode, four)
                ) == {0}
        assert listener.stop() == 0
        sent += (last := list(itertools.islice(files, 8)))
        assert [storescu(listener, "-R", file).returncode for file in last] == [0] * 8
        wait_for(lambda: count(listener) == len(sent))
        assert _folders(listener) == {"listener-1", "listener-2"}
        assert sorted(listener.data_sets().values()) == sorted(data_set_of(file) for file in sent)
    finally:
        other.kill()
        other.join()


def _folders(listener: ListenerProcess) -> set[str]:
    return {folder.name for folder in (listener.archive.root / "unindexed").glob("*")}


def test_kill_9_under_load_loses_nothing_that_was_acknowledged(
    listener: ListenerProcess, images: Callable[[int], list[Path]]
) -> None:
    files = images(160)
    with ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(storescu, listener, "-R", *files[share::4]) for share in range(4)]
        wait_for(
            lambda: sum(1 for file in listener.archive.root.rglob("*.dcm") if file.is_file()) >= 30
        )
        listener.kill()
        answers = [sender.result() for sender in senders]
    acknowledged = {file for answer in answers for file in _acknowledged(answer.stderr)}
    assert (
        0 < len(acknowledged) < 160
    )  # how many is storescu's: one that died of the broken pipe keeps its last lines
    listener.start()  # it recovers its own folder, while it serves
    assert run("echoscu", "-aec", "HILUM", "127.0.0.1", listener.port).returncode == 0
    wait_for(lambda: not list(unindexed(listener.archive)))
    assert listener.stop() == 0
    stored, sent = set(listener.data_sets().values()), {file: data_set_of(file) for file in files}
    assert {sent[file] for file in acknowledged} <= stored <= set(sent.values())
    on_disk = [file for file in listener.archive.root.rglob("*") if file.is_file()]
    assert len(on_disk) == len(stored) == count(listener)


def _acknowledged(log: str) -> list[Path]:
    """The files that storescu saw answered with Success."""
    found = re.findall(
        r"Sending file: (\S+)(?:(?!Sending file).)*?Store Response \(Success\)", log, re.DOTALL
    )
    return [Path(name) for name in found]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB where the archive will be."""
    folder = tmp_path / "state" / "archive"
    folder.mkdir(parents=True)
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder],
            check=False,
            capture_output=True,
        ).returncode
    ):
        missing("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("reserve_bytes", [0, 1 << 20])
def test_a_full_disk_is_a_status_and_space_is_the_cure(
    tmp_path: Path, small_disk: Path, reserve_bytes: int
) -> None:
    with ListenerProcess(
        make_settings(tmp_path / "state", reserve_bytes=reserve_bytes)
    ) as listener:
        with RawScu(listener.port) as scu:
            answers = {
                uid: scu.store(data_set(uid, pixels=bytes(600 << 10)), uid)
                for uid in (f"1.2.{number}" for number in range(9))
            }
            stored = [uid for uid, (status, _) in answers.items() if status == 0]
            assert {f"{status:04X}" for status, _ in answers.values() if status != 0} == {"A700"}
            assert len(stored) == (6 if reserve_bytes == 0 else 5)
            assert scu.echo() == 0
            wait_for(lambda: not list(unindexed(listener.archive)))
            assert set(listener.data_sets()) == set(stored)
            next(file for file in small_disk.rglob("*.dcm")).unlink()
            assert scu.store(data_set("1.2.99", pixels=bytes(500 << 10)), "1.2.99")[0] == 0
        row = association(listener)
    assert row["refused"] == 9 - len(stored)
    assert "send again later" in str(row["advice"])


def test_a_listener_has_no_torch() -> None:
    script = (
        "import sys; import hilum.receive.listener; print({'torch', 'tritonclient', 'onnxruntime'}"
        " & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "set()"
