"""A delivered report sent again, and a withheld one released.

By REST, from the page of the study, and on the command line.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hilum.domain import Scope
from hilum.settings import DicomDestination
from tests.support.server import commands
from tests.support.server.api_client import Rig, open_rig

STUDY = "1.2.3"
ADDRESS = f"/api/v1/studies/{STUDY}/resend"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with open_rig(
        tmp_path,
        destinations={"lab": DicomDestination(accept_untrained=True), "clinic": DicomDestination()},
    ) as opened:
        opened.street.destinations, opened.street.withheld = (
            ("pacs", "lab"),
            {"clinic": "untrained_weights"},
        )
        opened.street.walk(STUDY, 1)
        yield opened


def ways(rig: Rig) -> dict[str, dict[str, Any]]:
    (result,) = rig.get(f"/api/v1/studies/{STUDY}")["results"]
    return {way["destination"]: way for paper in result["documents"] for way in paper["deliveries"]}


def text_of(rig: Rig, path: str) -> str:
    response = rig.client.get(path)
    assert response.status_code == 200, response.text
    return " ".join(response.text.split())


def hilum(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    accept = "\n".join(
        f"[destinations.{name}]\naccept_untrained = true" for name in ("pacs", "lab")
    )
    (folder / "hilum.toml").write_text(
        f'[site]\nstate_dir = "{folder}"\n{accept}\n[destinations.clinic]\n'
    )
    return commands.hilum(*words, "--config", folder / "hilum.toml")


def test_each_destination_that_has_a_report_gets_it_again(rig: Rig) -> None:
    response = rig.client.post(ADDRESS)
    assert response.status_code == 200, response.text
    assert {item["destination"] for item in response.json()["due"]} == {"pacs", "lab"}
    assert [
        (item["destination"], item["why"].partition(":")[0]) for item in response.json()["left"]
    ] == [("clinic", "it was withheld (untrained_weights)")]
    assert {name: way["state"] for name, way in ways(rig).items()} == {
        "pacs": "due",
        "lab": "due",
        "clinic": "withheld",
    }


def test_a_named_destination_gets_it_and_the_study_says_when_and_that_it_was_asked_for(
    rig: Rig,
) -> None:
    first = ways(rig)["lab"]["at"]
    rig.clock.now += 60
    assert rig.client.post(ADDRESS, json={"destination": "lab"}).status_code == 200
    rig.street.deliver()
    way, (deed,) = ways(rig)["lab"], rig.get(f"/api/v1/studies/{STUDY}")["history"]
    assert (way["state"], way["delivered_at"]) == ("delivered", first)
    assert way["at"] > way["requeued_at"] > first
    assert (deed["verb"], deed["channel"], deed["outcome"], deed["count"], deed["detail"]) == (
        "resend",
        "rest",
        "done",
        1,
        "to lab",
    )


@pytest.mark.parametrize(
    ("address", "body", "status", "said"),
    [
        ("/api/v1/studies/1.9/resend", {}, 404, "There is no such study"),
        (ADDRESS, {"destination": "lba"}, 404, "There is no such destination"),
        (ADDRESS, {"sop_instance_uid": "1.2.3.1"}, 404, "no such document"),
        (ADDRESS, {"destination": "clinic"}, 409, "it was withheld (untrained_weights)"),
        (ADDRESS, {"sop_instance_uid": "999.x"}, 422, "sop_instance_uid"),
        (ADDRESS, {"destination": "a/b"}, 422, "destination"),
        (ADDRESS, {"dest": "lab"}, 422, "dest"),
        ("/api/v1/studies/no-uid/resend", {}, 422, "study_instance_uid"),
    ],
)
def test_what_cannot_be_sent_again_is_refused_with_the_reason(
    rig: Rig, address: str, body: dict[str, str], status: int, said: str
) -> None:
    response = rig.client.post(address, json=body)
    assert response.status_code == status, response.text
    assert said in response.text
    assert {way["state"] for way in ways(rig).values()} == {"delivered", "withheld"}


def test_asking_again_while_it_is_on_its_way_changes_nothing(rig: Rig) -> None:
    rig.client.post(ADDRESS, json={"destination": "lab"})
    response = rig.client.post(ADDRESS, json={"destination": "lab"})
    assert (response.status_code, response.json()["detail"]) == (
        409,
        "sr to lab: it is on its way already",
    )


def test_who_may_only_read_sends_nothing(rig: Rig) -> None:
    headers = {"Authorization": f"Bearer {rig.tokens.create('viewer', Scope.READ, 1)}"}
    assert rig.client.post(ADDRESS, headers=headers).status_code == 403
    assert (
        rig.client.post(
            f"/studies/{STUDY}/resend", data={"destination": "lab"}, headers=headers
        ).status_code
        == 403
    )


def test_the_page_of_the_study_has_a_button_for_each_destination_that_has_it(rig: Rig) -> None:
    page = text_of(rig, f"/studies/{STUDY}")
    assert "Send 1 document to pacs again" in page
    assert "Send 1 document to lab again" in page
    assert "Release 1 withheld document" in page
    assert "Send 1 document to clinic again" not in page


def test_the_button_sends_it_and_the_timeline_says_so(rig: Rig) -> None:
    rig.clock.now += 60
    response = rig.client.post(
        f"/studies/{STUDY}/resend", data={"destination": "lab"}, follow_redirects=False
    )
    assert (response.status_code, response.headers["location"]) == (
        303,
        f"/studies/{STUDY}?requeued=1",
    )
    rig.street.deliver()
    page = text_of(rig, f"/studies/{STUDY}")
    assert "Structured Report to lab: due again" in page
    assert "Resend by" in page
    assert rig.client.post(f"/studies/{STUDY}/resend", data={"destination": ""}).status_code == 422


def test_a_study_with_a_withheld_report_is_not_called_done(rig: Rig) -> None:
    rig.street.withheld = {}
    rig.street.walk("1.2.4", 1)
    page = text_of(rig, "/?show=withheld")
    assert "report withheld" in page
    assert "1.2.4" not in page
    assert [
        item["study_instance_uid"] for item in rig.get("/api/v1/studies", withheld=True)["studies"]
    ] == [STUDY]
    assert rig.get(f"/api/v1/studies/{STUDY}")["report_state"] == "withheld"


def test_the_front_page_and_the_destinations_say_what_does_not_arrive_and_what_to_set(
    rig: Rig,
) -> None:
    page = text_of(rig, "/")
    assert "clinic gets nothing of densenet121_untrained@1" in page
    assert (
        "1 withheld from clinic (untrained_weights): if clinic is a test PACS, set"
        " destinations.clinic.accept_untrained = true" in page
    )
    assert (
        'hilum_withheld_documents{destination="clinic",reason="untrained_weights"} 1.0'
        in rig.client.get("/metrics").text
    )
    found = {item["name"]: item for item in rig.get("/api/v1/destinations")["destinations"]}
    assert (found["clinic"]["withheld"], found["clinic"]["releasable"]) == (
        {"untrained_weights": 1},
        0,
    )
    assert [
        (item["reason"], item["of"], item["is_all"]) for item in found["clinic"]["refusals"]
    ] == [("untrained_weights", ["densenet121_untrained@1"], True)]
    assert found["pacs"]["refusals"] == []


def test_a_requeue_says_what_stays_withheld(rig: Rig) -> None:
    answer = rig.client.post(
        "/api/v1/requeue", json={"stage": "deliver", "destination": "clinic"}
    ).json()
    assert (
        answer["requeued"],
        [(item["destination"], item["items"]) for item in answer["withheld"]],
    ) == (0, [("clinic", 1)])
    assert "accept_untrained" in answer["withheld"][0]["advice"]
    other = rig.client.post(
        "/api/v1/requeue", json={"stage": "deliver", "destination": "lab"}
    ).json()
    assert other == {"requeued": 0}


def test_a_release_from_the_page_follows_the_rules_of_rest(rig: Rig, tmp_path: Path) -> None:
    response = rig.client.post(
        f"/studies/{STUDY}/requeue", data={"stage": "deliver"}, follow_redirects=False
    )
    assert response.headers["location"].endswith("requeued=0"), "the cause persists"
    accepting = {"clinic": DicomDestination(accept_untrained=True)}
    with open_rig(
        tmp_path, url=f"sqlite:///{tmp_path / 'ledger.sqlite'}", destinations=accepting
    ) as changed:
        assert "1 can be released: hilum requeue deliver --destination clinic" in text_of(
            changed, "/"
        )
        response = changed.client.post(
            f"/studies/{STUDY}/requeue", data={"stage": "deliver"}, follow_redirects=False
        )
    assert response.headers["location"].endswith("requeued=1")


def test_the_commands(rig: Rig, tmp_path: Path) -> None:
    sent = hilum(tmp_path, "resend", STUDY, "--to", "lab")
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout.endswith("to lab: due again\n")
    again = hilum(tmp_path, "resend", STUDY, "--to", "lab")
    assert (again.returncode, again.stderr.rpartition("lab: ")[2]) == (
        1,
        "it is on its way already\n",
    )
    unknown = hilum(tmp_path, "resend", "1.9")
    assert (unknown.returncode, "no study or report 1.9" in unknown.stderr) == (1, True)
    nowhere = hilum(tmp_path, "resend", STUDY, "--to", "lba")
    assert (
        nowhere.returncode,
        "no destination 'lba' in the settings; known: pacs, lab, clinic" in nowhere.stderr,
    ) == (2, True)
    kept = hilum(tmp_path, "requeue", "deliver", "--destination", "clinic")
    assert kept.returncode == 0, kept.stderr
    assert kept.stdout.startswith(
        "0 items of deliver due again\n1 stay withheld from clinic (untrained_weights): if clinic"
        " is a test PACS"
    )
    waited = hilum(tmp_path, "study", STUDY, "--wait", "0")
    assert (waited.returncode, "its reports have not arrived: open" in waited.stderr) == (1, True)


def test_waiting_ends_with_the_report(rig: Rig, tmp_path: Path) -> None:
    rig.street.withheld = {}
    rig.street.walk("1.2.4", 1)
    assert hilum(tmp_path, "study", "1.2.4", "--wait", "60").returncode == 0
    assert hilum(tmp_path, "study", "1.2.4.1", "--wait", "60").returncode == 0, (
        "by one of its images"
    )
