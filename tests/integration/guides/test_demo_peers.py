"""The receivers that the demo and people's first tries use.

What goes in comes out again, and can be found.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pydicom
import pytest

from hilum.deliver import send
from testing.peers import Folder, Orthanc, Peer, StoreScp, best_peer
from testing.phantoms.phantom import make_instance, save
from tests.support.peers.peers import require_program


def send_one(peer: Peer, path: Path) -> None:
    settings = peer.settings
    report = send(
        [path], settings["host"], settings["port"], settings["ae_title"], "TESTS", lambda *_: None
    )
    assert report.is_ok


@pytest.mark.parametrize(
    ("kind", "program", "package"),
    [(Orthanc, "Orthanc", "orthanc"), (StoreScp, "storescp", "dcmtk")],
)
def test_what_was_sent_can_be_fetched(
    kind: type[Orthanc | StoreScp], program: str, package: str, tmp_path: Path
) -> None:
    require_program(program, package)
    image = make_instance(11, rows=32, columns=32)
    with kind(tmp_path / "peer") as peer:
        assert peer.fetch(image.SOPInstanceUID) is None
        send_one(peer, save(image, tmp_path / "image.dcm"))
        found = peer.fetch(image.SOPInstanceUID)
        assert found is not None
        assert pydicom.dcmread(found).PixelData == image.PixelData
        assert peer.where(image.SOPInstanceUID).startswith(("http://127.0.0.1:", str(tmp_path)))


def test_a_folder_finds_the_object_among_others(tmp_path: Path) -> None:
    image = make_instance(12, rows=32, columns=32)
    with Folder(tmp_path / "out") as peer:
        (peer.folder / "result.json").write_text("{}")
        assert peer.fetch(image.SOPInstanceUID) is None
        save(image, peer.folder / "a.dcm")
        assert peer.fetch(image.SOPInstanceUID) == peer.folder / "a.dcm"
    assert peer.settings["kind"] == "folder"


def test_the_best_peer_is_what_is_installed(tmp_path: Path) -> None:
    expected = (
        "Orthanc"
        if Orthanc.program()
        else "DCMTK storescp"
        if shutil.which("storescp")
        else "folder"
    )
    assert best_peer(tmp_path / "here").title == expected
