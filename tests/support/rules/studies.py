"""Facts of studies, from attributes, and rules to decide about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset

from hilum.domain import Instance
from hilum.rules import StudyFacts
from hilum.services.rules.study_facts import header_of
from hilum.settings import Settings
from tests.support.ledger.arrivals import arrival_of

EXPLICIT = "1.2.840.10008.1.2.1"
IMPLICIT = "1.2.840.10008.1.2"
BIG_ENDIAN = "1.2.840.10008.1.2.2"


def facts(calling: str = "CR1", called: str = "HILUM", **attributes: Any) -> StudyFacts:
    """The facts of a study whose first header holds these attributes."""
    return StudyFacts(calling, called, "10.1.2.3", header=header_of(attributes))


def facts_in(transfer_syntax_uid: str, **attributes: Any) -> StudyFacts:
    """The same in another encoding."""
    dataset = Dataset()
    stream = DicomBytesIO()
    stream.is_little_endian = transfer_syntax_uid != BIG_ENDIAN
    stream.is_implicit_VR = transfer_syntax_uid == IMPLICIT
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    write_dataset(stream, dataset)
    return StudyFacts(
        "CR1", "HILUM", header=stream.getvalue(), transfer_syntax_uid=transfer_syntax_uid
    )


def image(uid: str, study: str, attributes: Mapping[str, Any], **changes: Any) -> Instance:
    """An image with this header, as it arrives."""
    bare = arrival_of(uid, study, (), calling_ae_title="CR1").instance
    return dataclasses.replace(bare, header=header_of(attributes), **changes)


def settings_with(*rules: Mapping[str, Any], **sections: Any) -> Settings:
    """Settings with these rules before a default, two destinations and two AE Titles."""
    usual: dict[str, Any] = {
        "receive": {"ae_titles": ["HILUM", "ER"]},
        "models": {"releases": ["chest@1"]},
        "destinations": {"pacs": {}, "research": {"kind": "folder", "path": "out"}},
        "rules": [*rules, {"name": "default"}],
    }
    return Settings.model_validate({**usual, **sections})


def rule_of(settings: Settings, found: StudyFacts) -> str:
    """The rule that decides."""
    assert settings.rule_table is not None
    return settings.rule_table.decide(found).rule
