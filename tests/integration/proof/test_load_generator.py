"""The load generator against real peers, against a stand-in that misbehaves, and a whole scenario against a Hilum."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pydicom
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    Comprehensive3DSRStorage,
    EnhancedSRStorage,
    ImplicitVRLittleEndian,
    generate_uid,
)
from pynetdicom import AE, evt

from load_tests.load import run as load
from load_tests.load.figures import FIGURES
from testing.network.peer_address import Peer
from testing.network.receiver import Receiver
from testing.network.sender import Sender
from testing.network.storage_scu import NotStored, StorageScu
from testing.phantoms.encoded import encode, fresh_objects
from testing.phantoms.phantom import make_study
from testing.serving import free_ports
from testing.tiny_release import make_tiny
from tests.support.peers.answering_peer import AnsweringPeer, answering
from tests.support.server.installation import wait_for

LABELS = {name: figure.label for name, figure in FIGURES.items()}
QUICK = """# A few small studies.
seconds = 0.6
drain_seconds = 1.0

[arrivals]
rate = 10.0

[sender]
associations = 2
timeout_seconds = 10.0

[[mix]]
rows = 32
columns = 32

[hilum.studies]
quiet_seconds = 0.0

[goals]
lost_studies = 0
changed_reports = 0
beyond_quiet_p99_seconds = 60.0
"""


def scenario_file(folder: Path, text: str = QUICK) -> str:
    path = folder / "quick.toml"
    path.write_text(text)
    return str(path)


def run(tmp_path: Path, text: str = QUICK, **behaviour: object) -> tuple[int, Path]:
    port, report_port = free_ports(2)
    result = tmp_path / "results" / "load.json"
    words = [
        scenario_file(tmp_path, text),
        "--to",
        f"FAKE@127.0.0.1:{port}",
        "--listen",
        str(report_port),
        "--result",
        str(result),
    ]
    with answering(AnsweringPeer(report_port, **behaviour), port):
        return load.main(words), result


def test_a_good_run_is_written_with_its_circumstances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, path = run(tmp_path, QUICK.replace("drain_seconds = 1.0", "drain_seconds = 60.0"))
    found = json.loads(path.read_text())
    assert found["studies"] == {"offered": 6, "accepted": 6, "reported": 6, "lost": 0}
    seconds = found["seconds"]
    assert 0 < seconds["last image to SR"]["p50"] <= seconds["last image to SR"]["p99"]
    assert seconds["intended start to SR"]["p50"] >= seconds["last image to SR"]["p50"]
    assert {"machine", "commit", "versions", "settings", "measured_at", "scenario"} <= set(found)
    assert {goal["name"]: goal["holds"] for goal in found["goals"]}[LABELS["lost_studies"]]
    assert code == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())
    assert path.with_suffix(".png").exists()
    assert path.with_suffix(".html").exists()


def test_a_server_that_never_reports_is_no_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, path = run(tmp_path, is_silent=True)
    assert (code, path.exists()) == (2, False)
    assert "no report on the warm-up: accepted, but no report came" in capsys.readouterr().err


def test_a_server_that_refuses_says_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _ = run(tmp_path, status=0xA700)
    assert code == 2
    assert "status 0xA700" in capsys.readouterr().err


def test_no_server_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    port, report_port = free_ports(2)
    words = [
        scenario_file(tmp_path),
        "--to",
        f"FAKE@127.0.0.1:{port}",
        "--listen",
        str(report_port),
    ]
    assert load.main(words) == 2
    assert "no connection: Connection refused" in capsys.readouterr().err


def test_a_scenario_with_a_mistake_is_no_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert load.main([scenario_file(tmp_path, "# x\nsecond = 1")]) == 2
    assert "did you mean seconds?" in capsys.readouterr().err


WHOLE = """# Half of what it takes, and back to rest.
seconds = 2.0
probe_seconds = 0.3
recovery_seconds = 30.0
recovered_below_seconds = 5.0
release = "{release}"

[arrivals]
unit = "saturation"
rate = 0.5

[[mix]]
rows = 32
columns = 32

[hilum.studies]
quiet_seconds = 0.5

[hilum.analyse]
decode_processes = 1

[hilum.models]
manifests = "{manifests}"
built = "{built}"

