"""Who gets which report: not analysed, superseded, and the settings of a destination that govern it."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from hilum.deliver import SopClassRefused
from hilum.domain import (
    SR_CLASS_PREFERENCE,
    CampaignOptions,
    DeliveryJob,
    DeliveryState,
    Document,
    ImageReason,
    PlannedSeries,
    ReadingState,
    ReportJob,
)
from hilum.processes import dispatcher
from hilum.processes.dispatcher import DeliverHandler, ReportHandler
from hilum.processes.report_pool import ReportPool
from hilum.report import build_documents, derive
from hilum.settings import (
    Destination,
    DicomDestination,
    FhirDestination,
    FolderDestination,
    Hl7Destination,
    Pipeline,
    Settings,
)
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.ledger import Ledger
from testing.phantoms.phantom import make_study
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.rolling import kept
from tests.support.reports.read_back import items
from tests.support.reports.results import (
    CONTEXT,
    LEASE,
    instance_of,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
RELEASE = make_release()
QUIET = FolderDestination(path=Path("quiet"))
ASKING = FolderDestination(path=Path("asking"), report_not_analysed=True)
JSON_ONLY = FolderDestination(path=Path("json"), documents=("json",), report_not_analysed=True)
DRAWN = Document(
    "heatmap", "application/dicom", b"", "1.2.840.10008.5.1.4.1.1.7", "2.25.3", "2.25.2"
)


class HereAndNow(ReportPool):
    """The pool's seam, in this process."""

    def __init__(self) -> None:
        super().__init__(1)

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


def job(*, is_analysed: bool, held: dict[str, Document] | None = None) -> ReportJob:
    (image,) = [instance_of(item) for item in make_study(3, views=("PA",), rows=16, columns=16)]
    constant = {
        "state": ReadingState.NOT_ANALYSED,
        "logits": None,
        "reason": ImageReason.CONSTANT_IMAGE.value,
    }
    (result,) = results_of(
        study_job([image], [reading_of(image, RELEASE, **({} if is_analysed else constant))]),
        RELEASE,
    )
    return dataclasses.replace(report_job([image], result), delivered_reports=held or {})


def held(uid: str, sop_class: Any = SR_CLASS_PREFERENCE[0]) -> Document:
    return Document(
        sop_class.kind, "application/dicom", b"", sop_class.sop_class_uid, uid, "2.25.9"
    )


def of_campaign(claimed: ReportJob, number: int) -> ReportJob:
    return dataclasses.replace(
        claimed, result=dataclasses.replace(claimed.result, campaign_id=number)
    )


def begin_campaign(ledger: Ledger, *, delivers: bool) -> int:
    with closing(Campaigns(ledger.url)) as campaigns:
        known = campaigns.create("old", "pacs", {})
        campaigns.add(known.id, PlanPart("1", [(PlannedSeries("1.1", "1.1.7"), ())]))
        campaigns.end_plan("old")
        options = CampaignOptions(delivers)
        return campaigns.run("old", RELEASE.id, options, kept(RELEASE.id)).id


async def routed(
    tmp_path: Path,
    claimed: ReportJob,
    more: dict[str, Destination] | None = None,
    campaign_delivers: bool | None = None,
) -> dict[str, tuple[str, ...]]:
    destinations = {"quiet": QUIET, "asking": ASKING, "json": JSON_ONLY, **(more or {})}
    settings = Settings.model_construct(
        **{name: field.get_default() for name, field in Settings.model_fields.items()}
    )
    settings = settings.model_copy(update={"destinations": destinations})
    ledger = Ledger(migrated_sqlite(tmp_path))
    if campaign_delivers is not None:
        claimed = of_campaign(claimed, begin_campaign(ledger, delivers=campaign_delivers))
    try:
        decided = await ReportHandler(settings, {RELEASE.id: RELEASE}, ledger, HereAndNow()).handle(
            claimed
        )
    finally:
        ledger.close()
    return {new.document.kind: new.destinations for new in decided.documents}


