"""Whether ledger and archive belong together.

Checked before either is created, because a missing one looks like a new one.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select
from sqlalchemy.engine import make_url

from hilum.domain import NO_ARCHIVE
from hilum.errors import ConfigurationError
from hilum.store.archive.archive import Archive
from hilum.store.archive.identity import FILE_NAME, begin_identity
from hilum.store.archive.store_errors import StoreAway
from hilum.store.database.engines import open_engine
from hilum.store.installation import serial
from hilum.store.migrations.revision import current_revision
from hilum.store.schema.tables import instance

_NEWEST = 10
_KEPT = instance.c.pixels_removed_at.is_(None)
NOT_MOUNTED = "Mount it, or restore the last backup (docs/operate/operations.md)."


def require_ledger(url: str, archive: Archive) -> None:
    """Raise ConfigurationError where a new ledger would be created beside existing objects.

    It would have another identity: images that are sent again would be reported again, under other
    UIDs.
    """
    # In this order: where retention has emptied an archive, each folder is looked into.
    if not is_begun(url) and _has_objects(archive):
        advice = (
            "Restore it (docs/operate/operations.md); for a new installation move the archive away."
        )
        raise ConfigurationError(
            [
                (
                    f"ledger: there is none yet, but {archive.address} holds objects, so it is"
                    f" missing. {advice}"
                )
            ]
        )


def _has_objects(archive: Archive) -> bool:
    try:
        return archive.has_objects
    except StoreAway as away:
        raise ConfigurationError(
            [
                (
                    f"archive: {archive.address}: {away.said}, so this installation cannot"
                    f" begin. {away.advice}"
                )
            ]
        ) from None


def require_archive(url: str, archive: Archive) -> None:
    """Raise ConfigurationError where the archive of the ledger's images is not there.

    Objects taken now would vanish when the archive is mounted. The same where the archive is that
    of another installation. The ledger has this version's revision.
    """
    if archive.is_remote:
        _require_store(url, archive)
        return
    _require_own(url, archive)
    if archive.is_there or archive.has_objects or not _newest(url, 1):
        return
    begun = (
        "If all of it is lost, or this host has one of its own, begin a new one: `mkdir -p"
        f" {archive.root}/locks`."
    )
    raise ConfigurationError(
        [
            (
                f"archive: the ledger names images, but there is no archive in {archive.root}."
                f" {NOT_MOUNTED} {begun}"
            )
        ]
    )


def _require_own(url: str, archive: Archive) -> None:
    """Raise ConfigurationError for the archive of another installation, or of an unknown one."""
    try:
        found = archive.identity()
    except OSError as error:
        file = f"{archive.root}/{FILE_NAME}"
        advice = (
            "See to its file system, and that this user may read it. If it is damaged, remove it:"
            " the next listener that starts writes a new one."
        )
        raise ConfigurationError([f"archive: {file}: {error.strerror}. {advice}"]) from error
    if found is None or found.installation == _installation(url):
        return
    advice = (
        "Mount the archive of this ledger there, or correct site.state_dir or ledger.url. Only"
        f" where the two do belong together: remove {archive.root}/{FILE_NAME}."
    )
    raise ConfigurationError(
        [f"archive: {archive.root} is the archive of another installation. {advice}"]
    )


def _require_store(url: str, archive: Archive) -> None:
    """Raise ConfigurationError where the prefix is another installation's, or has been emptied.

    Raises StoreAway where the store cannot say so now.
    """
    try:
        if archive.is_there or not _newest(url, 1):
            return
    except StoreAway as away:
        if away.cause != "not_ours":
            raise
        raise ConfigurationError(
            [f"archive: {archive.address}: {away.said}. {away.advice}"]
        ) from None
    raise ConfigurationError(
        [
            (
                f"archive: the ledger names images, but {archive.address} has no marker"
                " hilum-archive.json, so it is another bucket or an emptied one. Set archive.url,"
                " or restore the bucket (docs/operate/object_store.md)."
            )
        ]
    )


def begin_archive(url: str, archive: Archive) -> None:
    """Require the archive before objects are taken; create it if nothing was ever received.

    It gets an identity, if it has none. An object store that is away is no obstacle: objects wait
    in the spool, and none is put there before its marker was read. Raises as `require_archive`,
    and OSError.
    """
    if archive.is_remote:
        _begin_store(url, archive)
        return
    require_archive(url, archive)
    if not archive.is_there:
        archive.make()
    begin_identity(archive.root, _installation(url))


def _begin_store(url: str, archive: Archive) -> None:
    try:
        if not archive.is_there:
            require_archive(url, archive)
            archive.make()
    except StoreAway as away:
        if away.cause == "not_ours":
            require_archive(url, archive)
    archive.make_spool()


def archive_of(url: str, archive: Archive) -> str:
    """Return the identity of the archive that a host sees, or `NO_ARCHIVE`. Raises OSError."""
    found = archive.identity()
    is_ours = found is not None and found.installation == _installation(url)
    return found.archive if found is not None and is_ours else NO_ARCHIVE


def _installation(url: str) -> str:
    engine = open_engine(url, read_only=True)
    try:
        with engine.connect() as connection:
            return serial.serial_of(serial.namespace(connection))
    finally:
        engine.dispose()


def is_begun(url: str) -> bool:
    """Whether there is a ledger, of whichever revision.

    Creates none. Raises ConfigurationError for one that does not open.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        return False
    return current_revision(url) is not None


def newest_missing(url: str, archive: Archive) -> int:
    """The number of newest images looked for, if the archive has none of them; else 0."""
    paths = _newest(url, _NEWEST)
    return 0 if any(archive.exists(path) for path in paths) else len(paths)


def _newest(url: str, count: int) -> list[str]:
    engine = open_engine(url, read_only=True)
    try:
        with engine.connect() as connection:
            query = (
                select(instance.c.path)
                .where(_KEPT)
                .order_by(instance.c.received_at.desc())
                .limit(count)
            )
            return list(connection.execute(query).scalars())
    finally:
        engine.dispose()
