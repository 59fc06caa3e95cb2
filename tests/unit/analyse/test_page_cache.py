"""What was read of the archive gives its memory back, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hilum.analyse.decode.page_cache import drop_pages
from tests.support.machine.page_cache import can_be_dropped, is_in_memory


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A durable file whose pages are in memory."""
    path = tmp_path / "image.dcm"
    path.write_bytes(os.urandom(1 << 20))
    if not can_be_dropped(path):
        pytest.skip("this file system keeps its files in memory")
    assert is_in_memory(path)
    return path


def test_a_file_whose_pages_are_dropped_is_read_from_the_disk_again(image: Path) -> None:
    content = image.read_bytes()
    drop_pages(image)
    assert not is_in_memory(image)
    assert image.read_bytes() == content


def test_a_file_that_has_gone_is_no_error(tmp_path: Path) -> None:
    drop_pages(tmp_path / "erased.dcm")
    assert not list(tmp_path.iterdir())
