"""A newer Hilum on the ledger of an older one.

What is refused is refused before the ledger is changed, which nobody can undo.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, delete, insert

from hilum.errors import ConfigurationError
from hilum.services.upgrade import migrate_at_rest
from hilum.settings import Api, Models, Receive, Settings, Site
from hilum.store.migrations.revision import REVISION, current_revision
from hilum.store.schema.tables import process
from hilum.supervisor.supervisor import Supervisor
from testing.serving import free_ports
from tests.support.ledger.ledgers import older_sqlite
from tests.support.models.releases import Tiny


@pytest.fixture
def settings(tmp_path: Path, tiny: Tiny) -> Settings:
    receive, api = free_ports(2)
    models = Models(
        manifests=tiny.manifests_dir, built=tmp_path / "built", releases=(tiny.release.id,)
    )
    return Settings(
        site=Site(state_dir=tmp_path),
        models=models,
        receive=Receive(port=receive),
        api=Api(port=api),
    )


def test_a_release_that_is_not_built_leaves_the_ledger_to_the_version_before(
    settings: Settings,
) -> None:
    url = older_sqlite(settings.site.state_dir, "0003")
    with pytest.raises(ConfigurationError, match="is not built"):
        Supervisor(settings).run()
    assert current_revision(url) == "0003"


def test_so_does_a_port_that_is_taken(settings: Settings, tiny: Tiny) -> None:
    shutil.copytree(tiny.built_dir, settings.built_dir)
    taken = settings.model_copy(update={"api": Api(port=settings.receive.port)})
    url = older_sqlite(settings.site.state_dir, "0003")
    with pytest.raises(ConfigurationError, match="cannot listen"):
        Supervisor(taken).run()
    assert current_revision(url) == "0003"


def test_nobody_migrates_under_a_server_of_this_state_folder(settings: Settings) -> None:
    url = older_sqlite(settings.site.state_dir, "0003")
    settings.run_dir.mkdir()
    with (settings.run_dir / "supervisor-listener.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match=r"works with it .* at revision 0003"):
            migrate_at_rest(settings)
        assert current_revision(url) == "0003"
        assert migrate_at_rest(settings, "listener") == REVISION, "which it is itself"
        assert migrate_at_rest(settings) == REVISION, (
            "and where nothing is to be done, nobody is asked"
        )


@pytest.mark.parametrize(
    ("role", "is_here", "age_seconds", "is_refused"),
    [
        ("analyser", False, 2.0, True),
        ("analyser", False, 12.0, False),  # it was killed
        ("analyser", False, -3600.0, False),  # the clock was set back
        ("analyser", True, 2.0, False),  # so was this one, as nobody has its number
        (
            "supervisor",
            False,
            2.0,
            False,
        ),  # it has no word for its end, and its children have ended
    ],
)
def test_nor_under_one_of_another_host(
    role: str, is_here: bool, age_seconds: float, is_refused: bool, settings: Settings
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    row = {
        "name": "its name",
        "role": role,
        "host": socket.gethostname() if is_here else "elsewhere",
        "pid": ended.pid,
        "is_ready": True,
    }
    engine = create_engine(older_sqlite(settings.site.state_dir, "0003"))
    with engine.begin() as connection:
        connection.execute(
            insert(process), {**row, "started_at": 0.0, "beat_at": time.time() - age_seconds}
        )
    if is_refused:
        with pytest.raises(ConfigurationError, match=r"\(its name\) .*Stop each `hilum serve`"):
            migrate_at_rest(settings)
        with engine.begin() as connection:
            connection.execute(delete(process))
    assert migrate_at_rest(settings) == REVISION
    engine.dispose()
