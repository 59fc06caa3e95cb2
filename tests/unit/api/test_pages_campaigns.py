"""Pages and REST on campaigns: how far each is, its days, and what it could not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.api.pages.campaigns.day_grid import day_grid
from hilum.api.pages.campaigns.progress_box import progress_bar
from hilum.domain import (
    SERIES_REASONS,
    CampaignCounts,
    PlanDoubt,
    RowOutcome,
    SeriesReason,
    SeriesState,
)
from hilum.store.audit.log import AuditFilter
from tests.support.campaigns.seeded import SeededSeries, seed
from tests.support.reports.html import Strict
from tests.support.server.api_client import TOKEN, Rig, open_rig

HOSTILE = "<script>alert(1)</script>"
READ = SeriesState.READ
DEAD = SeriesState.DEAD


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A campaign under way with doubts, a dead series and a list, and one that never ran."""
    with open_rig(tmp_path) as opened:
        url = opened.street.ledger.url
        seed(
            url,
            opened.clock,
            "old",
            [
                SeededSeries("20190101", READ, 5, age=60.0),
                SeededSeries("20190101", READ, image_reason="lateral_not_supported", age=60.0),
                SeededSeries("20190102", DEAD, reason="offline", detail=HOSTILE, origin="row 7"),
                SeededSeries("20190102", SeriesState.FOUND, 3),
                SeededSeries("", SeriesState.FOUND),
            ],
            doubts=(PlanDoubt("exactly 500 answers", "20190102"),),
            list_rows={RowOutcome.FOUND: 9, RowOutcome.NONE: 2},
        )
        seed(url, opened.clock, "new", [SeededSeries("20200101")], began_before=None)
        yield opened


def page_of(rig: Rig, address: str) -> Strict:
    response = rig.client.get(address)
    assert response.status_code == 200, response.text
    page = Strict(response.text)
    assert page.problems == []
    return page


def words_of(rig: Rig, address: str) -> str:
    return re.sub(r"\s+", " ", " ".join(page_of(rig, address).words))


def test_the_list_says_how_far_each_campaign_is(rig: Rig) -> None:
    words = words_of(rig, "/campaigns")
    assert "new planned 0.0 %: 0 of 1 series ended, 1 study pacs not run yet" in words
    assert "old running 63.6 %: 7 of 11 series ended, 11 studies, 1 dead pacs chest@2" in words


def test_no_campaign_says_how_to_make_one(shared_rig: Rig) -> None:
    assert "hilum campaign plan" in words_of(shared_rig, "/campaigns")


@pytest.mark.parametrize(
    "said",
    [
        "Campaign old running",
        "pacs read by chest@2",
        "63.6 %: 7 of 11 series ended, 1 dead",
        "4 waiting, 6 read, 1 dead",
        "22 listed, 12 received, 10 analysed, 2 not analysed, 2 missing",
        "0.1 series and 0.2 images a minute in the last hour",
        "Expected end in 34 minutes",
        "2019-01-02: exactly 500 answers",
        "found 9 name one study",
        "none 2 name no study of the source",
        "2019-01-02: 0 of 4 series read, 1 dead",
        "No usable Study Date: 0 of 1 series read.",
        "offline 1 It lies on a medium that the source cannot reach by itself.",
        "row 7",
        "lateral not supported 2 A lateral view",
        "hilum campaign pause old",
    ],
)
def test_a_campaign_has_on_one_page(rig: Rig, said: str) -> None:
    assert said in words_of(rig, "/campaigns/old")


def test_nothing_of_a_source_is_run_by_the_browser(rig: Rig) -> None:
    assert HOSTILE not in rig.client.get("/campaigns/old").text
    assert HOSTILE in words_of(rig, "/campaigns/old")


def test_an_unknown_campaign_is_a_page_that_says_so(rig: Rig) -> None:
    response = rig.client.get("/campaigns/none")
    assert response.status_code == 404
    assert "There is no such campaign" in response.text


def test_dead_series_come_in_pages(tmp_path: Path) -> None:
    with open_rig(tmp_path) as opened:
        dead = SeededSeries("20190102", DEAD, 60, reason="not_received")
        seed(opened.street.ledger.url, opened.clock, "old", [dead])
        page = page_of(opened, "/campaigns/old")
        (older,) = [item["href"] for item in page.attributes("a") if item.get("rel") == "next"]
        assert older is not None
        assert page_of(opened, f"/campaigns/old{older.partition('/campaigns/old')[2]}")
        lines = [item for item in page.attributes("tr") if "data-line" in item]
        rest = [item for item in page_of(opened, older).attributes("tr") if "data-line" in item]
    assert (len(lines), len(rest)) == (50, 10)