def run(scenario: Any) -> Any:
    import asyncio

    return asyncio.run(scenario)


def test_an_analysed_study_goes_to_all(tmp_path: Path) -> None:
    assert run(routed(tmp_path, job(is_analysed=True))) == {
        "sr": ("quiet", "asking"),
        "json": ("json",),
    }


@pytest.mark.parametrize("is_analysed", [True, False])
def test_the_result_of_a_campaign_goes_nowhere(tmp_path: Path, is_analysed: bool) -> None:
    found = run(routed(tmp_path, job(is_analysed=is_analysed), campaign_delivers=False))

    assert set(found.values()) <= {()}


def test_the_result_of_a_campaign_that_delivers_goes_to_all(tmp_path: Path) -> None:
    found = run(routed(tmp_path, job(is_analysed=True), campaign_delivers=True))

    assert found == {"sr": ("quiet", "asking"), "json": ("json",)}


def test_a_destination_that_holds_an_earlier_report_gets_its_successor_from_a_campaign(
    tmp_path: Path,
) -> None:
    claimed = job(is_analysed=True, held={"quiet": held("2.25.8")})
    found = run(routed(tmp_path, claimed, campaign_delivers=False))

    assert found["sr"] == ("quiet",)


def test_a_report_is_one_line_in_the_log_without_what_it_found(tmp_path: Path) -> None:
    claimed = job(is_analysed=True)
    with capture_logs() as lines:
        run(routed(tmp_path, claimed))
    (line,) = [line for line in lines if line["event"] == "study_reported"]
    assert (line["study_instance_uid"], line["release"], line["revision"]) == (
        claimed.result.study_instance_uid,
        RELEASE.id,
        claimed.result.revision,
    )
    assert (line["images"], line["images_used"], line["findings"]) == (
        1,
        1,
        len(claimed.result.findings),
    )
    assert line["destinations"] == "asking, json, quiet"
    known = {
        "event",
        "log_level",
        "room",
        "study_instance_uid",
        "release",
        "revision",
        "outcome",
        "reason",
    }
    assert set(line) == {
        *known,
        "images",
        "images_used",
        "findings",
        "destinations",
    }, "neither a score nor a decision"


def test_that_nothing_was_analysed_goes_where_it_was_asked_for(tmp_path: Path) -> None:
    assert run(routed(tmp_path, job(is_analysed=False))) == {"sr": ("asking",), "json": ("json",)}


def test_an_earlier_report_does_not_stay_the_last_word(tmp_path: Path) -> None:
    claimed = job(is_analysed=False, held={"quiet": held("2.25.1")})
    assert run(routed(tmp_path, claimed)) == {"sr": ("quiet", "asking"), "json": ("json",)}


def test_a_message_on_nothing_goes_where_it_was_asked_for_or_an_earlier_one_may_be(
    tmp_path: Path,
) -> None:
    more: dict[str, Destination] = {
        "ris": Hl7Destination(host="ris"),
        "asking_ris": Hl7Destination(host="ris", report_not_analysed=True),
    }
    claimed = job(is_analysed=False)
    earlier = Document("hl7", "x-application/hl7-v2+er7", b"")
    after_a_message = dataclasses.replace(
        claimed, predecessors={"hl7": earlier}, holders={"hl7": frozenset({"ris"})}
    )
    for folder, analysed, expected in (
        ("a", job(is_analysed=True), ("ris", "asking_ris")),
        ("b", claimed, ("asking_ris",)),
        ("c", after_a_message, ("ris", "asking_ris")),
    ):
        (tmp_path / folder).mkdir()
        assert run(routed(tmp_path / folder, analysed, more))["hl7"] == expected


