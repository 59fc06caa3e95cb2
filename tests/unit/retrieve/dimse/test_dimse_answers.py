"""Answers of a query as text: character sets, several values, attributes without a text."""

from __future__ import annotations

from typing import Any

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.retrieve.dimse.answers import decoded, encoded

SYNTAXES = [ExplicitVRLittleEndian, ImplicitVRLittleEndian]


def answer_of(syntax: Any, **values: Any) -> dict[str, str]:
    """The answer that a server sends with these values."""
    dataset = Dataset()
    for keyword, value in values.items():
        setattr(dataset, keyword, value)
    return dict(decoded(encoded(dataset, syntax), syntax))


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(
    ("character_set", "text"),
    [("ISO_IR 100", "Thorax übersicht"), ("ISO_IR 144", "Грудь"), ("ISO_IR 192", "胸部 X")],
)
def test_a_description_is_read_in_its_character_set(
    syntax: Any, character_set: str, text: str
) -> None:
    found = answer_of(syntax, SpecificCharacterSet=character_set, StudyDescription=text)

    assert found["StudyDescription"] == text


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_several_values_are_joined_by_a_backslash(syntax: Any) -> None:
    found = answer_of(syntax, ModalitiesInStudy=["CR", "DX"], StudyInstanceUID="1.2.3")

    assert found == {"ModalitiesInStudy": "CR\\DX", "StudyInstanceUID": "1.2.3"}


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_empty_values_sequences_and_private_attributes_are_left_out(syntax: Any) -> None:
    dataset = Dataset()
    dataset.StudyDate = ""
    dataset.ReferencedStudySequence = [Dataset()]
    dataset.Rows = 64
    dataset.NumberOfStudyRelatedInstances = "4"
    dataset.add_new(0x00091001, "LO", "private")

    found = decoded(encoded(dataset, syntax), syntax)

    assert found == {"NumberOfStudyRelatedInstances": "4"}
