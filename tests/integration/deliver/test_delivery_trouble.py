"""Delivery under trouble: a whole server and eight receivers, of which one is well.

Every report ends there, once, and as what it is.

One that stores and then does not answer, one that is down for a while, one that takes Enhanced SR
only, one that takes text only, one behind TLS, one that takes nothing until a person changes it,
one whose disk is full for a moment.
"""

from __future__ import annotations

import hashlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydicom
import pytest
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian
from pynetdicom import AE, evt

from testing.serving import Hilum
from tests.support.models.releases import Tiny
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import Orthanc, StoreScp, free_port
from tests.support.reports.read_back import items
from tests.support.server import commands
from tests.support.server.installation import (
    START_SECONDS,
    hilum_with,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow


@dataclass
class Receiver:
    """A pynetdicom SCP that stores each object, and at its first coming misbehaves.

    It sleeps, or answers `first_status`.
    """

    sleep_seconds: float = 0.0
    first_status: int = 0x0000
    port: int = field(default_factory=free_port)
    came: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Receiver:
        application = AE("PACS")
        application.add_supported_context(Comprehensive3DSRStorage, ExplicitVRLittleEndian)
        self._server = application.start_server(
            ("127.0.0.1", self.port), block=False, evt_handlers=[(evt.EVT_C_STORE, self._store)]
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()

    def _store(self, event: evt.Event) -> int:
        uid = str(event.request.AffectedSOPInstanceUID)
        digest = hashlib.sha256(event.request.DataSet.getvalue()).hexdigest()
        with self.lock:
            is_first = uid not in {known for known, _ in self.came}
            self.came.append((uid, digest))
        if is_first:
            time.sleep(self.sleep_seconds)
        return self.first_status if is_first else 0x0000


@dataclass
class Places:
    """Where the server under test sends to."""

    orthanc: Orthanc
    sleepy: Receiver
    full: Receiver
    enhanced: StoreScp
    text: StoreScp
    secured: StoreScp
    down: StoreScp
    stubborn: StoreScp


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    own = authority(tmp_path_factory).identity("pacs", "IP:127.0.0.1")
    with ExitStack() as stack:
        yield Places(
            orthanc=stack.enter_context(Orthanc()),
            sleepy=stack.enter_context(Receiver(sleep_seconds=2.0)),
            full=stack.enter_context(Receiver(first_status=0xA700)),
            enhanced=stack.enter_context(
                StoreScp(takes=("EnhancedSRStorage", "BasicTextSRStorage"))
            ),
            text=stack.enter_context(StoreScp(takes=("BasicTextSRStorage",))),
            secured=stack.enter_context(
                StoreScp(extra=("+tls", str(own.key), str(own.certificate), "-ic"))
            ),
            down=StoreScp(),
            stubborn=stack.enter_context(StoreScp(refuse_sr=True)),
        )


def authority(factory: pytest.TempPathFactory) -> Authority:
    return Authority(factory.getbasetemp() / "authority")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, places: Places, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("trouble")
    ca_file = str(tmp_path_factory.getbasetemp() / "authority" / "authority.pem")
    ports = {
        name: getattr(places, name).port
        for name in ("sleepy", "full", "enhanced", "text", "secured", "down", "stubborn")
    }
    destinations: dict[str, dict[str, Any]] = {
        name: {"port": port, "ae_title": "PACS", "timeout_seconds": 10.0}
        for name, port in ports.items()
    }
    destinations["sleepy"]["timeout_seconds"] = 1.0
    destinations["orthanc"] = {"port": places.orthanc.dicom_port, "ae_title": "ORTHANC"}
    destinations["secured"] |= {"tls": True, "ca_file": ca_file}
    destinations["text"]["report_not_analysed"] = True
    with hilum_with(folder, tiny, destinations) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def deliveries(server: Hilum, study_uid: str) -> list[dict[str, Any]]:
    """All deliveries of a study, each with the kind and the UIDs of its document, oldest first."""
    answer = server.get(f"/api/v1/studies/{study_uid}/documents")
    documents = answer.json()["documents"] if answer.status_code == 200 else []
    return [
        {**way, **{name: paper[name] for name in ("kind", "sop_instance_uid")}}
        for paper in documents
        for way in paper["deliveries"]
    ]


def states(server: Hilum, study_uid: str, destination: str) -> list[tuple[str, str, str | None]]:
    return [
        (way["kind"], way["state"], way["reason"])
        for way in deliveries(server, study_uid)
        if way["destination"] == destination
    ]


def is_delivered(server: Hilum, study_uid: str, destination: str, count: int = 1) -> bool:
    return (
        sum(state == "delivered" for _, state, _ in states(server, study_uid, destination)) == count
    )


def stored(peer: StoreScp, study_uid: str) -> list[pydicom.Dataset]:
    """What lies in a receiver of a study, in the order of its coming."""
    found = [
        pydicom.dcmread(file)
        for file in sorted(peer.files(), key=lambda file: file.stat().st_mtime_ns)
    ]
    return [item for item in found if item.StudyInstanceUID == study_uid]


def replaced(report: pydicom.Dataset) -> set[str]:
    """What a report names as replaced."""
    return {
        instance.ReferencedSOPInstanceUID
        for before in report.get("PredecessorDocumentsSequence", [])
        for series in before.ReferencedSeriesSequence
        for instance in series.ReferencedSOPSequence
    }


def in_orthanc(orthanc: Orthanc, study_uid: str) -> list[pydicom.Dataset]:
    found = [pydicom.dcmread(io.BytesIO(orthanc.file(item))) for item in orthanc.instances()]
    return [item for item in found if item.StudyInstanceUID == study_uid]


def current(reports: list[pydicom.Dataset]) -> list[pydicom.Dataset]:
    """Those that no other one replaces."""
    gone = set().union(*map(replaced, reports)) if reports else set()
    return [item for item in reports if item.SOPInstanceUID not in gone]


@pytest.fixture(scope="module")
def study(server: Hilum, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Path]]:
    """A study of which the first image has been reported to all who take it.

    (UID, the second image's file).
    """
    first, second = (
        save_all(tmp_path_factory.mktemp("study"), [image]) for image in small_study(900)
    )
    uid = str(pydicom.dcmread(first[0], stop_before_pixels=True).StudyInstanceUID)
    assert send_to(server, first).is_ok
    for name in ("orthanc", "enhanced", "text", "secured", "full", "sleepy"):
        wait_for(lambda name=name: is_delivered(server, uid, name), what=name)
    return uid, second


def test_what_was_stored_and_not_answered_is_sent_again_as_it_was(
    server: Hilum, places: Places, study: tuple[str, list[Path]]
) -> None:
    uids = {
        way["sop_instance_uid"]
        for way in deliveries(server, study[0])
        if way["destination"] == "sleepy"
    }
    came = [item for item in places.sleepy.came if item[0] in uids]
    assert len(came) >= 2
    assert len(set(came)) == 1, "the same bytes under one UID: the PACS ends with one object"


def test_out_of_resources_is_tried_again(places: Places, study: tuple[str, list[Path]]) -> None:
    assert len(places.full.came) >= 2
    assert len(set(places.full.came)) == 1


def test_each_gets_the_richest_class_that_it_takes(
    server: Hilum, places: Places, study: tuple[str, list[Path]]
) -> None:
    uid, _ = study
    assert states(server, uid, "orthanc") == [("sr", "delivered", None)]
    assert states(server, uid, "enhanced") == [
        ("sr", "cancelled", "class_ladder"),
        ("sr_enhanced", "delivered", None),
    ]
    assert states(server, uid, "text") == [
        ("sr", "cancelled", "class_ladder"),
        ("sr_basic_text", "delivered", None),
    ]
    (enhanced,), (text,) = stored(places.enhanced, uid), stored(places.text, uid)
    names = [item.SOPClassUID.name for item in (enhanced, text)]
    assert names == ["Enhanced SR Storage", "Basic Text SR Storage"]
    assert (
        len({item.SOPInstanceUID for item in (enhanced, text, *in_orthanc(places.orthanc, uid))})
        == 3
    )


def test_a_report_goes_over_tls(places: Places, study: tuple[str, list[Path]]) -> None:
    assert len(stored(places.secured, study[0])) == 1


def test_a_pacs_that_comes_back_gets_what_it_missed_and_tries_are_not_counted(
    server: Hilum, places: Places, study: tuple[str, list[Path]]
) -> None:
    uid, _ = study
    (waiting,) = [way for way in deliveries(server, uid) if way["destination"] == "down"]
    assert waiting["state"] in ("due", "leased")
    places.down.start()
    try:
        wait_for(lambda: is_delivered(server, uid, "down"), what="down")
        assert len(stored(places.down, uid)) == 1
    finally:
        places.down.stop()
    # The child that storescp has forked holds its port until Hilum lets go of the association.
    wait_for(lambda: not answers(places.down.port), what="nobody at the port")
    (delivered,) = [way for way in deliveries(server, uid) if way["destination"] == "down"]
    assert delivered["attempts"] == 1


def answers(port: int) -> bool:
    """Return whether a program holds the port, also one that accepts no more connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def test_a_dead_letter_says_why_and_can_be_requeued(
    server: Hilum, places: Places, study: tuple[str, list[Path]]
) -> None:
    uid, _ = study
    wait_for(
        lambda: states(server, uid, "stubborn") == [("sr", "dead", "sop_class_refused")],
        what="dead",
    )
    (dead,) = [way for way in deliveries(server, uid) if way["destination"] == "stubborn"]
    assert "enable this SOP Class" in dead["detail"]
    places.stubborn.stop()
    places.stubborn.refuse_sr = False
    places.stubborn.start()
    order = {"stage": "deliver", "destination": "stubborn", "reason": "sop_class_refused"}
    assert server.post("/api/v1/requeue", json=order).json() == {"requeued": 1}
    wait_for(lambda: is_delivered(server, uid, "stubborn"), what="requeued")
    assert [item.SOPInstanceUID for item in stored(places.stubborn, uid)] == [
        dead["sop_instance_uid"]
    ]


def test_a_report_that_a_person_sends_again_comes_as_what_it_was(
    server: Hilum, places: Places, study: tuple[str, list[Path]]
) -> None:
    uid, _ = study
    before, (lying,) = list(places.full.came), in_orthanc(places.orthanc, uid)
    for name in ("full", "orthanc", "text"):
        assert (
            len(
                server.post(f"/api/v1/studies/{uid}/resend", json={"destination": name}).json()[
                    "due"
                ]
            )
            == 1
        )
    for name in ("full", "orthanc", "text"):
        wait_for(lambda name=name: is_delivered(server, uid, name), what=f"{name}, again")
    assert places.full.came[len(before) :] == before[-1:], (
        "the same bytes under the same UID, once more"
    )
    assert [item.SOPInstanceUID for item in in_orthanc(places.orthanc, uid)] == [
        lying.SOPInstanceUID
    ]
    assert {item.SOPClassUID.name for item in stored(places.text, uid)} == {"Basic Text SR Storage"}
    history = server.get(f"/api/v1/studies/{uid}").json()["history"]
    assert [(item["verb"], item["detail"]) for item in history] == [
        ("resend", f"to {name}") for name in ("text", "orthanc", "full")
    ]


def test_a_late_image_leaves_one_current_report_everywhere(
    server: Hilum, places: Places, study: tuple[str, list[Path]]
) -> None:
    uid, second = study
    assert send_to(server, second).is_ok
    for name in ("orthanc", "enhanced", "text", "secured"):
        wait_for(lambda name=name: is_delivered(server, uid, name, 2), what=name)
    held = {"orthanc": in_orthanc(places.orthanc, uid)}
    held |= {name: stored(getattr(places, name), uid) for name in ("enhanced", "text", "secured")}
    for name, reports in held.items():
        assert len(reports) == len({item.SOPInstanceUID for item in reports}) == 2, name
        assert [item.InstanceNumber for item in current(reports)] == [2], name
        assert len({item.SeriesInstanceUID for item in reports}) == 1, name


def test_that_nothing_was_analysed_is_reported_only_where_it_was_asked_for(
    server: Hilum, places: Places, tmp_path: Path
) -> None:
    lateral = small_study(901, ("LATERAL",))
    uid = str(lateral[0].StudyInstanceUID)
    assert send_to(server, save_all(tmp_path, lateral)).is_ok
    wait_for(lambda: is_delivered(server, uid, "text"), what="text")
    assert {way["destination"] for way in deliveries(server, uid)} == {"text"}
    (report,) = stored(places.text, uid)
    assert "not analysed" in report.SeriesDescription
    assert "lateral_not_supported" in " ".join(item.TextValue for item in items(report, "121106"))


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("orthanc", 0, "ok: reports go there as Comprehensive 3D SR Storage"),
        ("enhanced", 0, "ok: reports go there as Enhanced SR Storage"),
        ("secured", 0, "ok: reports go there"),
        ("down", 1, "PROBLEM: no DICOM answer"),
        ("nobody", 2, "no destination 'nobody' in the settings; known:"),
    ],
)
def test_probe_by_command_and_by_rest(server: Hilum, name: str, status: int, said: str) -> None:
    done = commands.hilum(*server.command("destinations", "probe", name)[1:])
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), (
        done.stdout + done.stderr
    )
    answer = server.post(f"/api/v1/destinations/{name}/probe")
    assert answer.status_code == (404 if status == 2 else 200)
    if status != 2:
        assert answer.json()["is_ok"] == (status == 0)
        assert answer.json()["detail"] in done.stdout
