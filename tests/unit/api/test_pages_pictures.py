"""Previews: what a viewer would show, made in a process that may crash, hang or lie without harm."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hilum.api.pages import render, render_process, render_worker
from hilum.api.pages.pictures import Cache
from hilum.api.pages.render_process import FAILED, NoPicture, Painter
from hilum.errors import Retry
from hilum_preprocessing import decode
from tests.support.objects.radiograph import radiograph, ramp
from tests.support.server import gallery
from tests.support.server.api_client import Rig, open_rig

PIXELS = 100_000_000


@pytest.fixture(scope="module")
def hand() -> Iterator[Painter]:
    made = Painter(seconds=60.0)
    yield made
    made.stop()


def shown(array: NDArray[Any], bits: int = 12, **attributes: Any) -> NDArray[np.uint8]:
    return render.display(decode(radiograph(array, bits, **attributes)))


def test_without_a_window_the_whole_range_is_shown() -> None:
    picture = shown(ramp(16, 16) // 2 + 100)
    assert (picture[0, 0], picture[-1, -1]) == (0, 255)
    assert np.all(np.diff(picture.ravel().astype(int)) >= 0)


def test_monochrome1_shows_its_smallest_value_white() -> None:
    """PS3.3 C.7.6.3.1.2."""
    assert np.array_equal(
        shown(ramp(16, 16), PhotometricInterpretation="MONOCHROME1"), 255 - shown(ramp(16, 16))
    )


def test_a_modality_lut_that_cannot_be_used_hides_no_picture() -> None:
    assert np.array_equal(
        shown(ramp(16, 16), RescaleSlope=0, RescaleIntercept=0), shown(ramp(16, 16))
    )


def test_a_table_of_another_depth_than_it_says_is_no_black_picture() -> None:
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [4096, 0, 16], list(range(4096))
    assert np.array_equal(shown(ramp(16, 16), VOILUTSequence=Sequence([item])), shown(ramp(16, 16)))


def test_the_objects_own_window_is_used() -> None:
    """PS3.3 C.11.2.1.2: below c - 0.5 - (w-1)/2 black, above c - 0.5 + (w-1)/2 white."""
    picture = shown(ramp(64, 64), WindowCenter=1000, WindowWidth=200)
    stored = ramp(64, 64)
    assert np.all(picture[stored < 899] == 0)
    assert np.all(picture[stored > 1100] == 255)
    assert 100 < picture[np.abs(stored.astype(int) - 1000) < 3].mean() < 155


def test_a_voi_lut_is_used() -> None:
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [4096, 0, 8], [255 - value // 16 for value in range(4096)]
    picture = shown(ramp(16, 16), VOILUTSequence=Sequence([item]))
    assert (picture[0, 0], picture[-1, -1]) == (255, 0)


def test_a_voi_lut_goes_before_a_window() -> None:
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [4096, 0, 8], [255 - value // 16 for value in range(4096)]
    both = shown(ramp(16, 16), VOILUTSequence=Sequence([item]), WindowCenter=1000, WindowWidth=2000)
    assert np.array_equal(both, shown(ramp(16, 16), VOILUTSequence=Sequence([item])))


def test_a_window_that_shows_nothing_is_left_out() -> None:
    picture = shown(ramp(16, 16), WindowCenter=-100000, WindowWidth=10)
    assert (picture.min(), picture.max()) == (0, 255)


def test_rescale_comes_before_the_window() -> None:
    picture = shown(
        ramp(16, 16), RescaleSlope=2, RescaleIntercept=-1000, WindowCenter=1000, WindowWidth=2000
    )
    assert (picture[0, 0], picture[-1, -1]) == (0, 255)
    assert picture[np.abs(ramp(16, 16).astype(int) - 1000) < 9].mean() == pytest.approx(127, abs=6)


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_padding_is_black_and_takes_no_part(photometric: str) -> None:
    array = ramp(16, 16) // 2 + 500
    array[:2] = 0
    picture = shown(array, PixelPaddingValue=0, PhotometricInterpretation=photometric)
    assert np.all(picture[:2] == 0)
    assert (picture[2:].min(), picture[2:].max()) == (0, 255)


def test_signed_values_are_shown_in_their_order() -> None:
    picture = shown((ramp(16, 16).astype(np.int32) - 2048).astype(np.int16))
    assert (picture[0, 0], picture[-1, -1]) == (0, 255)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((640, 512), (640, 512)),
        ((1024, 1025), (512, 512)),
        ((3000, 2500), (1000, 833)),
        ((1, 5000), (1, 1000)),
        ((2048, 3, 3), (1024, 1, 3)),
    ],
)
def test_large_pictures_shrink(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    small = render.shrink(np.full(shape, 77, np.uint8), 1024)
    assert small.shape == expected
    assert np.all(small == 77)


def test_a_fine_pattern_becomes_grey_and_no_moire() -> None:
    board = np.indices((2048, 2048)).sum(axis=0).astype(np.uint8) % 2 * 255
    assert set(np.unique(render.shrink(board, 1024))) <= {127, 128}


def test_a_png_holds_nothing_but_pixels() -> None:
    content = render.png(np.zeros((4, 4), np.uint8))
    assert not [
        chunk for chunk in (b"tEXt", b"iTXt", b"zTXt", b"eXIf", b"tIME") if chunk in content
    ]


def test_heat_maps_keep_their_colours() -> None:
    picture = render.paint_document(gallery.heat_map(64))
    assert picture.shape == (64, 64, 3)
    assert picture[38, 41, 0] > 240  # the hot spot is red


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\x00" * 128 + b"DICM", gallery.heat_map(8)[:-100]]
)
def test_a_document_that_is_no_picture(hand: Painter, content: bytes) -> None:
    assert isinstance(hand.paint(content, PIXELS), NoPicture)


def save(folder: Path, dataset: Dataset) -> Path:
    dataset.SOPInstanceUID = "1.2.3"
    file = folder / "image.dcm"
    dataset.save_as(file, enforce_file_format=True)
    return file


def test_a_stored_image_becomes_a_png(hand: Painter, tmp_path: Path) -> None:
    content = hand.paint(save(tmp_path, radiograph(ramp(32, 48), 12)), PIXELS)
    assert isinstance(content, bytes)
    assert imagecodecs.png_decode(content).shape == (32, 48)


def test_more_pixels_than_allowed_are_not_decoded(hand: Painter, tmp_path: Path) -> None:
    found = hand.paint(save(tmp_path, radiograph(ramp(32, 48), 12)), 1000)
    assert isinstance(found, NoPicture)
    assert found.reason == "too_large"


def test_a_file_that_is_gone_is_said_to_be_gone(hand: Painter, tmp_path: Path) -> None:
    assert hand.paint(tmp_path / "nowhere.dcm", PIXELS) == NoPicture(render_worker.GONE)


def test_every_odd_file_gives_a_picture_or_a_reason(hand: Painter, test_data: Path) -> None:
    found = [hand.paint(file, PIXELS) for file in sorted((test_data / "dicom").rglob("*.dcm"))]
    assert len(found) > 40
    assert not [
        answer for answer in found if isinstance(answer, NoPicture) and answer.reason == FAILED
    ]
    assert sum(isinstance(answer, bytes) for answer in found) > 10


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A file that never ends to be read: it hangs its readers."""
    file = tmp_path / "endless.dcm"
    os.mkfifo(file)
    return file


