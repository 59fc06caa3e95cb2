"""The audit: one row for each verb of a person or a program.

Rows are added, never changed; retention alone deletes. A verb of one transaction writes its row in
it. A longer verb writes `begun` before its first transaction and its end after the last, so that a
crash on the way leaves a trace. A view, which changes nothing, writes a row of its own.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Select, and_, func, insert, or_, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from hilum.domain import Actor, StudyState
from hilum.store.database.engines import error_text, open_engine, open_reader
from hilum.store.installation.salt import Tombstones, digest_of, known_salt, salt
from hilum.store.schema import cursor as cursors
from hilum.store.schema.tables import audit, instance, study
from hilum.verbs import MEANINGS, Thing, Verb, VerbOutcome

Item = dict[str, Any]
Lost = Callable[[Item, str], None]
T = TypeVar("T")
_HOST: Final = socket.gethostname()
_LISTING: Final = "audit"
# PostgreSQL: ids in the order of commits, so that a reader that has seen one has seen all below it.
_IN_ORDER: Final = func.pg_advisory_xact_lock(0x48494C554D07)
_MOST_LOOKS: Final = 5000
_WAIT_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 5.0


@dataclass(slots=True)
class Deed:
    """One verb of one actor, on the way to its row.

    `count`: the number of things, or of looks. `detail`: never patient data.
    """

    verb: Verb
    actor: Actor
    study_instance_uid: str | None = None
    thing: Thing | None = None
    name: str | None = None
    count: int = 1
    detail: str | None = None
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_written: bool = False

    def about(self, thing: Thing, name: object) -> Deed:
        """Set the verb's object, where that is no study."""
        self.thing = thing
        self.name = str(name)
        return self

    def counting(self, item: T) -> T:
        """Count one thing more, and return it."""
        self.count += 1
        return item

    def begin(self, connection: Connection, at: float) -> None:
        """Write the row of a verb that takes several transactions, before the first of them."""
        _insert(connection, replace(self, count=0), VerbOutcome.BEGUN, at)

    def of_study(
        self, connection: Connection, at: float, uid: str, thing: Thing, name: str, detail: str
    ) -> None:
        """Write a row for one study of a verb that names none, so that the study shows it."""
        own = replace(
            self,
            study_instance_uid=uid,
            thing=thing,
            name=name,
            count=1,
            detail=detail,
            key=uuid.uuid4().hex,
        )
        _insert(connection, own, VerbOutcome.DONE, at)

    def write(self, connection: Connection, at: float, count: int = 1) -> None:
        """Write the row of a verb that is done, as the last statement of its transaction."""
        self.count = count
        self.is_written = True
        _insert(connection, self, VerbOutcome.DONE, at)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows to list; None: any.

    Moments are seconds since the epoch, `until` is excluded. An erased study is found by its UID,
    too. `has_looks` False: only verbs that changed something.
    """

    since: float | None = None
    until: float | None = None
    actor: str | None = None
    verb: Verb | None = None
    study_instance_uid: str | None = None
    has_looks: bool = True


class AuditLog:
    """The audit of the ledger at an SQLAlchemy URL. Thread-safe.

    `look_seconds`: looks of one actor at one study are counted together for so long. `lost`
    receives each row that could not be written, and the reason.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        look_seconds: float = 0.0,
        lost: Lost | None = None,
    ) -> None:
        self._engine = open_engine(url)
        self._reader = open_reader(url)
        self._clock = clock
        self._lost = lost or _log_lost
        self.looks = Looks(self._end_looks, look_seconds, clock)

    def close(self) -> None:
        """Write the counted looks, and give the connections back."""
        self.looks.flush()
        self._engine.dispose()
        self._reader.dispose()

    def begin(self, deed: Deed) -> None:
        """Write the first row of a verb that takes several transactions.

        Raises the database's error: the verb must not begin without this row.
        """
        with self._engine.begin() as connection:
            deed.begin(connection, self._clock())

    def end(self, deed: Deed, outcome: VerbOutcome) -> None:
        """Write the end of a verb. Writes nothing where its own transaction has written the row.

        A row that cannot be written goes to the log: the verb has happened in any case.
        """
        if deed.is_written and outcome is VerbOutcome.DONE:
            return
        try:
            with self._engine.begin() as connection:
                if not (deed.is_written and _has_ended(connection, deed.key)):
                    _insert(connection, deed, outcome, self._clock())
        except SQLAlchemyError as error:
            self._lost(_values(deed, outcome, self._clock()), error_text(error))

    def _end_looks(self, deeds: Sequence[Deed]) -> None:
        try:
            with self._engine.begin() as connection:
                for deed in deeds:
                    _insert(connection, deed, VerbOutcome.DONE, self._clock())
        except SQLAlchemyError as error:
            for deed in deeds:
                self._lost(_values(deed, VerbOutcome.DONE, self._clock()), error_text(error))

    def note(
        self,
        verb: Verb,
        actor: Actor,
        outcome: VerbOutcome = VerbOutcome.DONE,
        thing: Thing | None = None,
        name: str | None = None,
    ) -> None:
        """Write one row at once for an event that is no verb of the ledger, as a login."""
        self.end(Deed(verb, actor, thing=thing, name=name), outcome)

    def digest(self, text: str) -> str:
        """A digest for a patient's ID: the same for the same text, by the ledger's salt."""
        try:
            with self._engine.begin() as connection:
                return digest_of(salt(connection), text)
        except IntegrityError:  # another process has minted the salt at the same moment
            with self._engine.begin() as connection:
                return digest_of(salt(connection), text)

    def list(
        self, chosen: AuditFilter, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Item], str | None]:
        """One page, newest first, and the cursor of the next. Raises BadCursor."""
        with self._reader.connect() as connection:
            query = (
                audit_rows()
                .where(*_conditions(connection, chosen))
                .order_by(audit.c.id.desc())
                .limit(limit + 1)
            )
            if cursor is not None:
                query = query.where(audit.c.id < cursors.decode(_LISTING, cursor)[1])
            rows = [row._asdict() for row in connection.execute(query)]
        page = rows[:limit]
        return page, (
            cursors.encode(_LISTING, page[-1]["at"], page[-1]["id"]) if len(rows) > limit else None
        )

    def all(self, chosen: AuditFilter) -> Iterator[Item]:
        """Yield every row, newest first; some hundred are read at a time."""
        cursor: str | None = None
        while True:
            found, cursor = self.list(chosen, limit=500, cursor=cursor)
            yield from found
            if cursor is None:
                return