def test_a_bundle_on_nothing_goes_where_it_was_asked_for_or_an_earlier_one_may_be(
    tmp_path: Path,
) -> None:
    url = "https://ris.example.org/fhir"
    more: dict[str, Destination] = {
        "fhir": FhirDestination(url=url),
        "asking_fhir": FhirDestination(url=url, report_not_analysed=True),
    }
    claimed = job(is_analysed=False)
    after_a_bundle = dataclasses.replace(
        claimed,
        predecessors={"fhir": Document("fhir", "application/fhir+json", b"")},
        holders={"fhir": frozenset({"fhir"})},
    )
    for folder, analysed, expected in (
        ("a", job(is_analysed=True), ("fhir", "asking_fhir")),
        ("b", claimed, ("asking_fhir",)),
        ("c", after_a_bundle, ("fhir", "asking_fhir")),
    ):
        (tmp_path / folder).mkdir()
        assert run(routed(tmp_path / folder, analysed, more))["fhir"] == expected


def test_a_sheet_that_takes_heat_maps_away_goes_where_one_may_lie_and_nowhere_else(
    tmp_path: Path,
) -> None:
    """It would be the only thing that a destination has of a study of which it never heard."""
    kinds = {
        "had": ("sr", "heatmap"),
        "never": ("sr", "heatmap"),
        "pictures": ("heatmap",),
        "cancelled": ("sr", "heatmap"),
    }
    more = {
        name: FolderDestination(path=Path(name), documents=documents)
        for name, documents in kinds.items()
    }
    claimed = job(is_analysed=False, held={"had": held("2.25.1"), "cancelled": held("2.25.1")})
    shown = dataclasses.replace(
        claimed,
        predecessors={"heatmap": DRAWN},
        holders={"heatmap": frozenset({"had", "pictures"})},
    )
    assert run(routed(tmp_path, shown, more)) == {
        "sr": ("asking", "had", "cancelled"),
        "json": ("json",),
        "heatmap": ("had", "pictures"),
    }


def test_a_report_names_what_each_destination_holds_once() -> None:
    holdings = {
        "a": held("2.25.1"),
        "b": held("2.25.2", SR_CLASS_PREFERENCE[2]),
        "c": held("2.25.1"),
    }
    (document,) = build_documents(job(is_analysed=True, held=holdings), RELEASE, CONTEXT, ("sr",))
    (series,) = [
        item
        for before in parse(document.content).PredecessorDocumentsSequence
        for item in before.ReferencedSeriesSequence
    ]
    named = [
        (item.ReferencedSOPInstanceUID, item.ReferencedSOPClassUID)
        for item in series.ReferencedSOPSequence
    ]
    assert named == [
        ("2.25.1", SR_CLASS_PREFERENCE[0].sop_class_uid),
        ("2.25.2", SR_CLASS_PREFERENCE[2].sop_class_uid),
    ]


def test_a_report_on_nothing_gives_the_reason_and_no_finding() -> None:
    (document,) = build_documents(job(is_analysed=False), RELEASE, CONTEXT, ("sr",))
    report = parse(document.content)
    assert items(report, "125007") == []
    assert "constant_image" in items(report, "121106")[0].TextValue
    assert "does not mean that nothing is there" in items(report, "121106")[0].TextValue


def test_stepping_down_stores_the_other_class_and_ends_the_delivery(tmp_path: Path) -> None:
    claimed = job(is_analysed=True)
    (document,) = build_documents(claimed, RELEASE, CONTEXT, ("sr",))
    delivery = DeliveryJob(
        LEASE, "pacs", document, "1.2", RELEASE.id, True, 0.0, 0.0, claimed.result.identifiers
    )
    handler = DeliverHandler("pacs", DicomDestination(), HereAndNow(), Pipeline())
    decided = run(
        handler._step_down(delivery, SopClassRefused("it does not take it", SR_CLASS_PREFERENCE[2]))
    )
    handler.close()
    (new,) = decided.documents
    assert (decided.state, decided.values) == (
        DeliveryState.CANCELLED,
        {"reason": "class_ladder", "detail": "it does not take it"},
    )
    assert (new.destinations, new.document.kind) == (("pacs",), "sr_enhanced")
    assert new.document.sop_instance_uid == claimed.result.identifiers["sr_enhanced"]
    assert new.document == derive(
        document, SR_CLASS_PREFERENCE[2], claimed.result.identifiers["sr_enhanced"]
    )


