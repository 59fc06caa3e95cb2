"""What is found afterwards: the rows of the ledger, the files of the archive, and what the PACS holds."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, func, or_, select

from hilum.store.archive.identity import FILE_NAME as MARKER
from hilum.store.schema.tables import WORK_TABLES, conflict, document, instance, result
from testing.network.receiver import Arrivals

# 128 bytes of preamble, DICM, and (0002,0000) UL of 4 bytes, which holds the length of the rest of
# its group.
_GROUP_START = 128 + 4 + 12
_OPEN = ("due", "leased")
_STUCK = ("failed", "dead")


@dataclass(frozen=True, slots=True)
class Report:
    """The structured report of a current result.

    `digest`: its data set as stored; `arrived`: as the PACS got it, None: it did not.
    """

    images: frozenset[str]
    sop_instance_uid: str
    digest: str
    arrived: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """`kept`: SOP Instance UID to the digest of the data set in the archive.

    `current`: study to its current reports.
    """

    kept: Mapping[str, str]
    current: Mapping[str, list[Report]]
    same_revision: tuple[str, ...]
    changed: tuple[str, ...]
    without_row: tuple[str, ...]
    open_rows: Mapping[str, int]
    stuck_rows: Mapping[str, int]
    stray_files: tuple[str, ...]
    repeated: int = 0
    lapses: Mapping[str, int] = field(default_factory=dict)


def gather(ledger_url: str, archive: Path, arrivals: Arrivals) -> Evidence:
    """Read everything. The street should be quiet."""
    engine = create_engine(ledger_url)
    try:
        with engine.connect() as connection:
            return _gathered(connection, archive, arrivals)
    finally:
        engine.dispose()


def _gathered(connection: Connection, archive: Path, arrivals: Arrivals) -> Evidence:
    paths = {
        row.sop_instance_uid: row.path
        for row in connection.execute(select(instance.c.sop_instance_uid, instance.c.path))
    }
    held = {row.path for row in connection.execute(select(conflict.c.path))}
    with arrivals.lock:
        arrived = dict(arrivals.digests)
        changed = tuple(arrivals.changed)
        repeated = arrivals.repeated
    known = set(connection.execute(select(document.c.sop_instance_uid)).scalars())
    return Evidence(
        kept={uid: digest_of_file(archive / path) for uid, path in paths.items()},
        current=_current(connection, arrived),
        same_revision=_same_revision(connection),
        changed=changed,
        without_row=tuple(uid for uid in arrived if uid not in known),
        open_rows=rows_in(connection, _OPEN),
        stuck_rows=rows_in(connection, _STUCK),
        stray_files=tuple(stray_files(archive, {*paths.values(), *held})),
        repeated=repeated,
        lapses={
            name: n
            for name, table in WORK_TABLES.items()
            if (n := connection.execute(select(func.sum(table.c.lapses))).scalar() or 0)
        },
    )


def _current(connection: Connection, arrived: Mapping[str, str]) -> dict[str, list[Report]]:
    query = select(
        result.c.study_instance_uid,
        result.c.content,
        document.c.sop_instance_uid,
        document.c.content.label("bytes"),
    )
    query = query.join_from(result, document).where(result.c.is_current, document.c.kind == "sr")
    found: defaultdict[str, list[Report]] = defaultdict(list)
    for row in connection.execute(query):
        images = frozenset(image["sop_instance_uid"] for image in row.content["source_images"])
        uid = row.sop_instance_uid
        found[row.study_instance_uid].append(
            Report(images, uid, digest_of_object(row.bytes), arrived.get(uid))
        )
    return dict(found)


def _same_revision(connection: Connection) -> tuple[str, ...]:
    """Studies with two results of one release in one revision."""
    key = (result.c.study_instance_uid, result.c.release, result.c.revision)
    query = select(result.c.study_instance_uid).group_by(*key).having(func.count() > 1)
    return tuple(connection.execute(query).scalars())


def rows_in(connection: Connection, states: tuple[str, ...]) -> dict[str, int]:
    """`<table> <state>` to the number of rows; only what there is."""
    found: Counter[str] = Counter()
    for name, table in WORK_TABLES.items():
        query = (
            select(table.c.state, func.count())
            .where(or_(*(table.c.state == state for state in states)))
            .group_by(table.c.state)
        )
        found.update({f"{name} {state}": count for state, count in connection.execute(query)})
    return dict(found)


def open_rows(engine: Engine) -> dict[str, int]:
    """Work that has not ended."""
    with engine.connect() as connection:
        return rows_in(connection, _OPEN)


def late_leases(connection: Connection) -> int:
    """Rows that are leased past their lease.

    Nobody works on them, and nobody has claimed them again.
    """
    now = time.time()
    counts = (
        select(func.count()).where(table.c.state == "leased", table.c.leased_until < now)
        for table in WORK_TABLES.values()
    )
    return sum(connection.execute(query).scalar_one() for query in counts)


def stray_files(archive: Path, named: set[str]) -> list[str]:
    """Objects that no row names, half-written ones, and those that still wait for a row.

    Paths relative to the archive. Its marker is no object.
    """
    files = (
        path
        for path in archive.rglob("*")
        if path.is_file() and "locks" not in path.parts and path != archive / MARKER
    )
    return sorted(name for path in files if (name := str(path.relative_to(archive))) not in named)


def digest_of_file(path: Path) -> str:
    """sha256 of a stored object's data set; empty: there is no such file."""
    try:
        return digest_of_object(path.read_bytes())
    except FileNotFoundError:
        return ""


def digest_of_object(content: bytes) -> str:
    """sha256 of the data set behind the File Meta Information (PS3.10 7.1)."""
    return hashlib.sha256(content[data_set_start(content) :]).hexdigest()


def data_set_start(content: bytes) -> int:
    """Where the data set begins: behind the group of the length that (0002,0000) says."""
    return _GROUP_START + int.from_bytes(content[_GROUP_START - 4 : _GROUP_START], "little")
