"""`export`: the numbers of any set of studies as one table, and the images without numbers.

Studies are read some hundred at a time. Each is one state of the ledger; studies that come after
the beginning are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from hilum.domain import Identifiers
from hilum.receive.headers.identifiers import read_identifiers
from hilum.receive.statuses import CannotUnderstand
from hilum.services.export_tables.columns import ExportTable
from hilum.services.export_tables.files import (
    TableFile,
    not_read_path,
    open_table,
    require_format,
    require_free,
)
from hilum.services.export_tables.rows import StudyRows
from hilum.settings import Settings
from hilum.store.queries.exports import ExportedStudy, StudySelection
from hilum.store.queries.headers import StoredHeader
from hilum.store.queries.views import LedgerViews

_STUDIES_AT_ONCE: Final = 200
_DAY_LENGTH: Final = 8  # YYYYMMDD


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """Where the tables go. `path`: ends in .csv or .parquet; None: CSV on standard output.

    On standard output the images that were not read are counted, not listed. `by_study`: one row
    for each study instead of each image. `has_identifiers`: with columns that name the patient.
    `replaces`: files that are there already are replaced.
    """

    path: Path | None
    by_study: bool = False
    has_identifiers: bool = False
    replaces: bool = False


@dataclass(slots=True)
class ExportCounts:
    """The number of rows of both tables, and of the studies that the selection found."""

    studies: int = 0
    rows: int = 0
    not_read: int = 0


def check_target(target: ExportTarget) -> None:
    """Raise for a target that cannot be written, before anything is read.

    ConfigurationError: a name without a format, or a file that is there already.
    ModuleNotFoundError: the extra for Parquet is missing.
    """
    if target.path is None:
        return
    require_format(target.path)
    if not target.replaces:
        for path in (target.path, not_read_path(target.path)):
            require_free(path)


def export(
    settings: Settings,
    selection: StudySelection,
    target: ExportTarget,
    counts: ExportCounts | None = None,
) -> ExportCounts:
    """Write the tables of a selection. `counts` is kept up to date on the way, and returned.

    Both files get their names when they are complete; until then neither is there. Raises as
    `check_target`, OSError, and Retry while the ledger does not answer.
    """
    check_target(target)
    counted = ExportCounts() if counts is None else counts
    with ExitStack() as stack:
        views = stack.enter_context(closing(LedgerViews(settings.ledger_url)))
        main, rest = _open_tables(stack, target)
        for rows in _studies(views, _with_release(views, selection), target):
            counted.studies += 1
            counted.rows += _write(main, rows.studies() if target.by_study else rows.images())
            counted.not_read += _write(rest, rows.not_read())
        files = [each for each in (rest, main) if each is not None]
        for each in files:
            each.finish()
        for each in files:
            each.publish()
    return counted


def _open_tables(stack: ExitStack, target: ExportTarget) -> tuple[TableFile, TableFile | None]:
    """Open the table of numbers, and that of images without; None: they are only counted."""
    table = ExportTable.STUDIES if target.by_study else ExportTable.IMAGES
    main = _opened(stack, target.path, table, target)
    if target.path is None:
        return main, None
    return main, _opened(stack, not_read_path(target.path), ExportTable.NOT_READ, target)


def _opened(
    stack: ExitStack, path: Path | None, table: ExportTable, target: ExportTarget
) -> TableFile:
    file = open_table(path, table, has_identifiers=target.has_identifiers)
    stack.callback(file.discard)
    return file


def _write(file: TableFile | None, rows: Iterator[Mapping[str, str | int | float | None]]) -> int:
    """Write rows, and return their number. None: they are only counted."""
    count = 0
    for row in rows:
        if file is not None:
            file.write(row)
        count += 1
    return count


def _with_release(views: LedgerViews, selection: StudySelection) -> StudySelection:
    """Return the selection with the release of its campaign, where it names none."""
    if selection.campaign_id is None or selection.releases:
        return selection
    release = views.release_of_campaign(selection.campaign_id)
    return dataclasses.replace(selection, releases=(release,) if release else ())


def _studies(
    views: LedgerViews, selection: StudySelection, target: ExportTarget
) -> Iterator[StudyRows]:
    """Yield the selected studies in the order of their arrival, of a campaign in that of UIDs."""
    until = views.last_study()
    uids, after = views.export_page(selection, None, until, _STUDIES_AT_ONCE)
    while after is not None:
        known = _identifiers(views, uids)
        for study in views.exported(selection, _possible(uids, known, selection)):
            rows = _rows(study, selection, known.get(study.study_instance_uid), target)
            if _is_there(study) and _is_of_days(rows.identifiers, selection):
                yield rows
        uids, after = views.export_page(selection, after, until, _STUDIES_AT_ONCE)


def _is_there(study: ExportedStudy) -> bool:
    """Return whether the archive or the campaign has the study: it may be erased by now."""
    return study.state is not None or bool(study.series)


def _possible(
    uids: list[str], known: Mapping[str, Identifiers], selection: StudySelection
) -> list[str]:
    """Return the studies whose rows are needed: a campaign may know the day of others."""
    if selection.campaign_id is not None:
        return uids
    return [uid for uid in uids if _is_of_days(known.get(uid), selection)]


def _rows(
    study: ExportedStudy,
    selection: StudySelection,
    identifiers: Identifiers | None,
    target: ExportTarget,
) -> StudyRows:
    said = identifiers or Identifiers(study_date=_planned_day(study))
    return StudyRows(study, selection, said, has_identifiers=target.has_identifiers)


def _planned_day(study: ExportedStudy) -> str:
    """Return the day of the plan, of a study that has no header; empty: there is none."""
    days = (each.day for each in study.series if len(each.day) == _DAY_LENGTH)
    day = next(days, "")
    return f"{day[:4]}-{day[4:6]}-{day[6:]}" if day else ""


def _identifiers(views: LedgerViews, uids: list[str]) -> dict[str, Identifiers]:
    """Return the identifiers in the newest header of each study that has a readable one."""
    found = {}
    for stored in views.newest_headers(uids):
        try:
            said = read_identifiers(_whole(views, stored), stored.transfer_syntax_uid)
        except CannotUnderstand:
            continue
        day = _day_of(said)
        found[stored.study_instance_uid] = dataclasses.replace(
            said, study_date=day.isoformat() if day else ""
        )
    return found


def _whole(views: LedgerViews, stored: StoredHeader) -> bytes:
    return stored.beginning if stored.is_whole else views.whole_header(stored.row_id)


def _day_of(identifiers: Identifiers) -> date | None:
    """Return the Study Date; None: there is none, or a text that is no date."""
    try:
        return date.fromisoformat(identifiers.study_date)
    except ValueError:
        return None


def _is_of_days(identifiers: Identifiers | None, selection: StudySelection) -> bool:
    first = selection.study_date_from
    last = selection.study_date_to
    if first is None and last is None:
        return True
    day = _day_of(identifiers) if identifiers else None
    return day is not None and (first or day) <= day <= (last or day)
