"""Comparison of an object under a known SOP Instance UID with the stored one, by their files.

It runs before a row changes. Digests only show where a comparison is needed. The result is written
into the arrival's digests: they are made to agree with those of the row, or not to. Rows from
before the seed have digests of another kind, and two files may have the same digest.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hilum.domain import Instance
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.same_bytes import fingerprints, is_same_data_set, sha256_of
from hilum.receive.statuses import CannotUnderstand
from hilum.store.archive.archive import Archive
from hilum.store.installation.digest_seed import by_sha256, seed_of
from hilum.store.intake.known_images import KnownImage, PutAside
from hilum.store.intake.received import Arrival, Compared
from hilum.store.ledger import ImageChanged, Ledger, RecordOutcome

# a sector, a checksum, its place on the disk
_OF_THE_FILE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM})


def record(
    arrivals: Sequence[Arrival], ledger: Ledger, archive: Archive
) -> tuple[list[Arrival], list[RecordOutcome]]:
    """Record the arrivals after their comparison; return them and the outcome of each.

    Of several files of one image each is compared with the row that the one before it has left.
    Raises SQLAlchemyError, OSError: unrecorded arrivals may then be given again.
    """
    compared = dict[int, Arrival]()
    outcomes = dict[int, RecordOutcome]()
    for positions in _rounds(arrivals):
        found, decided = _record([arrivals[position] for position in positions], ledger, archive)
        compared.update(zip(positions, found, strict=True))
        outcomes.update(zip(positions, decided, strict=True))
    order = range(len(arrivals))
    return [compared[position] for position in order], [outcomes[position] for position in order]


def _rounds(arrivals: Sequence[Arrival]) -> Iterator[list[int]]:
    """Return positions in rounds, so that no image is twice in a round."""
    left = list(range(len(arrivals)))
    if len({arrival.instance.sop_instance_uid for arrival in arrivals}) == len(left):
        yield left
        return
    while left:
        firsts = {
            arrivals[position].instance.sop_instance_uid: position for position in reversed(left)
        }
        yield sorted(firsts.values())
        left = [
            position
            for position in left
            if firsts[arrivals[position].instance.sop_instance_uid] != position
        ]


def _record(
    arrivals: Sequence[Arrival], ledger: Ledger, archive: Archive
) -> tuple[list[Arrival], list[RecordOutcome]]:
    compared = list(arrivals)  # most are of new images, which need no comparison
    while True:
        try:
            return compared, ledger.record(compared, is_compared=True)
        # it is known, or another host was faster: it is compared with the current row
        except ImageChanged:
            compared = list(_compared(arrivals, ledger, archive))


def _compared(arrivals: Sequence[Arrival], ledger: Ledger, archive: Archive) -> Iterator[Arrival]:
    known = ledger.known_images([arrival.instance.sop_instance_uid for arrival in arrivals])
    seed = ledger.digest_seed if known else 0
    for arrival in arrivals:
        if (image := known.get(arrival.instance.sop_instance_uid)) is None:
            yield replace(arrival, compared=Compared())
        else:
            yield _Comparison(arrival, image, archive, seed).said()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One arrival, and the known facts of its image."""

    arrival: Arrival
    known: KnownImage
    archive: Archive
    seed: int

    def said(self) -> Arrival:
        """Return the arrival with correct digests.

        Raises OSError where they cannot be determined.
        """
        new = self.arrival.instance
        known = self.known
        if new.path == known.path:  # recorded again after a crash
            return self._with(known.digest, known.pixel_digest)
        ours = self._as(known.digest)
        is_same = ours.digest == known.digest
        has_same_pixels = ours.pixel_digest == known.pixel_digest
        if not is_same and not has_same_pixels:
            return self._with(self._as_put_aside(), new.pixel_digest)
        with contextlib.ExitStack() as held:
            stored = self._stored(held) if known.has_pixels else None
            if stored is not None:
                return self._beside(stored, is_same=is_same)
        # the arrival is the only copy: nothing is deleted for it
        return self._with(*_agreeing(new, known, is_same=is_same, has_same_pixels=has_same_pixels))

    def _beside(self, stored: Path, *, is_same: bool) -> Arrival:
        """Return the arrival compared with the row's file.

        That file has the same digest, or its pixels have.
        """
        new = self.arrival.instance
        known = self.known
        try:
            if is_same and self._is_identical(stored):
                return self._with(known.digest, known.pixel_digest)
            theirs = self._fingerprints_of_row(stored)
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            theirs = ("", "")  # it cannot be determined, so nothing is deleted: a person decides
        if theirs is None:
            said = self._with(*_agreeing(new, known, is_same=is_same, has_same_pixels=True))
            return replace(said, compared=Compared(known.path, is_damaged=True))
        return self._told_apart(fingerprints(self._file()), theirs)

    def _is_identical(self, stored: Path) -> bool:
        try:
            return is_same_data_set(self._file(), stored)
        except CannotUnderstand:
            return False
        except OSError as error:
            if error.errno not in _OF_THE_FILE:
                raise
            return False

    def _fingerprints_of_row(self, stored: Path) -> tuple[str, str] | None:
        """Return the fingerprints of the row's file; None: it is damaged."""
        try:
            is_sound = (
                describe(stored, seed_of(self.known.digest, self.seed)).digest == self.known.digest
            )
            return fingerprints(stored) if is_sound else None
        except CannotUnderstand:
            return None
        except OSError as error:
            if error.errno not in _OF_THE_FILE:
                raise
            return None

    def _told_apart(self, ours: tuple[str, str], theirs: tuple[str, str]) -> Arrival:
        """Return an arrival with other bytes than the row's: a corrected header, or other pixels.

        The digests may still be equal.
        """
        new = self.arrival.instance
        known = self.known
        digest = by_sha256(ours[0]) if new.digest == known.digest else self._as_put_aside()
        if ours[1] == theirs[1]:
            return self._with(digest, known.pixel_digest, ours[0], theirs[0])
        return self._with(
            digest,
            by_sha256(ours[1]) if new.pixel_digest == known.pixel_digest else new.pixel_digest,
        )

    def _as_put_aside(self) -> str:
        """Return the digest of the conflict with these bytes, or their own."""
        new = self.arrival.instance
        mine = ""
        for other in self.known.put_aside:
            if self._as(other.digest).digest != other.digest:
                continue
            if self._is(other):
                return other.digest
            mine = by_sha256(sha256_of(self._file()))  # of other bytes, or of unknown ones
        return mine or new.digest

    def _is(self, other: PutAside) -> bool:
        if other.is_discarded:
            return other.sha256 is not None and sha256_of(self._file()) == other.sha256
        try:
            with self.archive.local(other.path) as aside:
                return self._is_as(aside)
        except FileNotFoundError:
            return True  # the arrival takes its place

    def _is_as(self, aside: Path) -> bool:
        try:
            return is_same_data_set(self._file(), aside)
        except CannotUnderstand:
            return sha256_of(self._file()) == sha256_of(aside)

    def _as(self, digest: str) -> Instance:
        """Return the arrival's instance, with digests of the same kind as this one."""
        new = self.arrival.instance
        return (
            new
            if seed_of(digest, 1) == seed_of(new.digest, 1)
            else describe(self._file(), seed_of(digest, self.seed))
        )

    def _stored(self, held: contextlib.ExitStack) -> Path | None:
        try:
            return held.enter_context(self.archive.local(self.known.path))
        except FileNotFoundError:
            return None

    def _file(self) -> Path:
        return self.archive.arrived(self.arrival.instance.path)

    def _with(
        self,
        digest: str,
        pixel_digest: str,
        sha256: str | None = None,
        former_sha256: str | None = None,
    ) -> Arrival:
        instance = replace(self.arrival.instance, digest=digest, pixel_digest=pixel_digest)
        return replace(
            self.arrival,
            instance=instance,
            compared=Compared(self.known.path, sha256, former_sha256),
        )


def _agreeing(
    new: Instance, known: KnownImage, *, is_same: bool, has_same_pixels: bool
) -> tuple[str, str]:
    """Return the row's digests where the arrival's are the same."""
    return (
        known.digest if is_same else new.digest,
        known.pixel_digest if has_same_pixels else new.pixel_digest,
    )
