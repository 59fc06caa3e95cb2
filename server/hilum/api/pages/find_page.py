"""`/find`: studies by Accession Number, Patient ID or Study Date, by a form that is posted.

No address holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.identifiers import OFF, FoundStudies, StudyQuery
from hilum.api.pages.formatting import local
from hilum.api.pages.forms import form_of
from hilum.api.pages.front import study_line
from hilum.api.pages.templating import page
from hilum.api.routes.find import find
from hilum.store.audit.log import Deed
from hilum.verbs import NoVerb, Verb, performs

_STUDIES: Final = 50
_WILDCARDS: Final = frozenset("*?")


@performs(NoVerb("it shows an empty form, and no study"))
def find_form(parts: PartsHere) -> Response:
    """The form alone."""
    if parts.identifiers is None:
        raise HTTPException(403, OFF)
    return page("find.html", section="find", asked={}, studies=None, now=local(parts.clock()))


@performs(Verb.FIND_STUDY)
async def find_studies(parts: PartsHere, deed: DeedHere, request: Request) -> Response:
    """Return the query of a posted form, by the rules of REST."""
    return await run_in_threadpool(_found, parts, deed, form_of(await request.body()))


def _found(parts: Dependencies, deed: Deed, field: Callable[[str], str]) -> Response:
    asked = {name: value for name in StudyQuery.model_fields if (value := field(name).strip())}
    cursor = field("cursor")
    found = find(parts, deed, _query(asked), _STUDIES, cursor or None)
    now = parts.clock()
    lines = parts.views.lines(list(found.identifiers))
    return page(
        "find.html",
        section="find",
        asked=asked,
        now=local(now),
        studies=[
            study_line(item, now, found.identifiers[item["study_instance_uid"]]) for item in lines
        ],
        next_cursor=found.next_cursor,
        said=_said(len(lines), is_first=not cursor),
        hints=list(_hints(asked, found, has_lines=bool(lines))),
    )


def _query(asked: Mapping[str, Any]) -> StudyQuery:
    try:
        return StudyQuery.model_validate(asked)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _said(number: int, *, is_first: bool) -> str:
    words = f"{number or 'No'} {'study' if number == 1 else 'studies'}"
    return f"{words} found" if is_first else f"{words} found further back"


def _hints(asked: Mapping[str, str], found: FoundStudies, *, has_lines: bool) -> Iterator[str]:
    if found.received_at is not None:
        yield f"Searched so far: images received since {local(found.received_at)}."
    if has_lines:
        return
    if _WILDCARDS.intersection("".join(asked.values())):
        yield "* and ? stand for themselves: give the whole number."
    if found.received_at is None:
        yield "No stored image says so. What was refused stands under Associations."
