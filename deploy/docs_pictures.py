"""`make docs-pictures`: the README's pictures in docs/pictures.

A study's page, a heat map, the pages of a campaign and of a comparison, and the diagram.

Hilum itself draws them. It reads a phantom with the untrained weights that it brings, and Debian's
Chromium shows the page. No patient is in a picture.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import httpx
import pydicom
from PIL import Image
from playwright.sync_api import sync_playwright
from pydicom.uid import SecondaryCaptureImageStorage

from deploy import docs_diagram
from hilum.services.campaigns.comparison_page import page
from testing.campaign_rows import seed_spring
from testing.phantoms import phantom
from testing.sample_comparison import sample_comparison
from testing.serving import Hilum, hilum_program

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs/pictures"
_OPTIONS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_MOST_BYTES: Final = 200_000  # of a picture
_SECONDS: Final = 240.0
_WIDTH: Final = 1280
_HEIGHT: Final = 860
_CAMPAIGN_HEIGHT: Final = 980
_COMPARISON_HEIGHT: Final = 900
_CAPTURE_SIDE: Final = 1000
_CAPTURES: Final = {"heat_map.png": "AI heat map", "result_sheet.png": "AI result"}


class NotDrawn(Exception):
    """Why there is no picture, for people."""


def main() -> int:
    """Exit status 0: all pictures are written."""
    FOLDER.mkdir(exist_ok=True)
    docs_diagram.write()
    try:
        with tempfile.TemporaryDirectory(prefix="hilum-pictures-") as name:
            _draw(Path(name))
            draw_campaign(Path(name))
            draw_comparison(Path(name))
    except NotDrawn as reason:
        print(f"docs_pictures: {reason}", file=sys.stderr)
        return 1
    return 0


def _draw(folder: Path) -> None:
    """One study through a server of its own, then its pictures."""
    browser = _browser()
    outbox = folder / "outbox"
    destination = {
        "kind": "folder",
        "path": str(outbox),
        "documents": ["sr", "heatmap", "sheet"],
        "accept_untrained": True,
    }
    hilum = Hilum(folder / "hilum", {"pacs": destination}, studies={"quiet_seconds": 2.0})
    hilum.write_settings()
    subprocess.run(hilum.command("models", "build"), check=True)
    images = phantom.make_study(seed=3, views=("PA",), rows=1536, columns=1280)
    files = [phantom.save(image, folder / f"{image.ViewPosition}.dcm") for image in images]
    with hilum:
        hilum.wait_until_ready(_SECONDS)
        _send(hilum, files)
        uid = str(images[0].StudyInstanceUID)
        _wait_for_documents(hilum, uid)
        _photograph(hilum, browser, f"/studies/{uid}", "study.png", _HEIGHT)
    for name, title in _CAPTURES.items():
        _save_capture(outbox, name, title)


def draw_campaign(folder: Path) -> None:
    """Draw the page of a campaign whose rows stand in a ledger that only an API shows."""
    browser = _browser()
    hilum = Hilum(folder / "campaign", {})
    hilum.role = "api"
    hilum.write_settings()
    subprocess.run(hilum.command("migrate"), check=True)
    with hilum:
        _wait_until_it_answers(hilum)
        seed_spring(f"sqlite:///{hilum.folder / 'state/ledger.sqlite'}", time.time(), "chest-2019")
        _photograph(hilum, browser, "/campaigns/chest-2019", "campaign.png", _CAMPAIGN_HEIGHT)


def draw_comparison(folder: Path) -> None:
    """Draw the page of `hilum campaign compare` with invented numbers."""
    file = folder / "compare.html"
    made = page(sample_comparison(), "Campaign lung-2019", "2026-11-20 09:09 UTC")
    file.write_text(made, encoding="utf-8")
    _save(_shot([file.as_uri()], _browser(), _COMPARISON_HEIGHT), "compare.png")


def _wait_until_it_answers(hilum: Hilum) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and hilum.is_running:
        with contextlib.suppress(httpx.HTTPError):
            if hilum.get("/api/v1/campaigns").is_success:
                return
        time.sleep(0.5)
    raise NotDrawn(f"the API does not answer\n{hilum.log_end()}")


def _browser() -> str:
    """The program of Chromium. Raises NotDrawn."""
    browser = shutil.which("chromium")
    if browser is None:
        raise NotDrawn("Chromium is missing: sudo deploy/debian-packages.sh")
    return browser


def _send(hilum: Hilum, files: Iterable[Path]) -> None:
    address = f"HILUM@127.0.0.1:{hilum.dicom_port}"
    command = [hilum_program(), "send", *map(str, files), "--to", address, "--from", "CHEST_ROOM_1"]
    subprocess.run(command, check=True)


def _wait_for_documents(hilum: Hilum, uid: str) -> None:
    """Until each document of the study is delivered. Raises NotDrawn after a while."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        answer = hilum.get(f"/api/v1/studies/{uid}")
        if answer.is_success and _is_delivered(answer.json()):
            return
        time.sleep(0.5)
    raise NotDrawn(f"the study is not delivered after {_SECONDS:.0f} s\n{hilum.log_end()}")


def _is_delivered(study: dict[str, Any]) -> bool:
    states = [
        delivery["state"]
        for result in study["results"]
        for document in result["documents"]
        for delivery in document["deliveries"]
    ]
    return len(states) > 1 and set(states) == {"delivered"}


def _photograph(hilum: Hilum, browser: str, path: str, name: str, height: int) -> None:
    """The upper part of a page, as the picture of this name."""
    link = subprocess.run(
        hilum.command("login"), capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    _save(_shot([link, f"{hilum.api}{path}"], browser, height), name)


def _shot(addresses: Iterable[str], browser: str, height: int) -> Image.Image:
    """Visit these addresses, and return the upper part of the last page."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=_OPTIONS)
        tab = chromium.new_page(viewport={"width": _WIDTH, "height": height})
        for address in addresses:
            tab.goto(address)
        tab.wait_for_load_state("networkidle")
        picture = Image.open(io.BytesIO(tab.screenshot()))
        chromium.close()
    return picture


def _save_capture(outbox: Path, name: str, title: str) -> None:
    """The Secondary Capture of this title that the destination received. Raises NotDrawn."""
    for path in sorted(outbox.rglob("*.dcm")):
        dataset = pydicom.dcmread(path)
        is_capture = dataset.SOPClassUID == SecondaryCaptureImageStorage
        if is_capture and dataset.SeriesDescription.startswith(title):
            picture = Image.fromarray(dataset.pixel_array)
            picture.thumbnail((_CAPTURE_SIDE, _CAPTURE_SIDE))
            _save(picture, name)
            return
    raise NotDrawn(f"no {title} was delivered")


def _save(picture: Image.Image, name: str) -> None:
    """As a PNG of at most 256 colours and `_MOST_BYTES` bytes. Raises NotDrawn."""
    buffer = io.BytesIO()
    picture.convert("RGB").quantize(256).save(buffer, "PNG", optimize=True)
    if len(buffer.getvalue()) > _MOST_BYTES:
        raise NotDrawn(f"{name} has {len(buffer.getvalue())} bytes, {_MOST_BYTES} are allowed")
    path = FOLDER / name
    path.write_bytes(buffer.getvalue())
    print(f"docs/pictures/{name}: {picture.width} x {picture.height}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
