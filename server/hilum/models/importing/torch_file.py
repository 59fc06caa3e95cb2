"""The two forms of a torch file: zip (since torch 1.6) and the older stream.

Both have a pickle of names, and storages beside it.

Standard library only: this is part of the locked process (`convert`).
"""

from __future__ import annotations

import encodings.cp437  # noqa: F401 - names in zip files are decoded with it, and later nothing can be imported
import io
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from hilum.models.formats import pickled
from hilum.models.importing.restricted_unpickler import RestrictedUnpickler
from hilum.models.importing.storage import ELEMENTS, Storage

ReadStorage = Callable[[Storage], bytes]

_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL: Final = 1001
_ENCODING: Final = "latin1"  # encoding of Python 2's strings; it takes every byte


class Damaged(Exception):
    """The file is no torch file, or ends too early."""


def open_torch_file(source: BinaryIO) -> tuple[Any, ReadStorage]:
    """Return the saved object and a function that reads its storages.

    Nothing of the object is run. Raises Damaged, and the errors of unpickling.
    """
    is_zip = source.read(4) == b"PK\x03\x04"
    source.seek(0)
    return _open_zip(source) if is_zip else _open_legacy(source)


def _open_zip(source: BinaryIO) -> tuple[Any, ReadStorage]:
    archive = zipfile.ZipFile(source)
    entries = archive.namelist()
    names = [name for name in entries if name.endswith("data.pkl") and name.count("/") == 1]
    if len(names) != 1:
        raise Damaged("a zip file without data.pkl: no torch file")
    folder = names[0].removesuffix("data.pkl")
    order = f"{folder}byteorder"
    if pickled.is_scripted(entries):
        raise Damaged(pickled.SCRIPTED)
    if order in entries and _entry(archive, order) != b"little":
        raise Damaged("written by a big-endian machine")
    content = RestrictedUnpickler(io.BytesIO(_entry(archive, names[0])), encoding=_ENCODING).load()
    return content, lambda storage: _whole(_entry(archive, f"{folder}data/{storage.key}"), storage)


def _entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return an entry of the zip file.

    Torch never compresses; a compressed entry could be of any size and is refused.
    """
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise Damaged(f"it lacks {name!r}") from error
    if info.compress_type != zipfile.ZIP_STORED:
        raise Damaged(f"{name!r} is compressed, which torch never does")
    return archive.read(info)


def _whole(data: bytes, storage: Storage) -> bytes:
    if len(data) < _bytes(storage):
        raise Damaged(f"storage {storage.key!r} is shorter than it says")
    return data


def _open_legacy(source: BinaryIO) -> tuple[Any, ReadStorage]:
    """Open the older form.

    It has a magic number, the protocol, the machine, the object and the keys of its storages. Size
    and bytes of each storage follow.
    """
    if (_next(source), _next(source)) != (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
        raise Damaged("no torch file")
    if not _next(source).get("little_endian", True):
        raise Damaged("written by a big-endian machine")
    storages: dict[str, Storage] = {}
    content = _next(source, storages)
    places = _places(source, storages)

    def read(storage: Storage) -> bytes:
        source.seek(places[storage.key])
        return _whole(source.read(_bytes(storage)), storage)

    return content, read


def _places(source: BinaryIO, storages: dict[str, Storage]) -> dict[str, int]:
    """Return the offset of each storage's bytes in the file."""
    places: dict[str, int] = {}
    for key in _next(source):
        storage = storages.get(str(key))
        if storage is None or int.from_bytes(source.read(8), "little") != storage.size:
            raise Damaged(f"storage {key!r} is of another size than its tensors say")
        places[storage.key] = source.tell()
        source.seek(_bytes(storage), io.SEEK_CUR)
    return places


def _bytes(storage: Storage) -> int:
    return storage.size * ELEMENTS[storage.kind][1]


def _next(source: BinaryIO, storages: dict[str, Storage] | None = None) -> Any:  # noqa: ANN401 - whatever comes
    unpickler = _StorageRecorder(source, encoding=_ENCODING)
    content = unpickler.load()
    if storages is not None:
        storages.update(unpickler.storages)
    return content


class _StorageRecorder(RestrictedUnpickler):
    """An unpickler that keeps the storages.

    The older form gives their sizes only where a tensor uses them.
    """

    def __init__(self, source: BinaryIO, encoding: str) -> None:
        super().__init__(source, encoding=encoding)
        self.storages: dict[str, Storage] = {}

    def persistent_load(self, saved: Any) -> Any:  # noqa: ANN401 - as the file says
        loaded = super().persistent_load(saved)
        if isinstance(loaded, Storage):
            self.storages[loaded.key] = loaded
        return loaded
