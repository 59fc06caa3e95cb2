"""Which way the X-rays went: View Position, else the view code, else the orientation, else words of free text. Torch-free."""

from __future__ import annotations

import re
from typing import Literal

from pydicom.dataset import Dataset

from hilum_preprocessing.elements import first_item, word, words
from hilum_preprocessing.orientation import directions_of

View = Literal["PA", "AP", "LATERAL", "UNKNOWN"]

# View Position, PS3.3 C.8.7.1.1.2 and C.8.11.5. Obliques are no frontal views, and LATERAL is the word we have for that.
# Decubitus views (LLD, RLD) use a horizontal beam through a patient who lies on a side: neither, so UNKNOWN.
_POSITION: dict[str, View] = {
    "PA": "PA",
    "AP": "AP",
    **dict.fromkeys(("LL", "RL", "LAT", "LATERAL", "LLAT", "RLAT"), "LATERAL"),
    **dict.fromkeys(("RLO", "LLO", "RAO", "LAO", "RPO", "LPO"), "LATERAL"),
    **dict.fromkeys(("LLD", "RLD"), "UNKNOWN"),
}

# CID 4010 "DX View" (PS3.16), SNOMED CT and the SNOMED-RT identifiers that older objects use.
_CODE: dict[str, View] = {
    **dict.fromkeys(("399348003", "R-10206"), "AP"),
    **dict.fromkeys(("272479007", "R-40888", "R-10214"), "PA"),
    **dict.fromkeys(("399067008", "R-102CD", "399173006", "R-10236", "399198007", "R-10232"), "LATERAL"),
    **dict.fromkeys(("399352003", "R-10228", "399260004", "R-10224", "399099002", "R-10230"), "LATERAL"),
    **dict.fromkeys(("399182000", "R-102C1", "399184004", "R-10238", "399236003", "R-10234"), "LATERAL"),
    **dict.fromkeys(("399135007", "R-10220", "399356000", "R-40985", "399006002", "R-10212", "399038007", "R-10210"), "LATERAL"),
}

_FREE_TEXT = ("SeriesDescription", "ProtocolName", "AcquisitionDeviceProcessingDescription")
_LATERAL_WORDS = {"LAT", "LATERAL", "LATERALE", "LLAT", "RLAT", "SEITLICH", "PROFIL"}
_DECUBITUS_WORDS = {"DECUBITUS", "DECUB", "LLD", "RLD"}


def view_of(dataset: Dataset) -> View:
    """PA, AP, LATERAL, or UNKNOWN when nothing says so or the sources contradict themselves."""
    position = word(dataset, "ViewPosition")
    return (
        _POSITION.get(position)
        or _from_text([position])
        or _from_code(dataset)
        or _from_orientation(dataset)
        or _from_text([text for keyword in _FREE_TEXT for text in words(dataset, keyword)])
        or "UNKNOWN"
    )


def _from_code(dataset: Dataset) -> View | None:
    item = first_item(dataset, "ViewCodeSequence")
    return None if item is None else _CODE.get(word(item, "CodeValue"))


def _from_orientation(dataset: Dataset) -> View | None:
    """A row that runs to the patient's front or back is a picture from the side (PS3.3 C.7.6.1.1.1)."""
    return "LATERAL" if directions_of(dataset).axes[0] == "AP" else None


def _from_text(texts: list[str]) -> View | None:
    found = {part for text in texts for part in re.split(r"[^A-Z]+", text)}
    if found & _DECUBITUS_WORDS:
        return "UNKNOWN"
    views: set[View] = {view for view in ("PA", "AP") if view in found}
    if found & _LATERAL_WORDS:
        views.add("LATERAL")
    if len(views) > 1:
        return "UNKNOWN"  # "CHEST PA AND LAT" describes the series, not this image
    return views.pop() if views else None
