"""The pages over a real ledger.

Valid and escaped HTML, strict policy, the token, requeue, no patient data.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from hilum.api.pages.formatting import local
from hilum.errors import Retry
from tests.support.ledger.database import engine_of
from tests.support.reports.html import Strict
from tests.support.server import gallery
from tests.support.server.api_client import TOKEN, Rig, open_rig

ADDRESSES = [
    "/",
    "/?show=needs_person",
    "/?q=CR1&show=closed",
    "/associations",
    "/associations?outcome=rejected",
]
STUDIES = [
    gallery.TRAINED,
    gallery.UNTRAINED,
    gallery.FAILED,
    gallery.DEAD,
    gallery.COLLECTING,
    gallery.LATERAL,
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with open_rig(tmp_path_factory.mktemp("pages")) as rig:
        gallery.fill(rig)
        yield rig


def text_of(rig: Rig, address: str, status: int = 200) -> str:
    response = rig.client.get(address)
    assert response.status_code == status, response.text
    return re.sub(r"\s+", " ", " ".join(Strict(response.text).words))


@pytest.mark.parametrize(
    "address",
    [*ADDRESSES, *(f"/studies/{uid}" for uid in STUDIES), "/studies/1.9", "/?show=nonsense"],
)
def test_every_page_is_valid_html_that_loads_nothing_from_elsewhere(
    filled: Rig, address: str
) -> None:
    response = filled.client.get(address)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.startswith("<!doctype html>")
    page = Strict(response.text)
    assert page.problems == []
    assert "http://" not in response.text
    assert "https://" not in response.text
    assert page.attributes("html") == [{"lang": "en"}]
    assert all(str(found["src"]).startswith("/") for found in page.attributes("img"))


def test_the_policy_lets_only_our_own_style_and_script_run(filled: Rig) -> None:
    response = filled.client.get("/")
    policy = response.headers["content-security-policy"]
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", response.text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert (response.headers["cache-control"], response.headers["x-content-type-options"]) == (
        "no-store",
        "nosniff",
    )


@pytest.mark.parametrize("address", ["/", "/associations", f"/studies/{gallery.FAILED}"])
def test_what_a_sender_wrote_stays_text(filled: Rig, address: str) -> None:
    response = filled.client.get(address)
    assert gallery.HOSTILE[:16] in text_of(filled, address)
    assert "<script>alert" not in response.text
    assert "<img src=x" not in response.text
    assert response.text.count("<script") == 1


def test_what_a_person_typed_stays_text_in_the_filter(rig: Rig) -> None:
    response = rig.client.get("/", params={"q": '"><img src=x>'})
    assert response.status_code == 200
    (box,) = (
        found for found in Strict(response.text).attributes("input") if found.get("name") == "q"
    )
    assert box["value"] == '"><img src=x>'


def test_pages_hold_no_patient_data(filled: Rig) -> None:
    for address in [*ADDRESSES, *(f"/studies/{uid}" for uid in STUDIES)]:
        assert "DOE" not in filled.client.get(address).text


def test_the_list_says_state_findings_and_age(filled: Rig) -> None:
    words = text_of(filled, "/")
    for said in (
        "Pleural effusion 0.90, Cardiomegaly 0.71",
        "uncalibrated",
        "no decision untrained",
        "reading, 2 images open",
        "needs a person",
        "3 seconds ago",
        "not analysed: No image of the study could be analysed by this release.",
        "Receive ready",
        "Analyse not ready",
        "deliver to pacs: 1 \N{MULTIPLICATION SIGN} refused 0122",
        local(filled.clock.now),
    ):
        assert said in words, said


def test_queues_are_on_the_front_page(filled: Rig) -> None:
    assert "analyse live \N{EN DASH} 2 0 0 3 seconds" in text_of(filled, "/")


def test_an_untrained_release_is_called_so_and_decides_nothing(filled: Rig) -> None:
    words = text_of(filled, f"/studies/{gallery.UNTRAINED}")
    assert "its numbers mean nothing" in words
    assert "no decision 0.900" in words
    assert not re.search(r"\b(present|absent) \d", words)


def test_a_study_says_everything(filled: Rig) -> None:
    words = text_of(filled, f"/studies/{gallery.TRAINED}")
    for said in (
        "not verified by a physician",
        "Not calibrated.",
        "Pleural effusion present 0.900 0.500 60046008 SCT",
        "Weights SHA-256 " + "0" * 64,
        "Preprocessing hp1-0",
        "Structured Report to pacs delivered",
        "Image 2 received from CR1",
        "+10.5 s",
        "Heat map by densenet121_untrained@1",
    ):
        assert said in words, said
    assert "Send 2 documents to pacs again" in words


def test_what_went_wrong_stands_on_the_study_page(filled: Rig) -> None:
    assert "not delivered refused 0122; PACS answered 0x0122: SOP Class not supported" in text_of(
        filled, f"/studies/{gallery.DEAD}"
    )
    assert "Three workers died or hung" in text_of(filled, f"/studies/{gallery.FAILED}")
    assert "A lateral view, and the release reads frontal views only." in text_of(
        filled, f"/studies/{gallery.LATERAL}"
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("show=needs_person", {gallery.FAILED, gallery.DEAD}),
        ("show=due", {gallery.COLLECTING}),
        ("q=CR1&show=closed", {gallery.TRAINED, gallery.UNTRAINED, gallery.DEAD, gallery.LATERAL}),
        ("q=NOBODY", set()),
    ],
)
def test_filters(filled: Rig, query: str, expected: set[str]) -> None:
    page = Strict(filled.client.get(f"/?{query}").text)
    found = {
        str(item["href"]).removeprefix("/studies/")
        for item in page.attributes("a")
        if "data-open" in item
    }
    assert found == expected


def test_a_uid_in_the_filter_opens_the_study(filled: Rig) -> None:
    for uid, study in (
        (gallery.DEAD, gallery.DEAD),
        (f"{gallery.TRAINED}.1", gallery.TRAINED),
        ("1.9", "1.9"),
    ):
        response = filled.client.get("/", params={"q": uid}, follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (303, f"/studies/{study}")


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/studies/1.9", 404),
        ("/studies/DOE%5EJANE", 422),
        ("/?nonsense=1", 422),
        ("/?cursor=nonsense", 422),
        ("/?q=%00", 422),
        ("/associations?outcome=A", 422),
        ("/documents/999.png", 404),
        ("/documents/0.png", 422),
        (f"/studies/{gallery.DEAD}/images/{gallery.TRAINED}.1.png", 404),
    ],
)
def test_errors_are_pages_too_and_repeat_nothing(filled: Rig, address: str, status: int) -> None:
    response = filled.client.get(address)
    assert (response.status_code, response.headers["content-type"]) == (
        status,
        "text/html; charset=utf-8",
    )
    assert Strict(response.text).problems == []
    assert not [word for word in ("DOE", "Traceback") if word in response.text]


def test_an_absent_ledger_is_a_page_with_a_time_to_come_back(rig: Rig) -> None:
    rig.views.close()
    (rig.folder / "ledger.sqlite").unlink()
    response = rig.client.get("/")
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert "the ledger" in response.text


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("wrong"),
        basic(""),
        {"Authorization": "Basic ???"},
        {"Authorization": "Bearer wrong"},
    ],
)
def test_without_a_valid_token_a_page_is_the_form_to_log_in(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig:
        for address in (
            "/",
            "/studies/1.2.3",
            "/associations",
            "/documents/1.png",
            "/studies/1.2.3/images/1.2.3.1.png",
        ):
            response = rig.client.get(address, headers=headers)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
            assert TOKEN not in response.text
            (form,) = [
                found
                for found in Strict(response.text).attributes("form")
                if found.get("action") == "/login"
            ]
            assert form["method"] == "post"
        assert (
            rig.client.post(
                "/studies/1.2.3/requeue", data={"stage": "deliver"}, headers=headers
            ).status_code
            == 401
        )
        assert rig.client.get("/icon.svg").status_code == 200


@pytest.mark.parametrize("headers", [basic(TOKEN), {"Authorization": f"Bearer {TOKEN}"}])
def test_the_token_opens_pages_and_rest_under_any_name(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig:
        for address in ("/", "/associations", "/api/v1/studies"):
            assert (
                rig.client.get(
                    address, headers={**headers, "Host": "hilum.hospital.example"}
                ).status_code
                == 200
            )


def deliveries(rig: Rig, uid: str) -> list[str]:
    return [
        way["state"]
        for paper in rig.get(f"/api/v1/studies/{uid}/documents")["documents"]
        for way in paper["deliveries"]
    ]


def test_requeue_from_the_page_follows_the_rules_of_rest(rig: Rig) -> None:
    gallery.fill(rig)
    form = f"/studies/{gallery.DEAD}/requeue"
    buttons = [
        found
        for found in Strict(rig.client.get(f"/studies/{gallery.DEAD}").text).attributes("form")
        if "action" in found
    ]
    assert [(found["method"], found["action"]) for found in buttons] == [("post", form)]
    response = rig.client.post(
        form,
        data={"stage": "deliver"},
        headers={"Origin": "http://127.0.0.1:8640"},
        follow_redirects=False,
    )
    assert (response.status_code, response.headers["location"]) == (
        303,
        f"/studies/{gallery.DEAD}?requeued=1",
    )
    assert deliveries(rig, gallery.DEAD) == ["due"]
    assert "1 item is due again." in text_of(rig, f"/studies/{gallery.DEAD}?requeued=1")
    assert "1 not delivered" not in text_of(rig, "/")


@pytest.mark.parametrize("stage", ["", "receive", "deliver'; --"])
def test_a_stage_that_is_none_is_refused(filled: Rig, stage: str) -> None:
    assert (
        filled.client.post(f"/studies/{gallery.DEAD}/requeue", data={"stage": stage}).status_code
        == 422
    )
    assert deliveries(filled, gallery.DEAD) == ["dead"]


def test_a_form_of_many_fields_is_none_of_ours(filled: Rig) -> None:
    fields = {"stage": "deliver", **{f"f{number}": "1" for number in range(9)}}
    assert filled.client.post(f"/studies/{gallery.DEAD}/requeue", data=fields).status_code == 422
    assert deliveries(filled, gallery.DEAD) == ["dead"]


@pytest.mark.parametrize("address", [f"/studies/{gallery.DEAD}/requeue", "/api/v1/requeue"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[x"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8640"},
    ],
)
def test_a_page_of_another_site_changes_nothing(
    filled: Rig, address: str, headers: dict[str, str]
) -> None:
    body = b'{"stage":"deliver","all":true}' if "api" in address else b"stage=deliver"
    kind = {
        "Content-Type": "application/json"
        if "api" in address
        else "application/x-www-form-urlencoded"
    }
    assert filled.client.post(address, content=body, headers={**kind, **headers}).status_code == 403
    assert deliveries(filled, gallery.DEAD) == ["dead"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:8640"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"},
    ],
)
def test_programs_and_our_own_page_may_change(rig: Rig, headers: dict[str, str]) -> None:
    assert (
        rig.client.post(
            "/api/v1/requeue", json={"stage": "deliver", "all": True}, headers=headers
        ).status_code
        == 200
    )


def test_our_page_lets_the_browser_say_where_a_form_came_from(rig: Rig) -> None:
    assert rig.client.get("/").headers["referrer-policy"] == "same-origin"
    assert rig.client.get("/docs").headers["referrer-policy"] == "no-referrer"


def test_a_requeue_that_must_wait_is_a_page(tmp_path: Path) -> None:
    def busy(stage: str, **_: str | None) -> int:
        raise Retry(f"{stage} is being drained", after_seconds=17)

    with open_rig(tmp_path, requeue=busy) as rig:
        response = rig.client.post("/studies/1.2.3/requeue", data={"stage": "deliver"})
    assert (
        response.status_code,
        response.headers["retry-after"],
        "being drained" in response.text,
    ) == (503, "17", True)


def test_without_a_ledger_to_write_there_are_no_buttons(tmp_path: Path) -> None:
    with open_rig(tmp_path, requeue=None) as rig:
        gallery.fill(rig)
        assert "Do it again" not in text_of(rig, f"/studies/{gallery.DEAD}")
        assert (
            rig.client.post(
                f"/studies/{gallery.DEAD}/requeue", data={"stage": "deliver"}
            ).status_code
            == 404
        )


def test_processes_of_other_roles_have_no_pages(tmp_path: Path) -> None:
    with open_rig(tmp_path, with_studies=False) as rig:
        assert rig.client.get("/").status_code == 404


def statements(rig: Rig, address: str) -> int:
    """How many statements and how many transactions a page takes."""
    seen: list[str] = []
    heard = (
        ("before_cursor_execute", lambda _c, _cursor, statement, *_: seen.append(statement)),
        ("begin", lambda _c: seen.append("BEGIN")),
    )
    for listen in heard:
        event.listen(engine_of(rig.views), *listen)
    rig.client.get(address).raise_for_status()
    for listen in heard:
        event.remove(engine_of(rig.views), *listen)
    assert seen.count("BEGIN") == 1, "one snapshot for a page"
    return len(seen)


def test_a_page_takes_one_snapshot_and_a_fixed_number_of_queries(rig: Rig) -> None:
    rig.street.walk("1.2.1", 1)
    few = statements(rig, "/")
    for number in range(2, 20):
        rig.street.walk(f"1.2.{number}", 1, 2)
    assert statements(rig, "/") == few
    assert statements(rig, "/studies/1.2.3") < 12


def test_the_list_is_read_page_by_page(rig: Rig) -> None:
    for number in range(60):
        rig.street.receive(f"1.2.{number}", 1)
        rig.clock.now += 1
    first = Strict(rig.client.get("/").text)
    (older,) = (str(found["href"]) for found in first.attributes("a") if found.get("rel") == "next")
    second = Strict(rig.client.get(older).text)
    opened = [
        [found["href"] for found in page.attributes("a") if "data-open" in found]
        for page in (first, second)
    ]
    assert [len(found) for found in opened] == [50, 10]
    assert not set(opened[0]) & set(opened[1])


def test_a_new_image_makes_an_earlier_result_that_stays_readable(rig: Rig) -> None:
    rig.street.walk("1.2.3", 1)
    rig.clock.now += 100
    rig.street.walk("1.2.3", 2)
    assert "1 earlier result, superseded" in text_of(rig, "/studies/1.2.3")


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(filled: Rig, scheme: int) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    style = filled.client.get("/").text
    colours = dict(
        re.findall(
            r"--([a-z-]+): (#[0-9a-f]{6});",
            re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)[scheme],
        )
    )
    pairs = [
        (ink, ground)
        for ink in ("ink", "soft", "link")
        for ground in ("ground", "sheet", "quiet-ground", "hover")
    ]
    pairs += [(tone, f"{tone}-ground") for tone in ("good", "busy", "warn", "bad")]
    pairs += [("ink", f"{tone}-ground") for tone in ("good", "warn", "bad")]
    for ink, ground in pairs:
        light, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{ink} on {ground}"
