"""Every odd file of the test data through a whole server.

No crash, and each ends as docs/archive/odd_files.md says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import REASONS
from testing.serving import Hilum
from tests.support.objects import odd_files
from tests.support.objects.odd_files import Ended
from tests.support.server.installation import START_SECONDS, all_processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, test_data: Path) -> Iterator[Hilum]:
    with odd_files.server_for(tmp_path_factory.mktemp("odd")) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


@pytest.fixture(scope="module")
def processes_before(server: Hilum) -> list[int]:
    return all_processes(server)


@pytest.fixture(scope="module")
def ended(server: Hilum, processes_before: list[int], test_data: Path) -> list[Ended]:
    return odd_files.send_all(server, test_data)


def test_the_page_says_what_the_server_does(ended: list[Ended]) -> None:
    text = odd_files.PAGE.read_text(encoding="utf-8")
    fresh = odd_files.with_generated(text, odd_files.NAME, "\n".join(odd_files.table(ended)))
    assert fresh == text, (
        "run `python -m tests.support.objects.odd_files`, and read what has changed"
    )


def test_each_file_is_read_or_ends_for_a_reason_of_the_closed_list(ended: list[Ended]) -> None:
    assert len(ended) == 53
    known = set(REASONS)
    for item in ended:
        is_reading = item.end.startswith("analysed, view ")
        reasons = re.findall(r"^`([a-z_]+)`", item.end)
        assert is_reading or item.end in ("refused", "no image") or set(reasons) & known, item
        assert "`" in item.wire or item.wire.startswith(("stored", "answered Success")), item


def test_no_process_died(server: Hilum, processes_before: list[int], ended: list[Ended]) -> None:
    assert all_processes(server) == processes_before
    assert "decode_process_died" not in server.log.read_text()
    assert "[error" not in server.log.read_text()


def test_chest_radiographs_that_are_secondary_captures_are_read(ended: list[Ended]) -> None:
    chest = {item.file: item.end for item in ended if item.file.startswith("chest/rsna_")}
    assert len(chest) == 4
    assert all(end.startswith("analysed") for end in chest.values()), chest
