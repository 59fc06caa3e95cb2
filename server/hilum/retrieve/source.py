"""The interface of a source: query it, list the images of a series, fetch some of them.

No status of a fetch is trusted. The caller compares the stored objects with the SOP Instance UIDs
that `images` named.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from hilum.domain import ExpectedImage


class SourceError(Exception):
    """The source gave no usable answer. `detail` holds the remedy, and no patient data.

    `is_outage`: it is down, overloaded or unreachable, so another series would fail alike.
    `is_final`: asking again cannot help until a person changes something.
    """

    def __init__(self, detail: str, *, is_outage: bool = False, is_final: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.is_outage = is_outage
        self.is_final = is_final


class Level(StrEnum):
    """Query/Retrieve Level (0008,0052)."""

    STUDY = "STUDY"
    SERIES = "SERIES"
    IMAGE = "IMAGE"


@dataclass(frozen=True, slots=True)
class Query:
    """A query at one level.

    `keys`: DICOM keyword to matching value ("StudyDate": "20190101-20190102"; an empty value asks
    for the attribute). `limit`: how many answers are wanted; the source is asked for one more.
    """

    level: Level
    keys: Mapping[str, str]
    limit: int


Answer = Mapping[str, str]
"""One match: keyword to value, several values separated by a backslash; absent or empty: none."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The matches of one query, unfiltered.

    `is_cut_off`: the source said, or its count shows, that there are more. `ignored`: keys that it
    says it does not support (status FF01, Warning 299).
    """

    items: Sequence[Answer]
    is_cut_off: bool = False
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Images of one series to fetch, each by its SOP Instance UID.

    `are_all`: these are all images of the series, so the series may be asked for as one.
    """

    study_instance_uid: str
    series_instance_uid: str
    images: Sequence[ExpectedImage]
    are_all: bool
    limit_seconds: float


@dataclass(frozen=True, slots=True)
class FetchReport:
    """How a fetch ended, as the source puts it: a hint for people, never proof.

    `status`: a DICOM status in hexadecimal, an HTTP status, or a word. `problem`: empty where the
    source claims success. `may_follow`: images may still come after this report (C-MOVE).
    `is_final`: no other series would fare better. `may_repeat`: False where another request for
    these very images cannot help.
    """

    status: str
    problem: str = ""
    is_outage: bool = False
    is_final: bool = False
    may_follow: bool = False
    may_repeat: bool = True


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """The outcome of one object that was given to the store.

    `problem`: why it is not stored, with the remedy; empty: it is. `is_transient`: later it may be.
    """

    sop_instance_uid: str
    problem: str = ""
    is_transient: bool = False


class IncomingPart(Protocol):
    """One object on its way into the archive, as a Part 10 stream."""

    def write(self, piece: bytes) -> None:
        """Take the next bytes. After an error they are discarded."""

    def end(self) -> PartOutcome:
        """Return the outcome: durable, or refused. Only for an object that is whole."""

    def abandon(self) -> None:
        """Discard an object that is not whole."""


class ObjectStore(Protocol):
    """Where fetched objects go. It may block while the disk is nearly full."""

    def begin(self, origin: str = "") -> IncomingPart:
        """Begin an object."""


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """One row of a list of studies. `number`: as a spreadsheet counts, the header is row 1."""

    number: int
    kind: Literal["accession", "study_uid"]
    value: str


@dataclass(frozen=True, slots=True)
class ProbeLine:
    """One finding of a probe, for people: `is_ok` None where it only informs."""

    topic: str
    text: str
    is_ok: bool | None = None


class ImageSource(Protocol):
    """A source with an address, for one thread. Errors: SourceError."""

    def probe(self) -> Sequence[ProbeLine]:
        """Return the abilities of this source, without fetching. Never raises."""

    def find(self, query: Query) -> Answers:
        """Return the matches of a query."""

    def images(self, study_instance_uid: str, series_instance_uid: str) -> Sequence[ExpectedImage]:
        """Return the images of a series (IMAGE level), each once, those of other series left out.

        Raises SourceError also where the answer is cut off.
        """

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Ask for images, one request at a time; return when the source has ended it.

        `stop`: end soon, by a cancel and then by an abort. At `limit_seconds` it ends likewise.
        Never stores a cut object.
        """

    def close(self) -> None:
        """Release associations and connections; may be called twice."""