class Looks:
    """Counts looks of one actor at one study: one row at once, one more for the next minutes.

    The count is held in memory meanwhile. A crash loses the number of repeated looks, never the
    first look. A thread writes the rows, so that a reader does not wait for a writer. A row that
    the ledger does not take within a second follows later.
    """

    def __init__(
        self, write: Callable[[Sequence[Deed]], None], seconds: float, clock: Callable[[], float]
    ) -> None:
        self._write = write
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[object, ...], tuple[float, Deed]] = {}
        self._waiting: list[tuple[Deed, threading.Event]] = []
        self._thread: threading.Thread | None = None

    def note(self, deed: Deed) -> None:
        """Count a look."""
        key = (deed.verb, deed.actor, deed.study_instance_uid, deed.thing, deed.name)
        now = self._clock()
        with self._lock:
            ended = self._take(before=now - self._seconds)
            if (known := self._seen.get(key)) is None:
                self._seen[key] = now, replace(deed, count=0, key=uuid.uuid4().hex)
            else:
                known[1].count += 1
        for written in self._hand_over(ended if known is not None else [*ended, deed])[-1:]:
            written.wait(_WAIT_SECONDS)

    def flush(self) -> None:
        """Write the counted looks; the next look is a first one again."""
        with self._lock:
            ended = self._take(before=float("inf"))
        self._hand_over(ended)
        if (thread := self._thread) is not None:
            thread.join(_FLUSH_SECONDS)

    def _take(self, before: float) -> Sequence[Deed]:
        """Take the looks that began before a moment, or all if there are too many."""
        is_full = len(self._seen) >= _MOST_LOOKS
        ended = [key for key, (since, _) in self._seen.items() if is_full or since <= before]
        return [deed for deed in (self._seen.pop(key)[1] for key in ended) if deed.count]

    def _hand_over(self, deeds: Sequence[Deed]) -> list[threading.Event]:
        """Give rows to the thread, which is started where none runs.

        Each event is set when its row is written, or lost.
        """
        with self._lock:
            written = [threading.Event() for _ in deeds]
            self._waiting += zip(deeds, written, strict=True)
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="looks", daemon=True)
                self._thread.start()
        return written

    def _write_all(self) -> None:
        while batch := self._next():
            try:
                self._write([deed for deed, _ in batch])
            except BaseException:
                self._thread = None  # a bug: the next look starts another
                raise
            for _, written in batch:
                written.set()

    def _next(self) -> list[tuple[Deed, threading.Event]]:
        with self._lock:
            batch = self._waiting
            self._waiting = []
            if not batch:
                self._thread = None
            return batch


def _log_lost(row: Item, why: str) -> None:
    from hilum.observability import telemetry  # noqa: PLC0415 - brings the metrics

    telemetry.logger("store").error("audit_row_not_written", **row, error=why)


