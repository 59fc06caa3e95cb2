"""What was read of the archive gives its memory back, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hilum.analyse.page_cache import drop_pages
from tests.support.page_cache import is_in_memory


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A durable file whose pages are in memory."""
    path = tmp_path / "image.dcm"
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    if not is_in_memory(path):
        pytest.skip("this file system does not say what is in memory")
    return path


def test_a_file_whose_pages_are_dropped_is_read_from_the_disk_again(image: Path) -> None:
    content = image.read_bytes()
    drop_pages(image)
    assert not is_in_memory(image)
    assert image.read_bytes() == content


def test_a_file_that_has_gone_is_no_error(tmp_path: Path) -> None:
    drop_pages(tmp_path / "erased.dcm")
