"""The identity of an archive: a small file that all its hosts share.

It names the installation, so that another installation's archive is recognised. It names the
archive itself, so that two archives of one installation differ.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hilum.store.archive.directory_sync import sync_folder

FILE_NAME: Final = "hilum-archive.json"


@dataclass(frozen=True, slots=True)
class ArchiveIdentity:
    """`installation`: the number of the ledger's installation; `archive`: drawn with the file."""

    installation: str
    archive: str

    def dump(self) -> bytes:
        """Return the file's content."""
        return json.dumps(asdict(self)).encode() + b"\n"


def drawn_identity(installation: str) -> ArchiveIdentity:
    """Return the identity of a new archive."""
    return ArchiveIdentity(installation, uuid.uuid4().hex)


def parse_identity(content: bytes) -> ArchiveIdentity:
    """Return the identity in a file's content. Raises ValueError."""
    try:
        found = json.loads(content)
        return ArchiveIdentity(str(found["installation"]), str(found["archive"]))
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


def read_identity(root: Path) -> ArchiveIdentity | None:
    """Return the identity of the archive; None: it has none, or is not there.

    Raises OSError where the file cannot be read, also where it holds something else.
    """
    file = root / FILE_NAME
    try:
        return parse_identity(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        problem = (
            "it is not the identity of an archive; if that of this ledger is mounted there, remove"
            " it, and it is written anew"
        )
        raise OSError(0, problem, str(file)) from error


def begin_identity(root: Path, installation: str) -> ArchiveIdentity:
    """Return the identity of the archive, which is drawn where it has none. Raises OSError.

    Several hosts may do this at once: the first one draws it.
    """
    if (known := read_identity(root)) is not None:
        return known
    drawn = drawn_identity(installation)
    part = root / f".{FILE_NAME}.{uuid.uuid4().hex}"
    try:
        # An identity that a power cut left empty would keep every host from starting.
        with part.open("wb") as stream:
            stream.write(drawn.dump())
            stream.flush()
            os.fsync(stream.fileno())
        _name(part, root / FILE_NAME)
        sync_folder(root)
    except OSError as error:
        error.filename = str(root / FILE_NAME)  # a write names no file: which disk is full?
        raise
    finally:
        part.unlink(missing_ok=True)
    return read_identity(root) or drawn


def _name(part: Path, file: Path) -> None:
    """Give the file its name, if no other host has done so."""
    try:
        os.link(part, file)
    except FileExistsError:
        return
    except OSError:  # no hard links here: EPERM, on CIFS EOPNOTSUPP, on FUSE ENOSYS
        part.rename(file)
