"""Facts for the rules: from a file, from a row of the ledger, from a table of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydicom.datadict import tag_for_keyword
from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset

from hilum.domain import Instance, Study
from hilum.errors import ConfigurationError
from hilum.receive.indexing.describe import describe
from hilum.receive.statuses import CannotUnderstand
from hilum.rules import StudyFacts
from hilum.settings import Settings
from hilum_preprocessing.header.elements import MALFORMED

_UTF_8: Final = "ISO_IR 192"


def facts_of_study(study: Study, image: Instance | None, settings: Settings) -> StudyFacts:
    """Return the facts of a study of the ledger, by its first image."""
    return StudyFacts(
        study.calling_ae_title,
        study.called_ae_title,
        study.peer_address,
        header=b"" if image is None else image.header,
        transfer_syntax_uid="" if image is None else image.transfer_syntax_uid,
        is_of_campaign=study.called_ae_title in settings.campaign_titles,
    )


def facts_of_file(
    file: Path, calling: str, called: str, peer: str, settings: Settings
) -> StudyFacts:
    """Return the facts of a study whose first image is this file.

    Raises ConfigurationError for a file that is no DICOM object, and OSError.
    """
    try:
        image = describe(file)
    except CannotUnderstand as error:
        raise ConfigurationError([f"{file}: {error.comment}. Give a DICOM file."]) from error
    return StudyFacts(
        calling,
        called,
        peer,
        header=image.header,
        transfer_syntax_uid=image.transfer_syntax_uid,
        is_of_campaign=called in settings.campaign_titles,
    )


def header_of(attributes: Mapping[str, Any]) -> bytes:
    """Return the header of these attributes in Explicit VR Little Endian.

    Text is in UTF-8, unless SpecificCharacterSet says otherwise. Raises ConfigurationError.
    """
    dataset = Dataset()
    dataset.SpecificCharacterSet = _UTF_8
    stream = DicomBytesIO()
    stream.is_little_endian = True
    stream.is_implicit_VR = False
    for keyword, value in attributes.items():
        if tag_for_keyword(keyword) is None:
            raise ConfigurationError([f"{keyword}: no keyword of DICOM (PS3.6)"])
        try:
            setattr(dataset, keyword, value)
        except MALFORMED as error:
            raise ConfigurationError([f"{keyword}: not a value of it: {value!r}"]) from error
    try:
        write_dataset(stream, dataset)
    except MALFORMED as error:
        raise ConfigurationError([f"these attributes cannot be encoded: {error}"]) from error
    return stream.getvalue()
