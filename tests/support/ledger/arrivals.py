"""Arrivals without files: what a listener would hand to the ledger for an image that it has stored."""

from __future__ import annotations

import dataclasses
import uuid

from hilum.domain import Instance, Priority
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.rules import StudyFacts
from hilum.settings import Handling, Settings
from hilum.store.intake.received import Arrival

QUIET_SECONDS = 10.0
BEGAN_AT = 1_795_163_400.0  # 2026-11-20T08:30:00Z


def arrival_of(
    uid: str,
    study: str,
    releases: tuple[str, ...],
    *,
    priority: Priority = Priority.LIVE,
    maximum_wait_seconds: float = 60.0,
    **changes: object,
) -> Arrival:
    """The image `uid` of a study, in a file of its own.

    `changes`: what is different about the instance.
    """
    instance = Instance(
        sop_instance_uid=uid,
        sop_class_uid="1.2.840.10008.5.1.4.1.1.1.1",
        study_instance_uid=study,
        series_instance_uid=f"{study}.0",
        transfer_syntax_uid="1.2.840.10008.1.2.1",
        path=f"ab/cd/{uuid.uuid4().hex}.dcm",
        size_bytes=10,
        digest=f"d{uid}"[:40],
        pixel_digest=f"p{uid}"[:40],
        received_at=BEGAN_AT,
        calling_ae_title="MODALITY",
        called_ae_title="HILUM",
        header=b"header",
    )
    return Arrival(
        dataclasses.replace(instance, **changes),
        priority,
        releases,
        QUIET_SECONDS,
        maximum_wait_seconds,
    )  # type: ignore[arg-type]


def handling_of(settings: Settings, calling: str, called: str) -> Handling:
    """What is done with a study of these AE Titles, of whose header nothing is known."""
    table = settings.rule_table
    return settings.handling(None if table is None else table.decide(StudyFacts(calling, called)))


def first_arrival(instance: Instance, settings: Settings) -> Arrival:
    """The arrival of one instance, as the first of its study."""
    (arrival,) = arrivals_of([instance], settings, lambda _: {})
    return arrival
