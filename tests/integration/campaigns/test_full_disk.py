"""A campaign larger than the disk: it fetches, reads and releases, and leaves live images room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.phantoms.phantom import make_study, save
from testing.serving import Hilum
from tests.support.machine.disks import small_disk
from tests.support.models.releases import make_tiny
from tests.support.server.campaigns import await_end, hilum, rows
from tests.support.server.installation import START_SECONDS, hilum_with

pytestmark = pytest.mark.slow
MIB = 1 << 20
DISK = 24
LEFT_TO_LIVE = 10
STUDIES = 50  # of 512 KiB, 25 MiB in all


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Hilum]:
    """The archive has a file system for itself, smaller than the campaign."""
    (tmp_path / "hilum/state").mkdir(parents=True)
    receive = {
        "reserve_bytes": 4 * MIB,
        "reject_bytes": (LEFT_TO_LIVE - 1) * MIB,
        "maximum_object_bytes": MIB,
    }
    with (
        small_disk(tmp_path / "hilum/state/archive", DISK),
        hilum_with(
            tmp_path / "hilum",
            make_tiny(tmp_path / "tiny"),
            {},
            quiet_seconds=0.2,
            receive=receive,
        ) as running,
    ):
        running.wait_until_ready(START_SECONDS)
        yield running


def test_a_campaign_larger_than_the_disk_is_read_and_leaves_room_for_live_images(
    server: Hilum, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    for number in range(STUDIES):
        (image,) = make_study(seed=number, views=("PA",), rows=512, columns=512)
        save(image, tmp_path / "old" / f"{number}.dcm")
    hilum(server, "campaign", "plan", "large", "--folder", str(tmp_path / "old"))
    lowest = [DISK * MIB]

    def look() -> None:
        found = os.statvfs(server.folder / "state/archive")
        lowest.append(found.f_bavail * found.f_frsize)

    hilum(server, "campaign", "run", "large", "--release", "tiny@1")
    await_end(server, "large", 180, meanwhile=look)

    assert rows(server, "SELECT state, count(*) FROM campaign_series GROUP BY state") == [
        ("read", STUDIES)
    ]
    assert rows(server, "SELECT state, count(*) FROM campaign_image GROUP BY state") == [
        ("released", STUDIES)
    ]
    assert min(lowest) >= (LEFT_TO_LIVE - 1) * MIB, "live images were rejected"
    assert min(lowest) < LEFT_TO_LIVE * MIB + MIB, "the disk was never nearly full"
