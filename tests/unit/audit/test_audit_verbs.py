"""Every verb is one row with the right actor, and none holds what names a patient."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hilum.audit.message import AuditSource, message
from hilum.cli import app
from hilum.store.archive.archive import Archive
from hilum.store.archive.consistency import begin_archive
from hilum.store.audit.log import AuditFilter, AuditLog
from hilum.verbs import MEANINGS, Verb
from testing.phantoms import phantom
from testing.serving import free_ports
from tests.support.ledger.deciding import Site
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.logs import own_logging
from tests.support.objects import marked
from tests.support.server.api_client import TOKEN, Rig, open_rig

CLIENT = "testclient"  # what Starlette's client says for an address
ME = pwd.getpwuid(os.getuid()).pw_name
STUDY, IMAGE = "1.2.3", "1.2.3.1"
OTHER = b"\1\2" * 100


def all_rows(log: AuditLog) -> list[dict[str, Any]]:
    log.looks.flush()
    return list(log.all(AuditFilter()))


def require_no_identifier(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        said = f"{row}\n{message(row, AuditSource()).decode()}"
        assert list(marked.found_in(said)) == [], row


def the_one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one deed: its end, and behind it its beginning where it takes several transactions."""
    end, *begun = rows
    expected = ["begun"] if MEANINGS[Verb(end["verb"])].is_long else []
    assert [row["outcome"] for row in begun] == expected
    assert len({row["deed"] for row in rows}) == 1
    return end


@dataclass(frozen=True)
class Asked:
    """A request, and the row that comes of it: None where there is none."""

    method: str
    path: str
    verb: str | None
    outcome: str = "done"
    status: int = 200
    body: dict[str, Any] | None = None
    study: str | None = None
    thing: tuple[str, str] | None = None


