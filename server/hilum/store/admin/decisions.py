"""Decisions of a person about single images.

A conflict is kept out, put in or thrown away; an image is rejected.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from hilum.domain import ConflictState, Instance, Rejection, RemovalReason
from hilum.store.admin import conflicts
from hilum.store.admin.conflicts import CannotResolve, FileInQuarantine
from hilum.store.archive.archive import Archive, place_of_quarantined
from hilum.store.audit.log import Deed
from hilum.store.database.engines import open_engine
from hilum.store.installation import digest_seed
from hilum.store.notify.notifier import notifier_for
from hilum.store.queue import rejections
from hilum.store.schema.tables import conflict, instance

__all__ = ["CannotResolve", "Decisions"]

Item = dict[str, Any]
_STAGES = ("analyse", "assemble")


class Decisions:
    """Decisions on one ledger and its archive.

    `describe` reads a received object, with digests made with a seed. `sha256_of` digests its data
    set. Each verb is safe to repeat after any crash.
    """

    def __init__(
        self,
        url: str,
        archive: Archive,
        describe: Callable[[Path, int], Instance],
        sha256_of: Callable[[Path], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = open_engine(url)
        self._notifier = notifier_for(url)
        self._archive = archive
        self._describe = describe
        self._sha256_of = sha256_of
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._notifier.close()

    def keep(self, conflict_id: int, deed: Deed | None = None) -> Item | None:
        """Leave the file in quarantine for good; it needs no further decision.

        None: no such conflict.
        """
        return self._resolve(conflict_id, ConflictState.KEPT, deed)

    def replace(self, conflict_id: int, deed: Deed | None = None) -> Item | None:
        """Make the quarantined bytes the image, which is read and reported again.

        The former bytes take their place in quarantine. None: no such conflict.
        """
        return self._resolve(conflict_id, ConflictState.REPLACED, deed)

    def discard(self, conflict_id: int, deed: Deed | None = None) -> Item | None:
        """Delete the quarantined file. The same bytes sent once more are deleted, too."""
        return self._resolve(conflict_id, ConflictState.DISCARDED, deed)

    def reject(self, sop_instance_uid: str, deed: Deed | None = None) -> Item | None:
        """Take an image out of results; its study is assembled again without it.

        None: no such image.
        """
        with self._engine.begin() as connection:
            study_uid = _study_of(connection, sop_instance_uid)
            if study_uid is None:
                return None
            by_hand = Rejection(
                sop_instance_uid,
                study_uid,
                RemovalReason.BY_HAND,
                holds_for_all=True,
                rejected_by=deed.actor.name[:80] if deed else "",
            )
            rejections.reject(connection, [by_hand], self._clock())
            answer = _rejected_image(connection, sop_instance_uid)
            self._write_deed(connection, deed, study_uid)
            self._notifier.notify_in(connection, _STAGES)
        self._notifier.notify(_STAGES)
        return answer

    def settle(self) -> int:
        """Move the files of committed decisions to their places, and return their number.

        Raises OSError.
        """
        with self._engine.begin() as connection:
            waiting = conflicts.unsettled(connection)
        for conflict_id in waiting:
            with self._engine.begin() as connection:
                # Locked: the next decision on this conflict waits until the file has been moved.
                row = conflicts.find(connection, conflict_id)
                if row is not None and not row.is_settled:
                    self._move(row.path, ConflictState(row.state))
                    conflicts.settled(connection, conflict_id)
        return len(waiting)

    def _resolve(self, conflict_id: int, state: ConflictState, deed: Deed | None) -> Item | None:
        """Write the rows, then move the files. Raises CannotResolve, OSError."""
        quarantined = self._quarantined(conflict_id, state)
        with self._engine.begin() as connection:
            found = conflicts.find(connection, conflict_id)
            if found is None:
                return None
            conflicts.resolve(connection, found, state, quarantined, self._clock())
            if deed is not None:
                (named,) = conflicts.with_studies(
                    connection, [{"sop_instance_uid": found.sop_instance_uid}]
                )
                self._write_deed(connection, deed, named["study_instance_uid"])
            self._notifier.notify_in(connection, _STAGES)
        self._notifier.notify(_STAGES)
        self.settle()
        with self._engine.begin() as connection:
            row = connection.execute(select(conflict).where(conflict.c.id == conflict_id)).one()
            return conflicts.with_studies(connection, [row._asdict()])[0]

    def _write_deed(self, connection: Connection, deed: Deed | None, study_uid: str | None) -> None:
        if deed is not None:
            deed.study_instance_uid = study_uid
            deed.write(connection, self._clock())

    def _quarantined(self, conflict_id: int, state: ConflictState) -> FileInQuarantine:
        """Read the facts about the file that a decision needs, before the row is locked."""
        with self._engine.begin() as connection:
            found = conflicts.find(connection, conflict_id)
            seed = digest_seed.read(connection)
        if (
            found is None
            or found.state not in (ConflictState.HELD, ConflictState.KEPT)
            or state is ConflictState.KEPT
        ):
            return FileInQuarantine()
        try:
            with self._archive.local(found.path) as file:
                if state is ConflictState.DISCARDED:
                    return FileInQuarantine(sha256=self._sha256_of(file))
                return FileInQuarantine(
                    self._describe(file, digest_seed.seed_of(found.digest, seed))
                )
        except FileNotFoundError:
            if state is ConflictState.DISCARDED:
                return FileInQuarantine()
            raise CannotResolve(
                "The file is not in quarantine any more; send it again, then decide."
            ) from None

    def _move(self, path: str, state: ConflictState) -> None:
        """Move the file to the place that the decision names."""
        if state is ConflictState.DISCARDED:
            self._archive.remove(path)
        else:
            self._archive.bring(
                place_of_quarantined(path) if state is ConflictState.REPLACED else path
            )


def _study_of(connection: Connection, sop_instance_uid: str) -> str | None:
    query = select(instance.c.study_instance_uid).where(
        instance.c.sop_instance_uid == sop_instance_uid
    )
    return connection.execute(query).scalar_one_or_none()


def _rejected_image(connection: Connection, sop_instance_uid: str) -> Item:
    names = ("sop_instance_uid", "study_instance_uid", "removal_reason")
    query = select(*(instance.c[name] for name in names)).where(
        instance.c.sop_instance_uid == sop_instance_uid
    )
    return connection.execute(query).one()._asdict()