def test_a_delivery_that_hangs_does_not_keep_its_process_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a folder on a server that is away. What its thread is at is not closed under it."""
    monkeypatch.setattr(dispatcher, "_CLOSE_SECONDS", 0.05)
    handler, goes_on, closed = (
        DeliverHandler("pacs", DicomDestination(), HereAndNow(), Pipeline()),
        threading.Event(),
        list[bool](),
    )
    monkeypatch.setattr(handler, "_clients", SimpleNamespace(close=lambda: closed.append(True)))

    async def hang() -> None:
        handler._thread.call(lambda: goes_on.wait(30))
        handler.close()

    run(hang())
    assert (goes_on.is_set(), closed) == (False, [])
    goes_on.set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"sr_classes": ("enhanced", "comprehensive")},
            "in this order: comprehensive_3d, comprehensive, enhanced, basic_text",
        ),
        ({"sr_classes": ("enhanced", "enhanced")}, "once and in this order"),
        ({"sr_classes": ()}, "at least 1 item"),
        ({"sr_classes": ("chest_cad",)}, "no class of reports"),
        ({"ca_file": "ca.pem"}, "need tls = true"),
        ({"tls": True, "key_file": "key.pem"}, "certificate_file and key_file belong together"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DicomDestination(**changes)


def test_tls_files_survive_the_way_to_a_child_process() -> None:
    given = DicomDestination(
        tls=True, ca_file=Path("ca.pem"), sr_classes=("enhanced", "basic_text")
    )
    assert DicomDestination.model_validate_json(given.model_dump_json()) == given


PAGES = {
    "pages": FolderDestination(path=Path("pages"), documents=("sheet", "pdf", "text_sr")),
    "asked": FolderDestination(path=Path("asked"), documents=("pdf",), report_not_analysed=True),
}


def test_sheet_pdf_and_text_are_made_where_they_are_listed(tmp_path: Path) -> None:
    found = run(routed(tmp_path, job(is_analysed=True), PAGES))
    assert {kind: found.get(kind) for kind in ("sheet", "pdf", "text_sr")} == {
        "sheet": ("pages",),
        "pdf": ("pages", "asked"),
        "text_sr": ("pages",),
    }


def test_that_nothing_was_analysed_is_on_a_page_only_where_it_was_asked_for(tmp_path: Path) -> None:
    found = run(routed(tmp_path, job(is_analysed=False), PAGES))
    assert found == {"sr": ("asking",), "json": ("json",), "pdf": ("asked",)}


def test_an_earlier_sheet_does_not_stay_the_last_one(tmp_path: Path) -> None:
    claimed = dataclasses.replace(job(is_analysed=False), holders={"sheet": frozenset({"pages"})})
    found = run(routed(tmp_path, claimed, PAGES))
    assert (found["sheet"], found["pdf"], "text_sr" in found) == (("pages",), ("asked",), False)


def test_a_presentation_state_goes_where_it_is_listed_and_never_of_what_was_not_analysed(
    tmp_path: Path,
) -> None:
    taking = {
        "viewer": FolderDestination(
            path=Path("viewer"), documents=("gsps",), report_not_analysed=True
        ),
        "other": FolderDestination(path=Path("other"), documents=("sheet",)),
    }
    assert run(routed(tmp_path, job(is_analysed=True), taking))["gsps"] == ("viewer",)
    assert "gsps" not in run(routed(tmp_path, job(is_analysed=False), taking))


def test_a_result_from_before_a_kind_had_uids_goes_out_without_it(tmp_path: Path) -> None:
    claimed = job(is_analysed=True)
    known = {
        name: uid
        for name, uid in claimed.result.identifiers.items()
        if not name.startswith(("sheet", "pdf"))
    }
    older = dataclasses.replace(
        claimed, result=dataclasses.replace(claimed.result, identifiers=known)
    )
    found = run(routed(tmp_path, older, PAGES))
    assert set(found) == {"sr", "json", "text_sr"}