def test_rest_says_the_same(rig: Rig) -> None:
    found = rig.get("/api/v1/campaigns/old")
    assert found["series"] == {
        "all": 11,
        "found": 4,
        "requested": 0,
        "received": 0,
        "read": 6,
        "nothing_to_read": 0,
        "dead": 1,
    }
    assert found["images"]["not_analysed"] == 2
    assert found["doubts"] == [{"text": "exactly 500 answers", "day": "20190102"}]
    assert (found["dead"], found["not_read"]) == ({"offline": 1}, {"lateral_not_supported": 2})
    assert found["ends_at"] is not None
    assert [item["name"] for item in rig.get("/api/v1/campaigns")["campaigns"]] == ["new", "old"]


def test_rest_lists_days_and_dead_series(rig: Rig) -> None:
    days = {item["day"]: item for item in rig.get("/api/v1/campaigns/old/days")["days"]}
    assert (days["20190102"]["dead"], days["20190102"]["all"], days[None]["found"]) == (1, 4, 1)
    (dead,) = rig.get("/api/v1/campaigns/old/dead")["series"]
    assert (dead["reason"], dead["origin"], dead["day"]) == ("offline", "row 7", "20190102")


def test_the_end_of_a_campaign_with_hours_is_not_guessed(tmp_path: Path) -> None:
    with open_rig(tmp_path) as opened:
        series = [SeededSeries("20190101", READ, age=9.0), SeededSeries("20190102")]
        seed(opened.street.ledger.url, opened.clock, "old", series, hours=("20:00-06:00",))
        assert opened.get("/api/v1/campaigns/old")["ends_at"] is None
        words = words_of(opened, "/campaigns/old")
    assert "Expected end not known" in words
    assert "Hours 20:00-06:00" in words


def test_the_end_is_what_an_estimate_says(tmp_path: Path) -> None:
    with open_rig(tmp_path, estimate=lambda found: found.campaign.created_at + 10_800.0) as opened:
        seed(opened.street.ledger.url, opened.clock, "old", [SeededSeries("20190101")])
        found = opened.get("/api/v1/campaigns/old")
    assert found["ends_at"] == "2026-11-20T09:30:00.000Z"


def press(rig: Rig, name: str, verb: str, **fields: str) -> str:
    """The words of the page that a button leads to."""
    address = f"/campaigns/{name}/{verb}"
    response = rig.client.post(address, data=fields, follow_redirects=False)
    assert response.status_code == 303, response.text
    return words_of(rig, response.headers["location"])


def audited(rig: Rig) -> list[tuple[str, str, str, str]]:
    rows = rig.audit.all(AuditFilter(has_looks=False))
    return [(row["verb"], row["thing"], row["name"], row["outcome"]) for row in rows]


def buttons(rig: Rig, name: str) -> list[str]:
    forms = page_of(rig, f"/campaigns/{name}").attributes("form")
    return [str(form["action"]).rpartition("/")[2] for form in forms if "action" in form]


def test_buttons_pause_and_resume_a_campaign(rig: Rig) -> None:
    assert buttons(rig, "old") == ["retry", "pause", "cancel"]
    assert "It is paused." in press(rig, "old", "pause")
    assert buttons(rig, "old") == ["retry", "resume", "cancel"]
    assert "Campaign old running" in press(rig, "old", "resume")
    assert audited(rig) == [("change_campaign", "campaign", "old", "done")] * 2


def test_a_button_fetches_dead_series_again(rig: Rig) -> None:
    assert "1 series begins again." in press(rig, "old", "retry")
    assert buttons(rig, "old") == ["pause", "cancel"]


def test_a_campaign_is_cancelled_only_when_a_person_has_confirmed_it(rig: Rig) -> None:
    assert rig.client.post("/campaigns/old/cancel").status_code == 409
    assert "It is cancelled." in press(rig, "old", "cancel", confirmed="yes")
    assert buttons(rig, "old") == []


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "retry"])
def test_buttons_want_a_token_and_our_own_page(tmp_path: Path, verb: str) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig:
        address = f"/campaigns/old/{verb}"
        foreign = {"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}
        assert rig.client.post(address).status_code == 401
        assert rig.client.post(address, headers=foreign).status_code == 403


def test_without_a_ledger_to_write_there_are_no_buttons(tmp_path: Path) -> None:
    with open_rig(tmp_path, campaigns=None) as rig:
        seed(rig.street.ledger.url, rig.clock, "old", [SeededSeries("20190101")])
        assert buttons(rig, "old") == []
        assert rig.client.post("/campaigns/old/pause").status_code == 404
        assert rig.client.post("/api/v1/campaigns/old/pause").status_code == 404


def test_rest_has_the_verbs_of_a_campaign(rig: Rig) -> None:
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        answer = rig.client.post(f"/api/v1/campaigns/old/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state)
    assert audited(rig) == [("change_campaign", "campaign", "old", "done")] * 3


def test_rest_says_how_many_dead_series_begin_again(rig: Rig) -> None:
    assert rig.client.post("/api/v1/campaigns/old/retry").json() == {"series": 1}


def test_rest_runs_a_campaign_only_by_a_release_that_is_built(rig: Rig) -> None:
    series = [SeededSeries("20200101")]
    seed(rig.street.ledger.url, rig.clock, "stored", series, source="archive", began_before=None)
    order = {"release": "chest@9", "hours": ["20:00-06:00"]}
    answer = rig.client.post("/api/v1/campaigns/stored/run", json=order)
    assert answer.status_code == 409
    assert "chest@9" in answer.json()["detail"]
    assert audited(rig) == [("run_campaign", "campaign", "stored", "refused")]


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"release": "chest"},
        {"release": "c@1", "hours": ["at night"]},
        {"release": "c@1", "x": 1},
    ],
)
def test_rest_refuses_an_order_that_is_none(rig: Rig, order: dict[str, object]) -> None:
    assert rig.client.post("/api/v1/campaigns/new/run", json=order).status_code == 422


