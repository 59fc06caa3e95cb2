"""The short form of the proof's parts `listener` and `listener_disk`, and what their auditor must see."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from load_tests.proof.listeners.audit import Auditor
from load_tests.proof.listeners.disk import fill_disks
from load_tests.proof.listeners.kills import kill_listeners
from load_tests.proof.listeners.processes import Listeners
from load_tests.proof.listeners.senders import Outbox, Senders, drawn
from load_tests.proof.small_disk import may_mount
from tests.support.peers.peers import missing, require_program

pytestmark = pytest.mark.slow


def test_five_kills_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    require_program("storescu", "dcmtk")
    found = kill_listeners(tmp_path, 1, 5, lambda _: None)
    assert found.holds, (found.goals, found.problems)
    assert found.figures["objects_in_the_ledger"] >= found.figures["objects_acknowledged"] > 0


def test_a_disk_that_is_full_costs_no_association(tmp_path: Path) -> None:
    if not may_mount():
        missing("a small file system can be mounted by root only")
    found = fill_disks(tmp_path, 1, 1, lambda _: None)
    broken = [
        goal for goal in found.goals if not goal.holds and goal.unit != "s"
    ]  # how soon is for `make proof`, on a machine of its own
    assert broken == [], found.problems


def test_damage_is_seen(tmp_path: Path) -> None:
    """Negative controls: what a broken promise would leave, one thing at a time, on an archive that is clean before."""
    outbox = Outbox(tmp_path / "out", drawn(), random.Random(1))
    with Listeners(tmp_path, 1) as listeners, Senders(listeners.port, outbox) as senders:
        senders.begin()
        senders.end()
        listeners.wait_until_indexed()
        auditor = Auditor(listeners.archive.root, listeners.settings.ledger_url, outbox.objects)
        assert auditor.audit() == len(outbox.objects.acknowledged) == 80
        assert auditor.broken.examples() == []
        _damage(listeners.archive.root)
    auditor.look_into((listeners.archive.root / "unindexed").glob("*/*"))
    auditor.audit(is_last=True)
    broken = auditor.broken
    assert (len(broken.lost), len(broken.torn), len(broken.different)) == (2, 2, 3)
    assert auditor.left.half_received == auditor.left.without_place == 1


def _damage(archive: Path) -> None:
    """An object gone, one cut short.

    A whole name for half an object, and a half one, left by a listener.
    """
    gone, cut, *_ = sorted(archive.glob("??/??/*.dcm"))
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    inbox = next((archive / "unindexed").iterdir())
    (inbox / "half.dcm").write_bytes(cut.read_bytes()[:1000])
    (inbox / "half.part").touch()
