"""The page of destinations: what holds them up, and buttons that do what REST does, each with its row of the audit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.api.pages.destination_boxes import destination_box
from hilum.domain import Advance, DeliveryState
from hilum.settings import DicomDestination
from hilum.store.audit.log import AuditFilter
from tests.support.reports.html import Strict
from tests.support.server.api_client import TOKEN, Rig, open_rig

DETAIL = "PACS answered 0x0122: SOP Class not supported"
NOW = 1_000_000.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A delivered document, a dead one, and one for a destination that the settings do not have."""
    with open_rig(tmp_path) as opened:
        street = opened.street
        street.walk("1.2.1", 1)
        opened.clock.now += 60
        street.receive("1.2.2", 1)
        street.read()
        street.assemble()
        street.report()
        dead = Advance(DeliveryState.DEAD, {"reason": "sop_class_refused", "detail": DETAIL})
        street.ledger.advance("deliver", [(job.lease, dead) for job in street.claim("deliver")])
        street.destinations = ("gone",)
        street.receive("1.2.3", 1)
        street.read()
        street.assemble()
        street.report()
        opened.clock.now += 30
        yield opened


def words_of(rig: Rig, address: str = "/destinations") -> str:
    response = rig.client.get(address)
    assert response.status_code == 200, response.text
    page = Strict(response.text)
    assert page.problems == []
    return re.sub(r"\s+", " ", " ".join(page.words))


def press(rig: Rig, verb: str, name: str = "pacs", **fields: str) -> str:
    """The words of the page that a button leads to."""
    response = rig.client.post(f"/destinations/{name}/{verb}", data=fields, follow_redirects=False)
    assert response.status_code == 303, response.text
    return words_of(rig, response.headers["location"])


def audited(rig: Rig) -> list[tuple[str, str, str]]:
    return [
        (row["verb"], row["name"], row["outcome"])
        for row in rig.audit.all(AuditFilter())
        if row["channel"] == "page"
    ]


def test_the_page_says_where_reports_go_and_what_holds_them_up(rig: Rig) -> None:
    words = words_of(rig)
    for said in (
        "pacs needs a person",
        "dicom PACS@127.0.0.1:4242",
        "Last document taken 1 minute ago",
        f"{DETAIL}, 40 seconds ago",
        "not delivered 1 document:",
        "gone not in the settings",
        "1 document due now",
    ):
        assert said in words, said


def test_rest_says_the_same(rig: Rig) -> None:
    found = {item["name"]: item for item in rig.get("/api/v1/destinations")["destinations"]}
    assert (found["pacs"]["kind"], found["pacs"]["address"]) == ("dicom", "PACS@127.0.0.1:4242")
    assert (found["pacs"]["delivered_at"], found["pacs"]["last_dead"]) == (
        "2026-11-20T08:30:10.500Z",
        {"reason": "sop_class_refused", "detail": DETAIL, "at": "2026-11-20T08:31:20.500Z"},
    )
    assert [found["gone"][name] for name in ("kind", "address", "delivered_at", "last_dead")] == [
        None
    ] * 4


def test_a_destination_that_will_refuse_what_reads_is_named_before_a_study_comes(
    tmp_path: Path,
) -> None:
    with open_rig(tmp_path, destinations={"clinic": DicomDestination()}) as empty:
        words = words_of(empty)
        assert (
            "It gets nothing of densenet121_untrained@1: results of untrained weights mean nothing"
            in words
        )
        assert "set destinations.clinic.accept_untrained = true" in words
        assert "accept_untrained = true" not in words.partition("pacs not used yet")[2]


def test_pause_and_resume(rig: Rig) -> None:
    assert "pacs is paused." in press(rig, "pause")
    assert "pacs paused dicom" in words_of(rig)
    assert "pacs is in use again." in press(rig, "resume")
    assert audited(rig) == [("resume", "pacs", "done"), ("pause", "pacs", "done")]


def test_dead_documents_of_one_reason_go_again(rig: Rig) -> None:
    assert "pacs: 1 document due again." in press(rig, "requeue", reason="sop_class_refused")
    assert "not delivered" not in words_of(rig)
    assert "pacs: no document is due again." in press(rig, "requeue", reason="sop_class_refused")
    assert [verb for verb, _, outcome in audited(rig) if outcome == "done"] == [
        "requeue",
        "requeue",
    ]


@pytest.mark.parametrize("reason", ["sop_clas_refused", "No Reason'; --"])
def test_a_reason_that_is_none_is_refused(rig: Rig, reason: str) -> None:
    assert rig.client.post("/destinations/pacs/requeue", data={"reason": reason}).status_code == 422
    assert "not delivered 1 document" in words_of(rig)


def test_what_a_destination_accepts_is_asked_and_said(rig: Rig) -> None:
    response = rig.client.post("/destinations/pacs/probe")
    page = Strict(response.text)
    assert (response.status_code, page.problems) == (200, [])
    words = re.sub(r"\s+", " ", " ".join(page.words))
    assert "PACS@127.0.0.1:4242, C-ECHO: success reports go there" in words
    assert not [found for found in page.attributes("div") if "data-live" in found], (
        "to load this address anew would ask again"
    )
    assert audited(rig) == [("probe", "pacs", "done")]


