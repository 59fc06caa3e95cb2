"""Plans by date: one query a day, split by time until no answer is cut off.

No DICOM status says that an answer was cut off, and servers ignore keys silently. Therefore every
answer is filtered here, a second count is taken, and doubts are named (PS3.4 C.2.2.2 and C.4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hilum.retrieve.query.plan_step import (
    PlanStep,
    Questions,
    day,
    has_modality,
    is_uid,
    may_be_cut_off,
    modalities_of,
)
from hilum.retrieve.source import Answer, Answers, ImageSource, Level, SourceError
from hilum.settings import SourceSection

_SLOTS: Final = 48  # half hours of a day: a window of one is split no further
_COUNTED_AGAIN: Final = 20  # studies from which a day is asked for a second time, in halves
_SEXES: Final = ("M", "F", "O")
_CLOCK_DIGITS: Final = 6

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
        current = self.first
        if cursor:
            current = max(current, date.fromisoformat(cursor) + timedelta(days=1))
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
    """Return an iterator of one step a day, behind the cursor `after`.

    Raises ValueError at once for a range that ends in the future, by the source's time zone. The
    iterator raises SourceError of an outage, and where a day is refused down to half an hour.
    """
    today = datetime.now(ZoneInfo(settings.time_zone)).date()
    if dates.last > today:
        raise ValueError(
            f"{dates.last} lies in the future, and its studies do not exist yet: end at {today}"
        )
    return _steps(Questions(source, settings, modalities), dates.after(after))


def _steps(questions: Questions, days: Iterator[date]) -> Iterator[PlanStep]:
    for each in days:
        asked = _Day(questions, each.strftime("%Y%m%d"))
        found = asked.studies()
        wanted = [item for item in found.values() if has_modality(item, questions.modalities)]
        series = [planned for item in wanted for planned in questions.series_of(item)]
        yield PlanStep(
            each.isoformat(),
            tuple(series),
            questions.taken_doubts(),
            len(wanted),
            len(found) - len(wanted) + len(asked.strange),
        )


class _Day:
    """The queries of one day: at most 95, and 4 more for each wanted modality.

    `strange`: UIDs of answers that are not of this day, or are no UIDs.
    """

    def __init__(self, questions: Questions, text: str) -> None:
        self._questions = questions
        self._text = text
        self._limit = questions.settings.maximum_results
        self._ignores = questions.settings.ignores
        self.strange = set[str]()

    def studies(self) -> Studies:
        """Return the studies of the day by UID, each once.

        The first query has no time range, as a study without a time is in none. From 20 studies on
        the day is asked for once more in two halves, which shows a limit that is below ours.
        """
        answers, found = self._ask({})
        if may_be_cut_off(answers, self._limit):
            return self._split(found)
        if len(found) < _COUNTED_AGAIN or "StudyTime" in self._ignores:
            return found
        return found if self._is_counted_again(found) else self._split(found)

    def _is_counted_again(self, found: Studies) -> bool:
        """Return whether two half days list no study that the whole day left out."""
        middle = _SLOTS // 2
        halves = [self._ask(_time_range(0, middle)), self._ask(_time_range(middle, _SLOTS))]
        new = {uid for _, part in halves for uid in part} - found.keys()
        if new:
            self._questions.doubt(
                f"the source listed {len(new)} studies by half days that it left out of the whole"
                " day: set maximum_results below its limit",
                self._text,
            )
        return not new and not any(may_be_cut_off(each, self._limit) for each, _ in halves)

    def _split(self, found: Studies) -> Studies:
        """Return the studies by time, and by other keys those that no time range holds.

        The wanted studies are complete where each modality's answer is whole and holds all studies
        of that modality that the windows found. Everything else is named as a doubt.
        """
        if "StudyTime" not in self._ignores:
            middle = _SLOTS // 2
            found = found | self._window(0, middle) | self._window(middle, _SLOTS)
        parts = [self._by_modality(modality, found) for modality in self._questions.modalities]
        is_complete = all(is_whole for _, is_whole in parts)
        for part, _ in parts:
            found = found | part
        if not is_complete:
            self._questions.doubt(
                f"may be incomplete: {len(found)} studies found, and the source stops at"
                f" {self._limit} or fewer; a study without Study Time may be missing",
                self._text,
            )
        return found

    def _window(self, start: int, end: int) -> Studies:
        """Return the studies of a window, given in half hours, by halves if it may be cut off."""
        answers, found = self._ask(_time_range(start, end), may_fail=end - start > 1)
        if not may_be_cut_off(answers, self._limit) or end - start == 1:
            return found
        if not all(_is_within(item, start, end) for item in found.values()):
            self._questions.doubt("the source ignores StudyTime; days are not split by it")
            return found
        middle = (start + end) // 2
        return found | self._window(start, middle) | self._window(middle, end)

    def _by_modality(self, modality: str, known: Studies) -> tuple[Studies, bool]:
        """Return the studies of a modality at any time, and whether they are all.

        Where they are not, Patient's Sex splits them once more.
        """
        if "ModalitiesInStudy" in self._ignores:
            return self._by_sex({}), False
        key = {"ModalitiesInStudy": modality}
        answers, found = self._ask(key)
        named = {uid for uid, item in known.items() if modality in modalities_of(item)}
        is_matched = named <= found.keys() and any(map(modalities_of, known.values()))
        if is_matched and not may_be_cut_off(answers, self._limit):
            return found, True
        return found | self._by_sex(key if is_matched or found else {}), False

    def _by_sex(self, key: Mapping[str, str]) -> Studies:
        found: Studies = {}
        for sex in _SEXES:
            found = found | self._ask({**key, "PatientSex": sex})[1]
        return found

    def _ask(self, more: Mapping[str, str], *, may_fail: bool = True) -> tuple[Answers, Studies]:
        """Return the answers, and the studies of the day among them.

        `may_fail`: a refusal, such as HTTP 413 or A700, counts as an answer that is cut off.
        """
        keys = {
            "StudyDate": self._text,
            "StudyTime": "",
            "StudyInstanceUID": "",
            "ModalitiesInStudy": "",
            "NumberOfStudyRelatedInstances": "",
            **more,
        }
        try:
            answers = self._questions.ask(Level.STUDY, keys, self._limit)
        except SourceError as error:
            if error.is_outage or error.is_final or not may_fail:
                raise
            answers = Answers((), is_cut_off=True)
        return answers, self._of_this_day(answers)

    def _of_this_day(self, answers: Answers) -> Studies:
        found: Studies = {}
        for item in answers.items:
            uid = item.get("StudyInstanceUID", "")
            if not is_uid(uid):
                self.strange.add(uid)
                self._questions.doubt(
                    "the source lists a study without a valid Study Instance UID; it is left out",
                    self._text,
                )
            elif day(item) not in ("", self._text):
                self.strange.add(uid)
                self._questions.doubt("the source ignores StudyDate; Hilum filters its answers")
            else:
                found[uid] = {**item, "StudyDate": self._text}
        return found


def _time_range(start: int, end: int) -> Mapping[str, str]:
    """Return the key of a window, given in half hours; it ends with the last microsecond."""
    return {"StudyTime": f"{_clock(start * 1800)}-{_clock(end * 1800 - 1)}.999999"}


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}{seconds // 60 % 60:02}{seconds % 60:02}"


def _is_within(study: Answer, start: int, end: int) -> bool:
    """Return whether a study's time is in a window; True where it has no plain time."""
    clock = study.get("StudyTime", "")[:_CLOCK_DIGITS]
    if len(clock) < _CLOCK_DIGITS or not clock.isdecimal():
        return True
    return _clock(start * 1800) <= clock <= _clock(end * 1800 - 1)