@pytest.mark.parametrize("verb", ["pause", "resume", "retry"])
def test_rest_says_why_a_verb_is_not_possible(rig: Rig, verb: str) -> None:
    answer = rig.client.post(f"/api/v1/campaigns/new/{verb}")
    assert answer.status_code == 409
    assert "campaign new is planned" in answer.json()["detail"]
    assert rig.client.post(f"/api/v1/campaigns/none/{verb}").status_code == 404


def test_metrics_count_series_and_images_by_campaign(rig: Rig) -> None:
    lines = rig.client.get("/metrics").text.splitlines()
    for line in (
        'hilum_campaign_state{campaign="old",source="pacs",state="running"} 1.0',
        'hilum_campaign_state{campaign="old",source="pacs",state="finished"} 0.0',
        'hilum_campaign_series{campaign="old",state="dead"} 1.0',
        'hilum_campaign_series{campaign="old",state="received"} 0.0',
        'hilum_campaign_images{campaign="old",state="expected"} 8.0',
        'hilum_campaign_images{campaign="old",state="analysed"} 10.0',
        'hilum_campaign_images{campaign="old",state="missing"} 2.0',
    ):
        assert line in lines, line


def test_twenty_campaigns_have_metrics(tmp_path: Path) -> None:
    with open_rig(tmp_path) as opened:
        for number in range(21):
            series = [SeededSeries("20190101")]
            began = 60.0 if number == 0 else None
            url = opened.street.ledger.url
            seed(url, opened.clock, f"c{number}", series, began_before=began)
        text = opened.client.get("/metrics").text
    names = set(re.findall(r'hilum_campaign_series{campaign="(\w+)"', text))
    assert len(names) == 20
    assert "c0" in names, "it runs, so it is watched however old it is"


def test_few_days_have_a_square_each_and_many_a_square_a_month() -> None:
    few = day_grid({"20190131": {READ: 2}, "20200229": {READ: 1, DEAD: 1}})
    many = day_grid({f"2019{1 + at // 28:02d}{1 + at % 28:02d}": {READ: 1} for at in range(121)})
    assert (few.noun, [row.label for row in few.rows]) == ("day", ["2019-01", "2020-02"])
    assert few.rows[0].squares[30] is not None
    assert (many.noun, [row.label for row in many.rows]) == ("month", ["2019"])
    assert [item.planned for item in many.squares] == [28, 28, 28, 28, 9]


@pytest.mark.parametrize("day", ["", "2019", "20191301", "20190100", "2019-1-1", "²0190101"])
def test_a_day_that_is_none_is_counted_as_unknown(day: str) -> None:
    grid = day_grid({day: {READ: 1}, "20190101": {READ: 1}})
    assert grid.unknown is not None
    assert (grid.unknown.planned, len(grid.squares)) == (1, 2)


@pytest.mark.parametrize(
    ("read", "planned", "step"), [(0, 9, 0), (1, 1000, 1), (1, 2, 2), (999, 1000, 3), (7, 7, 4)]
)
def test_only_a_day_that_is_all_read_has_the_full_colour(
    read: int, planned: int, step: int
) -> None:
    grid = day_grid({"20190101": {READ: read, SeriesState.FOUND: planned - read}})
    assert [item.step for item in grid.squares] == [step]


def test_a_bar_is_full_only_at_the_end() -> None:
    nearly = CampaignCounts(series={READ: 99_999, SeriesState.FOUND: 1})
    assert progress_bar(nearly).words == "99.9 %: 99,999 of 100,000 series ended"
    assert progress_bar(CampaignCounts(series={READ: 3})).ended == 100.0
    assert progress_bar(CampaignCounts()).words == "no series yet"


def test_each_reason_of_a_series_has_a_sentence() -> None:
    assert set(SERIES_REASONS) == set(SeriesReason)
    assert all(sentence.endswith(".") for sentence in SERIES_REASONS.values())