def test_what_cannot_be_undone_is_confirmed(rig: Rig) -> None:
    assert rig.client.post("/destinations/gone/forget").status_code == 422
    assert "1 document due now" in words_of(rig)
    assert "gone: 1 document given up." in press(rig, "forget", "gone", confirmed="yes")
    assert "not in the settings" not in words_of(rig)
    assert audited(rig) == [
        ("forget_destination", "gone", "done"),
        ("forget_destination", "gone", "refused"),
    ]


@pytest.mark.parametrize(
    ("verb", "name", "status"),
    [("pause", "pcas", 404), ("probe", "gone", 404), ("requeue", "gone", 404)],
)
def test_a_destination_that_is_none_is_a_page_that_says_so(
    rig: Rig, verb: str, name: str, status: int
) -> None:
    response = rig.client.post(f"/destinations/{name}/{verb}")
    assert (response.status_code, response.headers["content-type"]) == (
        status,
        "text/html; charset=utf-8",
    )


def test_one_that_is_in_the_settings_is_not_given_up(rig: Rig) -> None:
    assert (
        rig.client.post("/destinations/pacs/forget", data={"confirmed": "yes"}).status_code == 409
    )


@pytest.mark.parametrize("verb", ["probe", "pause", "resume", "requeue", "forget"])
def test_buttons_want_a_token_that_may_operate_and_our_own_page(tmp_path: Path, verb: str) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig:
        address, token = f"/destinations/pacs/{verb}", {"Authorization": f"Bearer {TOKEN}"}
        assert rig.client.post(address).status_code == 401
        assert (
            rig.client.post(address, headers={**token, "Sec-Fetch-Site": "cross-site"}).status_code
            == 403
        )


def test_without_a_ledger_to_write_there_are_no_buttons(tmp_path: Path) -> None:
    with open_rig(tmp_path, interventions=None) as rig:
        assert [
            form
            for form in Strict(rig.client.get("/destinations").text).attributes("form")
            if form.get("method") == "post"
        ] == []
        assert rig.client.post("/destinations/pacs/pause").status_code == 404


def test_without_a_destination_the_page_says_what_to_write(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        rig.client.app.state.parts.settings.destinations.clear()  # type: ignore[attr-defined]
        assert "[destinations.pacs]" in words_of(rig)


def item(**said: object) -> dict[str, object]:
    counts = {
        "due": 0,
        "waiting": 0,
        "leased": 0,
        "releasable": 0,
        "uncommitted": 0,
        "dead": {},
        "withheld": {},
    }
    last = {"detail": None, "delivered_at": None, "last_dead": None}
    return {
        "name": "pacs",
        "kind": "dicom",
        "address": "A@b:1",
        "is_configured": True,
        "is_paused": False,
        **counts,
        **last,
        **said,
    }


@pytest.mark.parametrize(
    ("said", "chip"),
    [
        ({}, "not used yet"),
        ({"delivered_at": NOW}, "up"),
        ({"delivered_at": NOW, "dead": {"sop_class_refused": 1}}, "needs a person"),
        ({"detail": "it refused the connection", "dead": {"sop_class_refused": 1}}, "away"),
        ({"is_paused": True, "detail": "it refused the connection"}, "paused"),
        ({"is_configured": False, "is_paused": True}, "not in the settings"),
    ],
)
def test_the_state_of_a_destination_in_one_word(said: dict[str, object], chip: str) -> None:
    assert destination_box(item(**said), NOW).chip.text == chip


def test_the_error_that_holds_up_documents_comes_before_one_of_before() -> None:
    dead = {"reason": "sop_class_refused", "detail": DETAIL, "at": NOW - 60}
    now, before = (
        destination_box(item(detail=detail, last_dead=dead), NOW).error
        for detail in ("it refused the connection", None)
    )
    assert now is not None
    assert (now.text, now.at) == ("it refused the connection", None)
    assert before is not None
    assert before.text.endswith(DETAIL)
    assert before.at is not None


def test_withheld_documents_are_released_once_the_settings_let_them_go(tmp_path: Path) -> None:
    with open_rig(tmp_path, destinations={"clinic": DicomDestination()}) as rig:
        rig.street.destinations = ()
        rig.street.withheld = dict.fromkeys(("pacs", "clinic"), "untrained_weights")
        rig.street.walk("1.2.1", 1)
        page = Strict(rig.client.get("/destinations").text)
        labels = [
            found["aria-label"]
            for found in page.attributes("button")
            if "Release" in str(found.get("aria-label"))
        ]
        assert labels == ["Release: 1 document to pacs, untrained weights"]
        assert "pacs: 1 document due again." in press(rig, "requeue", reason="untrained_weights")
        assert "clinic: no document is due again." in press(
            rig, "requeue", "clinic", reason="untrained_weights"
        )
