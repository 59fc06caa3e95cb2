"""HL7 messages as parsers that are not ours read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hl7
from hl7apy.consts import VALIDATION_LEVEL
from hl7apy.parser import parse_message

from hilum.domain import Document


def read(content: bytes, encoding: str = "utf-8") -> Any:
    """The message as python-hl7 reads it."""
    return hl7.parse(content.decode(encoding))


def validated(content: bytes, encoding: str = "utf-8") -> Any:
    """The message as hl7apy reads it by the tables of HL7 2.5.1.

    Fails the test for segments, fields or types that 2.5.1 does not have.
    """
    message = parse_message(content.decode(encoding), VALIDATION_LEVEL.STRICT)
    assert message.validate()
    return message


def patient_of(message: Any) -> Any:
    """PID of a message of hl7apy."""
    return message.oru_r01_patient_result.oru_r01_patient.pid


def control_id_of(document: Document) -> str:
    """MSH-10."""
    return str(read(document.content, "latin-1").segment("MSH")[10])


def plain(message: Any, value: str) -> str:
    """A value without its escapes, by python-hl7."""
    return str(message.unescape(value))


def segments(message: Any, name: str) -> Sequence[Any]:
    """All segments of a name."""
    return list(message.segments(name))
