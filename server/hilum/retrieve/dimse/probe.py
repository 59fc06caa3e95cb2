"""A probe of a PACS: its services, and how it answers queries. Nothing is fetched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pynetdicom.dimse_primitives import C_ECHO

from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES
from hilum.retrieve.dimse.answers import Collected, find
from hilum.retrieve.dimse.association import PacsAssociation
from hilum.retrieve.dimse.contexts import (
    SERVICE_NAMES,
    STUDY_ROOT_FIND,
    STUDY_ROOT_GET,
    STUDY_ROOT_MOVE,
    VERIFICATION,
    get_services,
)
from hilum.retrieve.dimse.request import RequestLimits
from hilum.retrieve.dimse.statuses import CANCELLED, SUCCESS, hexadecimal
from hilum.retrieve.source import Answer, Answers, Level, ProbeLine, Query, SourceError
from hilum.settings import CMoveSource, DimseSource

_MODELS: Final = (STUDY_ROOT_FIND, STUDY_ROOT_MOVE, STUDY_ROOT_GET)
_DAYS: Final = 7
_LIMIT: Final = 5
_NO_MODALITY: Final = "ZZ"  # a valid code string that no study has


def probe(settings: DimseSource) -> Sequence[ProbeLine]:
    """Return the abilities of the source. Never raises SourceError."""
    asked = settings.model_copy(update={"ignores": ()})
    proposal = get_services(VERIFICATION, *_MODELS)
    with contextlib.closing(PacsAssociation(asked, proposal)) as association:
        return list(_Probe(asked, association).lines())


class _Probe:
    """The parts of a probe, in the order of its lines."""

    def __init__(self, settings: DimseSource, association: PacsAssociation) -> None:
        self._settings = settings
        self._association = association
        self._needed = STUDY_ROOT_MOVE if isinstance(settings, CMoveSource) else STUDY_ROOT_GET

    def lines(self) -> Iterator[ProbeLine]:
        """Yield all lines; only one without an association."""
        try:
            accepted = self._association.accepted()
        except SourceError as error:
            yield ProbeLine("association", error.detail, is_ok=False)
            return
        title = self._settings.calling_ae_title
        yield ProbeLine("association", f"accepted for our AE Title {title}", is_ok=True)
        yield from self._part("C-ECHO", self._echo())
        yield from self._services([str(item.abstract_syntax) for item in accepted.values()])

    def _services(self, accepted: Sequence[str]) -> Iterator[ProbeLine]:
        """Yield the lines of query and retrieve."""
        yield from self._offers(frozenset(accepted))
        if self._needed == STUDY_ROOT_GET:
            yield _storage_line(accepted)
        if STUDY_ROOT_FIND in accepted:
            yield from self._part("C-FIND", self._queries())
        if isinstance(self._settings, CMoveSource):
            yield _destination_line(self._settings.move_ae_title)

    def _part(self, topic: str, lines: Iterator[ProbeLine]) -> Iterator[ProbeLine]:
        """Yield the lines of a part, or its error as a line."""
        try:
            yield from lines
        except SourceError as error:
            yield ProbeLine(topic, error.detail, is_ok=False)

    def _limits(self) -> RequestLimits:
        seconds = self._settings.timeout_seconds
        return RequestLimits(seconds, seconds)

    def _echo(self) -> Iterator[ProbeLine]:
        request = self._association.request(VERIFICATION, C_ECHO(), self._limits())
        with contextlib.closing(request.responses()) as responses:
            status = next((item.status for item in responses), None)
        text = f"no response ({request.end})" if status is None else hexadecimal(status)
        yield ProbeLine("C-ECHO", text, is_ok=status == SUCCESS)

    def _offers(self, models: frozenset[str]) -> Iterator[ProbeLine]:
        for model in _MODELS:
            is_needed = model in (STUDY_ROOT_FIND, self._needed)
            is_offered = model in models
            text = "offered" if is_offered else "not offered"
            if is_needed and not is_offered:
                text += f"; enable it there for {self._settings.calling_ae_title}"
            yield ProbeLine(SERVICE_NAMES[model], text, is_offered if is_needed else None)

    def _queries(self) -> Iterator[ProbeLine]:
        today = datetime.now(ZoneInfo(self._settings.time_zone)).date()
        days = f"{today - timedelta(days=_DAYS - 1):%Y%m%d}-{today:%Y%m%d}"
        found = self._studies({"StudyDate": days, "ModalitiesInStudy": ""})
        yield _query_line(found.answers)
        if found.answers.items:
            yield _limit_line(found)
            yield from _answer_lines(found.answers.items, days)
            none = self._studies({"StudyDate": days, "ModalitiesInStudy": _NO_MODALITY}).answers
            yield _key_line("ModalitiesInStudy", not none.items and not none.ignored)

    def _studies(self, keys: Mapping[str, str]) -> Collected:
        asked = {
            "StudyInstanceUID": "",
            "StudyTime": "",
            "NumberOfStudyRelatedInstances": "",
            **keys,
        }
        return find(self._association, self._settings, Query(Level.STUDY, asked, _LIMIT))


def _query_line(answers: Answers) -> ProbeLine:
    count = len(answers.items)
    if not count:
        text = f"answered; no study in the last {_DAYS} days, so its keys cannot be judged"
        return ProbeLine("query", text)
    least = "at least " if answers.is_cut_off else ""
    return ProbeLine("query", f"{least}{count} studies in the last {_DAYS} days", is_ok=True)


def _limit_line(found: Collected) -> ProbeLine:
    topic = "limit"
    count = len(found.answers.items)
    if found.was_cancelled and found.status is None:
        return ProbeLine(topic, "C-CANCEL is ignored; the association is aborted instead")
    if found.was_cancelled and found.status == CANCELLED:
        return ProbeLine(topic, "C-CANCEL is honoured")
    if found.was_cancelled:
        return ProbeLine(topic, "all answers came before our C-CANCEL")
    if found.answers.is_cut_off:
        return ProbeLine(
            topic, f"it cuts its answers off at {count}, and says so; plans split there"
        )
    return ProbeLine(topic, "too few studies to judge it")


def _key_line(keyword: str, is_honoured: bool) -> ProbeLine:
    if is_honoured:
        return ProbeLine(keyword, "honoured")
    return ProbeLine(keyword, f'ignored; add it: ignores = ["{keyword}"]')


def _storage_line(accepted: Sequence[str]) -> ProbeLine:
    classes = frozenset(IMAGE_SOP_CLASSES.values())
    images = [item for item in accepted if item in classes]
    text = (
        f"{len(set(images))} of {len(classes)} classes of images, in {len(images)} of"
        f" {len(classes) * len(TRANSFER_SYNTAXES)} combinations with a Transfer Syntax"
    )
    return ProbeLine("storage by C-GET", text, is_ok=bool(images))


def _answer_lines(items: Sequence[Answer], days: str) -> Iterator[ProbeLine]:
    """Yield the lines on the attributes of the answers to a query for these days."""
    first, _, last = days.partition("-")
    dates = [item.get("StudyDate", "") for item in items]
    yield _key_line("StudyDate", all(first <= day <= last for day in dates))
    counts = [item.get("NumberOfStudyRelatedInstances", "") for item in items]
    text = "returned" if all(counts) else "not returned; a plan cannot compare counts"
    yield ProbeLine("NumberOfStudyRelatedInstances", text)


def _destination_line(title: str) -> ProbeLine:
    text = f"{title} must be registered there with our host and port; only a fetch proves it"
    return ProbeLine("move destination", text)
