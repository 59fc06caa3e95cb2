"""Finished rows, as years of studies leave them: written by the database itself.

Two studies have three images. Each image has a reading of one release, each study a result with an
SR and a JSON, each SR a delivery. The bytes of documents and headers are short: they lie outside
the rows that queries read, and the sizes on disk are measured apart (`sizes`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select, text

from hilum.store.schema.tables import metadata

YEARS: Final = 5
RELEASE: Final = "bench@1"
SENDERS: Final = 20
_SECONDS: Final = YEARS * 365 * 86400.0
_ROOT: Final = "1.2.826.0.1.3680043.10."
_FINDINGS: Final = ("effusion", "pneumothorax", "nodule")
_DATA_COLUMNS: Final = ", ".join(
    ("state", "priority", "due_at", "attempts", "lapses", "reason", "finished_at")
)
# Constraints come after the rows, with the indexes that they need; references come last.
_CONSTRAINTS: Final = text(
    "SELECT conrelid::regclass AS owner, conname, pg_get_constraintdef(oid) AS said"
    " FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype IN ('p', 'u', 'f')"
    " ORDER BY contype = 'f', conname"
)
_INDEXES: Final = text(
    "SELECT i.indexrelid::regclass AS name, pg_get_indexdef(i.indexrelid) AS said FROM pg_index i"
    " JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'public'::regnamespace"
    " AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)"
)
_FILLED: Final = (
    "study",
    "instance",
    "reading",
    "result",
    "document",
    "delivery",
    "association",
    "comparison",
    "audit",
)
_APPEND_ONLY: Final = "audit"


@dataclass(frozen=True, slots=True)
class Amount:
    """Numbers of rows; `now`: the moment of the newest image, seconds since the epoch."""

    readings: int
    now: float

    @property
    def studies(self) -> int:
        """Two for three images."""
        return study_of(self.readings)

    @property
    def began(self) -> float:
        """The moment of the first image."""
        return self.now - _SECONDS


def study_of(image: int) -> int:
    """The number of the study of an image; both begin at 1."""
    return (2 * image + 2) // 3


def study_uid(engine: Engine, number: int) -> str:
    """The Study Instance UID of a filled study."""
    with engine.connect() as connection:
        query = text(f"SELECT {_uid('study', 'CAST(:number AS bigint)')}")
        return str(connection.execute(query, {"number": number}).scalar_one())


def _uid(kind: str, number: str) -> str:
    """Expression of a UID as scattered as real ones are, so that no index is filled in order."""
    salt = {"study": 1, "series": 2, "image": 3, "document": 4}[kind]
    return f"'{_ROOT}' || {salt} || '.' || abs(hashint8extended({number}, {salt}))"


def content() -> dict[str, Any]:
    """The content of each filled result."""
    findings: list[dict[str, Any]] = [
        {
            "key": name,
            "text": name.capitalize(),
            "code": {"value": "1", "scheme": "99HILUM", "meaning": name},
            "logit": -1.25,
            "score": 0.2227,
            "probability": None,
            "operating_point": 0.5,
            "decision": "absent",
            "source_sop_instance_uids": [],
            "member_scores": {},
        }
        for name in _FINDINGS
    ]
    rest = {"source_images": [], "is_trained": True, "is_calibrated": False, "timings": {}}
    return {"findings": findings, "preprocessing_version": "hp1", **rest}


def fill(engine: Engine, amount: Amount, say: Callable[[str], None]) -> float:
    """Fill an empty ledger, and return the seconds that it took."""
    began = time.monotonic()
    # In one transaction, with the tables emptied in it: `wal_level = minimal` then writes no log.
    with engine.begin() as connection:
        constraints = connection.execute(_CONSTRAINTS).all()
        indexes = connection.execute(_INDEXES).all()
        for row in reversed(constraints):
            connection.execute(text(f'ALTER TABLE {row.owner} DROP CONSTRAINT "{row.conname}"'))
        for row in indexes:
            connection.execute(text(f"DROP INDEX {row.name}"))
        emptied = ", ".join(name for name in _FILLED if name != _APPEND_ONLY)
        connection.execute(text(f"TRUNCATE {emptied} RESTART IDENTITY"))
        connection.execute(text("SET LOCAL maintenance_work_mem = '512MB'"))
        for name in _FILLED:
            _fill_table(connection, name, amount)
            say(f"{name} filled, {time.monotonic() - began:.0f} s")
        _restore(connection, [f"{row.said}" for row in indexes], constraints)
        for name in _FILLED:
            last = select(func.max(metadata.tables[name].c.id)).scalar_subquery()
            sequence = func.pg_get_serial_sequence(name, "id")
            connection.execute(select(func.setval(sequence, last)))
    say(f"indexes made, {time.monotonic() - began:.0f} s")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE)"))
    return time.monotonic() - began


def _restore(connection: Connection, indexes: list[str], constraints: Any) -> None:  # noqa: ANN401 - rows of several columns
    for said in indexes:
        connection.execute(text(said))
    for row in constraints:
        # Rows of this making refer to rows that are there.
        later = " NOT VALID" if row.said.startswith("FOREIGN KEY") else ""
        name = f'"{row.conname}" {row.said}{later}'
        connection.execute(text(f"ALTER TABLE {row.owner} ADD CONSTRAINT {name}"))


def _fill_table(connection: Connection, name: str, amount: Amount) -> None:
    said = {
        "began": amount.began,
        "step": _SECONDS / amount.readings,
        "images": amount.readings,
        "studies": amount.studies,
        "content": json.dumps(content()),
        "release": RELEASE,
    }
    query = text(_STATEMENTS[name])
    wanted = query.compile().params
    connection.execute(query, {key: value for key, value in said.items() if key in wanted})


# The moment of an image and of a study, by its number.
_OF_IMAGE: Final = "CAST(:began AS float) + i * CAST(:step AS float)"
_OF_STUDY: Final = "CAST(:began AS float) + s * 1.5 * CAST(:step AS float)"
_SENDER: Final = f"'SENDER_' || s % {SENDERS}"
_STUDIES: Final = "FROM generate_series(1, CAST(:studies AS int)) AS s"
_LAST_YEAR: Final = (
    "FROM generate_series(CAST(:studies AS int) * 4 / 5, CAST(:studies AS int)) AS s"
)
_EACH_TENTH: Final = "FROM generate_series(10, CAST(:studies AS int), 10) AS s"
_EACH_HUNDREDTH: Final = "FROM generate_series(1, CAST(:studies AS int), 100) AS s"
_IMAGES: Final = (
    "FROM (SELECT i, (2 * i + 2) / 3 AS s FROM generate_series(1, CAST(:images AS int)) AS i) AS n"
)
_STATEMENTS: Final[Mapping[str, str]] = {
    "study": (
        "INSERT INTO study (id, study_instance_uid, revision, open_readings, quiet_until,"
        " collecting_since, first_received_at, last_received_at, calling_ae_title,"
        f" called_ae_title, peer_address, change, {_DATA_COLUMNS})"
        f" SELECT s, {_uid('study', 's')}, 2, 0, {_OF_STUDY} + 60, {_OF_STUDY}, {_OF_STUDY},"
        f" {_OF_STUDY}, {_SENDER}, 'HILUM', '127.0.0.1', s,"
        f" 'closed', 1, {_OF_STUDY} + 60, 1, 0, NULL, {_OF_STUDY} + 61 {_STUDIES}"
    ),
    # Of the newest fortieth (six weeks) the pixels are there.
    "instance": (
        "INSERT INTO instance (id, sop_instance_uid, sop_class_uid, study_instance_uid,"
        " series_instance_uid, transfer_syntax_uid, path, size_bytes, digest, pixel_digest,"
        " received_at, calling_ae_title, called_ae_title, peer_address, header, is_removed,"
        f" pixels_removed_at) SELECT i, {_uid('image', 'i')}, '1.2.840.10008.5.1.4.1.1.1.1',"
        f" {_uid('study', 's')}, {_uid('series', 's')}, '1.2.840.10008.1.2.1',"
        " 'ab/cd/' || md5(CAST(i AS text)) || '.dcm', 10000000, md5(CAST(i AS text)),"
        f" md5(CAST(-i AS text)), {_OF_IMAGE}, {_SENDER}, 'HILUM', '127.0.0.1',"
        " decode(repeat(md5(CAST(i AS text)), 4), 'hex'), false,"
        " CASE WHEN i < CAST(:images AS int) * 0.975"
        f" THEN {_OF_IMAGE} + 86400 END {_IMAGES}"
    ),
    "reading": (
        "INSERT INTO reading (id, instance_id, study_instance_uid, release, is_shadow, logits,"
        f" view, precision, preprocessing_version, timings, {_DATA_COLUMNS})"
        f" SELECT i, i, {_uid('study', 's')}, :release, false,"
        " CAST('[' || i % 997 / 1000.0 || ', -2.4375, 0.84375, -1.1953125, -3.03125, 0.21875,"
        " -1.546875, -0.9921875, -2.71875, -4.09375, -0.390625, -1.7421875, -2.2265625, -3.4375]'"
        " AS json), 'PA', 'bf16', 'hp1', CAST('{\"queued\": 0.004, \"decode\": 0.031,"
        ' "infer": 0.022}\' AS json),'
        " CASE WHEN i % 20000 = 0 THEN 'failed' WHEN i % 100 = 0 THEN 'not_analysed'"
        f" ELSE 'analysed' END, 1, {_OF_IMAGE}, 1, 0,"
        " CASE WHEN i % 20000 = 0 THEN 'worker_crashed' WHEN i % 100 = 0 THEN 'not_frontal' END,"
        f" {_OF_IMAGE} + 1 {_IMAGES}"
    ),
    "result": (
        "INSERT INTO result (id, study_instance_uid, release, source_digest, revision, outcome,"
        " outcome_reason, content, identifiers, created_at, is_current, change,"
        f" {_DATA_COLUMNS}) SELECT s, {_uid('study', 's')}, :release,"
        " md5(CAST(s AS text)), 2, CASE WHEN s % 1000 = 0 THEN 'not_analysed' ELSE 'analysed' END,"
        " CASE WHEN s % 1000 = 0 THEN 'no_analysed_image' END, CAST(:content AS json),"
        ' CAST(\'{"sr": "2.25.1"}\' AS json),'
        f" {_OF_STUDY} + 61, true, s, 'reported', 1, {_OF_STUDY} + 61, 1, 0, NULL,"
        f" {_OF_STUDY} + 62 {_STUDIES}"
    ),
    "document": (
        "INSERT INTO document (id, result_id, kind, media_type, sop_class_uid, sop_instance_uid,"
        " series_instance_uid, content, created_at)"
        " SELECT 2 * s - k, s, CASE k WHEN 1 THEN 'sr' ELSE 'json' END,"
        " CASE k WHEN 1 THEN 'application/dicom' ELSE 'application/json' END,"
        " CASE k WHEN 1 THEN '1.2.840.10008.5.1.4.1.1.88.33' END,"
        f" CASE k WHEN 1 THEN {_uid('document', 's')} END, NULL,"
        f" decode(md5(CAST(s AS text)), 'hex'), {_OF_STUDY} + 62"
        f" {_STUDIES}, unnest(ARRAY[1, 0]) AS k"
    ),
    "delivery": (
        f"INSERT INTO delivery (id, document_id, destination, change, {_DATA_COLUMNS})"
        " SELECT s, 2 * s - 1, 'pacs', s, CASE WHEN s % 50000 = 0 THEN 'dead'"
        " WHEN s % 10000 = 0 THEN 'withheld' ELSE 'delivered' END, 1,"
        f" {_OF_STUDY} + 62, 1, 0, CASE WHEN s % 50000 = 0 THEN 'refused'"
        f" WHEN s % 10000 = 0 THEN 'untrained_weights' END, {_OF_STUDY} + 63 {_STUDIES}"
    ),
    # A year of associations (retention.association_days), one a study.
    "association": (
        "INSERT INTO association (id, started_at, ended_at, peer_address, calling_ae_title,"
        " called_ae_title, outcome, reason, stored, refused)"
        f" SELECT s, {_OF_STUDY}, {_OF_STUDY} + 2, '127.0.0.1', {_SENDER}, 'HILUM',"
        " CASE WHEN s % 10000 = 0 THEN 'rejected' ELSE 'released' END, NULL, 2, 0"
        f" {_LAST_YEAR}"
    ),
    "comparison": (
        "INSERT INTO comparison (id, study_instance_uid, release, shadow, content,"
        f" {_DATA_COLUMNS}) SELECT s, {_uid('study', 's')}, :release, 'bench@2',"
        ' CAST(\'{"effusion": [0.2, 0.3, "absent", "absent"]}\' AS json),'
        f" 'compared', 3, {_OF_STUDY}, 1, 0, NULL, {_OF_STUDY} + 64"
        f" {_EACH_HUNDREDTH}"
    ),
    "audit": (
        "INSERT INTO audit (id, deed, at, actor, channel, address, host, verb, study_id, count,"
        f" outcome) SELECT s / 10, md5(CAST(s AS text)), {_OF_STUDY}, 'reader', 'page',"
        " '127.0.0.1', 'bench', 'read_study', s, 1, 'done'"
        f" {_EACH_TENTH}"
    ),
}
