"""Plans by date: one query a day, split by time until no answer is cut off.

No DICOM status says that an answer was cut off, and servers ignore keys silently. Therefore every
answer is filtered here, a second count is taken, and doubts are named (PS3.4 C.2.2.2 and C.4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from hilum.retrieve.query.plan_step import (
    SUSPICIOUS,
    PlanStep,
    Questions,
    day,
    has_modality,
    is_uid,
)
from hilum.retrieve.source import Answer, Answers, ImageSource, Level
from hilum.settings import SourceSection

_DAY_SECONDS: Final = 86_400
_SHORTEST_SECONDS: Final = 1_800  # of a window that is split no further
_COUNTED_AGAIN: Final = 20  # studies from which a day is asked for a second time, in halves
_SEXES: Final = ("M", "F", "O")

Studies = dict[str, Answer]


@dataclass(frozen=True, slots=True)
class DateRange:
    """Days of the source's own calendar, both included. Raises ValueError for an empty one."""

    first: date
    last: date

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        if self.last < self.first:
            raise ValueError(f"no day lies from {self.first} to {self.last}: swap the two dates")

    def after(self, cursor: str) -> Iterator[date]:
        """Yield the days behind a cursor; empty: all."""
        current = self.first if not cursor else date.fromisoformat(cursor) + timedelta(days=1)
        while current <= self.last:
            yield current
            current += timedelta(days=1)


def plan_dates(
    source: ImageSource,
    settings: SourceSection,
    dates: DateRange,
    modalities: Sequence[str],
    after: str = "",
) -> Iterator[PlanStep]:
    """Yield one step a day, behind the cursor `after`. Raises SourceError of an outage."""
    questions = Questions(source, settings, modalities)
    for each in dates.after(after):
        text = each.strftime("%Y%m%d")
        asked = _Day(questions, text)
        found = asked.studies()
        wanted = {uid: item for uid, item in found.items() if has_modality(item, modalities)}
        series = [planned for item in wanted.values() for planned in questions.series_of(item)]
        yield PlanStep(
            each.isoformat(),
            tuple(series),
            questions.taken_doubts(),
            len(wanted),
            len(found) - len(wanted) + asked.strange,
        )


class _Day:
    """The queries of one day. `strange`: answers that are not of this day, or have no UID."""

    def __init__(self, questions: Questions, text: str) -> None:
        self._questions = questions
        self._text = text
        self._limit = questions.settings.maximum_results
        self.strange = 0

    def studies(self) -> Studies:
        """Return the studies of the day by UID, each once."""
        found: Studies = {}
        for modality in self._modality_keys():
            part, is_split = self._window(modality, 0, _DAY_SECONDS)
            if is_split:
                part |= self._without_time(modality)
            found |= part
        if len(found) >= _COUNTED_AGAIN and not self._questions.doubts:
            self._count_again(found)
        return found

    def _modality_keys(self) -> list[str]:
        """Return the values of ModalitiesInStudy, one query each; a list matches nowhere."""
        if "ModalitiesInStudy" in self._questions.settings.ignores:
            return [""]
        return list(self._questions.modalities)

    def _window(self, modality: str, start: int, end: int) -> tuple[Studies, bool]:
        """Return the studies of a window of the day, and whether it was split.

        The window of a whole day has no time range: a study without a time is in no range.
        """
        is_day = (start, end) == (0, _DAY_SECONDS)
        times = {} if is_day else {"StudyTime": f"{_clock(start)}-{_clock(end - 1)}.999999"}
        answers, found = self._ask(modality, times)
        if not self._is_cut_off(answers):
            return found, False
        if end - start <= _SHORTEST_SECONDS:
            if answers.is_cut_off or len(answers.items) >= self._limit:
                self._incomplete(len(found))
            return found, True
        middle = (start + end) // 2
        first, _ = self._window(modality, start, middle)
        second, _ = self._window(modality, middle, end)
        return found | first | second, True

    def _is_cut_off(self, answers: Answers) -> bool:
        count = len(answers.items)
        return answers.is_cut_off or count >= self._limit or count in SUSPICIOUS

    def _ask(self, modality: str, more: Mapping[str, str]) -> tuple[Answers, Studies]:
        keys = {
            "StudyDate": self._text,
            "StudyTime": "",
            "StudyInstanceUID": "",
            "ModalitiesInStudy": modality,
            "NumberOfStudyRelatedInstances": "",
            **more,
        }
        answers = self._questions.ask(Level.STUDY, keys, self._limit)
        found: Studies = {}
        for item in answers.items:
            uid = item.get("StudyInstanceUID", "")
            if not is_uid(uid):
                self.strange += 1
            elif day(item) not in ("", self._text):
                self.strange += 1
                self._questions.doubt("the source ignores StudyDate; Hilum filters its answers")
            else:
                found[uid] = {"StudyDate": self._text, **item}
        return answers, found

    def _without_time(self, modality: str) -> Studies:
        """Return studies that no time range holds, by another key that splits the day.

        A study without a time and without a sex cannot be found, so the doubt is always named.
        """
        self._questions.doubt(
            "days with more answers than the source gives at once were split by Study Time: a study"
            " with neither Study Time nor Patient's Sex cannot be found there"
        )
        found: Studies = {}
        for sex in _SEXES:
            answers, part = self._ask(modality, {"PatientSex": sex})
            found |= part
            if answers.is_cut_off or len(answers.items) >= self._limit:
                self._incomplete(len(found))
        return found

    def _incomplete(self, found: int) -> None:
        self._questions.doubt(
            f"may be incomplete: {found} studies found, and the source stops at"
            f" {self._limit} or fewer",
            self._text,
        )

    def _count_again(self, found: Studies) -> None:
        """Ask for the day in two halves: a study that only a half knows shows a silent limit."""
        half = _DAY_SECONDS // 2
        more: Studies = {}
        for modality in self._modality_keys():
            for start, end in ((0, half), (half, _DAY_SECONDS)):
                more |= self._window(modality, start, end)[0]
        if new := more.keys() - found.keys():
            found |= {uid: more[uid] for uid in new}
            self._questions.doubt(
                f"the source listed {len(new)} studies by half days that it left out of the whole"
                " day: set maximum_results below its limit",
                self._text,
            )


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}{seconds // 60 % 60:02}{seconds % 60:02}"
