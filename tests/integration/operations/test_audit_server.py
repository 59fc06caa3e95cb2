"""A server that starts, is looked at and stops.

The ledger, the log and the collector hear of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
from pathlib import Path
from xml.etree import ElementTree as Xml

import httpx
import pytest

from hilum.store.audit.log import AuditFilter, AuditLog
from testing.serving import Hilum, free_ports
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.waiting import wait_for
from tests.support.peers.rsyslog import RSYSLOGD, rsyslog

pytestmark = pytest.mark.slow
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.skipif(
    RSYSLOGD is None, reason="rsyslog is the collector: deploy/debian-packages.sh installs it"
)
def test_start_looks_verbs_and_stop_reach_ledger_log_and_collector(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    sections = {
        "audit.syslog": {"host": "127.0.0.1", "port": port, "protocol": "tcp"},
        "log": {"format": "json"},
    }
    server = Hilum(
        tmp_path / "hilum", {"pacs": {"kind": "folder", "path": str(tmp_path / "out")}}, **sections
    )
    server.write_settings()
    server.role = "api"
    (server.folder / "state").mkdir()
    url = migrated_sqlite(server.folder / "state")
    with rsyslog(tmp_path, "tcp", port) as collector:
        with server:
            wait_for(lambda: _answers(server), 60)
            for _ in range(3):
                server.get("/api/v1/studies")
            subprocess.run(
                server.command("destinations", "pause", "pacs"), check=True, capture_output=True
            )
            collector.start()  # it was away
            wait_for(lambda: "pause" in _verbs(server.log), 60, "the line of the log")
            wait_for(lambda: len(collector.received()) == 3, 90, "what the collector has missed")
        collector.stop()
        received = [Xml.fromstring(item["msg"].lstrip("\ufeff")) for item in collector.received()]
    with contextlib.closing(AuditLog(url)) as log:
        rows = list(log.all(AuditFilter()))[::-1]
    expected = ["start", "list_studies", "pause", "list_studies", "stop"]
    assert [row["verb"] for row in rows] == expected
    assert [
        (row["actor"], row["channel"]) for row in rows if row["verb"] in ("start", "pause", "stop")
    ] == [(ME, "cli")] * 3
    assert [row["count"] for row in rows if row["verb"] == "list_studies"] == [1, 2]
    assert _verbs(server.log) == expected
    assert [root.findall(".//EventTypeCode")[-1].get("csd-code") for root in received] == expected


def _answers(server: Hilum) -> bool:
    try:
        return server.get("/health/live").is_success
    except httpx.TransportError:  # it does not listen yet
        return False


def _verbs(log: Path) -> list[str]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line["verb"] for line in lines if line["event"] == "audit"]
