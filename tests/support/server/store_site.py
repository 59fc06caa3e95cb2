"""An installation without processes, whose archive is in a scripted object store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydicom.uid import DigitalXRayImageStorageForPresentation

from hilum.receive.indexing.indexer import Indexer, index
from hilum.receive.storage.image_store import ImageStore
from hilum.receive.storage.session import open_inbox
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.consistency import begin_archive
from hilum.store.ledger import Ledger, RecordOutcome
from testing.network.scripted_s3 import ACCESS_KEY, SECRET_KEY, ScriptedS3
from tests.support.ledger.storing import data_set, meta
from tests.support.server.listening import make_settings
from tests.support.server.taking import StoreRequest, store

PREFIX = "hilum"
_CLASS = str(DigitalXRayImageStorageForPresentation)


def settings_on(server: ScriptedS3, state: Path, **archive: object) -> Settings:
    """Settings with a migrated ledger, and an archive in the store."""
    made = make_settings(state)
    file = state / "credentials"
    file.touch(0o600)
    file.write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    section: Mapping[str, Any] = {
        **server.section(PREFIX),
        "credentials_file": str(file),
        **archive,
    }
    return Settings.model_validate({**made.model_dump(), "archive": section})


class StoreSite:
    """Receives and indexes as a listener does, in this process."""

    def __init__(self, server: ScriptedS3, state: Path, **archive: object) -> None:
        self.server = server
        self.settings = settings_on(server, state, **archive)
        self.ledger = Ledger(self.settings.ledger_url)
        self.archive: Archive = open_inbox(self.settings, "listener-1")
        begin_archive(self.ledger.url, self.archive)

    def receive(self, uid: str, **options: Any) -> Path:
        """A durable file that waits for its row."""
        before = set(self.archive.unindexed())
        indexer = Indexer(self.settings, self.ledger, self.archive)
        request = StoreRequest(meta(uid), _CLASS, memoryview(data_set(uid, **options)))
        store(request, ImageStore(self.settings.receive, self.archive, indexer).begin)
        (file,) = set(self.archive.unindexed()) - before
        return file

    def index(self, *files: Path) -> list[RecordOutcome]:
        """The outcomes of these files."""
        return list(index(files, self.settings, self.ledger, self.archive).elements())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The answer of the ledger."""
        with sqlite3.connect(self.settings.site.state_dir / "ledger.sqlite") as connection:
            return connection.execute(query).fetchall()

    def stored(self) -> set[str]:
        """The places of all objects in the store."""
        keys = (key.removeprefix(f"{PREFIX}/") for key in self.server.bucket)
        return {key for key in keys if key.endswith(".dcm")}