def write_down(deed: Deed | None, connection: Connection, at: float, count: int = 1) -> None:
    """As `Deed.write`; nothing without a deed (tests, a server's own verbs)."""
    if deed is not None:
        deed.write(connection, at, count)


def _insert(connection: Connection, deed: Deed, outcome: VerbOutcome, at: float) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(select(_IN_ORDER))
    connection.execute(insert(audit).values(_row(connection, _values(deed, outcome, at))))


def _values(deed: Deed, outcome: VerbOutcome, at: float) -> Item:
    return {
        "deed": deed.key,
        "at": at,
        "actor": deed.actor.name[:80],
        "channel": deed.actor.channel,
        "address": deed.actor.address[:64],
        "host": _HOST[:64],
        "verb": deed.verb,
        "study_instance_uid": deed.study_instance_uid and deed.study_instance_uid[:64],
        "thing": deed.thing,
        "name": deed.name and deed.name[:120],
        "count": deed.count,
        "outcome": outcome,
        "detail": deed.detail and deed.detail[:200],
    }


def _row(connection: Connection, said: Item) -> Item:
    """The row, with row ids in place of UIDs, and a digest in place of an unknown UID."""
    uid = said["study_instance_uid"]
    values = {name: value for name, value in said.items() if name != "study_instance_uid"}
    study_id = _row_of(connection, study.c.id, study.c.study_instance_uid, uid)
    if uid and study_id is None:
        values |= _unknown_study(values, digest_of(salt(connection), uid))
    image_id = None
    if values["thing"] == Thing.IMAGE:
        image_id = _row_of(connection, instance.c.id, instance.c.sop_instance_uid, values["name"])
        values["name"] = (
            digest_of(salt(connection), str(values["name"])) if image_id is None else None
        )
    return {**values, "study_id": study_id, "image_id": image_id}


def _row_of(
    connection: Connection, row: Column[int], column: Column[str], uid: str | None
) -> int | None:
    return (
        connection.execute(select(row).where(column == uid)).scalar_one_or_none() if uid else None
    )


def _unknown_study(values: Item, digest: str) -> Item:
    if values["thing"] is None:
        return {"thing": Thing.STUDY, "name": digest}
    return {"detail": " ".join(filter(None, (f"study {digest}", values["detail"])))[:200]}


def audit_rows() -> Select[Any]:
    """Select the rows with the UIDs that studies and images have now."""
    kept = [column for column in audit.c if column.name not in ("study_id", "image_id", "name")]
    named = func.coalesce(instance.c.sop_instance_uid, audit.c.name).label("name")
    joined = audit.outerjoin(study, study.c.id == audit.c.study_id).outerjoin(
        instance, instance.c.id == audit.c.image_id
    )
    return select(*kept, study.c.study_instance_uid, named).select_from(joined)


def _has_ended(connection: Connection, key: str) -> bool:
    ended = and_(audit.c.deed == key, audit.c.outcome != VerbOutcome.BEGUN)
    return connection.execute(select(audit.c.id).where(ended)).first() is not None


def _conditions(connection: Connection, chosen: AuditFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if chosen.since is not None:
        found.append(audit.c.at >= chosen.since)
    if chosen.until is not None:
        found.append(audit.c.at < chosen.until)
    if chosen.actor is not None:
        found.append(audit.c.actor == chosen.actor)
    if chosen.verb is not None:
        found.append(audit.c.verb == chosen.verb)
    if not chosen.has_looks:
        found.append(
            audit.c.verb.not_in([verb for verb, meaning in MEANINGS.items() if meaning.is_look])
        )
    if chosen.study_instance_uid is not None:
        found.append(_of_study(connection, chosen.study_instance_uid))
    return found


def _erased_rows(connection: Connection, key: bytes, uid: str) -> list[int]:
    """Row ids of erased studies whose tombstone stands for this UID."""
    erased = connection.execute(
        select(study.c.id, study.c.study_instance_uid).where(study.c.state == StudyState.ERASED)
    )
    return [row.id for row in erased if Tombstones(key, row.id).of(uid) == row.study_instance_uid]


def _of_study(connection: Connection, uid: str) -> ColumnElement[bool]:
    """Rows of a study by its row id, or of an erased one by its tombstone, found with the salt."""
    ids = list(
        connection.execute(select(study.c.id).where(study.c.study_instance_uid == uid)).scalars()
    )
    if (key := known_salt(connection)) is None:
        return audit.c.study_id.in_(ids)
    ids += _erased_rows(connection, key, uid)
    digest = digest_of(key, uid)
    by_digest = or_(
        and_(audit.c.thing == Thing.STUDY, audit.c.name == digest),
        audit.c.detail.like(f"study {digest}%"),
    )
    return or_(audit.c.study_id.in_(ids), by_digest)
