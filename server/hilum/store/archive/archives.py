"""The archive that the settings name: a folder, or an object store with a folder as its spool."""

from __future__ import annotations

from collections.abc import Callable

from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.durable_rename import Durability
from hilum.store.database.engines import open_reader
from hilum.store.installation import serial
from hilum.store.migrations.revision import is_absent


def open_archive(
    settings: Settings,
    process: str = "main",
    write_out_bytes: int = 0,
    durability: Durability = "auto",
) -> Archive:
    """Return the archive. Nothing is created or asked. Raises ConfigurationError.

    The parameters are those of Archive. Raises ModuleNotFoundError where the extra is missing.
    """
    section = settings.archive
    folder = settings.archive_dir
    if not section.url:
        return Archive(folder, process, write_out_bytes, durability)
    # Here alone, so that a folder needs no package.
    from hilum.store.archive.object_archive import ObjectArchive  # noqa: PLC0415
    from hilum.store.archive.object_client import ObjectClient  # noqa: PLC0415

    return ObjectArchive(
        folder,
        process,
        write_out_bytes,
        durability,
        client=ObjectClient(section),
        serial=_serial_in(settings.ledger_url),
        transfers=section.transfers,
    )


def _serial_in(url: str) -> Callable[[], str | None]:
    """Return a function that reads the installation's number from the ledger, once there is one."""

    def read() -> str | None:
        if is_absent(url):
            return None
        engine = open_reader(url)
        try:
            with engine.connect() as connection:
                return serial.serial_of(serial.namespace(connection))
        finally:
            engine.dispose()

    return read
