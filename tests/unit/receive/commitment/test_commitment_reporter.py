"""Who reports a storage commitment over the association of its request, and how that can end."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import (
    Advance,
    CommitmentRequest,
    CommitmentState,
    CommitmentVerdict,
    SopReference,
)
from hilum.errors import Refused, Retry
from hilum.receive.commitment.reporter import CommitmentReporter
from hilum.receive.commitment.request import CommitmentRefused
from hilum.receive.commitment.safekeeping import Safekeeping
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from tests.support.ledger.database import rows_of
from tests.support.machine.waiting import wait_for
from tests.support.peers.committing import with_address
from tests.support.server.listening import make_settings

DX = "1.2.840.10008.5.1.4.1.1.1.1"


@dataclass
class Requester:
    """An association, as the desk sees it.

    `ends`: what its report raises; without it the report is answered.
    """

    ends: Exception | None = None
    is_open: bool = True
    heard: list[CommitmentVerdict] = field(default_factory=list)

    def report(self, _transaction_uid: str, verdict: CommitmentVerdict, _seconds: float) -> Advance:
        self.heard.append(verdict)
        if self.ends is not None:
            raise self.ends
        return Advance(CommitmentState.REPORTED)


class House:
    """A desk over a ledger without images. `wait_seconds`: for objects that never come."""

    def __init__(self, state: Path, wait_seconds: float) -> None:
        self.settings = with_address(make_settings(state), KNOWN=104)
        self.file = state / "ledger.sqlite"
        self.ledger = Ledger(self.settings.ledger_url)
        self.desk = CommitmentReporter(
            self.settings,
            self.ledger,
            Safekeeping(self.ledger, Archive(self.settings.archive_dir), wait_seconds),
            "listener-1",
        )

    def take(
        self, requester: Requester, transaction_uid: str = "1.9", calling: str = "NOBODY"
    ) -> None:
        self.desk.take(
            CommitmentRequest(transaction_uid, (SopReference(DX, "1.2.3"),), calling, "HILUM"),
            requester,
        )

    def rows(self, condition: str) -> list[dict[str, Any]]:
        return rows_of(self.file.parent, f"SELECT * FROM commitment WHERE {condition}")

    def ended(self) -> dict[str, Any]:
        return wait_for(lambda: self.rows("state NOT IN ('due', 'leased')"))[0]


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "state", 0.0)
    yield made
    made.ledger.close()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "state", 600.0)
    yield made
    made.ledger.close()


def test_what_is_judged_is_what_the_asker_hears(hurried: House) -> None:
    requester = Requester()
    hurried.take(requester)
    assert hurried.ended()["state"] == "reported"
    assert requester.heard == [CommitmentVerdict((), ((SopReference(DX, "1.2.3"), 0x0112),))]


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (Retry("the association of the request has ended"), "no_address"),
        (Refused("report_refused", ""), "report_refused"),
    ],
)
def test_a_report_that_does_not_arrive_is_dead_and_keeps_what_it_was_about(
    hurried: House, ends: Exception, reason: str
) -> None:
    hurried.take(Requester(ends))
    row = hurried.ended()
    assert (row["state"], row["reason"], json.loads(row["instances"])) == (
        "dead",
        reason,
        [[DX, "1.2.3"]],
    )


def test_who_has_an_address_is_left_to_the_dispatcher(hurried: House) -> None:
    requester = Requester()
    hurried.take(requester, calling="KNOWN")
    assert [row["state"] for row in hurried.rows("calling_ae_title = 'KNOWN'")] == ["due"]
    assert requester.heard == []


def test_a_ledger_that_was_away_has_cost_no_places(hurried: House) -> None:
    with sqlite3.connect(hurried.file) as connection:
        connection.execute("ALTER TABLE commitment RENAME TO away")
    for number in range(65):
        with pytest.raises(SQLAlchemyError):
            hurried.take(Requester(), f"1.9.{number}")
    with sqlite3.connect(hurried.file) as connection:
        connection.execute("ALTER TABLE away RENAME TO commitment")
    hurried.take(Requester(), "1.9.100")
    assert hurried.ended()["state"] == "reported"


def test_without_a_thread_for_the_report_nothing_is_owed(hurried: House) -> None:
    requester, usual = (
        Requester(),
        threading.stack_size(1 << 47),
    )  # more than there are addresses: no thread can start
    try:
        for number in range(65):
            with pytest.raises(CommitmentRefused, match="ask again later"):
                hurried.take(requester, f"1.9.{number}")
    finally:
        threading.stack_size(usual)
    assert hurried.rows("true") == []
    hurried.take(requester, "1.9.100")
    assert hurried.ended()["state"] == "reported", "they have cost no places"


def test_too_many_that_wait_are_refused_before_anything_is_written(patient: House) -> None:
    requester = Requester()
    for number in range(64):
        patient.take(requester, f"1.9.{number}")
    with pytest.raises(CommitmentRefused) as refused:
        patient.take(requester, "1.9.64")
    assert refused.value.answer.status == 0x0213
    assert len(patient.rows("state = 'leased'")) == 64
    requester.is_open = False  # they go, and make room
    wait_for(lambda: len(patient.rows("reason = 'no_address'")) == 64)
    wait_for(lambda: patient.desk._places._value == 64)
    patient.take(Requester(is_open=False), "1.9.64")
    wait_for(lambda: len(patient.rows("reason = 'no_address'")) == 65)
