"""Reports to our requests for storage commitment, before they reach the ledger."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hilum.dicom import command_set
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT, WELL_KNOWN_INSTANCE
from hilum.domain import CommitmentVerdict, SopReference
from hilum.receive.commitment.report import encoded_information
from hilum.receive.commitment.request import MAXIMUM_BYTES
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from tests.support.ledger.ledgers import migrated_sqlite

IMPLICIT = "1.2.840.10008.1.2"
DESTINATIONS = {
    "pacs": {"ae_title": "PACS", "commitment": True},
    "other": {"ae_title": "OTHER"},
    "archive": {"ae_title": "PACS", "commitment": True, "commitment_ae_title": "ARCHIVE"},
    "back": {"kind": "sender", "ports": {"CR1": 104}, "commitment": True},
}
COMMAND = {
    command_set.AFFECTED_SOP_CLASS_UID: command_set.uid(STORAGE_COMMITMENT),
    command_set.AFFECTED_SOP_INSTANCE_UID: command_set.uid(WELL_KNOWN_INSTANCE),
    command_set.EVENT_TYPE_ID: command_set.us(1),
}
REPORT = encoded_information(
    "1.2.3", CommitmentVerdict((SopReference("1.2.840.1", "1.2.3.4"),), ()), IMPLICIT
)


def test_those_that_are_asked_may_report_and_no_others(tmp_path: Path) -> None:
    with closing(Ledger(migrated_sqlite(tmp_path))) as ledger:
        reports = TakenReports(Settings(destinations=DESTINATIONS), ledger)
        assert reports.scps == {"PACS", "ARCHIVE", "CR1"}
        answers = {
            title: reports.take(COMMAND, IMPLICIT, REPORT, title)
            for title in ("OTHER", "ARCHIVE ", "PACS")
        }
    assert {title: answer and answer.label for title, answer in answers.items()} == {
        "OTHER": "0x0211",
        "ARCHIVE ": "0x0115",
        "PACS": "0x0115",
    }


@pytest.mark.parametrize(
    ("encoded", "label"),
    [
        (b"", "0x0115"),
        (b"GET / HTTP/1.1\r\n\r\n", "0x0115"),
        (REPORT[:-3], "0x0115"),
        (bytes(MAXIMUM_BYTES + 1), "0x0213"),
    ],
)
def test_a_report_that_cannot_be_read_is_refused(
    tmp_path: Path, encoded: bytes, label: str
) -> None:
    with closing(Ledger(migrated_sqlite(tmp_path))) as ledger:
        reports = TakenReports(Settings(destinations=DESTINATIONS), ledger)
        answer = reports.take(COMMAND, IMPLICIT, encoded, "PACS")
    assert answer is not None
    assert answer.label == label


def test_while_the_ledger_is_away_the_scp_is_told_to_come_again(tmp_path: Path) -> None:
    with closing(Ledger(f"sqlite:///{tmp_path / 'nowhere' / 'ledger.sqlite'}")) as ledger:
        reports = TakenReports(Settings(destinations=DESTINATIONS), ledger)
        answer = reports.take(COMMAND, IMPLICIT, REPORT, "PACS")
    assert answer is not None
    assert (answer.label, answer.comment) == (
        "0x0213",
        "The ledger is not available; report again later",
    )


def test_an_unknown_transaction_is_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Ledger(migrated_sqlite(tmp_path))) as ledger:
        reports = TakenReports(Settings(destinations=DESTINATIONS), ledger)
        for _ in range(3):
            reports.take(COMMAND, IMPLICIT, REPORT, "PACS")
    assert capsys.readouterr().out.count("commitment_report_unknown") == 1