def test_an_image_that_hangs_costs_its_process_and_no_more(endless: Path, tmp_path: Path) -> None:
    hand = Painter(seconds=1.0)
    assert hand.paint(endless, PIXELS) == NoPicture(FAILED)
    hand._seconds = 60.0  # the next process imports its codecs, behind everybody else
    assert isinstance(hand.paint(save(tmp_path, radiograph(ramp(8, 8), 12)), PIXELS), bytes)
    hand.stop()


def test_an_image_that_crashes_costs_its_process_and_no_more(endless: Path, tmp_path: Path) -> None:
    hand = Painter(seconds=60.0)
    hand.paint(tmp_path / "nowhere.dcm", PIXELS)  # the process runs
    assert hand._process is not None
    threading.Timer(0.3, hand._process.send_signal, (signal.SIGSEGV,)).start()
    assert hand.paint(endless, PIXELS) == NoPicture(FAILED)
    assert isinstance(hand.paint(save(tmp_path, radiograph(ramp(8, 8), 12)), PIXELS), bytes)
    hand.stop()


def test_a_process_that_has_ended_by_itself_is_replaced(tmp_path: Path) -> None:
    hand = Painter(seconds=60.0)
    for _ in range(2):
        assert isinstance(hand.paint(save(tmp_path, radiograph(ramp(8, 8), 12)), PIXELS), bytes)
        assert hand._process is not None
        hand._process.terminate()
        hand._process.wait()
    hand.stop()


