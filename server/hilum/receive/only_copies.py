"""The same bytes once more, where the file of a row is gone or damaged: what came is the only copy, and no duplicate to be deleted.

A disk may have lost the file, or an older ledger was restored, which does not know that retention has deleted it.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hilum import telemetry
from hilum.domain import Instance
from hilum.receive.describe import describe
from hilum.receive.refusals import CannotUnderstand
from hilum.store.archive import Archive
from hilum.store.arrival import Arrival
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.store.views import LedgerViews

_log = telemetry.logger("receive")
_OF_THE_FILE = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})  # a sector, a checksum, its place on the disk
_ADVICE = "the copies that came take their place; look why the archive has lost files, or has damaged some"


@dataclass(frozen=True, slots=True)
class KeptObjects:
    """What the ledger knows, as far as the archive has it: for who need not take again what is kept (`folder.Known`)."""

    views: LedgerViews
    archive: Archive

    def known_digests(self, sop_instance_uids: Sequence[str]) -> Mapping[str, Mapping[str, bool]]:
        """See `LedgerViews.known_digests`. Raises Retry."""
        return self.views.known_digests(sop_instance_uids, lambda path: not _is_gone(self.archive, path))


def keep_only_copies(
    arrivals: Sequence[Arrival], outcomes: Sequence[RecordOutcome], ledger: Ledger, archive: Archive
) -> list[RecordOutcome]:
    """What became of each arrival after duplicates of what is gone have taken its place. Killed on the way, the next scan goes on."""
    decided = list(outcomes)
    positions = [position for position, outcome in enumerate(outcomes) if outcome is RecordOutcome.DUPLICATE]
    if not positions:
        return decided
    same = [arrivals[position].instance for position in positions]
    paths = ledger.paths_of(same)
    gone = {uid: path for uid, path in paths.items() if _is_gone(archive, path)}
    damaged = _damaged(same, paths, ledger, archive)
    lost = [item for item in ledger.quarantined(same) if _is_gone(archive, item.path)]
    if gone or damaged:
        ledger.give_up_files({**gone, **damaged}, damaged)
    if lost:
        ledger.take_place_in_quarantine(lost)
    if uids := {*gone, *damaged, *(item.same.sop_instance_uid for item in lost)}:
        _log.warning("file_was_gone", count=len(gone) + len(damaged) + len(lost), advice=_ADVICE)
        again = [position for position in positions if arrivals[position].instance.sop_instance_uid in uids]
        for position, outcome in zip(again, ledger.record([arrivals[position] for position in again]), strict=True):
            decided[position] = outcome
    return decided


def _damaged(same: Sequence[Instance], paths: Mapping[str, str], ledger: Ledger, archive: Archive) -> dict[str, str]:
    """Of these paths, those whose file is not what was put there. All of it is read only where there is a reason to."""
    sizes = {item.sop_instance_uid: item.size_bytes for item in same}
    digests = {(item.sop_instance_uid, item.digest) for item in same}
    not_read = ledger.not_read(list(paths)) if paths else set()

    def is_damaged(uid: str, path: str) -> bool:
        try:
            file = archive.locate(path)
            if file.stat().st_size == sizes[uid] and uid not in not_read:
                return False
            return (uid, describe(file).digest) not in digests
        except CannotUnderstand:
            return True
        except OSError as error:
            return error.errno in _OF_THE_FILE

    return {uid: path for uid, path in paths.items() if is_damaged(uid, path)}


def _is_gone(archive: Archive, path: str) -> bool:
    """Not where nobody can say: then what came is deleted, as any duplicate."""
    try:
        archive.locate(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
