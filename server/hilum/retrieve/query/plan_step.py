"""A finished part of a plan, and the questions that all plans ask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hilum.dicom.uid import is_like_uid
from hilum.domain import ListRow, PlanDoubt, PlannedSeries
from hilum.retrieve.source import Answer, Answers, ImageSource, Level, Query, SourceError
from hilum.settings import SourceSection

_WILDCARDS: Final = re.compile(r"[*?\\\x00-\x1f\x7f]")
_INTEGER: Final = re.compile(r"\+?[0-9]{1,12}")
# Limits at which servers stop in silence (pynetdicom #467, Azure, Google).
_SUSPICIOUS: Final = frozenset((100, 200, 500, 1000, 5000))
_SERIES_LIMIT: Final = 200


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A day, or a row of a list, that is finished.

    `cursor`: the plan continues after it. `studies_filtered`: answers that were not wanted.
    """

    cursor: str
    series: tuple[PlannedSeries, ...]
    doubts: tuple[PlanDoubt, ...] = ()
    studies_found: int = 0
    studies_filtered: int = 0
    rows: tuple[ListRow, ...] = ()


def is_uid(text: str) -> bool:
    """Return whether a text is one whole UID (PS3.5 9.1): never empty, no wildcard, no list."""
    return is_like_uid(text)


def may_be_cut_off(answers: Answers, limit: int) -> bool:
    """Return whether there may be more answers: by word, by our limit, or by a round number."""
    count = len(answers.items)
    return answers.is_cut_off or count >= limit or count in _SUSPICIOUS


def is_exact(text: str) -> bool:
    """Return whether a text can be a key that matches itself alone: no wildcard, not empty."""
    return bool(text.strip()) and _WILDCARDS.search(text) is None


@dataclass(slots=True)
class Questions:
    """The queries of one plan.

    `doubts`: those that have not been given out yet; each is named once.
    """

    source: ImageSource
    settings: SourceSection
    modalities: Sequence[str]
    doubts: list[PlanDoubt] = field(default_factory=list)
    _named: set[PlanDoubt] = field(default_factory=set)

    def ask(self, level: Level, keys: Mapping[str, str], limit: int) -> Answers:
        """Return the answers to a query without the keys that this source ignores."""
        ignores = self.settings.ignores
        sent = {key: value for key, value in keys.items() if key not in ignores}
        answers = self.source.find(Query(level, sent, limit))
        for key in answers.ignored:
            self.doubt(f"the source says that it ignores {key}; Hilum filters its answers")
        return answers

    def doubt(self, text: str, day: str = "") -> None:
        """Name a doubt, once."""
        item = PlanDoubt(text, day)
        if item not in self._named:
            self._named.add(item)
            self.doubts.append(item)

    def taken_doubts(self) -> tuple[PlanDoubt, ...]:
        """Return the doubts since the last call."""
        taken = tuple(self.doubts)
        self.doubts.clear()
        return taken

    def series_of(self, study: Answer, origin: str = "") -> list[PlannedSeries]:
        """Return the wanted series of a study: SERIES level, always with its Study Instance UID.

        A study whose query fails, and is no outage, is named as a doubt.
        """
        everything = self._all_series_of(study)
        return [
            PlannedSeries(
                study["StudyInstanceUID"],
                item["SeriesInstanceUID"],
                day(study),
                item.get("Modality", "").strip(),
                count(item.get("NumberOfSeriesRelatedInstances", "")),
                origin,
            )
            for item in everything
            if item.get("Modality", "").strip() in self.modalities
        ]

    def _all_series_of(self, study: Answer) -> list[Answer]:
        uid = study["StudyInstanceUID"]
        keys = {
            "StudyInstanceUID": uid,
            "SeriesInstanceUID": "",
            "Modality": "",
            "NumberOfSeriesRelatedInstances": "",
        }
        try:
            answers = self.ask(Level.SERIES, keys, _SERIES_LIMIT)
        except SourceError as error:
            if error.is_outage or error.is_final:
                raise
            self.doubt(f"the series of study {uid} cannot be listed: {error.detail}", day(study))
            return []
        if may_be_cut_off(answers, _SERIES_LIMIT):
            self.doubt(f"study {uid} may have more series than the source lists", day(study))
        everything = list(_distinct(answers.items, uid))
        self._reconcile(study, everything)
        return everything

    def _reconcile(self, study: Answer, series: Sequence[Answer]) -> None:
        """Name a doubt where the study counts other images than its series together."""
        told = count(study.get("NumberOfStudyRelatedInstances", ""))
        counts = [count(item.get("NumberOfSeriesRelatedInstances", "")) for item in series]
        known = [number for number in counts if number is not None]
        if told is not None and len(known) == len(counts) and sum(known) != told:
            self.doubt(
                f"study {study['StudyInstanceUID']} has {told} images, and its series have"
                f" {sum(known)} together",
                day(study),
            )


def _distinct(items: Sequence[Answer], study_uid: str) -> Iterator[Answer]:
    """Yield the series of this study, each once: some servers return those of all studies."""
    seen = set[str]()
    for item in items:
        uid = item.get("SeriesInstanceUID", "")
        is_ours = item.get("StudyInstanceUID", study_uid) in ("", study_uid)
        if is_ours and is_uid(uid) and uid not in seen:
            seen.add(uid)
            yield item


def day(study: Answer) -> str:
    """Return the Study Date of an answer; empty: it has none that is a date."""
    text = study.get("StudyDate", "").strip()
    return text if len(text) == 8 and text.isascii() and text.isdigit() else ""


def count(text: str) -> int | None:
    """Return the number of a value of VR IS, where "4" is "+4"; None: it is no count."""
    digits = text.strip()
    return int(digits) if _INTEGER.fullmatch(digits) else None


def modalities_of(study: Answer) -> list[str]:
    """Return Modalities in Study, one by one; empty where the source does not say."""
    words = [word.strip() for word in study.get("ModalitiesInStudy", "").split("\\")]
    return [word for word in words if word]


def has_modality(study: Answer, modalities: Sequence[str]) -> bool:
    """Return whether a study may have a wanted series; True where the source does not say."""
    named = modalities_of(study)
    return not named or any(word in modalities for word in named)
