"""Every query of a running campaign goes along an index, however many rows campaigns have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, text

from hilum.domain import CampaignOptions
from hilum.store.campaigns import erase, expected_images
from hilum.store.campaigns.series_queue import SeriesQueue
from hilum.store.schema.tables import campaign_image, campaign_series, instance, study
from tests.support.campaigns.scripted_source import ScriptedCampaign, scripted_campaign
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import engine_of, transaction
from tests.support.ledger.rolling import Rolling, kept

STUDIES = 4000
_LARGE = "campaign_image|campaign_series|instance|reading|study"


@pytest.fixture
def scripted(rolling: Rolling, tmp_path: Path) -> Iterator[ScriptedCampaign]:
    with scripted_campaign(rolling, tmp_path / "archive") as opened:
        yield opened


def fill(scripted: ScriptedCampaign) -> int:
    """A campaign of which the most is released, a few series are under way and many are found."""
    first = arrival_of("9.9.9", "9.9", ())
    scripted.rolling.ledger.record([first])
    scripted.plan({"1.1.7": ["1.1.7.1"]})
    scripted.campaigns.run("old", "chest@2", CampaignOptions(), kept("chest@2"))
    number = scripted.found.id
    (known,) = scripted.rolling.rows(instance)
    (grown,) = scripted.rolling.rows(study)
    with transaction(scripted.rolling.ledger) as connection:
        connection.execute(insert(campaign_series), [_series(number, at) for at in range(STUDIES)])
        rows = connection.execute(
            campaign_series.select().where(campaign_series.c.origin == "many")
        ).all()
        connection.execute(insert(campaign_image), [_image(number, row) for row in rows])
        of_study = {name: value for name, value in grown._asdict().items() if name != "id"}
        of_image = {name: value for name, value in known._asdict().items() if name != "id"}
        uids = [f"5.{at}" for at in range(STUDIES // 2)]
        connection.execute(
            insert(study),
            [{**of_study, "study_instance_uid": uid, "state": "closed"} for uid in uids],
        )
        connection.execute(
            insert(instance),
            [
                {
                    **of_image,
                    "study_instance_uid": uid,
                    "sop_instance_uid": f"{uid}.7.1",
                    "path": f"{uid}.dcm",
                    "pixels_removed_at": 1.0,
                }
                for uid in uids
            ],
        )
    with engine_of(scripted.rolling.ledger).connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))
    return number


def _series(number: int, at: int) -> dict[str, Any]:
    is_old = at < STUDIES // 2
    state = "read" if is_old else "found"
    return {
        "campaign_id": number,
        "study_instance_uid": f"5.{at}",
        "series_instance_uid": f"5.{at}.7",
        "day": "20190101",
        "modality": "DX",
        "origin": "many",
        "state": "requested" if at == 7 else "dead" if at == 8 else state,
        "due_at": 1.0,
    }


def _image(number: int, row: Any) -> dict[str, Any]:
    states = {"read": "released", "found": "expected", "requested": "received", "dead": "missing"}
    return {
        "campaign_id": number,
        "series_id": row.id,
        "sop_instance_uid": f"{row.series_instance_uid}.1",
        "sop_class_uid": "1.2",
        "state": states[row.state],
        "is_fetched": row.state != "found",
    }


@contextmanager
def seen() -> Iterator[list[tuple[str, Any]]]:
    """The statements that are executed meanwhile."""
    found: list[tuple[str, Any]] = []

    def note(_: Connection, __: object, statement: str, parameters: Any, *___: object) -> None:
        found.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def scans(scripted: ScriptedCampaign, statements: list[tuple[str, Any]]) -> list[str]:
    """Statements that walk through a large table, each with its plan."""
    engine = engine_of(scripted.rolling.ledger)
    is_sqlite = engine.dialect.name == "sqlite"
    word = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
    walks = re.compile(rf"SCAN ({_LARGE})$" if is_sqlite else rf"Seq Scan on ({_LARGE})\b")
    found: list[str] = []
    with engine.connect() as connection:
        if not is_sqlite:  # small tables are walked through anyway: is there an index at all?
            connection.execute(text("SET enable_seqscan = off"))
        for statement, parameters in statements:
            if statement.lstrip().upper().startswith(("SELECT", "UPDATE")):
                plan = connection.exec_driver_sql(f"{word} {statement}", parameters).all()
                lines = [str(row[-1]) for row in plan]
                if any(walks.search(line) for line in lines):
                    found.append("\n".join([statement, *lines]))
    return found


def test_no_query_of_a_round_walks_through_a_table(scripted: ScriptedCampaign) -> None:
    number = fill(scripted)
    with ExitStack() as stack:
        queue = stack.enter_context(
            closing(SeriesQueue(scripted.rolling.ledger.url, number, "chest@2"))
        )
        statements = stack.enter_context(seen())
        under_way = queue.under_way()
        queue.unread_of_dead()
        queue.late()
        queue.images([row.id for row in under_way])
        queue.next_series(16)
        queue.due_at()
        queue.bytes_kept()
        queue.is_over()
        queue.unreleased()

    assert len(statements) >= 9
    assert scans(scripted, statements) == []


def test_neither_reception_nor_an_erasure_walks_through_a_table(
    scripted: ScriptedCampaign,
) -> None:
    fill(scripted)
    with ExitStack() as stack:
        connection = stack.enter_context(engine_of(scripted.rolling.ledger).connect())
        statements = stack.enter_context(seen())
        expected_images.campaigns_of(connection, [f"5.{at}.7.1" for at in range(20)])
        list(erase._series(connection, "5.7"))

    assert scans(scripted, statements) == []