REQUESTS = [
    Asked("GET", "/api/v1/studies", "list_studies"),
    Asked("GET", f"/api/v1/studies/{STUDY}", "read_study", study=STUDY),
    Asked("GET", f"/api/v1/studies/{STUDY}/documents", "read_study", study=STUDY),
    Asked("GET", "/api/v1/documents/1", "read_report", study=STUDY),
    Asked("GET", "/api/v1/conflicts", "list_conflicts"),
    Asked("GET", "/api/v1/queues", None),
    Asked("GET", "/api/v1/associations", None),
    Asked("GET", "/api/v1/studies/1.2.99", None, status=404),
    Asked("GET", "/api/v1/audit", "read_audit"),
    Asked(
        "POST",
        "/api/v1/requeue",
        "requeue",
        body={"stage": "analyse", "study_instance_uid": STUDY},
        study=STUDY,
        thing=("stage", "analyse"),
    ),
    Asked("POST", f"/api/v1/studies/{STUDY}/complete", "complete", study=STUDY),
    Asked("POST", "/api/v1/studies/1.2.99/complete", "complete", "refused", 404),
    Asked("POST", "/api/v1/studies/1.9/resend", "resend", study="1.9"),
    Asked(
        "POST",
        "/api/v1/studies/1.9/resend",
        "resend",
        "refused",
        404,
        {"destination": "pcas"},
        study="1.9",
    ),
    Asked("POST", "/api/v1/studies/1.2.99/resend", "resend", "refused", 404),
    Asked("POST", "/api/v1/destinations/pacs/pause", "pause", thing=("destination", "pacs")),
    Asked("POST", "/api/v1/destinations/pacs/resume", "resume", thing=("destination", "pacs")),
    Asked(
        "POST",
        "/api/v1/destinations/pcas/pause",
        "pause",
        "refused",
        404,
        thing=("destination", "pcas"),
    ),
    Asked(
        "POST",
        "/api/v1/destinations/pacs/forget",
        "forget_destination",
        "refused",
        409,
        thing=("destination", "pacs"),
    ),
    Asked("POST", "/api/v1/destinations/pacs/probe", "probe", thing=("destination", "pacs")),
    Asked(
        "POST",
        "/api/v1/commitments/forget",
        "forget_commitments",
        body={"calling_ae_title": "CR1"},
        thing=("sender", "CR1"),
    ),
    Asked(
        "POST", "/api/v1/conflicts/1/keep", "keep_conflict", study=STUDY, thing=("conflict", "1")
    ),
    Asked(
        "POST",
        "/api/v1/conflicts/1/replace",
        "replace_conflict",
        study=STUDY,
        thing=("conflict", "1"),
    ),
    Asked(
        "POST",
        "/api/v1/conflicts/1/discard",
        "discard_conflict",
        study=STUDY,
        thing=("conflict", "1"),
    ),
    Asked(
        "POST",
        "/api/v1/conflicts/7/discard",
        "discard_conflict",
        "refused",
        404,
        thing=("conflict", "7"),
    ),
    Asked(
        "POST",
        f"/api/v1/images/{IMAGE}/reject",
        "reject_image",
        study=STUDY,
        thing=("image", IMAGE),
    ),
    Asked("POST", "/api/v1/images/1.2.99/reject", "reject_image", "refused", 404),
    Asked(
        "POST",
        "/api/v1/rollouts/chest/start",
        "start_rollout",
        "refused",
        409,
        {"release": "chest@2"},
        thing=("alias", "chest"),
    ),
    Asked(
        "POST",
        "/api/v1/rollouts/chest/promote",
        "promote",
        "refused",
        409,
        thing=("alias", "chest"),
    ),
    Asked(
        "POST",
        "/api/v1/rollouts/chest/rollback",
        "roll_back",
        "refused",
        409,
        thing=("alias", "chest"),
    ),
    Asked(
        "POST",
        "/api/v1/rollouts/chest/stop",
        "stop_rollout",
        "refused",
        409,
        thing=("alias", "chest"),
    ),
    Asked("POST", "/api/v1/erase", "erase", body={"patient_id": "ZQXID", "is_dry_run": True}),
    Asked("POST", "/api/v1/erase", "erase", body={"study_instance_uid": STUDY}),
    Asked("GET", "/", "list_studies"),
    Asked("GET", f"/studies/{STUDY}", "read_study", study=STUDY),
    Asked(
        "GET",
        f"/studies/{STUDY}/images/{IMAGE}.png",
        "read_image",
        study=STUDY,
        thing=("image", IMAGE),
        status=0,
    ),
    Asked("GET", "/associations", None),
    Asked("POST", f"/studies/{STUDY}/requeue", "requeue", study=STUDY, thing=("stage", "analyse")),
]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    site = Site(tmp_path, migrated_sqlite(tmp_path))
    site.receive(IMAGE)
    site.receive(IMAGE, pixels=OTHER)
    begin_archive(site.url, Archive(tmp_path / "archive"))
    with open_rig(tmp_path, url=site.url, token=TOKEN) as opened:
        opened.street.walk("1.9", 1)  # and with it the study of the image above
        opened.client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield opened
    site.close()


def ask(rig: Rig, asked: Asked) -> None:
    if asked.path.startswith("/api"):
        response = rig.client.request(asked.method, asked.path, json=asked.body)
    else:
        rig.client.headers.pop("Authorization")
        data = {"stage": "analyse"} if asked.method == "POST" else None
        response = rig.client.request(
            asked.method, asked.path, data=data, auth=("maria", TOKEN), follow_redirects=False
        )
    assert response.status_code == asked.status or asked.status in (0, 200), response.text
    assert response.status_code < 500, response.text


@pytest.mark.parametrize(
    "asked", REQUESTS, ids=lambda asked: f"{asked.method} {asked.path} {asked.outcome}"
)
def test_a_request_is_one_row_with_its_verb_actor_and_outcome(rig: Rig, asked: Asked) -> None:
    ask(rig, asked)
    rows = all_rows(rig.audit)
    require_no_identifier(rows)
    if asked.verb is None:
        assert rows == []
        return
    row = the_one(rows)
    assert (row["verb"], row["outcome"], row["study_instance_uid"]) == (
        asked.verb,
        asked.outcome,
        asked.study,
    )
    assert (row["channel"], row["address"]) == (
        "rest" if asked.path.startswith("/api") else "page",
        CLIENT,
    )
    assert asked.thing is None or (row["thing"], row["name"]) == asked.thing