def test_the_process_knows_no_secrets_and_ends_with_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HILUM_API__TOKEN", "secret")
    hand = Painter()
    hand.paint(tmp_path / "nowhere.dcm", PIXELS)
    assert hand._process is not None
    assert hand._pipe is not None
    assert b"secret" not in Path(f"/proc/{hand._process.pid}/environ").read_bytes()
    hand._pipe.close()
    assert hand._process.wait(60) == 0


def test_the_kernel_ends_a_process_whose_parent_has_gone(endless: Path) -> None:
    hand = Painter(seconds=60.0)
    pipe = hand._ready_pipe()
    pipe.send(render_worker.PaintRequest(endless, PIXELS, seconds=1))
    assert hand._process is not None
    assert hand._process.wait(20) == -signal.SIGALRM


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b"\xff", b'{"reason": 1}', b"null", json.dumps("x").encode()]
)
def test_nonsense_from_the_process_is_no_picture(answer: bytes) -> None:
    assert render_process._no_picture(answer) == NoPicture(FAILED)


def test_too_many_at_once_are_sent_away(hand: Painter) -> None:
    for _ in range(render_process._WAITING):
        assert hand._waiting.acquire(blocking=False)
    with pytest.raises(Retry, match="too many pictures"):
        hand.paint(Path("/nowhere"), PIXELS)
    for _ in range(render_process._WAITING):
        hand._waiting.release()
    assert hand.paint(Path("/nowhere"), PIXELS) == NoPicture(render_worker.GONE)


def test_the_cache_is_bounded_and_forgets_failures() -> None:
    now = [0.0]
    cache = Cache(limit_bytes=250, clock=lambda: now[0])
    for name in ("a", "b", "c"):
        cache.put(name, name.encode() * 100)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, b"b" * 100, b"c" * 100)
    cache.put("huge", b"x" * 1000)
    assert (cache.get("huge"), cache.get("c")) == (b"x" * 1000, None)
    cache.put("bad", NoPicture(FAILED))
    assert cache.get("bad") == NoPicture(FAILED)
    now[0] += 301
    assert cache.get("bad") is None


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with open_rig(tmp_path_factory.mktemp("pictures")) as rig:
        gallery.fill(rig)
        yield rig


def image(uid: str, number: int = 1) -> str:
    return f"/studies/{uid}/images/{uid}.{number}.png"


def test_the_preview_of_a_stored_image(filled: Rig) -> None:
    for _ in range(2):  # the second is kept
        response = filled.client.get(image(gallery.TRAINED))
        assert (response.status_code, response.headers["content-type"]) == (200, "image/png")
        assert response.headers["cache-control"] == "no-store"
        assert imagecodecs.png_decode(response.content).shape == (640, 512)


def test_pixels_that_are_gone_are_said_to_be_gone(filled: Rig) -> None:
    response = filled.client.get(image(gallery.DEAD))
    assert (response.status_code, response.headers["content-type"]) == (410, "image/svg+xml")
    assert "The pixels have left" in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]


def test_a_hostile_file_gives_its_reason_and_the_server_goes_on(filled: Rig) -> None:
    file = filled.folder / "archive" / "studies" / f"{gallery.LATERAL}.1.dcm"
    file.write_bytes(b"\x00" * 128 + b"DICM" + os.urandom(5000))
    response = filled.client.get(image(gallery.LATERAL))
    assert (response.status_code, response.headers["content-type"]) == (422, "image/svg+xml")
    assert "No picture" in response.text
    assert filled.client.get("/").status_code == 200


def test_a_heat_map_is_a_picture_and_a_report_is_none(filled: Rig) -> None:
    papers = {
        item["kind"]: item["id"]
        for item in filled.get(f"/api/v1/studies/{gallery.TRAINED}/documents")["documents"]
    }
    response = filled.client.get(f"/documents/{papers['heatmap']}.png")
    assert imagecodecs.png_decode(response.content).shape == (256, 256, 3)
    for kind in ("sr", "json"):
        assert filled.client.get(f"/documents/{papers[kind]}.png").status_code == 404
