"""A list of PNG and JPEG files as a source of images."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import Final

from hilum.domain import ExpectedImage
from hilum.retrieve.files.files_source import not_queried
from hilum.retrieve.files.parallel_fetch import FetchLimit, ParallelFetch
from hilum.retrieve.files.picture_list import PictureList, PictureRow
from hilum.retrieve.files.picture_object import PictureRefused, picture_object
from hilum.retrieve.files.scan import error_text
from hilum.retrieve.source import (
    Answers,
    FetchReport,
    FetchRequest,
    ObjectStore,
    PartOutcome,
    ProbeLine,
    Query,
    SourceError,
)

_MOST_BYTES: Final = 256 << 20  # of one file; a PNG of 4096 x 4096 and 16 bits has 32 MiB
_CHUNK_BYTES: Final = 1 << 20


class PicturesSource:
    """The pictures of a list, each made a Secondary Capture object with the UIDs of its row.

    `begin` of the store is called in four threads at once, and each part is used by one of them.
    """

    def __init__(self, pictures: PictureList) -> None:
        self._pictures = pictures
        self._rows = _RowIndex(pictures)
        self._parallel = ParallelFetch()

    def probe(self) -> Sequence[ProbeLine]:
        """Say whether the list can be read. Never raises."""
        try:
            next(self._pictures.rows(), None)
        except SourceError as error:
            return [ProbeLine("list", error.detail, is_ok=False)]
        return [ProbeLine("list", "can be read", is_ok=True)]

    def find(self, query: Query) -> Answers:  # noqa: ARG002 - the interface
        """Raise SourceError: files are listed, and not queried."""
        raise not_queried()

    def images(
        self,
        study_instance_uid: str,  # noqa: ARG002 - the interface
        series_instance_uid: str,  # noqa: ARG002
    ) -> Sequence[ExpectedImage]:
        """Raise SourceError: the plan has found the images already."""
        raise not_queried()

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Make an object of each picture and store it. The report names those that give none."""

        def copy(image: ExpectedImage, limit: FetchLimit) -> PartOutcome:
            content = self._object_or_problem(wanted, image)
            if isinstance(content, PartOutcome):
                return content
            return _stored(content, image.origin, store, limit)

        return self._parallel.fetch(wanted, stop, copy)

    def close(self) -> None:
        """End the threads; may be called twice."""
        self._parallel.close()
        self._rows.close()

    def _object_or_problem(self, wanted: FetchRequest, image: ExpectedImage) -> bytes | PartOutcome:
        """Return the object of a picture, or why there is none. Raises SourceError."""
        uid = image.sop_instance_uid
        try:
            return self._object_of(wanted, image)
        except PictureRefused as error:
            return PartOutcome(uid, error.detail)
        except OSError as error:
            self._pictures.locations.require_there(image.origin)
            if isinstance(error, FileNotFoundError):
                return PartOutcome(uid, "the file is not there")
            problem = f"the file cannot be read: {error_text(error)}"
            return PartOutcome(uid, problem, is_transient=True)

    def _object_of(self, wanted: FetchRequest, image: ExpectedImage) -> bytes:
        """Return the object of a picture. Raises PictureRefused, OSError, SourceError."""
        found = self._rows.find(image.sop_instance_uid)
        if found is None:
            raise PictureRefused("its row is not in the list any more; plan the list again")
        view, day, patient = found
        data = self._pictures.locations.read(image.origin, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise PictureRefused(f"the file has more than {_MOST_BYTES >> 20} MiB")
        return picture_object(
            data,
            wanted.study_instance_uid,
            wanted.series_instance_uid,
            image.sop_instance_uid,
            view=view,
            study_date=day,
            patient_id=patient,
        )


def _stored(content: bytes, origin: str, store: ObjectStore, limit: FetchLimit) -> PartOutcome:
    part = store.begin(origin)
    try:
        for start in range(0, len(content), _CHUNK_BYTES):
            limit.check()
            part.write(content[start : start + _CHUNK_BYTES])
    except BaseException:
        part.abandon()
        raise
    return part.end()


class _RowIndex:
    """View, day and patient of each picture by SOP Instance UID, in a temporary file of SQLite.

    It is made at the first question: a list may have a million rows.
    """

    def __init__(self, pictures: PictureList) -> None:
        self._pictures = pictures
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None

    def find(self, sop_instance_uid: str) -> tuple[str, str, str] | None:
        """Return view, day and patient; None: no row. Raises OSError, SourceError."""
        with self._lock:
            if self._database is None:
                self._database = self._made()
            row: tuple[str, str, str] | None = self._database.execute(
                "SELECT view, day, patient FROM pictures WHERE uid = ?", (sop_instance_uid,)
            ).fetchone()
        return row

    def close(self) -> None:
        """Delete it; may be called twice."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _made(self) -> sqlite3.Connection:
        database = sqlite3.connect("", check_same_thread=False)
        database.execute(
            "CREATE TABLE pictures (uid TEXT PRIMARY KEY, view TEXT, day TEXT, patient TEXT)"
            " WITHOUT ROWID"
        )
        database.executemany(
            "INSERT INTO pictures VALUES (?, ?, ?, ?)",
            (
                (row.sop_instance_uid, row.view, row.day, row.patient)
                for row in self._pictures.rows()
                if isinstance(row, PictureRow)
            ),
        )
        return database