@pytest.mark.parametrize("path", ["/api/v1/studies", f"/studies/{STUDY}", "/api/v1/audit"])
def test_who_is_not_admitted_has_done_nothing(rig: Rig, path: str) -> None:
    rig.client.headers["Authorization"] = "Bearer wrong"
    assert rig.client.get(path).status_code == 401
    assert rig.client.post("/api/v1/erase", json={"patient_id": "ZQXID"}).status_code == 401
    assert all_rows(rig.audit) == []


def test_a_study_that_is_looked_at_again_and_again_is_counted(rig: Rig) -> None:
    for _ in range(20):
        rig.get(f"/api/v1/studies/{STUDY}")
    assert [row["count"] for row in all_rows(rig.audit)] == [19, 1]


def test_the_timeline_of_a_study_says_who_read_and_changed_it(rig: Rig) -> None:
    rig.client.post(f"/api/v1/images/{IMAGE}/reject")
    rig.get(f"/api/v1/studies/{STUDY}")
    rig.client.headers.pop("Authorization")
    page = rig.client.get(f"/studies/{STUDY}", auth=("maria", TOKEN)).text
    assert "Reject image by settings (rest)" in page
    assert "Read study by settings (rest)" in page


def test_rest_lists_rows_by_filter_and_page(rig: Rig) -> None:
    for name in ("pause", "resume", "pause"):
        rig.client.post(f"/api/v1/destinations/pacs/{name}")
    found = rig.get("/api/v1/audit", verb="pause", limit=1)
    assert [row["name"] for row in found["rows"]] == ["pacs"]
    assert (
        rig.get("/api/v1/audit", verb="pause", limit=1, cursor=found["next_cursor"])["next_cursor"]
        is None
    )
    assert rig.get("/api/v1/audit", actor="nobody")["rows"] == []
    rig.get("/api/v1/audit", 422, verb="burn")


# --- command line


@dataclass(frozen=True)
class Said:
    """A command, and the row that comes of it.

    `{study}`, `{image}` and `{folder}` stand for those of the test.
    """

    words: str
    verb: str
    outcome: str = "done"
    thing: str | None = None
    count: int | None = None
    is_of_study: bool = False


COMMANDS = [
    Said("study {study}", "read_study", is_of_study=True),
    Said("find --accession ZQXACC", "find_study", thing="accession", count=1),
    Said("find --patient ZQXID", "find_study", thing="patient", count=1),
    Said("requeue analyse --all", "requeue", thing="stage", count=0),
    Said("requeue analyse --study 1.2.99", "requeue", "refused", thing="stage"),
    Said("resend {study}", "resend", "refused", is_of_study=True),
    Said("resend 1.2.99", "resend", "refused", thing="study"),
    Said("studies complete {study}", "complete", is_of_study=True),
    Said("studies complete 1.2.99", "complete", "refused", thing="study"),
    Said("destinations pause pacs", "pause", thing="destination"),
    Said("destinations resume pacs", "resume", thing="destination"),
    Said("destinations forget gone", "forget_destination", "refused", thing="destination"),
    Said("destinations probe pacs", "probe", thing="destination"),
    Said("commitments forget CR1", "forget_commitments", thing="sender", count=0),
    Said("conflicts list", "list_conflicts"),
    Said("images notes", "list_notes"),
    Said("conflicts keep 7", "keep_conflict", "refused", thing="conflict"),
    Said("conflicts replace 7", "replace_conflict", "refused", thing="conflict"),
    Said("conflicts discard 7", "discard_conflict", "refused", thing="conflict"),
    Said("images reject {image}", "reject_image", thing="image", is_of_study=True),
    Said("images reject 1.2.99", "reject_image", "refused", thing="image"),
    Said("reanalyse nothing@1", "reanalyse", "refused", thing="release"),
    Said(
        "rollout start densenet121_untrained nothing@1", "start_rollout", "refused", thing="alias"
    ),
    Said("rollout promote nothing", "promote", "refused", thing="alias"),
    Said("rollout rollback nothing", "roll_back", "refused", thing="alias"),
    Said("rollout stop nothing", "stop_rollout", "refused", thing="alias"),
    Said("recover", "recover", count=0),
    Said("backup {folder}/backup", "back_up"),
    Said("migrate", "migrate"),
    Said("audit --format dicom", "read_audit"),
    Said("erase --patient ZQXID", "erase", thing="patient", count=1),
    Said("erase --patient ZQXID --yes", "erase", thing="patient", count=1),
    Said("erase --study {study} --yes", "erase", thing="study"),
]


