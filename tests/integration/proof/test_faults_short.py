"""The short form of `make proof`.

Faults of every kind on one street under load, then one verdict; and what that verdict must see.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from load_tests.proof.part import Plan, conclude
from load_tests.proof.router import Load
from load_tests.proof.settings import MANY_LAPSES
from load_tests.proof.street.kills import ROLES, kills
from load_tests.proof.street.locked import ledger_locked
from load_tests.proof.street.pacs_faults import TIMEOUT_SECONDS, pacs_times_out
from load_tests.proof.street.rolling_restart import rolling_restart
from load_tests.proof.street.street import Street
from testing.tiny_release import make_tiny

pytestmark = pytest.mark.slow


def test_faults_under_load(tmp_path: Path) -> None:
    plan = Plan(tmp_path, make_tiny(tmp_path / "release"), seed=1, is_short=True)
    with Street(
        tmp_path, plan.tiny, Load(rate=2.0), timeout_seconds=TIMEOUT_SECONDS, **MANY_LAPSES
    ) as street:
        found = [
            fault(plan, street) for fault in (ledger_locked, pacs_times_out, kills, rolling_restart)
        ]
        outcome = conclude(plan, street, *found)
        assert outcome.holds, (outcome.problems, outcome.goals)
        assert outcome.figures["images_acknowledged"] == 2 * outcome.figures["studies"] > 0
        assert outcome.figures["kills"].keys() >= set(ROLES)
        assert street.unasked_ends == 0, "the supervisor ends by order only"
        street.hilum.stop()
        _damage_is_seen(street)


def _damage_is_seen(street: Street) -> None:
    """Negative controls: the verdict on a real installation notices each thing that is done to it."""
    paths = sorted(street.archive.glob("??/*/*.dcm"))
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-2] + b"\1\1")
    (street.archive / "unindexed/half.part").touch()
    with closing(sqlite3.connect(street.ledger)) as ledger:
        ledger.execute(
            "UPDATE reading SET state = 'leased', leased_until = 0 WHERE id = (SELECT max(id) FROM"
            " reading)"
        )
        ledger.execute(
            "UPDATE document SET content = CAST(content || x'00' AS BLOB) WHERE id = (SELECT"
            " max(id) FROM document WHERE kind = 'sr')"
        )
        ledger.execute(
            "UPDATE result SET is_current = 0 WHERE id = (SELECT min(id) FROM result WHERE"
            " is_current)"
        )
        ledger.commit()
    seen = street.verdict()
    assert len(seen.lost) == 2
    assert seen.stray == ("unindexed/half.part",)
    assert seen.stuck == ("reading leased",)
    assert len(seen.contradicting) == 1
    assert len(seen.unreported) == 1
