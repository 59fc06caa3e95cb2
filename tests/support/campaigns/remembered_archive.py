"""A PACS in memory that answers queries as real ones do, with their faults as switches."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from hilum.domain import ExpectedImage
from hilum.retrieve.source import (
    Answer,
    Answers,
    FetchReport,
    FetchRequest,
    Level,
    ObjectStore,
    ProbeLine,
    Query,
    SourceError,
)


@dataclass(frozen=True)
class RememberedStudy:
    """A study of one image for each of its modalities. `time` None: without a Study Time."""

    uid: str
    day: str = "20190102"
    time: str | None = "101500"
    modalities: tuple[str, ...] = ("DX",)
    accession: str = ""
    sex: str = "F"

    def answer(self) -> Answer:
        """The study as an answer at STUDY level."""
        return {
            "StudyInstanceUID": self.uid,
            "StudyDate": self.day,
            "StudyTime": self.time or "",
            "ModalitiesInStudy": "\\".join(self.modalities),
            "AccessionNumber": self.accession,
            "PatientSex": self.sex,
            "NumberOfStudyRelatedInstances": str(len(self.modalities)),
        }

    def series(self) -> list[Answer]:
        """Its series as answers at SERIES level."""
        return [
            {
                "StudyInstanceUID": self.uid,
                "SeriesInstanceUID": f"{self.uid}.{number}",
                "Modality": modality,
                "NumberOfSeriesRelatedInstances": "+1",
            }
            for number, modality in enumerate(self.modalities, 1)
        ]


@dataclass
class RememberedArchive:
    """A `retrieve.source.ImageSource` for queries.

    `stops_at`: it answers so many and no more; `says_so`: and says that it was cut off. `ignores`:
    keys that it does not match; `says_ignored`: and says so. `lacks`: keys that match nothing and
    are in no answer. `unmatched`: keys that match nothing and are in answers.
    `refuses_above`: a query with more matches fails, as by HTTP 413.
    `lists_all_series`: SERIES level gives those of every study. `broken`: studies whose series
    cannot be listed. `down_after`: so many queries are answered, then it is away; None: always.
    """

    studies: Sequence[RememberedStudy]
    stops_at: int = 10_000
    says_so: bool = False
    ignores: frozenset[str] = frozenset()
    says_ignored: bool = False
    lacks: frozenset[str] = frozenset()
    unmatched: frozenset[str] = frozenset()
    refuses_above: int | None = None
    down_after: int | None = None
    lists_all_series: bool = False
    broken: frozenset[str] = frozenset()
    queries: list[Query] = field(default_factory=list)

    def probe(self) -> Sequence[ProbeLine]:
        """Return nothing."""
        return []

    def find(self, query: Query) -> Answers:
        """Return the matches, as far as this PACS gives them."""
        if self.down_after is not None and len(self.queries) >= self.down_after:
            raise SourceError("no answer", is_outage=True)
        self.queries.append(query)
        if query.level is Level.STUDY:
            found = [item.answer() for item in self.studies if self._matches(item, query)]
        else:
            uid = query.keys["StudyInstanceUID"]
            if uid in self.broken:
                raise SourceError("C000: unable to process")
            chosen = [item for item in self.studies if self.lists_all_series or item.uid == uid]
            found = [answer for item in chosen for answer in item.series()]
        if self.refuses_above is not None and len(found) > self.refuses_above:
            raise SourceError("413: too many matches")
        most = min(self.stops_at, query.limit + 1)
        items = [
            {key: value for key, value in item.items() if key not in self.lacks}
            for item in found[:most]
        ]
        ignored = tuple(sorted(self.ignores & query.keys.keys())) if self.says_ignored else ()
        return Answers(items, self.says_so and len(found) > self.stops_at, ignored)

    def _matches(self, study: RememberedStudy, query: Query) -> bool:
        answer = study.answer()
        return all(
            key not in self.lacks | self.unmatched and _is_match(key, answer.get(key, ""), wanted)
            for key, wanted in query.keys.items()
            if wanted and key not in self.ignores
        )

    def images(self, study_instance_uid: str, series_instance_uid: str) -> Sequence[ExpectedImage]:
        """Return the one image of a series."""
        del study_instance_uid
        return [ExpectedImage(f"{series_instance_uid}.1")]

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Fail: plans fetch nothing."""
        raise AssertionError(wanted, store, stop)

    def close(self) -> None:
        """Do nothing."""


def _is_match(key: str, value: str, wanted: str) -> bool:
    """PS3.4 C.2.2.2: a range holds no empty value, and a wildcard is one even where it is stored."""
    if key in ("StudyDate", "StudyTime") and "-" in wanted:
        first, _, last = wanted.partition("-")
        return bool(value) and first <= _filled(value) <= last
    if key == "ModalitiesInStudy":
        return wanted in value.split("\\")
    if "*" in wanted or "?" in wanted:
        return fnmatch.fnmatchcase(value, wanted)
    return value.strip(" ") == wanted.strip(" ")


def _filled(value: str) -> str:
    return value if "." in value else f"{value}.000000"
