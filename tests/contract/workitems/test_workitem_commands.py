"""`hilum workitems list` and `hilum check`, on a ledger with items."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hilum.domain import WorkitemReason, WorkitemState
from hilum.settings import load
from hilum.store.queue.workitems import Workitems
from hilum.supervisor.checks.workitems import workitem_managers
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.peers.worklist_manager import WorklistManager
from tests.support.server.commands import hilum

AT = "2026-11-20T08:30:00Z  ris          "


def settings_in(folder: Path, url: str) -> Path:
    code = '{ value = "CXR", scheme = "99SITE", meaning = "Chest" }'
    file = folder / "hilum.toml"
    file.write_text(
        f'[site]\nstate_dir = "{folder}"\n[destinations.pacs]\n[workitems.ris]\n'
        f'url = "{url}"\nworkitem_codes = [{code}]\nstation_name_code = {code}\n'
        'destination = "pacs"\n'
    )
    return file


def test_items_are_listed_with_their_reasons_and_a_manager_that_is_away(tmp_path: Path) -> None:
    file = settings_in(tmp_path, "http://127.0.0.1:9/ups")
    with contextlib.closing(Workitems(migrated_sqlite(tmp_path), lambda: 1_795_163_400.0)) as items:
        items.begin("ris", "1.2.1", "2.25.1", "1.2.3")
        ended = items.begin("ris", "1.2.2", "2.25.2", "")
        assert ended is not None
        items.step(ended, WorkitemState.CANCELLED, WorkitemReason.NO_STUDY)
        items.note("ris", "ris: HTTP 503: it is overloaded or down")
        items.note("gone", "gone: HTTP 503")

    listed = hilum("workitems", "list", "-c", file)
    assert listed.stdout.splitlines() == [
        "AWAY: ris: HTTP 503: it is overloaded or down",
        f"{AT}cancelled  1.2.2  study -  no_study: Its Input Information names no study.",
        f"{AT}claiming   1.2.1  study 1.2.3",
    ]
    open_ones = hilum("workitems", "list", "--state", "claiming", "--manager", "ris", "-c", file)
    assert len(open_ones.stdout.splitlines()) == 2
    assert hilum("workitems", "list", "--manager", "x", "-c", file).stdout == ""


def test_check_says_whether_a_manager_accepts_connections(tmp_path: Path) -> None:
    with WorklistManager().server() as server:
        settings = load(settings_in(tmp_path, f"{server.url}/ups"))
        assert [check.ok for check in workitem_managers(settings)] == [True]
        assert server.received == []
    (check,) = workitem_managers(settings)
    assert not check.ok
    assert "check `url` and the firewall" in check.advice
