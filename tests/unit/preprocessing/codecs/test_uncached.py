"""Files that are in no cache are read past it.

The same bytes, in memory that is used again and never under somebody's view.
"""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from hilum_preprocessing import decode, read_file
from hilum_preprocessing.uncached import uncached
from tests.support.machine.page_cache import bytes_read, dropped, is_in_memory
from tests.support.objects.encoders import encoded
from tests.support.objects.radiograph import radiograph, saved, under

MIB = 1 << 20
# Whose header is read from the file itself, through the page cache.
READ_BY_PYDICOM = {ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian}


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return dropped(path)


def read(path: Path) -> memoryview | None:
    with path.open("rb") as file:
        return read_mapped(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def read_mapped(path: Path, mapped: mmap.mmap) -> memoryview | None:
    with uncached(path, mapped) as direct:
        return None if direct is None else direct.first(direct.size)


def both(path: Path) -> tuple[Path, Dataset]:
    """A file on the disk alone, and a copy of it as it is mapped.

    Of what is mapped no page leaves the memory.
    """
    copy = Path(shutil.copyfile(path, path.with_name("copy.dcm")))
    return dropped(path), read_file(copy)


@pytest.mark.parametrize("size", [MIB, MIB + 1, 2 * MIB + 4095, 3 * MIB + 4096])
def test_all_bytes_are_read_and_none_stays_in_memory(tmp_path, size):
    content = os.urandom(size)
    path = written(tmp_path / "file", content)
    assert read(path) == content
    assert not is_in_memory(path)


def test_what_is_small_or_in_memory_is_left_to_the_mapping(tmp_path):
    assert read(written(tmp_path / "small", os.urandom(MIB - 1))) is None
    path = written(tmp_path / "file", os.urandom(MIB))
    path.read_bytes()
    assert read(path) is None


def test_what_is_very_large_takes_no_memory(tmp_path):
    """The header may refuse it: nothing of its size is allocated before."""
    path = tmp_path / "large"
    path.write_bytes(b"beginning")
    os.truncate(path, (64 << 20) + 1)
    assert read(dropped(path)) is None


def test_a_file_that_became_shorter_is_left_to_the_mapping(tmp_path):
    path = written(tmp_path / "file", os.urandom(2 * MIB))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    os.truncate(path, MIB)
    assert read_mapped(path, mapped) is None
    path.unlink()
    assert read_mapped(path, mapped) is None


def test_memory_is_used_again_and_never_below_a_view(tmp_path):
    first, second = os.urandom(MIB), os.urandom(MIB)
    one = read(written(tmp_path / "one", first))
    part = np.frombuffer(one, np.uint8)[10:20]
    address = np.frombuffer(one, np.uint8).ctypes.data
    del one
    two = read(written(tmp_path / "two", second))
    assert bytes(part) == first[10:20], "an array of the first file lives"
    assert two == second
    del part, two
    three = read(written(tmp_path / "three", first))
    assert np.frombuffer(three, np.uint8).ctypes.data != address, (
        "the second file's memory is the thread's now"
    )
    last = np.frombuffer(three, np.uint8).ctypes.data
    del three
    assert np.frombuffer(read(written(tmp_path / "four", second)), np.uint8).ctypes.data == last


def test_the_beginning_is_read_once(tmp_path):
    """What was read before may have been looked at, and is not read into again."""
    content = os.urandom(2 * MIB + 5)
    path = written(tmp_path / "file", content)
    with (
        path.open("rb") as file,
        uncached(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)) as direct,
    ):
        assert direct.first(10) == content[:10]
        path.write_bytes(bytes(len(content)))
        os.sync()
        assert direct.first(4096) == content[:4096]
        assert direct.first(direct.size) == content[:4096] + bytes(len(content) - 4096)


@pytest.mark.parametrize("uid", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless])
def test_what_nobody_wants_is_read_no_further(tmp_path, uid):
    pixels = np.random.default_rng(1).integers(0, 4096, (900, 800), np.uint16)
    dataset = encoded(pixels, uid, 12) if uid == RLELossless else radiograph(pixels, bits_stored=12)
    path, mapped = both(saved(tmp_path / "image.dcm", dataset, None if uid == RLELossless else uid))
    asked = []
    found = read_file(path, drops_page_cache=True, wants=lambda seen: bool(asked.append(seen)))
    assert found is asked[0]
    assert 0 < len(found.PixelData) < 256 << 10
    assert mapped.PixelData[: len(found.PixelData)] == found.PixelData
    del found.PixelData, mapped.PixelData
    assert found == mapped
    assert min(bytes_for(dropped(path), is_wanted=False) for _ in range(3)) < 512 << 10, (
        "others of this process may read, too"
    )
    assert bytes_for(dropped(path), is_wanted=True) > MIB
    assert not is_in_memory(path, MIB)


def bytes_for(path: Path, *, is_wanted: bool) -> int:
    """What comes from the disk."""
    before = bytes_read()
    read_file(path, drops_page_cache=True, wants=lambda _: is_wanted)
    return bytes_read() - before


@pytest.mark.parametrize("uid", [ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian])
def test_of_a_header_that_is_for_pydicom_nobody_is_asked(tmp_path, uid):
    pixels = np.random.default_rng(1).integers(0, 4096, (900, 800), np.uint16)
    path, _ = both(saved(tmp_path / "image.dcm", radiograph(pixels, bits_stored=12), uid))
    assert np.array_equal(
        decode(read_file(path, drops_page_cache=True, wants=lambda _: pytest.fail("asked"))).array,
        pixels,
    )


def test_pixels_that_begin_behind_the_beginning_are_wanted(tmp_path):
    """Nobody could say whether there are any."""
    dataset = radiograph(np.ones((800, 800), np.uint16))
    dataset.add_new(0x00091010, "UN", bytes(1000))
    path = saved(tmp_path / "image.dcm", under(dataset, ExplicitVRLittleEndian))
    short = (256 << 10) - path.read_bytes().index(b"\xe0\x7f\x10\x00OW")
    for over in (-14, -12, -10, 0, 10):
        dataset[0x00091010].value = bytes(1000 + short + over)
        path = saved(tmp_path / "image.dcm", under(dataset, ExplicitVRLittleEndian))
        asked = []
        found = read_file(
            dropped(path),
            drops_page_cache=True,
            wants=lambda seen, asked=asked: not asked.append(seen),
        )
        assert np.array_equal(decode(found).array, decode(dataset).array)
        assert bool(asked) == (over < -12)


@pytest.mark.parametrize(
    "uid",
    [ExplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian, RLELossless],
)
def test_a_data_set_is_the_same(tmp_path, uid):
    pixels = np.random.default_rng(1).integers(0, 4096, (900, 800), np.uint16)
    dataset = encoded(pixels, uid, 12) if uid == RLELossless else radiograph(pixels, bits_stored=12)
    path, mapped = both(saved(tmp_path / "image.dcm", dataset, None if uid == RLELossless else uid))
    found = read_file(path, drops_page_cache=True)
    assert not is_in_memory(path) or uid in READ_BY_PYDICOM
    assert found == mapped
    assert np.array_equal(decode(found).array, pixels)


def test_a_header_longer_than_what_is_looked_at_is_read(tmp_path):
    """It is pydicom's, which reads the file as it is."""
    dataset = radiograph(np.zeros((800, 800), np.uint16))
    dataset.add_new(0x00091010, "UN", os.urandom(MIB))
    path, mapped = both(saved(tmp_path / "image.dcm", under(dataset, ExplicitVRLittleEndian)))
    assert read_file(path, drops_page_cache=True) == mapped
