"""Studies as the rules saw them: the sender, the first image, and the decision."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, func, select

from hilum.domain import Instance, Study
from hilum.store.schema import codec
from hilum.store.schema.tables import instance, study

DecidedStudy = tuple[Study, Instance | None]
"""A study with its first image; None: it has none any more."""


def decided_study(connection: Connection, study_instance_uid: str) -> DecidedStudy | None:
    """Return one study, or None."""
    row = connection.execute(
        select(study).where(study.c.study_instance_uid == study_instance_uid)
    ).first()
    return None if row is None else (codec.study_of(row), _first_image(connection, row))


def last_decided(connection: Connection, before: int | None, limit: int) -> list[DecidedStudy]:
    """Return studies before this row id, newest first; None: begin with the newest."""
    query = select(study).order_by(study.c.id.desc()).limit(limit)
    chosen = query if before is None else query.where(study.c.id < before)
    return [
        (codec.study_of(row), _first_image(connection, row))
        for row in connection.execute(chosen).all()
    ]


def last_matches(connection: Connection, rules: Collection[str]) -> dict[str, float]:
    """Return when each rule last matched, by its name; rules that never did are left out."""
    last = select(study.c.first_received_at).order_by(study.c.id.desc()).limit(1)
    found = {name: connection.execute(last.where(study.c.rule == name)).scalar() for name in rules}
    return {name: at for name, at in found.items() if at is not None}


def first_decision(connection: Connection) -> float | None:
    """Return when the rules first decided about a study that is there; None: they did not."""
    first = select(func.min(study.c.id)).where(study.c.rule.is_not(None)).scalar_subquery()
    return connection.execute(select(study.c.first_received_at).where(study.c.id == first)).scalar()


def _first_image(connection: Connection, row: object) -> Instance | None:
    query = select(instance).where(
        instance.c.study_instance_uid == row.study_instance_uid  # type: ignore[attr-defined] # a row
    )
    found = connection.execute(query.order_by(instance.c.id).limit(1)).first()
    return None if found is None else codec.instance_of(found)
