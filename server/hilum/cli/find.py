"""Search for studies by the identifiers that a hospital uses."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hilum.cli.frame import (
    Config,
    acting,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    seconds_of,
)
from hilum.settings import Settings
from hilum.timestamps import iso
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.store.audit.log import Deed


@app.command()
@performs(Verb.FIND_STUDY)
def find(
    config: Config = None,
    accession: Annotated[
        str | None,
        typer.Option(
            help="Accession Number (0008,0050), the whole of it; -: read it from standard input."
        ),
    ] = None,
    patient: Annotated[
        str | None,
        typer.Option(
            help="Patient ID (0010,0020), the whole of it; -: read it from standard input."
        ),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(
            help=(
                "Issuer of Patient ID (0010,0021), or of Accession Number (0008,0051); left out:"
                " whichever issued it."
            )
        ),
    ] = None,
    study_date_from: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            help="Only studies with a Study Date (0008,0020) of this day or later.",
        ),
    ] = None,
    study_date_to: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="Only studies with a Study Date of this day or earlier."
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help=(
                "Only images received at this time of this machine's clock or later, such as"
                " 2026-11-20."
            )
        ),
    ] = None,
) -> None:
    """Find studies by Accession Number or Patient ID.

    One line a study, as soon as it is found: Study Instance UID, state, last image, current results
    and their deliveries. The issuer of the number follows, where the header has it: two hospitals
    may have issued the same number.

    It reads every stored header, newest image first, about a million a minute.
    """
    value = _asked(accession, patient)
    settings = migrated_settings(config)
    from hilum.receive.headers.accession import Accession  # noqa: PLC0415 - imports pydicom
    from hilum.receive.headers.patient import Patient  # noqa: PLC0415 - the same
    from hilum.receive.headers.study_date import StudyDates  # noqa: PLC0415 - the same
    from hilum.services.find import find as find_studies  # noqa: PLC0415 - the same
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    sought = Patient(value, issuer) if accession is None else Accession(value, issuer)
    days = [day and day.date() for day in (study_date_from, study_date_to)]
    dates = StudyDates(*days) if any(days) else None
    with explained(), acting(settings) as deed:
        _say(settings, deed, value, is_patient=accession is None)
        deed.detail = "by study date" if dates else None
        for study in find_studies(
            LedgerViews(settings.ledger_url), sought, seconds_of(since), dates
        ):
            print(_line(deed.counting(study)), flush=True)
    if not deed.count:
        received = f" received since {since}" if since else ""
        by = " as of this issuer" if issuer is not None else ""
        raise ended(
            1, f"no image{received} names it{by}; `GET /api/v1/associations` says what was refused"
        )


def _say(settings: Settings, deed: Deed, value: str, *, is_patient: bool) -> None:
    """Record the search in the audit, with a digest in place of the identifier."""
    from hilum.store.audit.log import AuditLog  # noqa: PLC0415 - imports the ledger

    with closing(AuditLog(settings.ledger_url)) as log:
        deed.count = 0
        deed.about(Thing.PATIENT if is_patient else Thing.ACCESSION, log.digest(value))


def _asked(accession: str | None, patient: str | None) -> str:
    """The value; exit status 2 if it is not clear which."""
    if (accession is None) == (patient is None):
        raise ended(2, "say what to look for: --accession or --patient, one of them")
    said = patient if accession is None else accession
    value = (sys.stdin.readline() if said == "-" else said or "").strip()
    if not value:
        raise ended(2, "it is empty; many images have none, and they do not belong together")
    return value


def _line(study: Mapping[str, Any]) -> str:
    results = [_result(item) for item in study["results"] if item["is_current"]]
    issuer = f"issued by {study['issuer']}" if study["issuer"] else ""
    words = (
        study["study_instance_uid"],
        study["state"],
        iso(study["received_last"]),
        "; ".join(results) or "no result",
        issuer,
    )
    return "  ".join(filter(None, words))


def _result(result: Mapping[str, Any]) -> str:
    sent = Counter(
        way["state"] for document in result["documents"] for way in document["deliveries"]
    )
    said = [
        result["outcome"],
        result["reason"],
        *(f"{count} {state}" for state, count in sent.items()),
    ]
    return f"{result['release']}: {', '.join(filter(None, said))}"
