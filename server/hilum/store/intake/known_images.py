"""Rows of images that are received again, so that their files can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from hilum.domain import ConflictState
from hilum.store.schema.tables import conflict, former_header, instance

_NAMES = ("sop_instance_uid", "path", "digest", "pixel_digest", "pixels_removed_at")
_KNOWN = select(*(instance.c[name] for name in _NAMES)).where(
    instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True))
)
_ASIDE = select(
    *(conflict.c[name] for name in ("sop_instance_uid", "path", "digest", "sha256", "state"))
).where(conflict.c.sop_instance_uid.in_(bindparam("uids", expanding=True)))


_FORMER = (
    select(former_header.c.digest, former_header.c.sha256)
    .join(instance, instance.c.id == former_header.c.instance_id)
    .where(instance.c.sop_instance_uid == bindparam("uid"))
)


@dataclass(frozen=True, slots=True)
class PutAside:
    """Other bytes under the image's SOP Instance UID.

    `sha256`: of bytes that a person has discarded.
    """

    path: str
    digest: str
    sha256: str | None
    state: ConflictState

    @property
    def is_discarded(self) -> bool:
        """Whether a person discarded it: there is no file any more."""
        return self.state is ConflictState.DISCARDED


@dataclass(frozen=True, slots=True)
class KnownImage:
    """An image that has a row, and its conflicts."""

    path: str
    digest: str
    pixel_digest: str
    has_pixels: bool
    put_aside: tuple[PutAside, ...] = ()


def known_images(
    connection: Connection, sop_instance_uids: Sequence[str]
) -> Mapping[str, KnownImage]:
    """The rows of these images, by SOP Instance UID; unknown images are left out."""
    rows = connection.execute(_KNOWN, {"uids": list(sop_instance_uids)}).all()
    aside = dict[str, tuple[PutAside, ...]]()
    for row in (
        connection.execute(_ASIDE, {"uids": [row.sop_instance_uid for row in rows]}) if rows else ()
    ):
        found = PutAside(row.path, row.digest, row.sha256, ConflictState(row.state))
        aside[row.sop_instance_uid] = (*aside.get(row.sop_instance_uid, ()), found)
    return {
        row.sop_instance_uid: KnownImage(
            row.path,
            row.digest,
            row.pixel_digest,
            row.pixels_removed_at is None,
            aside.get(row.sop_instance_uid, ()),
        )
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class KnownDataSet:
    """A data set that need not be sent again.

    `path`: of its file; None: it was deleted, and `sha256` is its digest, if that was written down.
    `is_disputed`: it is in quarantine, and no person has decided yet. `is_replaced`: a corrected
    header has taken its place.
    """

    digest: str
    path: str | None
    sha256: str | None = None
    is_disputed: bool = False
    is_replaced: bool = False


def known_data_sets(connection: Connection, sop_instance_uid: str) -> list[KnownDataSet]:
    """Known data sets of one image, if it has a row.

    Data sets that were the image for a while, and were replaced by other pixels, are left out.
    """
    if (image := known_images(connection, [sop_instance_uid]).get(sop_instance_uid)) is None:
        return []
    own = [KnownDataSet(image.digest, image.path)] if image.has_pixels else []
    former = connection.execute(_FORMER, {"uid": sop_instance_uid})
    replaced = [KnownDataSet(row.digest, None, row.sha256, is_replaced=True) for row in former]
    aside = [
        KnownDataSet(
            item.digest,
            None if item.is_discarded else item.path,
            item.sha256,
            item.state is ConflictState.HELD,
        )
        for item in image.put_aside
        if item.state is not ConflictState.REPLACED
    ]
    return [*own, *replaced, *aside]
