"""Look at studies, do something again, step in."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hilum.cli.frame import (
    Config,
    acting,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    require_known,
    settings_of,
    studies_app,
)
from hilum.domain import SR, ReportState
from hilum.settings import Settings
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.store.queries.views import LedgerViews

_LOOK_SECONDS: Final = 0.5


@app.command()
@performs(Verb.READ_STUDY)
def study(
    uid: Annotated[
        str,
        typer.Argument(
            help="Study Instance UID, or SOP Instance UID of one of its images or reports."
        ),
    ],
    config: Config = None,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="The current Structured Report as people read it, instead of JSON."
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86400,
            metavar="SECONDS",
            help="Wait for its reports; exit status 1 if they do not arrive.",
        ),
    ] = None,
) -> None:
    """Show a study: state, images, results, documents and deliveries as JSON, or its report.

    With --tree the report is shown as a tree.
    """
    settings = settings_of(config)
    # The same answer as REST gives.
    from hilum.api.answers.studies import (  # noqa: PLC0415
        StudyAnswer,
        history_of,
    )
    from hilum.store.audit.log import AuditLog  # noqa: PLC0415 - imports the ledger
    from hilum.store.migrations.revision import require_revision  # noqa: PLC0415 - the same
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - the same

    with explained():
        require_revision(settings.ledger_url)
        views = LedgerViews(settings.ledger_url)
        if (detail := _awaited(views, uid, wait or 0)) is None:
            raise ended(
                1,
                f"no study, image or report {uid} in the ledger; `hilum find` looks for an"
                " Accession Number",
            )
        with acting(settings, detail["study_instance_uid"]):
            pass  # before it is shown
        with closing(AuditLog(settings.ledger_url)) as audit:
            detail["history"] = history_of(audit, detail["study_instance_uid"])
        if tree:
            print(_tree(views, detail, uid))
        else:
            answer = {"disclaimer": settings.report.disclaimer, **detail}
            print(StudyAnswer.model_validate(answer).model_dump_json(indent=2))
    if wait is not None and detail["report_state"] != ReportState.DELIVERED:
        raise ended(
            1,
            f"its reports have not arrived: {detail['report_state']}; deliveries say why,"
            " and the log",
        )


def _awaited(views: LedgerViews, uid: str, seconds: float) -> dict[str, Any] | None:
    """Return the study once its reports are delivered, or the time is over; None: no such study."""
    deadline = time.monotonic() + seconds
    while True:
        detail = views.study(uid) or views.study(views.study_of(uid) or "")
        is_over = detail is not None and detail["report_state"] != ReportState.OPEN
        if is_over or time.monotonic() >= deadline:
            return detail
        time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))


def _tree(views: LedgerViews, detail: Mapping[str, Any], uid: str) -> str:
    """Return the report as people read it. Exit status 1 where there is none."""
    from hilum.report.tree import sr_text  # noqa: PLC0415 - pydicom is not needed elsewhere

    current = _current_report(detail)
    found = None if current is None else views.document(current)
    if found is None:
        raise ended(
            1,
            f"study {uid} has no Structured Report of its current result; run without --tree"
            " to see why",
        )
    return sr_text(found["content"])


def _current_report(detail: Mapping[str, Any]) -> int | None:
    """Return the row id of the newest current Structured Report of the study, of any release."""
    documents = [
        document
        for result in detail["results"]
        if result["is_current"]
        for document in result["documents"]
    ]
    return max(
        (document["id"] for document in documents if document["kind"] == SR.key), default=None
    )


@app.command()
@performs(Verb.REQUEUE)
def requeue(
    stage: Annotated[
        str, typer.Argument(help="analyse, assemble, compare, report, deliver or commit.")
    ],
    config: Config = None,
    reason: Annotated[
        str | None, typer.Option(help="Only items that ended for this reason.")
    ] = None,
    study_uid: Annotated[
        str | None, typer.Option("--study", help="Only items of this Study Instance UID.")
    ] = None,
    destination: Annotated[
        str | None, typer.Option(help="Only deliveries to this destination.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Every ended item of the stage, also those that ended for good reason."
        ),
    ] = False,
) -> None:
    """Make ended items of a stage due again.

    Failed or not analysed images, failed reports, dead letters. Say which, or --all.

    `deliver` also releases withheld reports whose cause is gone, and lists those that stay
    withheld, with the reason. Exit status 0 also when nothing was to be done; 1: the ledger has no
    such study.
    """
    from hilum.pipeline import STAGES  # noqa: PLC0415 - imports the ledger
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - the same
    from hilum.store.migrations.revision import require_revision  # noqa: PLC0415 - the same
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - the same

    require_known("stage", stage, STAGES)
    if not (everything or reason or study_uid or destination):
        raise ended(2, "say which: --reason, --study, --destination, or --all")
    if reason is not None:
        _require_reason(stage, reason)
    settings = settings_of(config)
    if destination:
        _require_deliverable(settings, stage, destination)
    chosen = {"reason": reason, "study_uid": study_uid, "destination_name": destination}
    with explained():
        require_revision(settings.ledger_url)
    with explained(), acting(settings, study_uid, Thing.STAGE, stage) as deed:
        deed.detail = " ".join(filter(None, (reason, destination and f"to {destination}"))) or None
        views = LedgerViews(settings.ledger_url)
        if study_uid and not views.has_study(study_uid):
            raise ended(
                1, f"no study {study_uid} in the ledger; `hilum find` looks for an Accession Number"
            )
        count = Ledger(settings.ledger_url).requeue(
            stage, **chosen, among=settings.destinations, deed=deed
        )
        withheld = views.withheld(settings.destinations, study_uid) if stage == "deliver" else []
    print(f"{count} item{'' if count == 1 else 's'} of {stage} due again")
    for item in withheld:
        if destination in (None, item["destination"]) and reason in (None, item["reason"]):
            print(_still_withheld(item))


def _still_withheld(item: Mapping[str, Any]) -> str:
    where = f"{item['items']} stay withheld from {item['destination']} ({item['reason']})"
    return f"{where}: {item['advice']}; then repeat this"


def _require_deliverable(settings: Settings, stage: str, destination: str) -> None:
    """Exit status 2 unless the stage delivers and the settings name the destination."""
    if stage != "deliver":
        raise ended(2, "--destination belongs to the stage deliver")
    if destination not in settings.destinations:
        raise ended(
            2,
            f"no destination {destination!r} in the settings, so no process would send it; put it"
            f" back, or give up what waits for it: hilum destinations forget {destination}",
        )


def _require_reason(stage: str, reason: str) -> None:
    """Exit status 2 for one for which no item of the stage ends: it is misspelt."""
    from hilum.store.queue.requeue import reasons  # noqa: PLC0415 - imports the ledger
    from hilum_preprocessing.spec.fields import nearest  # noqa: PLC0415 - as above

    known = reasons(stage)
    if reason not in known:
        advice = nearest(reason, known, most=3, cutoff=0.5)
        raise ended(2, f"no item of {stage} ends for a reason {reason!r}{advice}")


@studies_app.command("complete")
@performs(Verb.COMPLETE)
def complete_study(
    uid: Annotated[str, typer.Argument(help="Study Instance UID.")],
    config: Config = None,
    without_waiting: Annotated[
        bool, typer.Option(help="Images that no process reads yet end as not_waited_for.")
    ] = False,
) -> None:
    """End a study's quiet period now: it is reported as soon as its images are read.

    A further image revises it as ever.
    """
    settings = migrated_settings(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger

    with explained(), acting(settings, uid) as deed:
        done = Ledger(settings.ledger_url).complete(uid, is_waiting=not without_waiting, deed=deed)
        if done is None:
            raise ended(
                1, f"no study {uid} in the ledger; `GET /api/v1/studies` lists what there is"
            )
    said = "its quiet period is over" if done.state == "due" else f"it was {done.state} already"
    more = (
        f"; {done.ended_readings} readings ended as not_waited_for" if done.ended_readings else ""
    )
    print(f"{said}; waits for {done.waits_for} readings{more}")


@app.command()
@performs(Verb.ERASE)
def erase(
    config: Config = None,
    patient: Annotated[
        str | None,
        typer.Option(
            help="Patient ID (0010,0020), the whole of it; -: read it from standard input."
        ),
    ] = None,
    study_uid: Annotated[
        str | None,
        typer.Option(
            "--study",
            help="Study Instance UID (0020,000D) of the one study; -: read it from standard input.",
        ),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(
            help="With --patient: Issuer of Patient ID (0010,0021); left out: whichever issued it."
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Apply the change; without it, the objects are only counted."),
    ] = False,
    rewrite: Annotated[
        bool, typer.Option(help="Rewrite the ledger's file, so that no free page holds old bytes.")
    ] = True,
) -> None:
    """Erase a patient, all studies with this Patient ID, or one study.

    Files, headers, results and documents. It cannot be undone.

    Copies at destinations, and backups, are not touched: the answer counts the delivered documents
    of each destination. Safe to repeat.
    """
    wanted = _whom_to_erase(patient, study_uid, issuer)
    settings = migrated_settings(config)
    from hilum.receive.headers.patient import OneStudy, Patient  # noqa: PLC0415 - imports pydicom

    # Imports every room below.
    from hilum.services.erase import (  # noqa: PLC0415
        erase as erase_owner,
    )

    owner = Patient(wanted, issuer) if study_uid is None else OneStudy(wanted)
    with explained(), acting(settings) as deed:
        report = erase_owner(settings, owner, is_dry_run=not yes, has_to_rewrite=rewrite, deed=deed)
    print(report.said(is_dry_run=not yes, whose="patient" if study_uid is None else "study"))
    raise typer.Exit(0 if yes and (report.is_complete if rewrite else report.is_gone) else 1)


def _whom_to_erase(patient: str | None, study_uid: str | None, issuer: str | None) -> str:
    """The Patient ID or the Study Instance UID; exit status 2 if it is not clear whose."""
    problem = None
    if (patient is None) == (study_uid is None):
        problem = "say whose: --patient, or --study for one study, and not both"
    elif issuer is not None and patient is None:
        problem = "--issuer belongs to --patient"
    said = patient or study_uid or ""
    wanted = (sys.stdin.readline() if said == "-" and problem is None else said).strip()
    if problem is None and not wanted:
        problem = (
            "--study is empty"
            if patient is None
            else (
                "--patient is empty; many images have no Patient ID, and they are not one patient's"
            )
        )
    if problem is not None:
        raise ended(2, f"{problem}")
    return wanted
