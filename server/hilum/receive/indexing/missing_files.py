"""Repeated objects whose stored file is gone or damaged: the arrival is then the only copy.

It is not a duplicate to be deleted. A disk may have lost the file, or an older ledger was restored,
which does not know that retention has deleted it.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hilum.domain import Instance
from hilum.observability import telemetry
from hilum.receive.indexing import same_object
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.same_bytes import digest_of, is_same_data_set, sha256_of
from hilum.receive.statuses import CannotUnderstand
from hilum.store.archive.archive import Archive
from hilum.store.installation.digest_seed import seed_of
from hilum.store.intake.known_images import KnownDataSet
from hilum.store.intake.received import Arrival
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.store.queries.views import LedgerViews

_log = telemetry.logger("receive")
# a sector, a checksum, its place on the disk
_OF_THE_FILE = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
_ADVICE = (
    "the copies that came take their place; look why the archive has lost files, or has damaged"
    " some"
)


@dataclass(frozen=True, slots=True)
class KeptObjects:
    """Objects known to the ledger, as far as the archive has them (`folder.Known`).

    A command that takes files need not take them again.
    """

    views: LedgerViews
    archive: Archive
    seed: int

    def is_disputed(self, sop_instance_uid: str, file: Path) -> bool | None:
        """Return None if this data set has to be taken, else whether it waits in a conflict.

        A file whose header was corrected since is known: taken again, it would undo the correction.
        (By C-STORE that may be intended.) Raises Retry, and OSError of the file.
        """
        digests = dict[int, str]()
        for known in self.views.known_data_sets(sop_instance_uid):
            seed = seed_of(known.digest, self.seed)
            if seed not in digests:
                digests[seed] = digest_of(file, seed)
            if digests[seed] == known.digest and self._is(known, file):
                return known.is_disputed
        return None

    def _is(self, known: KnownDataSet, file: Path) -> bool:
        """Return whether the file is the known one, in addition to its equal digest."""
        if known.path is None:
            # replaced by an earlier version: only its digest is known
            is_older = known.sha256 is None and known.is_replaced
            return is_older or known.sha256 == sha256_of(file)
        try:
            with self.archive.local(known.path) as stored:
                return is_same_data_set(file, stored)
        except (CannotUnderstand, OSError):
            return False


def keep_only_copies(
    arrivals: Sequence[Arrival], outcomes: Sequence[RecordOutcome], ledger: Ledger, archive: Archive
) -> list[RecordOutcome]:
    """Return the outcomes after duplicates have replaced lost files.

    If the process is killed, the next scan continues.
    """
    repeated = [
        arrival
        for arrival, outcome in zip(arrivals, outcomes, strict=True)
        if outcome is RecordOutcome.DUPLICATE
    ]
    if not repeated or not (uids := _restorable(repeated, ledger, archive)):
        return list(outcomes)
    _log.warning("missing_files_restored", count=len(uids), advice=_ADVICE)
    again = [
        position
        for position, outcome in enumerate(outcomes)
        if outcome is RecordOutcome.DUPLICATE
        and arrivals[position].instance.sop_instance_uid in uids
    ]
    _, outcomes_again = same_object.record(
        [arrivals[position] for position in again], ledger, archive
    )
    decided = list(outcomes)
    for position, outcome in zip(again, outcomes_again, strict=True):
        decided[position] = outcome
    return decided


def _restorable(repeated: Sequence[Arrival], ledger: Ledger, archive: Archive) -> set[str]:
    """Give up the stored files that are lost, and return the SOP Instance UIDs of their images."""
    same = [arrival.instance for arrival in repeated]
    paths = ledger.paths_of(same)
    gone = {uid: path for uid, path in paths.items() if _is_gone(archive, path)}
    seen = {
        arrival.instance.sop_instance_uid
        for arrival in repeated
        if arrival.compared is not None and arrival.compared.is_damaged
    }
    damaged = _damaged(same, paths, seen, ledger, archive)
    lost = [item for item in ledger.quarantined(same) if _is_gone(archive, item.path)]
    if gone or damaged:
        ledger.give_up_files({**gone, **damaged}, damaged)
    if lost:
        ledger.take_place_in_quarantine(lost)
    return {*gone, *damaged, *(item.same.sop_instance_uid for item in lost)}


def _damaged(
    same: Sequence[Instance],
    paths: Mapping[str, str],
    seen: Collection[str],
    ledger: Ledger,
    archive: Archive,
) -> dict[str, str]:
    """Return those of these paths whose file differs from the stored one.

    It was `seen`, or a failed reading makes it likely.
    """
    sizes = {item.sop_instance_uid: item.size_bytes for item in same}
    digests = {(item.sop_instance_uid, item.digest) for item in same}
    not_read = ledger.not_read(list(paths)) if paths else set()

    def is_damaged(uid: str, path: str) -> bool:
        if uid in seen:
            return True
        try:
            if archive.size_of(path) == sizes[uid] and uid not in not_read:
                return False
            with archive.local(path) as file:
                return not any(
                    (uid, describe(file, seed).digest) in digests
                    for seed in (ledger.digest_seed, 0)
                )
        except CannotUnderstand:
            return True
        except OSError as error:
            return error.errno in _OF_THE_FILE

    return {uid: path for uid, path in paths.items() if is_damaged(uid, path)}


def _is_gone(archive: Archive, path: str) -> bool:
    """Return whether the file is gone; False where that is unknown.

    The arrival is then deleted, as any duplicate.
    """
    try:
        return not archive.exists(path)
    except OSError:
        return False
