"""`/`: the last studies, the queues, readiness, and the filter of the list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from pydantic import AfterValidator, BeforeValidator

from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import AE_PATTERN, UID_PATTERN, Cursor, Day
from hilum.api.identifiers import identifiers_shown
from hilum.api.pages.formatting import local
from hilum.api.pages.front import queue_lines, role_lines, stuck_lines, study_line
from hilum.api.pages.notices import host_notices, notices
from hilum.api.pages.templating import page
from hilum.api.readiness import FAILING_SECONDS
from hilum.domain import StudyState
from hilum.store.audit.log import Deed
from hilum.store.queries.views import StudyFilter
from hilum.verbs import Verb, performs

_STUDIES: Final = 50
_UID_CHARACTERS: Final = 64
_YEARS: Final = range(1970, 3000)
Shown = Literal["", "needs_person", "withheld", "due", "closed", "failed"]


def _of_our_time(day: date | None) -> date | None:
    """Raise ValueError for a day that no clock of a server names."""
    if day is not None and day.year not in _YEARS:
        raise ValueError(f"give a year from {_YEARS[0]} to {_YEARS[-1]}")
    return day


FormDay = Annotated[
    Day | None, BeforeValidator(lambda value: value or None), AfterValidator(_of_our_time)
]


def _uid_or_sender(value: str) -> str:
    """Raise ValueError for a value that is neither."""
    if len(value) > _UID_CHARACTERS or not re.fullmatch(rf"|{AE_PATTERN}|{UID_PATTERN}", value):
        raise ValueError(
            "give a Study or SOP Instance UID, or a Calling AE Title of at most 16 characters"
        )
    return value


@performs(Verb.LIST_STUDIES)
def front_page(
    parts: PartsHere,
    deed: DeedHere,
    q: Annotated[str, AfterValidator(_uid_or_sender)] = "",
    show: Shown = "",
    received_from: FormDay = None,
    received_to: FormDay = None,
    cursor: Cursor = None,
) -> Response:
    """The last studies, the queues, readiness."""
    if "." in q and not q.strip(".0123456789"):
        return RedirectResponse(f"/studies/{parts.views.study_of(q) or q}", 303)
    asked = {
        "q": q,
        "show": show,
        "received_from": received_from or "",
        "received_to": received_to or "",
    }
    return _list_page(parts, deed, _filter(q, show, received_from, received_to), asked, cursor)


def _list_page(
    parts: Dependencies,
    deed: Deed,
    chosen: StudyFilter,
    asked: Mapping[str, Any],
    cursor: str | None,
) -> Response:
    """Return the page with a list of studies. `asked`: the form that a person has sent."""
    now = parts.clock()
    configured = parts.settings.destinations
    found = parts.views.front(
        chosen,
        limit=_STUDIES,
        cursor=cursor,
        failing_before=now - FAILING_SECONDS,
        configured=configured,
    )
    facts = parts.observer.judge(
        found["processes"], found["destinations"], found["failing"], found["hosts"]
    )
    older = urlencode({**asked, "cursor": found["next_cursor"]}) if found["next_cursor"] else ""
    studies = found["studies"]
    shown = identifiers_shown(parts, deed, [item["study_instance_uid"] for item in studies])
    return page(
        "front.html",
        section="studies",
        **asked,
        is_filtered=any(asked.values()),
        can_find=parts.identifiers is not None,
        is_first=cursor is None,
        older=older,
        now=local(now),
        site=parts.settings.site.name,
        studies=[study_line(item, now, shown.get(item["study_instance_uid"])) for item in studies],
        roles=role_lines(parts.default_roles, facts),
        queues=queue_lines(found["queues"]),
        stuck=stuck_lines(found["stuck"], now),
        notices=list(notices(parts.refusals(found["rollouts"]), found["withheld"])),
        host_notices=list(host_notices(facts)),
    )


def _filter(q: str, show: Shown, first: date | None, last: date | None) -> StudyFilter:
    """Days are those of the server's zone, as the page says its times."""
    if first and last and first > last:
        raise RequestValidationError(
            [
                {
                    "type": "value_error",
                    "loc": ("query", "received_from"),
                    "msg": "lies after received_to",
                }
            ]
        )
    return StudyFilter(
        state=StudyState(show) if show in ("due", "closed", "failed") else None,
        calling_ae_title=q or None,
        received_since=_midnight(first) if first else None,
        received_until=_midnight(last + timedelta(days=1)) if last else None,
        needs_person=show == "needs_person",
        is_withheld=show == "withheld",
    )


def _midnight(day: date) -> float:
    return datetime.combine(day, time.min).astimezone().timestamp()
