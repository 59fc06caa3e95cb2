"""`hilum check` on sources and campaigns: what is away, and what does not move."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import SeriesState
from hilum.settings import Settings
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.sources import campaigns, sources
from testing.campaign_rows import SeededSeries, seed
from tests.support.ledger.ledgers import migrated_sqlite

WAITING = SeededSeries("20190101")
ANY_TIME = ("00:00-24:00",)


@pytest.fixture
def port() -> Iterator[int]:
    """A port that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def settings_for(folder: Path, port: int, **web: str) -> Settings:
    pacs = {"kind": "c-move", "host": "127.0.0.1", "port": port, "ae_title": "PACS"}
    url = f"http://127.0.0.1:{port}/dicom-web"
    return Settings.model_validate(
        {
            "site": {"state_dir": folder},
            "receive": {"ae_titles": ["HILUM", "HILUM_ARC"]},
            "sources": {"pacs": pacs, "web": {"kind": "dicomweb", "url": url, **web}},
        }
    )


@pytest.fixture
def settings(tmp_path: Path, port: int) -> Settings:
    migrated_sqlite(tmp_path)
    return settings_for(tmp_path, port)


def found(settings: Settings) -> Check:
    (check,) = campaigns(settings)
    return check


def test_each_source_is_named_with_its_kind_and_hours(settings: Settings, port: int) -> None:
    pacs, web = sources(settings)
    assert (pacs.name, pacs.ok) == ("source pacs", True)
    assert pacs.detail == f"c-move, PACS@127.0.0.1:{port}, any time"
    assert (web.name, web.ok) == ("source web", True)


def test_a_source_that_takes_no_connection_has_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    checks = list(sources(settings_for(tmp_path, closed)))
    assert [check.ok for check in checks] == [False, False]
    assert "hilum sources probe pacs" in checks[0].advice


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path, port: int) -> None:
    (tmp_path / "token").write_text("secret")
    for name, is_ok in (("token", True), ("none", False)):
        settings = settings_for(tmp_path, port, token_file=str(tmp_path / name))
        check = list(sources(settings))[-1]
        assert (check.name, check.ok) == ("source web", is_ok)
        assert check.detail.startswith(f"token_file: {tmp_path / name}")


def test_a_campaign_that_moves_is_well(settings: Settings) -> None:
    series = [SeededSeries("20190101", SeriesState.READ, age=60.0), WAITING]
    seed(settings.ledger_url, time.time(), "old", series, hours=ANY_TIME)
    assert found(settings) == Check("campaign old", ok=True, detail="1 of 2 series ended, 0 dead")


def test_a_campaign_of_which_nothing_ends_for_an_hour_is_stuck(settings: Settings) -> None:
    seed(settings.ledger_url, time.time(), "old", [WAITING], hours=ANY_TIME)
    check = found(settings)
    assert not check.ok
    assert "no series ended in the last hour" in check.detail
    assert "hilum campaign status old" in check.advice


def test_a_campaign_outside_its_hours_is_not_stuck(settings: Settings) -> None:
    later = time.strftime("%a", time.gmtime(time.time() + 2 * 86_400)).lower()
    seed(settings.ledger_url, time.time(), "old", [WAITING], hours=(f"{later} 10:00-11:00",))
    assert found(settings).ok


def test_a_campaign_that_began_just_now_is_not_stuck(settings: Settings) -> None:
    seed(settings.ledger_url, time.time(), "old", [WAITING], began_before=60.0)
    assert found(settings).ok


def test_many_dead_series_need_a_person(settings: Settings) -> None:
    dead = SeededSeries("20190101", SeriesState.DEAD, 2, reason="not_received", age=60.0)
    read = SeededSeries("20190101", SeriesState.READ, 98, age=60.0)
    seed(settings.ledger_url, time.time(), "old", [dead, read, WAITING])
    check = found(settings)
    assert (check.ok, check.detail) == (False, "100 of 101 series ended, 2 dead")
    assert "hilum campaign retry old" in check.advice


def test_a_campaign_whose_source_left_the_settings_is_named(settings: Settings) -> None:
    seed(settings.ledger_url, time.time(), "old", [WAITING], source="gone", began_before=60.0)
    assert not found(settings).ok


def test_a_campaign_that_does_not_run_is_not_checked(settings: Settings) -> None:
    seed(settings.ledger_url, time.time(), "old", [WAITING], began_before=None)
    assert list(campaigns(settings)) == []
