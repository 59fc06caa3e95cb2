"""`hilum check` and `hilum retention`.

What deletion waits for, and whether it keeps what was promised.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hilum.settings import Retention, Settings
from hilum.store.installation import known_time
from hilum.store.installation.known_time import Believed
from hilum.store.ledger import Ledger
from hilum.store.retention import rate
from hilum.store.retention.rate import Hour
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.retention import retention_checks
from tests.support.ledger.database import transaction
from tests.support.ledger.street import Clock, Street
from tests.support.server import commands
from tests.support.server.listening import make_settings

DAY = 86400.0


class Site:
    """A ledger with one promised image."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = Ledger(settings.ledger_url)
        Street(self.ledger, Clock(time.time())).walk("1.2.3", 1)

    def found(self, *, storage_commitment: bool = True, **retention: float) -> dict[str, Check]:
        receive = self.settings.receive.model_copy(
            update={"storage_commitment": storage_commitment}
        )
        changed = {"receive": receive, "retention": Retention(**retention)}  # type: ignore[arg-type]
        return {
            check.name: check
            for check in retention_checks(self.settings.model_copy(update=changed))
        }

    def remember(self, moment: float) -> None:
        with transaction(self.ledger) as connection:
            known_time._write(connection, Believed(moment, time.time()))

    def hilum(self, *words: str) -> subprocess.CompletedProcess[str]:
        return commands.hilum(
            *words, environment={"HILUM_SITE__STATE_DIR": str(self.settings.site.state_dir)}
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(make_settings(tmp_path / "state"))
    with contextlib.closing(made.ledger):
        yield made


@pytest.mark.parametrize(
    ("settings", "ok", "said"),
    [
        ({}, True, "offered, and nothing is deleted; 1 image (0.0 GB) promised"),
        (
            {"days": 30},
            False,
            "offered without an end (retention.committed_days = 0), while other images leave",
        ),
        ({"reanalysis_days": 30}, False, "offered without an end"),
        ({"pressure_free_bytes": 1 << 40}, False, "offered without an end"),
        (
            {"days": 30, "committed_days": 20},
            True,
            "stay for 20 days at least; 1 image (0.0 GB) promised",
        ),
        (
            {"days": 30, "committed_days": 365},
            True,
            "stay for 365 days at least, longer than retention.days; 1 image (0.0 GB) promised",
        ),
        ({"days": 30, "storage_commitment": False}, True, "not offered; 1 image (0.0 GB) promised"),
    ],
)
def test_retention_and_promises_are_held_beside_each_other(
    site: Site, settings: dict[str, float], ok: bool, said: str
) -> None:
    site.ledger.promise(["1.2.3.1"])
    found = site.found(**settings)["storage commitment"]  # type: ignore[arg-type]
    assert (found.ok, said in found.detail) == (ok, True), found


def test_where_nothing_was_promised_yet_a_promise_without_an_end_is_no_problem(site: Site) -> None:
    assert site.found(days=30)["storage commitment"].ok


def test_an_hour_that_is_spent_is_a_problem(site: Site) -> None:
    assert site.found(days=30)["retention"].ok
    with transaction(site.ledger) as connection:
        rate.write(connection, Hour(time.time(), 1000, 1000))
    assert (
        site.found(days=30)["retention"].detail
        == "1000 images have left by age in this hour, and no more than 1000 may"
    )
    assert not site.found(days=30)["retention"].ok


def test_a_person_looks_and_confirms(site: Site) -> None:
    assert site.hilum("retention", "show").returncode == 0
    site.remember(time.time() - 40 * DAY)
    shown = site.hilum("retention", "show")
    assert (shown.returncode, "held by     clock" in shown.stdout) == (1, True)
    wrong = site.hilum("retention", "confirm-clock", "2001-02-03")
    assert (wrong.returncode, "not 2001-02-03. Set the clock" in wrong.stderr) == (1, True)
    assert site.hilum("retention", "show").returncode == 1
    assert (
        site.hilum("retention", "confirm-clock", datetime.now(UTC).strftime("%Y-%m-%d")).returncode
        == 0
    )
    assert site.hilum("retention", "show").returncode == 0


def test_a_person_sees_which_rows_would_leave_and_why_others_stay(site: Site) -> None:
    Street(site.ledger, Clock(time.time() - 10 * DAY)).walk("1.2.4", 1)

    shown = site.hilum("retention", "rows", "--months", "0.1")

    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[1].split()[:3] == ["looked", "at", "1"]
    assert lines[2].startswith("leave       0,")
    assert lines[3].startswith("stay        1, open: ")
