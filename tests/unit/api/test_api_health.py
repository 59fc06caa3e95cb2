"""Probes and metrics: readiness by role, and a scrape that Prometheus takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hilum.api.readiness import ReadinessCheck, ReadinessFacts, checks
from hilum.domain import Advance, DeliveryState, ReadingState, RolloutMode
from hilum.observability.telemetry import STATE_GAUGES
from hilum.settings import Receive
from hilum.store.archive.archive import Free
from hilum.store.rollouts.rollouts import RolloutRequest, Rollouts
from tests.support.ledger.rolling import kept
from tests.support.machine.disks import dead_disk
from tests.support.server.api_client import Rig, open_rig


def ready(rig: Rig, *roles: str) -> dict[str, Any]:
    """Failed checks by name; the status must agree."""
    response = rig.client.get("/health/ready", params=[("role", role) for role in roles])
    body = response.json()
    assert response.status_code == (200 if body["is_ready"] else 503)
    assert body["is_ready"] == all(item["is_ready"] for item in body["roles"])
    failed = [check for item in body["roles"] for check in item["checks"] if not check["ok"]]
    assert all(check["advice"] for check in failed), "each fault says what to do"
    return {check["name"]: check for check in failed}


def beat_all(rig: Rig) -> None:
    for role in ("listener", "analyser", "dispatcher"):
        rig.street.beat(f"{role}-1", role)


def test_alive(rig: Rig) -> None:
    assert rig.get("/health/live")["status"] == "alive"


def test_all_roles_are_judged_unasked(rig: Rig) -> None:
    assert set(ready(rig)) == {"listener", "analyser", "dispatcher"}
    beat_all(rig)
    assert ready(rig) == {}
    body = rig.get("/health/ready")
    assert [item["role"] for item in body["roles"]] == ["receive", "analyse", "deliver"]
    assert [check["name"] for check in body["roles"][0]["checks"]] == ["ledger", "listener", "disk"]


def test_a_missing_triton_never_takes_the_listener_away(rig: Rig) -> None:
    rig.street.beat("listener-1", "listener")
    rig.street.beat(
        "analyser-1", "analyser", is_ready=False, detail="Triton does not answer at 127.0.0.1:8001"
    )
    assert ready(rig, "receive") == {}
    failed = ready(rig, "analyse")
    assert "Triton does not answer" in failed["analyser"]["detail"]


def test_a_heartbeat_grows_stale(rig: Rig) -> None:
    beat_all(rig)
    rig.clock.now += 15
    assert ready(rig) == {}
    rig.clock.now += 1
    failed = ready(rig, "receive")
    assert failed["listener"]["detail"] == "no listener is alive, last seen 16 s ago"


def test_one_ready_process_of_a_role_is_enough(rig: Rig) -> None:
    beat_all(rig)
    rig.street.beat("analyser-2", "analyser", is_ready=False, detail="starting")
    assert ready(rig) == {}


def test_a_full_disk_closes_the_door_only(tmp_path: Path) -> None:
    with open_rig(tmp_path, reserve_bytes=1 << 60) as rig:
        beat_all(rig)
        assert set(ready(rig)) == {"disk"}
        assert ready(rig, "analyse", "deliver") == {}


@pytest.mark.parametrize(
    ("free", "setting"),
    [
        (10, "receive.reserve_bytes"),
        (11, "receive.reject_bytes"),
        (20, "receive.reject_bytes"),
        (21, ""),
    ],
)
def test_the_setting_that_is_crossed_is_named(free: int, setting: str) -> None:
    disk = judged(Free(free))
    assert (disk.ok, (disk.advice or "").endswith(f"lower {setting}.")) == (
        not setting,
        bool(setting),
    )


@pytest.mark.parametrize(("files", "is_ok"), [(None, True), (100, True), (99, False), (0, False)])
def test_a_disk_that_can_hold_no_more_files_is_not_ready(files: int | None, is_ok: bool) -> None:
    disk = judged(Free(1 << 40, files))
    assert disk.ok is is_ok
    assert is_ok or "receive.reserve_files" in (disk.advice or "")


def judged(free: Free) -> ReadinessCheck:
    limits = Receive(reserve_bytes=10, reject_bytes=20, reserve_files=50)
    return next(
        check
        for check in checks("receive", ReadinessFacts(None, free, limits))
        if check.name == "disk"
    )


def test_a_paused_destination_is_not_ready(rig: Rig) -> None:
    beat_all(rig)
    rig.street.ledger.acquire_destination("pacs", "dispatcher-1", 30)
    rig.street.ledger.pause("pacs", is_paused=True)
    assert set(ready(rig)) == {"destination pacs"}


def test_a_pacs_that_is_away_for_a_minute_is_not_ready_until_it_takes_documents(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.report()
    (job,) = rig.street.claim("deliver")
    rig.street.ledger.retry("deliver", job.lease, "refused the connection", 5.0, counts=False)
    beat_all(rig)
    assert ready(rig) == {}, "one failed try is no news"
    rig.clock.now += 61
    beat_all(rig)
    assert ready(rig)["destination pacs"]["detail"].startswith("1 documents not taken")
    rig.street.deliver()
    beat_all(rig)
    assert ready(rig) == {}


def test_a_probe_of_one_container_leaves_destinations_out(rig: Rig) -> None:
    """A paused receiver must not hold the upgrade of dispatchers."""
    beat_all(rig)
    rig.street.ledger.acquire_destination("pacs", "dispatcher-1", 30)
    rig.street.ledger.pause("pacs", is_paused=True)
    asked = "/health/ready?role=deliver"
    assert rig.client.get(asked).status_code == 503
    assert rig.client.get(f"{asked}&destinations=false").status_code == 200


def test_one_document_that_is_refused_does_not_make_its_destination_unready(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.report()
    (job,) = rig.street.claim("deliver")
    rig.street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "refused_0122"}))]
    )
    rig.clock.now += 61
    beat_all(rig)
    assert ready(rig) == {}


def test_a_ledger_that_is_away_makes_every_role_unready_and_keeps_the_metrics(rig: Rig) -> None:
    beat_all(rig)
    for file in rig.folder.glob("ledger.sqlite*"):
        file.rename(file.with_name(f"{file.name}.away"))
    assert "ledger" in ready(rig, "receive")
    assert rig.client.get("/health/live").status_code == 200
    assert values(rig)["hilum_ledger_up", ()] == 0


def test_a_host_of_many_judges_its_own_processes(tmp_path: Path) -> None:
    with open_rig(tmp_path, default_roles=("receive",), host="another-host") as rig:
        beat_all(rig)
        assert set(ready(rig)) == {"listener"}
        assert [place for place in values(rig) if place[0] == "hilum_role_ready"] == [
            ("hilum_role_ready", ("receive",))
        ]


def values(rig: Rig) -> dict[tuple[str, tuple[str, ...]], float]:
    """State gauges of a scrape, by name and label values."""
    response = rig.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(response.text))
    order = {name: labels for name, (_, labels) in STATE_GAUGES.items()}
    samples = [item for family in families for item in family.samples if family.name in order]
    return {
        (item.name, tuple(item.labels[label] for label in order[item.name])): item.value
        for item in samples
    }


def test_the_scrape_tells_the_state_of_the_street(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read(ReadingState.FAILED, "worker_crashed")
    rig.street.receive("1.2.4", 1, 2)
    rig.clock.now += 3
    beat_all(rig)
    rollouts = Rollouts(rig.street.ledger.url, rig.clock)
    rollouts.start("chest@1", kept("chest@2"), RolloutRequest(RolloutMode.SHADOW), "a person")
    rollouts.close()
    found = values(rig)
    assert found["hilum_rollout", ("chest", "chest@1", "chest@2", "shadow", "loading")] == 1
    assert found["hilum_ledger_up", ()] == 1
    assert found["hilum_queue_items", ("analyse", "live", "", "due")] == 2
    assert found["hilum_queue_oldest_age_seconds", ("analyse", "live", "")] == 3
    assert found["hilum_queue_items", ("report", "urgent", "", "due")] == 0
    assert found["hilum_stuck_items", ("analyse", "")] == 1
    assert found["hilum_stuck_items", ("deliver", "pacs")] == 0
    assert found["hilum_withheld_documents", ("pacs", "untrained_weights")] == 0
    assert found["hilum_studies_recorded", ()] == 2
    assert found["hilum_instances_recorded", ()] == 3
    assert found["hilum_role_ready", ("receive",)] == 1
    assert found["hilum_processes_ready", ("analyser",)] == 1
    assert found["hilum_archive_free_bytes", ()] > 0
    assert {name for name, _ in found} == set(STATE_GAUGES) - {
        "hilum_archive_spool_objects",
        "hilum_certificate_expiry_timestamp_seconds",
        "hilum_clock_offset_seconds",
        *(name for name in STATE_GAUGES if name.startswith("hilum_campaign_")),
        *(name for name in STATE_GAUGES if name.startswith("hilum_uncommitted_")),
    }, (
        "no object store; no certificate, no end of it; no clock but the host's; no campaign; no"
        " destination that is asked for commitment"
    )


def test_a_dead_mount_has_no_room_and_does_not_end_the_scrape(rig: Rig, tmp_path: Path) -> None:
    beat_all(rig)
    (tmp_path / "archive").mkdir(exist_ok=True)
    with dead_disk(tmp_path / "archive"):
        assert ready(rig, "receive")["disk"]["detail"] == "the archive's file system fails"
        assert values(rig)["hilum_archive_free_bytes", ()] == 0


def test_a_destination_that_is_not_configured_makes_no_label(rig: Rig) -> None:
    rig.street.destinations = ("DOE-JANE", "pacs")
    rig.street.receive("1.2.3", 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.report()
    found = values(rig)
    assert found["hilum_queue_items", ("deliver", "live", "other", "due")] == 1
    assert found["hilum_queue_items", ("deliver", "live", "pacs", "due")] == 1
    assert "DOE" not in rig.client.get("/metrics").text


def test_promtool_takes_the_scrape(rig: Rig) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    rig.street.walk("1.2.3", 1)
    beat_all(rig)
    text = rig.client.get("/metrics").content
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
