"""The load generator against a stand-in for the server: what it must notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from load_tests import load
from load_tests.serving import free_ports
from tests.support.answering_peer import AnsweringPeer, answering

QUICK = ["--rate", "10", "--seconds", "0.6", "--associations", "2", "--rows", "32", "--columns", "32", "--quiet", "0", "--drain", "0.5"]


def run(tmp_path: Path, **behaviour: object) -> tuple[int, Path]:
    port, report_port = free_ports(2)
    result = tmp_path / "results" / "load.json"
    words = [*QUICK, "--to", f"FAKE@127.0.0.1:{port}", "--listen", str(report_port), "--result", str(result)]
    with answering(AnsweringPeer(report_port, **behaviour), port):
        return load.main(words), result


def test_a_good_run_is_written_with_its_circumstances(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, path = run(tmp_path)
    found = json.loads(path.read_text())
    assert found["studies"] == {"offered": 6, "accepted": 6, "reported": 6}
    assert 0 < found["last_image_to_sr_seconds"]["p50"] <= found["last_image_to_sr_seconds"]["p99"]
    assert found["intended_start_to_sr_seconds"]["p50"] >= found["last_image_to_sr_seconds"]["p50"]
    assert {"machine", "commit", "versions", "settings", "measured_at"} <= set(found)
    assert {goal["name"]: goal["holds"] for goal in found["goals"]}["accepted studies without a report"]
    assert code == (0 if all(goal["holds"] for goal in found["goals"]) else 1)
    assert "p99" in capsys.readouterr().out


def test_a_server_that_never_reports_is_no_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, path = run(tmp_path, is_silent=True)
    assert (code, path.exists()) == (2, False)
    assert "no report on the warm-up: accepted, but no report came" in capsys.readouterr().err


def test_a_server_that_refuses_says_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _ = run(tmp_path, status=0xA700)
    assert code == 2
    assert "status 0xA700" in capsys.readouterr().err


def test_other_bytes_under_one_uid_break_a_goal(tmp_path: Path):
    """All reports have one UID, so only the first study of the warm-up counts as reported, and the rest as changed."""
    port, report_port = free_ports(2)
    with load.Receiver(report_port) as receiver, answering(AnsweringPeer(report_port, changes=True), port):
        sender = load.Sender(load.Peer("FAKE", "127.0.0.1", port), [load.phantom.make_study(rows=16, columns=16)], 1)
        sender.run(rate=20, seconds=0.2)
        load.drained(sender, receiver, 1.0)
        found = load.figures(sender.sent, receiver.arrivals)
    assert (found.accepted, found.reported, found.changed) == (4, 1, 3)
    assert not next(goal for goal in load.goals(found, 20, 0, 1) if "other bytes" in goal.name).holds


def test_no_server_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    port, report_port = free_ports(2)
    words = [*QUICK, "--to", f"FAKE@127.0.0.1:{port}", "--listen", str(report_port), "--result", str(tmp_path / "load.json")]
    assert load.main(words) == 2
    assert "no association" in capsys.readouterr().err


def test_to_needs_listen():
    with pytest.raises(SystemExit) as ended:
        load.parse(["--to", "HILUM@127.0.0.1:11112"])
    assert ended.value.code == 2