[goals]
lost_studies = 0
changed_reports = 0
refused_studies = 0
"""


def test_a_scenario_against_a_hilum(tmp_path: Path):
    """All phases: warm-up, probe, load at half of what the probe found, drain, recovery.

    Nothing is reported in the probe's 0.3 s, which is less than the quiet period: it goes on until
    something is.
    """
    tiny, path = make_tiny(tmp_path / "models"), tmp_path / "load.json"
    text = WHOLE.format(release=tiny.release.id, manifests=tiny.manifests_dir, built=tiny.built_dir)
    code = load.main([scenario_file(tmp_path, text), "--result", str(path)])
    found = json.loads(path.read_text())
    assert code == 0, found["goals"]
    assert found["studies"]["offered"] == found["studies"]["reported"] > 0
    assert found["saturation_studies_per_second"] > 0
    assert 0 <= found["figures"]["recovery_seconds"] < 30
    assert {"listener", "analyser", "dispatcher", "triton-stub"} <= set(
        found["cpu_seconds"]["hilum"]
    )
    assert found["cpu_seconds"]["hilum"]["listener"] > 0
    assert found["stages"]["analyse: wait"]["count"] >= 2 * found["studies"]["reported"]
    assert found["longest"]["wait"].endswith("wait")
    assert sum(found["per_second"]["reported"]) == found["studies"]["reported"]


@pytest.fixture
def storescp(tmp_path: Path) -> Iterator[tuple[Peer, Path]]:
    (port,) = free_ports(1)
    received = tmp_path / "received"
    received.mkdir()
    process = subprocess.Popen(["storescp", "--output-directory", str(received), str(port)])
    peer = Peer("STORESCP", "127.0.0.1", port)
    wait_for(lambda: associates(peer), 60, "storescp")
    yield peer, received
    process.terminate()
    process.wait()


def associates(peer: Peer) -> bool:
    try:
        with StorageScu(peer, "TEST", [("1.2.840.10008.1.1", ImplicitVRLittleEndian)]):
            return True
    except NotStored:
        return False


def test_storescp_gets_the_bytes_that_were_sent(storescp: tuple[Peer, Path]):
    peer, received = storescp
    templates = [encode(image) for image in make_study(1, rows=300, columns=200)]
    _, objects = fresh_objects(templates, random.Random())
    with StorageScu(
        peer, "LOADGEN", [(each.sop_class_uid, each.transfer_syntax_uid) for each in templates]
    ) as association:
        assert [association.store(outgoing) for outgoing in objects] == [0, 0]
        assert association.is_open
    files = {
        pydicom.dcmread(path, stop_before_pixels=True).SOPInstanceUID: path
        for path in received.iterdir()
    }
    for outgoing in objects:
        assert (
            files[outgoing.sop_instance_uid]
            .read_bytes()
            .endswith(b"".join(bytes(piece) for piece in outgoing.pieces))
        )


def test_what_was_not_negotiated_is_said_and_does_not_end_the_association(
    storescp: tuple[Peer, Path],
):
    (template,) = [encode(image) for image in make_study(1, rows=16, columns=16, views=["PA"])]
    _, (outgoing,) = fresh_objects([template], random.Random())
    with StorageScu(
        storescp[0], "LOADGEN", [(template.sop_class_uid, ImplicitVRLittleEndian)]
    ) as association:
        with pytest.raises(NotStored, match="no presentation context"):
            association.store(outgoing)
        assert association.is_open


def stored_at(peer_handlers: list[tuple[object, object]], **settings: object) -> str:
    """Why an image could not be stored at a pynetdicom peer that behaves so."""
    (port,) = free_ports(1)
    (template,) = [encode(image) for image in make_study(1, rows=16, columns=16, views=["PA"])]
    ae = AE("PEER")
    for name, value in settings.items():
        setattr(ae, name, value)
    ae.add_supported_context(template.sop_class_uid, template.transfer_syntax_uid)
    server = ae.start_server(("127.0.0.1", port), block=False, evt_handlers=peer_handlers)
    kinds = [(template.sop_class_uid, template.transfer_syntax_uid)]
    try:
        with StorageScu(
            Peer("OTHER", "127.0.0.1", port), "LOADGEN", kinds, timeout_seconds=4.0
        ) as association:
            return str(association.store(fresh_objects([template], random.Random())[1][0]))
    except NotStored as error:
        return str(error)
    finally:
        server.shutdown()


def aborting(event: evt.Event) -> int:
    event.assoc.abort()
    return 0


def too_slow(_event: evt.Event) -> int:
    time.sleep(6)
    return 0


def test_failures_are_said_as_they_are():
    assert stored_at([(evt.EVT_C_STORE, lambda _: 0)]) == "0"
    assert stored_at([(evt.EVT_C_STORE, lambda _: 0xA700)]) == str(0xA700)
    assert stored_at([], require_called_aet=True) == "association rejected (1,1,7)"
    assert stored_at([(evt.EVT_C_STORE, too_slow)]) == "no answer in time"
    assert stored_at([(evt.EVT_C_STORE, aborting)]) == "association aborted by the peer"


def test_a_peer_that_stalls_delays_the_studies_and_not_their_schedule():
    """What coordinated omission would hide.

    Five studies were due while the first was being answered, and all of them show it.
    """
    (port,) = free_ports(1)
    studies, is_first = [make_study(1, rows=16, columns=16, views=["PA"])], threading.Event()

    def stalls_once(_event: evt.Event) -> int:
        if not is_first.is_set():
            is_first.set()
            time.sleep(1)
        return 0

    ae = AE("PEER")
    ae.add_supported_context(studies[0][0].SOPClassUID, studies[0][0].file_meta.TransferSyntaxUID)
    server = ae.start_server(
        ("127.0.0.1", port), block=False, evt_handlers=[(evt.EVT_C_STORE, stalls_once)]
    )
    sender = Sender(Peer("PEER", "127.0.0.1", port), studies, 1)
    sender.run(rate=10, seconds=0.6)
    server.shutdown()
    assert [study.failure for study in sender.sent] == [None] * 6
    begin = sender.sent[0].intended_at
    assert [study.intended_at - begin for study in sender.sent] == pytest.approx(
        [number / 10 for number in range(6)]
    )
    assert all(
        study.started_at >= sender.sent[0].ended_at > study.intended_at for study in sender.sent[1:]
    )


def report(study: str = "1.2.3", sop_class: str = Comprehensive3DSRStorage) -> Dataset:
    made = Dataset()
    made.SOPClassUID, made.StudyInstanceUID, made.SOPInstanceUID = sop_class, study, generate_uid()
    made.TextValue = "x" * 30_000
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    return made


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, AE, int]]:
    (port,) = free_ports(1)
    ae = AE("TEST")
    ae.dimse_timeout = ae.acse_timeout = 2
    for sop_class in (Comprehensive3DSRStorage, EnhancedSRStorage, "1.2.840.10008.1.1"):
        ae.add_requested_context(sop_class, ImplicitVRLittleEndian)
    with Receiver(port) as running:
        yield running, ae, port


def test_the_receiver_stamps_reports_and_takes_no_other_class(receiver: tuple[Receiver, AE, int]):
    running, ae, port = receiver
    began = time.monotonic()
    association = ae.associate("127.0.0.1", port)
    assert [context.abstract_syntax for context in association.rejected_contexts] == [
        EnhancedSRStorage
    ]
    assert association.send_c_echo().Status == 0
    first = report()
    assert association.send_c_store(first).Status == 0
    assert association.send_c_store(first).Status == 0
    first.TextValue = "y"
    assert association.send_c_store(first).Status == 0
    association.release()
    running.cpu_seconds()  # an answer behind all reports
    assert began < running.arrivals.by_study["1.2.3"][0] < time.monotonic()
    assert (running.arrivals.repeated, running.arrivals.changed) == (1, [first.SOPInstanceUID])


def test_the_receiver_misbehaves_when_it_is_told_to(receiver: tuple[Receiver, AE, int]):
    running, ae, port = receiver
    running.behave("full")
    association = ae.associate("127.0.0.1", port)
    assert association.send_c_store(report()).Status == 0xA700
    running.behave("down")
    wait_for(lambda: not association.is_established, 60, "the association's end")
    assert not ae.associate("127.0.0.1", port).is_established
    running.behave("silent")
    association = ae.associate("127.0.0.1", port)
    assert "Status" not in association.send_c_store(report("1.2.4"))
    running.behave("well")
    association = ae.associate("127.0.0.1", port)
    assert association.send_c_store(report("1.2.5")).Status == 0
    association.release()
    running.cpu_seconds()
    assert set(running.arrivals.by_study) == {"1.2.4", "1.2.5"}
