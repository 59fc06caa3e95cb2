"""The parameters of a plan as JSON, checked before anything is asked for."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilum.cli.frame import ended, explained
from hilum.domain import ARCHIVE, PICTURES

if TYPE_CHECKING:
    from hilum.settings import Settings

Request = tuple[str, dict[str, Any]]
"""Name of the source, and the parameters."""


def of_pacs(
    settings: Settings,
    source: str,
    dates: str | None,
    listed: Path | None,
    column: str | None,
    modality: str,
) -> Request:
    """Return the request of a source of the settings. Exit status 2 with the remedy."""
    if source not in settings.sources:
        known = ", ".join(settings.sources) or "none; name one as [sources.NAME] in the settings"
        raise ended(2, f"no source {source!r} in the settings; known: {known}")
    modalities = [word.strip().upper() for word in modality.split(",") if word.strip()]
    if not modalities or not all(word.isalnum() and len(word) <= 16 for word in modalities):
        raise ended(2, f"--modality {modality!r}: give words such as CR,DX")
    if (dates is None) == (listed is None):
        raise ended(2, "give --dates FROM..TO or --list FILE")
    request: dict[str, Any] = {"modalities": modalities}
    if dates is not None:
        return source, {**request, "dates": _dates(dates)}
    assert listed is not None
    return source, {**request, **_list(listed, column)}


def _dates(text: str) -> list[str]:
    first, dots, last = text.partition("..")
    try:
        found = date.fromisoformat(first), date.fromisoformat(last if dots else first)
    except ValueError as error:
        raise ended(2, f"--dates {text!r}: give two days, as 2019-01-01..2019-12-31") from error
    if found[1] < found[0]:
        raise ended(2, f"--dates {text!r}: no day lies between; swap the two")
    if found[0] > date.today():  # noqa: DTZ011 - days of the PACS, by its own calendar
        raise ended(2, f"--dates {text!r}: all days lie in the future")
    return [day.isoformat() for day in found]


def _list(path: Path, column: str | None) -> dict[str, Any]:
    from hilum.services.campaigns.plan import digest_of_list  # noqa: PLC0415 - imports the ledger

    with explained():
        digest = digest_of_list(path)
    found = {"list": str(path.resolve()), "list_sha256": digest}
    return found if column is None else {**found, "column": column}


def of_pictures(path: Path, path_column: str | None, study_column: str | None) -> Request:
    """Return the request of a list of pictures."""
    columns = {"path_column": path_column, "study_column": study_column}
    given = {key: value for key, value in columns.items() if value is not None}
    return PICTURES, {**_list(path, None), **given}


def of_archive(
    studies: list[str],
    since: datetime | None,
    until: datetime | None,
    to: str | None,
    calling: str | None,
) -> Request:
    """Return the request of studies that the archive holds."""
    request = {
        "studies": sorted(set(studies)) or None,
        "since": since and since.astimezone().isoformat(),
        "until": until and until.astimezone().isoformat(),
        "to": to,
        "from": calling,
    }
    return ARCHIVE, {key: value for key, value in request.items() if value is not None}
