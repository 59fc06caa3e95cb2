"""Search of studies by the identifiers that a hospital uses.

It holds the query, the page of results, and the audit row of a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hilum.api.fields import Day, Identifier
from hilum.domain import Identifiers
from hilum.store.audit.log import AuditLog, Deed
from hilum.store.schema import cursor as cursors
from hilum.verbs import Thing

if TYPE_CHECKING:
    from hilum.api.dependencies import Dependencies

OFF: Final = (
    "Identifiers are neither shown nor searched for here: api.show_identifiers is off. On the"
    " server, `hilum find` does it."
)
_SHOWN: Final = "identifiers were shown"
_LISTING: Final = "found"


_NAMES: Final = ("accession_number", "patient_id", "study_date_from", "study_date_to")
_RULES: Final[dict[str, Any]] = {
    "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in _NAMES],
    "examples": [{"accession_number": "A-4711"}],
}


class StudyQuery(BaseModel):
    """A query. All its fields must match, in the header of one image."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_RULES)

    accession_number: Identifier | None = Field(
        None, description="Accession Number (0008,0050), the whole of it."
    )
    patient_id: Identifier | None = Field(
        None, description="Patient ID (0010,0020), the whole of it."
    )
    study_date_from: Day | None = Field(
        None, description="Study Date (0008,0020) of this day or later."
    )
    study_date_to: Day | None = Field(None, description="Study Date of this day or earlier.")

    @model_validator(mode="after")
    def _means_something(self) -> StudyQuery:
        if not (self.accession_number or self.patient_id or self.has_dates):
            raise ValueError(f"name at least one of {', '.join(_NAMES)}")
        if (
            self.study_date_from
            and self.study_date_to
            and self.study_date_from > self.study_date_to
        ):
            raise ValueError("study_date_from lies after study_date_to")
        return self

    @property
    def has_dates(self) -> bool:
        """Whether it is about a Study Date."""
        return self.study_date_from is not None or self.study_date_to is not None


@dataclass(frozen=True, slots=True)
class FoundStudies:
    """A page of a search: Study Instance UIDs in the order in which they were found.

    `last_row`: the last examined image; None: all were examined. `received_at`: when that image was
    received, in seconds since the epoch.
    """

    identifiers: Mapping[str, Identifiers]
    last_row: int | None = None
    received_at: float | None = None

    @property
    def next_cursor(self) -> str | None:
        """Where the search continues; None: it has reached the end."""
        return None if self.last_row is None else cursors.encode(_LISTING, 0.0, self.last_row)


class IdentifierViews(Protocol):
    """Search by identifiers, and the identifiers of studies."""

    def find(self, query: StudyQuery, *, before: int | None, limit: int) -> FoundStudies:
        """Search for studies with a header that matches the query, newest image first."""
        ...

    def of(self, study_instance_uids: Sequence[str]) -> Mapping[str, Identifiers]:
        """Return the identifiers in the newest image of each of these studies."""
        ...


def row_of(cursor: str | None) -> int | None:
    """Of a page's cursor, the image that was looked at last. Raises BadCursor."""
    return None if cursor is None else cursors.decode(_LISTING, cursor)[1]


def identifiers_shown(
    parts: Dependencies, deed: Deed, study_instance_uids: Sequence[str]
) -> Mapping[str, Identifiers]:
    """Return the identifiers that a page may show of these studies, and add them to its audit row.

    Raises Retry.
    """
    if parts.identifiers is None:
        return {}
    deed.detail = _SHOWN
    return parts.identifiers.of(study_instance_uids)


def note_query(deed: Deed, audit: AuditLog, query: StudyQuery) -> None:
    """Record the query in the audit row: digests replace identifiers, and dates are left out."""
    asked = ((Thing.PATIENT, query.patient_id), (Thing.ACCESSION, query.accession_number))
    digests = [(thing, audit.digest(value)) for thing, value in asked if value]
    if digests:
        deed.about(*digests[0])
    others = [f"{thing.value} {digest}" for thing, digest in digests[1:]]
    deed.detail = "; ".join([*others, *(["by study date"] if query.has_dates else [])]) or None
    deed.count = 0
