"""A list of PNG and JPEG files, as CSV: its rows, and the UIDs of the objects that they become."""

from __future__ import annotations

import csv
import gzip
import hashlib
import hmac
import io
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from hilum.domain import ListRow, RowOutcome, mint_uid
from hilum.retrieve.files.header import day_of
from hilum.retrieve.files.locations import Locations
from hilum.retrieve.files.picture_layout import PictureColumns, PictureLayout, RowTexts, layout_of
from hilum.retrieve.files.scan import error_text
from hilum.retrieve.source import SourceError

_NAMESPACE: Final = uuid.UUID("6f2f8f8e-6d0e-4c0b-9a55-3e0c5d0f7b1a")
_DELIMITERS: Final = ",;\t"
_PATIENT_DIGITS: Final = 32
_ANY_COLUMN: Final = PictureColumns()


@dataclass(frozen=True, slots=True)
class PictureRow:
    """One picture of a list. `number`: as a spreadsheet counts, the header is row 1.

    `locations`: absolute paths or URLs, of which the first that exists is the picture. `patient`: a
    keyed digest; empty: unknown. `day`: YYYYMMDD, or empty.
    """

    number: int
    locations: tuple[str, ...]
    study_instance_uid: str
    series_instance_uid: str
    sop_instance_uid: str
    view: str = ""
    day: str = ""
    patient: str = ""


class PictureList:
    """A CSV file of pictures, at a path or a URL; `.gz` is read as gzip.

    `collection`: a name that keeps the UIDs when the list moves; empty: that of a public set, or
    else the folder of the list. `patient_key`: the key of the patients' digests; empty: no patient
    is named.
    """

    def __init__(
        self,
        address: str,
        columns: PictureColumns = _ANY_COLUMN,
        collection: str = "",
        patient_key: bytes = b"",
    ) -> None:
        self.locations = Locations()
        self._address = self.locations.absolute(address)
        self._folder = self._address.rpartition("/")[0]
        self._columns = columns
        self._collection = collection
        self._patient_key = patient_key

    def rows(self) -> Iterator[PictureRow | ListRow]:
        """Yield the pictures, and the outcome of each row that names none or repeats one.

        No file of the list is opened. It keeps 16 bytes of each row. Raises SourceError.
        """
        seen: set[bytes] = set()
        with self._opened() as stream:
            plain = gzip.open(stream) if self._address.endswith(".gz") else stream  # noqa: SIM115
            text = io.TextIOWrapper(plain, "utf-8-sig", newline="")
            try:
                yield from self._rows_of(text, seen)
            except UnicodeDecodeError:
                raise SourceError(
                    "the list is not UTF-8; save it as CSV UTF-8", is_final=True
                ) from None
            except (csv.Error, EOFError, gzip.BadGzipFile) as error:
                raise SourceError(
                    f"the list cannot be read as CSV: {error}", is_final=True
                ) from None

    def _opened(self) -> BinaryIO:
        try:
            return self.locations.open(self._address)
        except OSError as error:
            self.locations.require_there(self._address)
            raise SourceError(
                f"the list cannot be read: {error_text(error)}", is_final=True
            ) from error

    def _rows_of(self, text: io.TextIOWrapper, seen: set[bytes]) -> Iterator[PictureRow | ListRow]:
        first = text.readline()
        delimiter = max(_DELIMITERS, key=first.count)
        header = next(csv.reader([first], delimiter=delimiter), [])
        layout = layout_of(header, self._columns)
        keys = [name.strip().casefold() for name in header]
        for number, cells in enumerate(csv.reader(text, delimiter=delimiter), 2):
            if not any(cells):
                continue
            if len(cells) == len(keys):
                texts = layout.read(dict(zip(keys, map(str.strip, cells), strict=True)))
                yield self._row(number, texts, layout, seen)
            else:
                yield _refused(number, _wrong_width(len(cells), len(keys)))

    def _row(
        self, number: int, texts: RowTexts, layout: PictureLayout, seen: set[bytes]
    ) -> PictureRow | ListRow:
        if problem := _problem(texts):
            return _refused(number, problem)
        digest = hashlib.blake2b(texts.name.encode(), digest_size=16).digest()
        if digest in seen:
            return ListRow(number, RowOutcome.DUPLICATE, "an earlier row names the same file")
        seen.add(digest)
        collection = self._collection or layout.collection or self._folder
        study = texts.study or texts.name
        return PictureRow(
            number,
            tuple(self.locations.absolute(path, self._folder) for path in texts.paths),
            mint_uid(_NAMESPACE, collection, "study", study),
            mint_uid(_NAMESPACE, collection, "series", study, texts.series),
            mint_uid(_NAMESPACE, collection, "image", study, texts.series, texts.name),
            texts.view,
            _day(texts.date),
            self._pseudonym(collection, texts.patient),
        )

    def _pseudonym(self, collection: str, patient: str) -> str:
        if not patient or not self._patient_key:
            return ""
        message = f"{collection}\x1f{patient}".encode()
        return hmac.new(self._patient_key, message, "sha256").hexdigest()[:_PATIENT_DIGITS]


def _wrong_width(values: int, columns: int) -> str:
    return f"{values} values under {columns} columns; put values with the separator in quotes"


def _problem(texts: RowTexts) -> str:
    if not texts.name:
        return "it names no file"
    values = (texts.name, texts.study, texts.series, texts.patient, texts.view, texts.date)
    if not all(value.isprintable() for value in values):
        return "a value has control characters; remove them"
    if texts.date and not _day(texts.date):
        return "its date is no day; write YYYYMMDD or YYYY-MM-DD, or leave it empty"
    if "://" in texts.name and not texts.name.startswith(("s3://", "file://", "memory://")):
        return "its URL is not read; give a path, a file:// or an s3:// URL"
    return ""


def _day(text: str) -> str:
    """Return YYYYMMDD; some programs write numbers as 21800506.0."""
    return day_of(text.replace("-", "").removesuffix(".0"))


def _refused(number: int, detail: str) -> ListRow:
    return ListRow(number, RowOutcome.REFUSED, detail)