def test_a_command_is_one_row_with_its_verb_actor_and_outcome(
    ledger_url: str, tmp_path: Path
) -> None:
    dataset = marked.image(1)
    file = phantom.save(dataset, tmp_path / "one.dcm")
    config = tmp_path / "hilum.toml"
    (port,) = free_ports(1)
    config.write_text(
        f'[site]\nstate_dir = "{tmp_path / "state"}"\n[ledger]\nurl ='
        f' "{ledger_url}"\n[destinations.pacs]\nport = {port}\n'
    )
    names = {"study": dataset.StudyInstanceUID, "image": dataset.SOPInstanceUID, "folder": tmp_path}
    seen: set[str] = set()
    with closing(AuditLog(ledger_url)) as log:
        for said in (
            Said(f"ingest {file} --from MARKED", "ingest", thing="sender", count=1),
            *COMMANDS,
        ):
            with own_logging():
                answer = CliRunner().invoke(
                    app, [*said.words.format(**names).split(), "--config", str(config)]
                )
            assert answer.exception is None or isinstance(answer.exception, SystemExit), (
                said,
                answer.exception,
            )
            rows = [row for row in all_rows(log) if row["deed"] not in seen]
            require_no_identifier(rows)
            row = the_one(rows)
            assert (row["verb"], row["outcome"]) == (said.verb, said.outcome), (said, answer.output)
            assert (row["actor"], row["channel"]) == (ME, "cli")
            assert row["thing"] == said.thing, said
            assert said.count in (None, row["count"]), said
            assert row["study_instance_uid"] == (
                dataset.StudyInstanceUID if said.is_of_study else row["study_instance_uid"]
            )
            seen.add(row["deed"])


def test_through_sudo_the_row_names_who_logged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = migrated_sqlite(tmp_path)
    (tmp_path / "hilum.toml").write_text(
        f'[ledger]\nurl = "{url}"\n[destinations.pacs]\nport = 1\n'
    )
    monkeypatch.setenv("SUDO_USER", "maria")
    CliRunner().invoke(
        app, ["destinations", "pause", "pacs", "--config", str(tmp_path / "hilum.toml")]
    )
    with closing(AuditLog(url)) as log:
        assert [row["actor"] for row in all_rows(log)] == [f"maria as {ME}"]


def test_the_answer_of_who_did_what_fits_80_columns(tmp_path: Path) -> None:
    url = migrated_sqlite(tmp_path)
    (tmp_path / "hilum.toml").write_text(
        f'[ledger]\nurl = "{url}"\n[destinations.pacs]\nport = 1\n'
    )
    for words in (["destinations", "pause", "pacs"], ["audit"]):
        answer = CliRunner().invoke(app, [*words, "--config", str(tmp_path / "hilum.toml")])
    assert "pause              done" in answer.output
    assert "    destination pacs" in answer.output
    assert max(map(len, answer.output.splitlines())) <= 80


def test_a_destination_is_probed_before_there_is_a_ledger_and_none_is_made(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "hilum.toml").write_text(
        f'[site]\nstate_dir = "{tmp_path}"\n[destinations.pacs]\nport = {port}\n'
    )
    answer = CliRunner().invoke(
        app, ["destinations", "probe", "pacs", "--config", str(tmp_path / "hilum.toml")]
    )
    assert "PROBLEM" in answer.output
    assert not (tmp_path / "ledger.sqlite").exists()
