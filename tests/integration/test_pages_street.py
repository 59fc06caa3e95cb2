"""The pages of a whole server: an image that came by C-STORE is seen, with what was found in it and where it went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import imagecodecs
import pytest

from load_tests.serving import Hilum
from tests.support.html import Strict
from tests.support.installation import START_SECONDS, hilum_with, kill, processes, save_all, send_to, small_study, wait_for
from tests.support.models import make_tiny
from tests.support.processes import children_of
from tests.support.triton import command_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("pages")
    tiny = make_tiny(folder / "tiny")
    with hilum_with(folder, tiny, {"out": {"kind": "folder", "path": str(folder / "out")}}) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def painters(server: Hilum) -> list[int]:
    """Painting processes of the web process."""
    (web,) = processes(server, "api")
    return [pid for pid in children_of(web) if "hilum.api.pages.painting" in command_of(pid)]


def test_from_the_modality_to_the_page(server: Hilum, tmp_path: Path) -> None:
    images = small_study(77, ("PA",))
    study, image = images[0].StudyInstanceUID, images[0].SOPInstanceUID
    assert send_to(server, save_all(tmp_path, images)).is_ok
    wait_for(lambda: "delivered" in server.get(f"/studies/{study}").text, what="delivered")
    for address in ("/", f"/studies/{study}", "/associations"):
        answer = server.get(address)
        assert (answer.status_code, Strict(answer.text).problems) == (200, [])
        assert str(images[0].PatientName) not in answer.text
        assert images[0].PatientID not in answer.text
    picture = server.get(f"/studies/{study}/images/{image}.png")
    assert imagecodecs.png_decode(picture.content).shape == (128, 128)
    assert len(painters(server)) == 1
    a_web_process_that_dies_takes_its_painter_along(server)


def a_web_process_that_dies_takes_its_painter_along(server: Hilum) -> None:
    (painter,), web = painters(server), processes(server, "api")
    kill(web)
    wait_for(lambda: not is_running(painter), what="the painter's end")
    server.wait_until_ready(START_SECONDS)
    assert painters(server) == []


def is_running(pid: int) -> bool:
    """False also for a zombie, whose command line is empty."""
    file = Path(f"/proc/{pid}/cmdline")
    return file.exists() and file.read_bytes() != b""
