"""Elements of a template's document that we write ourselves are those that pydicom would write.

And UIDs those of the standard library.
"""

from __future__ import annotations

import uuid

from hypothesis import example, given
from hypothesis import strategies as st
from pydicom.dataelem import DataElement

from hilum.domain import mint_uid
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.template import writing

_PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30)
_ANY = st.text(max_size=12)


@given(st.one_of(_PRINTABLE, _ANY))
@example("")
@example("^^^^ ")
@example("A^B=")
@example("=\N{LATIN SMALL LETTER U WITH DIAERESIS}")
@example("A\\B")
def test_a_name(value: str) -> None:
    with quietly():
        plain = writing._plain(DataElement("PatientName", "PN", value))
        assert plain is None or plain == writing._written(DataElement("PatientName", "PN", value))


def test_an_ordinary_name_is_plain() -> None:
    assert writing._plain(DataElement("PatientName", "PN", "Doe^Jane^^Dr")) is not None


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=6))
def test_a_uid(numbers: list[int]) -> None:
    element = DataElement("StudyInstanceUID", "UI", ".".join(map(str, numbers)))
    assert writing._plain(element) == writing._written(element)


@given(st.uuids(), st.lists(_ANY.filter(lambda part: part.isprintable()), min_size=1, max_size=4))
def test_a_minted_uid_is_that_of_the_standard_library(
    namespace: uuid.UUID, parts: list[str]
) -> None:
    assert mint_uid(namespace, *parts) == f"2.25.{uuid.uuid5(namespace, chr(0x1F).join(parts)).int}"
