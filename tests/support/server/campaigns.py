"""Commands and looks at campaigns of a whole server."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable, Collection

from hilum.domain import Campaign, CampaignState
from hilum.store.campaigns.campaigns import Campaigns
from testing.serving import Hilum
from tests.support.machine.waiting import wait_for
from tests.support.server.installation import detail


def hilum(server: Hilum, *words: str) -> str:
    """The output of a command of this installation, which must succeed."""
    done = subprocess.run(
        server.command(*words), check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def ledger_url(server: Hilum) -> str:
    """The ledger of a server with SQLite."""
    return f"sqlite:///{server.folder / 'state' / 'ledger.sqlite'}"


def campaign(server: Hilum, name: str) -> Campaign:
    """The row of a campaign."""
    with contextlib.closing(Campaigns(ledger_url(server))) as campaigns:
        found = campaigns.find(name)
    assert found is not None
    return found


def await_end(
    server: Hilum, name: str, seconds: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Return when the campaign is finished. `meanwhile`: called at each look."""

    def is_finished() -> bool:
        meanwhile()
        return campaign(server, name).state is CampaignState.FINISHED

    wait_for(is_finished, seconds, what=f"the end of {name}: {campaign(server, name).detail}")


def rows(server: Hilum, query: str) -> list[tuple[object, ...]]:
    """Rows of the ledger."""
    file = server.folder / "state" / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as ledger:
        return ledger.execute(query).fetchall()


def releases_of(server: Hilum, uid: str, states: Collection[str] = ("reported",)) -> list[str]:
    """The releases with a current result in one of the states, sorted."""
    with contextlib.suppress(KeyError, TypeError):
        return sorted(
            item["release"]
            for item in detail(server, uid)["results"]
            if item["is_current"] and item["state"] in states
        )
    return []
