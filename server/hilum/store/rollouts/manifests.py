"""Manifests as they were read.

A release is its content, and a name keeps the content with which it has read studies. All processes
and hosts take the manifest from here, so that an edited file changes none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from hilum.store.rollouts.rules import CannotRollOut
from hilum.store.schema.tables import release_manifest


@dataclass(frozen=True, slots=True)
class KeptManifest:
    """The manifest of one release.

    `digest`: of the content of `text` (TOML). `is_proved`: it may have read studies, and never
    changes.
    """

    release: str
    digest: str
    text: str
    is_proved: bool = False


def edited_in_words(release: str) -> str:
    """Why a release does not read as its edited manifest says, and the remedy; for people."""
    why = (
        f"the manifest of {release} was edited after the release was taken into use, and a name"
        " stays what has read under it"
    )
    return (
        f"{why}: give the edited one a version of its own, build and start that; or put the"
        " manifest back"
    )


def find(connection: Connection, release: str) -> KeptManifest | None:
    """The manifest of a release.

    None: it was never rolled out, nor named by the settings of a started server.
    """
    row = connection.execute(
        select(release_manifest).where(release_manifest.c.release == release)
    ).first()
    return (
        None if row is None else KeptManifest(row.release, row.digest, row.manifest, row.is_proved)
    )


def propose(connection: Connection, item: KeptManifest, now: float) -> None:
    """Set the manifest of a candidate.

    Raises CannotRollOut where its name has read studies with another manifest.
    """
    known = find(connection, item.release)
    if known is None or not known.is_proved:
        _keep(connection, item, now, is_new=known is None)
    elif known.digest != item.digest:
        raise CannotRollOut(edited_in_words(item.release))


def prove(connection: Connection, release: str, digest: str) -> None:
    """Mark a manifest as proved: the release gave its known answers.

    Raises CannotRollOut where it was started anew with another manifest meanwhile.
    """
    known = find(connection, release)
    if known is not None and known.digest != digest:
        raise CannotRollOut(
            f"the manifest of {release} was edited, and the rollout started again, while it was"
            " being proved"
        )
    connection.execute(
        update(release_manifest).where(release_manifest.c.release == release).values(is_proved=True)
    )


def begin(
    connection: Connection, items: Iterable[KeptManifest], renewed: Collection[str], now: float
) -> list[str]:
    """Keep the manifests of a starting server: unknown ones, and `renewed` ones anew.

    Returns the releases whose manifest has changed.
    """
    changed = []
    for item in items:
        known = find(connection, item.release)
        if known is None or item.release in renewed:
            _keep(connection, item, now, is_new=known is None)
            changed += [item.release] if known is not None and known.digest != item.digest else []
    return changed


def _keep(connection: Connection, item: KeptManifest, now: float, *, is_new: bool) -> None:
    values = {
        "digest": item.digest,
        "manifest": item.text,
        "is_proved": item.is_proved,
        "kept_at": now,
    }
    if is_new:
        connection.execute(insert(release_manifest).values(release=item.release, **values))
    else:
        connection.execute(
            update(release_manifest)
            .where(release_manifest.c.release == item.release)
            .values(values)
        )
