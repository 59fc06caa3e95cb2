"""A disk that fills up in the middle of a STOW-RS request.

What fits is stored and said to be, the rest is refused and leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom import Dataset

from hilum.store.archive.archive import Archive
from testing.phantoms.phantom import make_instance
from testing.serving import Hilum
from tests.support.ledger.database import rows_of
from tests.support.machine.disks import fill_to, small_disk
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import make_tiny
from tests.support.peers.stow import archived, body, encoded, failures, post
from tests.support.server.installation import hilum_with, is_up
from tests.support.server.listening import unindexed

MIB = 1 << 20
_LIMITS = {
    "to the reserve": {"reserve_bytes": 2 * MIB, "reject_bytes": 2 * MIB},
    "to the last byte": {"reserve_bytes": 0, "reject_bytes": 0},
}


@pytest.fixture(scope="module", params=_LIMITS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hilum]:
    """The archive has a file system of 32 MiB for itself, and 6 MiB of it to use."""
    folder = tmp_path_factory.mktemp("stow")
    (folder / "hilum/state").mkdir(parents=True)
    tiny, limits = make_tiny(folder / "tiny"), _LIMITS[request.param]
    with (
        small_disk(folder / "hilum/state/archive", 32) as archive,
        hilum_with(folder / "hilum", tiny, {}, role="api", receive=limits) as running,
    ):
        wait_for(lambda: is_up(running), what="the web process")
        fill_to(archive, limits["reserve_bytes"] + 6 * MIB)
        yield running


def image(seed: int, mebibytes: int = 0) -> Dataset:
    """With so many pixels."""
    made = make_instance(seed, rows=64, columns=64)
    if mebibytes:
        made.Rows, made.Columns, made.PixelData = mebibytes * 512, 1024, bytes(mebibytes * MIB)
    return made


def remains(server: Hilum) -> list[Path]:
    return list(unindexed(Archive(server.folder / "state/archive")))


def test_what_fits_is_stored_and_the_rest_may_come_again(server: Hilum) -> None:
    first, large, last = image(61), image(62, 12), image(63)
    answer = post(server, body(encoded(first), encoded(large), encoded(last)))
    assert answer.status_code == 202, answer.text
    assert failures(answer) == {str(large.SOPInstanceUID): 0xA700}
    assert [item["00081155"]["Value"][0] for item in answer.json()["00081199"]["Value"]] == [
        first.SOPInstanceUID,
        last.SOPInstanceUID,
    ]
    wait_for(lambda: not remains(server), what="their places")
    assert [
        row["sop_instance_uid"]
        for row in rows_of(
            server.folder / "state", "SELECT * FROM instance ORDER BY sop_instance_uid"
        )
    ] == sorted((first.SOPInstanceUID, last.SOPInstanceUID))
    for sent in (first, last):
        assert encoded(sent).endswith(archived(server, str(sent.SOPInstanceUID)))


def test_where_nothing_fits_the_same_request_later_may_succeed(server: Hilum) -> None:
    large = image(64, 12)
    answer = post(server, body(encoded(large)))
    assert (answer.status_code, failures(answer)) == (503, {str(large.SOPInstanceUID): 0xA700}), (
        answer.text
    )
    assert "Retry-After" in answer.headers
    assert remains(server) == []
    (server.folder / "state/archive/fill").unlink()
    again = post(server, body(encoded(large)))
    assert again.status_code == 200, again.text
    wait_for(
        lambda: rows_of(
            server.folder / "state",
            "SELECT 1 FROM instance WHERE sop_instance_uid = ?",
            str(large.SOPInstanceUID),
        ),
        what="its row",
    )
    assert encoded(large).endswith(archived(server, str(large.SOPInstanceUID)))
