"""A newer Hilum on the ledger of an older one: what is refused is refused before the ledger is changed, which nobody can undo."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.settings import Api, Models, Receive, Settings, Site
from hilum.store.revision import current_revision
from hilum.supervisor.supervising import Supervisor
from load_tests.serving import free_ports
from tests.support.ledgers import older_sqlite
from tests.support.models import Tiny, make_tiny


@pytest.fixture
def settings(tmp_path: Path, tiny: Tiny) -> Settings:
    receive, api = free_ports(2)
    models = Models(manifests=tiny.manifests_dir, built=tmp_path / "built", releases=(tiny.release.id,))
    return Settings(site=Site(state_dir=tmp_path), models=models, receive=Receive(port=receive), api=Api(port=api))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


def test_a_release_that_is_not_built_leaves_the_ledger_to_the_version_before(settings: Settings) -> None:
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
