"""A dispatcher that performs work items: killed, stopped, and with a manager that goes away."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from hilum.domain import Workitem, WorkitemState
from hilum.services.launch_spec import process_name
from hilum.settings import Settings
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.queue.workitems import Workitems
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.machine.waiting import wait_for
from tests.support.peers.worklist_manager import COMPLETED, IN_PROGRESS, WorklistManager, item
from tests.support.retrieve.web_server import Reply, reply
from tests.support.server.dispatcher import dispatcher

UID = "1.2.840.1"
STUDY = "1.2.3"


@dataclass
class Rig:
    """A ledger, a manager, and settings for a dispatcher of both."""

    street: Street
    manager: WorklistManager
    settings: Settings
    items: Workitems
    log: Path

    def row(self) -> Workitem | None:
        """The item of the ledger."""
        return self.items.find("ris", UID)

    def events(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event."""
        return [line for line in self.events() if line["event"] == event]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    url = migrated_sqlite(tmp_path)
    manager = WorklistManager()
    clock = Clock(time.time() - 60.0)
    code = {"value": "CXR", "scheme": "99SITE", "meaning": "Chest"}
    with (
        manager.server() as server,
        contextlib.closing(Ledger(url, clock)) as ledger,
        contextlib.closing(Workitems(url)) as items,
    ):
        settings = Settings.model_validate(
            {
                "site": {"state_dir": tmp_path / "state"},
                "ledger": {"url": url},
                "log": {"format": "json"},
                "destinations": {"pacs": {"kind": "dicom", "ae_title": "ARCHIVE"}},
                "workitems": {
                    "ris": {
                        "url": f"{server.url}/ups",
                        "workitem_codes": [code],
                        "station_name_code": code,
                        "destination": "pacs",
                        "poll_seconds": 1,
                    }
                },
            }
        )
        yield Rig(Street(ledger, clock), manager, settings, items, tmp_path / "log")


def test_the_process_after_a_killed_one_completes_the_item_that_it_claimed(rig: Rig) -> None:
    rig.manager.add(item())
    with dispatcher(rig.settings, rig.log) as first:
        wait_for(lambda: rig.manager.state(UID) == IN_PROGRESS)
        first.kill()
        first.wait()
    transaction = rig.manager.items[UID].transaction_uid
    rig.street.walk(STUDY, 1)
    rig.street.ledger.end_leases(process_name("dispatcher", first.pid), is_clean=False)
    with dispatcher(rig.settings, rig.log):
        wait_for(lambda: rig.manager.state(UID) == COMPLETED)
        wait_for(lambda: (row := rig.row()) and row.state is WorkitemState.COMPLETED)
    row = rig.row()
    assert row is not None
    assert row.transaction_uid == transaction == rig.manager.items[UID].transaction_uid


def test_a_manager_that_is_away_is_named_once_and_asked_again(rig: Rig) -> None:
    asked: list[int] = []

    def away(_request: object) -> Reply:
        asked.append(1)
        return reply(503)

    rig.manager.faults = away
    rig.manager.add(item())
    with dispatcher(rig.settings, rig.log) as running:
        wait_for(lambda: len(asked) >= 2)
        wait_for(rig.items.problems)
        assert rig.items.problems() == {"ris": "ris: HTTP 503: it is overloaded or down"}
        rig.manager.faults = lambda _: None
        wait_for(lambda: rig.manager.state(UID) == IN_PROGRESS)
        wait_for(lambda: not rig.items.problems())
        assert len(rig.said("worklist_manager_away")) == 1
        assert len(rig.said("worklist_manager_back")) == 1
        assert [line["workitem_uid"] for line in rig.said("workitem_claimed")] == [UID]
        running.terminate()
        assert running.wait(60) == 0
    assert rig.items.hold("ris", "another", 60.0), "the lease was given back"


def test_an_unexpected_error_of_an_item_leaves_the_dispatcher_at_work(rig: Rig) -> None:
    refuse = "CREATE TRIGGER refused BEFORE UPDATE ON workitem BEGIN SELECT RAISE(ABORT, ''); END"
    engine = open_engine(rig.settings.ledger_url)
    with engine.begin() as connection:
        connection.execute(text(refuse))
    rig.manager.add(item())
    with dispatcher(rig.settings, rig.log) as running:
        wait_for(rig.items.problems)
        assert rig.items.problems() == {"ris": "ris: unexpected IntegrityError; see the log"}
        with engine.begin() as connection:
            connection.execute(text("DROP TRIGGER refused"))
        wait_for(lambda: (row := rig.row()) and row.state is WorkitemState.CLAIMED)
        wait_for(lambda: not rig.items.problems())
        running.terminate()
        assert running.wait(60) == 0
    engine.dispose()
    assert rig.said("workitems_failed")
