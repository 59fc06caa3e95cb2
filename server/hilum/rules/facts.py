"""What is known of a study at its first image, read from the encoded header when it is asked for.

A header is walked once for all attributes that the rules name. Only a rule on view or age has it
read by pydicom.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Final

from hilum.domain import Instance
from hilum.rules.keywords import BINARY, ONE_VALUE, Attribute

if TYPE_CHECKING:
    from hilum.rules.header_values import HeaderValues

SPECIFIC_CHARACTER_SET: Final = 0x00080005


class StudyFacts:
    """The facts of one study. Of a header that cannot be read no attribute is there."""

    def __init__(
        self,
        calling_ae_title: str,
        called_ae_title: str,
        peer_address: str = "",
        *,
        header: bytes = b"",
        transfer_syntax_uid: str = "1.2.840.10008.1.2.1",
        is_of_campaign: bool = False,
    ) -> None:
        """`header`: as an instance's row keeps it. `is_of_campaign`: a campaign fetched it."""
        self.calling_ae_title = calling_ae_title.strip()
        self.called_ae_title = called_ae_title.strip()
        self.peer_address = peer_address
        self.is_of_campaign = is_of_campaign
        self._header = header
        self._syntax = transfer_syntax_uid
        self._values: dict[int, bytes] = {}
        self._texts: dict[int, tuple[str, ...]] = {}
        self._sought: set[int] = set()

    def read(self, tags: Collection[int]) -> None:
        """Find these elements in one walk, before the first of them is asked for."""
        wanted = {SPECIFIC_CHARACTER_SET, *tags} - self._sought
        if wanted:
            self._sought |= wanted
            self._values |= self._reader.elements(wanted)

    def texts(self, attribute: Attribute) -> tuple[str, ...]:
        """Return the values that are not blank, without spaces around them."""
        found = self._texts.get(attribute.tag)
        if found is None:
            found = self._decoded(attribute)
            self._texts[attribute.tag] = found
        return found

    def _decoded(self, attribute: Attribute) -> tuple[str, ...]:
        value = self._value(attribute.tag)
        if not value:
            return ()
        parts = [value] if attribute.vr in ONE_VALUE else value.split(b"\\")
        names = self._value(SPECIFIC_CHARACTER_SET) or b""
        texts = self._reader.texts(parts, names)
        return tuple(text for part in texts if (text := part.strip(" \0\r\n\t")))

    def numbers(self, attribute: Attribute) -> tuple[float, ...]:
        """Return the values that are numbers."""
        value = self._value(attribute.tag) or b""
        if letter := BINARY.get(attribute.vr):
            size = struct.calcsize(letter)
            count = len(value) // size
            order = self._reader.byte_order
            return struct.unpack(f"{order}{count}{letter}", value[: count * size])
        return tuple(number for part in value.split(b"\\") for number in _number(part))

    @property
    def view(self) -> str:
        """PA, AP, LATERAL or UNKNOWN."""
        return self._reader.view()

    @property
    def age(self) -> float | None:
        """The age in years; None where the header names none that can be believed."""
        return self._reader.age()

    def _value(self, tag: int) -> bytes | None:
        self.read((tag,))
        return self._values.get(tag)

    @cached_property
    def _reader(self) -> HeaderValues:
        from hilum.rules.header_values import (  # noqa: PLC0415 - every command loads the settings
            HeaderValues,
        )

        return HeaderValues(self._header, self._syntax)


def facts_of(instance: Instance, *, is_of_campaign: bool = False) -> StudyFacts:
    """Return the facts of a study whose first image this is."""
    return StudyFacts(
        instance.calling_ae_title,
        instance.called_ae_title,
        instance.peer_address,
        header=instance.header,
        transfer_syntax_uid=instance.transfer_syntax_uid,
        is_of_campaign=is_of_campaign,
    )


def _number(part: bytes) -> tuple[float, ...]:
    try:
        return (float(part.strip(b" \0")),)
    except ValueError:
        return ()
