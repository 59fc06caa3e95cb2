"""`hilum check` on the collector of the audit."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from hilum.domain import Actor, Channel
from hilum.settings import Audit, Settings, Site, Syslog
from hilum.store.admin.audit_cursors import AuditCursors
from hilum.store.audit.log import AuditLog
from hilum.supervisor.checks.audit import collector_files, collector_waits
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.doctor import examine
from hilum.verbs import Verb
from tests.support.ledger.ledgers import migrated_sqlite

ALICE = Actor("alice", Channel.CLI)


def settings_of(folder: Path, **syslog: object) -> Settings:
    return Settings(
        site=Site(state_dir=folder), audit=Audit(syslog=Syslog(host="127.0.0.1", **syslog))
    )  # type: ignore[arg-type]


def waits(folder: Path, age_seconds: float) -> Check:
    url = migrated_sqlite(folder)
    with (
        closing(AuditCursors(url)) as cursors,
        closing(AuditLog(url, lambda: time.time() - age_seconds)) as log,
    ):
        cursors.set_up(["syslog"])
        log.note(Verb.LOGIN, ALICE)
    (check,) = collector_waits(settings_of(folder))
    return check


def test_rows_that_have_waited_for_long_are_a_problem(tmp_path: Path) -> None:
    (new, old) = (tmp_path / name for name in ("new", "old"))
    new.mkdir()
    old.mkdir()
    assert waits(new, 5).ok
    found = waits(old, 3600)
    assert (
        found.ok,
        found.detail.startswith("1 rows wait for the collector, the oldest for 36"),
    ) == (False, True)
    assert "audit_not_forwarded" in found.advice


def test_a_collector_without_tls_is_said(tmp_path: Path) -> None:
    (check,) = collector_files(settings_of(tmp_path, protocol="tcp", port=514))
    assert "in clear" in check.detail


def test_files_that_are_not_there_are_a_problem(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ca_file=tmp_path / "nothing.pem")
    (check,) = [check for check in examine(settings) if check.name == "audit collector"]
    assert not check.ok


def test_without_a_collector_nothing_is_said(tmp_path: Path) -> None:
    settings = Settings(site=Site(state_dir=tmp_path))
    assert [*collector_files(settings), *collector_waits(settings)] == []
