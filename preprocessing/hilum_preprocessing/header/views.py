"""The direction of the X-rays: the view of an image. Torch-free.

From View Position, else the view code, else the orientation, else words of free text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from pydicom.dataset import Dataset

from hilum_preprocessing.header.directions import directions_of
from hilum_preprocessing.header.elements import first_item, word, words
from hilum_preprocessing.header.free_text import readings, tokens

View = Literal["PA", "AP", "LATERAL", "UNKNOWN"]
_OBLIQUE_POSITIONS = {"RLO", "LLO", "RAO", "LAO", "RPO", "LPO"}

# View Position, PS3.3 C.8.7.1.1.2 and C.8.11.5. Obliques are no frontal views, so they count as
# LATERAL. Decubitus views (LLD, RLD) use a horizontal beam through a patient lying on a side. They
# are neither, so UNKNOWN.
_POSITION: dict[str, View] = {
    "PA": "PA",
    "AP": "AP",
    **dict.fromkeys(("LL", "RL", "LAT", "LATERAL", "LLAT", "RLAT"), "LATERAL"),
    **dict.fromkeys(_OBLIQUE_POSITIONS, "LATERAL"),
    **dict.fromkeys(("LLD", "RLD"), "UNKNOWN"),
}

# CID 4010 "DX View" (PS3.16), SNOMED CT and the SNOMED-RT identifiers that older objects use.
_CODE: dict[str, View] = {
    **dict.fromkeys(("399348003", "R-10206"), "AP"),
    **dict.fromkeys(("272479007", "R-40888", "R-10214"), "PA"),
    **dict.fromkeys(
        ("399067008", "R-102CD", "399173006", "R-10236", "399198007", "R-10232"), "LATERAL"
    ),
    **dict.fromkeys(
        ("399352003", "R-10228", "399260004", "R-10224", "399099002", "R-10230"), "LATERAL"
    ),
    **dict.fromkeys(
        ("399182000", "R-102C1", "399184004", "R-10238", "399236003", "R-10234"), "LATERAL"
    ),
    **dict.fromkeys(
        (
            "399135007",
            "R-10220",
            "399356000",
            "R-40985",
            "399006002",
            "R-10212",
            "399038007",
            "R-10210",
        ),
        "LATERAL",
    ),
}

_FREE_TEXT = (
    "SeriesDescription",
    "ProtocolName",
    "AcquisitionDeviceProcessingDescription",
    "BodyPartExamined",
)
_DECUBITUS_WORDS = {"DECUBITUS", "DECUB", "LLD", "RLD"}
_LATERAL = re.compile(
    r"[LR]?LAT[LR]?|LATERAL(E|ES|IS|T|NA|NI|NY|O)?|LATERO\w*|SEITL(ICH)?|PROFILE?|PERFIL|ZIJDELINGS|BOCZN[AE]|BOCN[AI]|YAN|SIDOBILD"
    r"|БОКОВ\w*|ПРОФИЛ\w*|ΠΛΑΓΙΑ|ΠΡΟΦΙΛ"
)
_OBLIQUE = re.compile(r"OBL|OBLI[QCK]\w*|SCHRAG|SCHRAEG")
_UNSPACED: dict[str, View] = {
    "侧位": "LATERAL",
    "側位": "LATERAL",
    "側面": "LATERAL",
    "측면": "LATERAL",
    "后前位": "PA",
    "後前位": "PA",
}
_UNSPACED |= {"前后位": "AP", "前後位": "AP"}

# Words for the two frontal views, in text of capitals: P-A, POSTERO-ANTERIOR, POSTERIOR TO
# ANTERIOR, PAERECT. The beam comes first.
_FRONTAL: tuple[tuple[re.Pattern[str], View], ...] = (
    (
        re.compile(
            r"\b(P ?A|POST(ER\w*)? ?(TO )?ANTER\w*|DORSO ?VENTRAL\w*|ЗАДНЕ ?ПЕРЕД\w*|ΟΠΙΣΘΟ"
            r" ?ΠΡΟΣΘ\w*)\b"
        ),
        "PA",
    ),
    (
        re.compile(
            r"\b(A ?P|ANT(ER\w*)? ?(TO )?POSTER\w*|VENTRO ?DORSAL\w*|ПЕРЕДНЕ ?ЗАД\w*|ΠΡΟΣΘΟ"
            r" ?ΟΠΙΣΘ\w*)\b"
        ),
        "AP",
    ),
)
_TOGETHER = re.compile(
    r"\b(PA|AP)(?=(ERECT|UPRIGHT|STAND|SUPINE|PORT|MOBILE|SIT|SEMI|BED|CHEST|THORAX|GRID|LORDOTIC|AXIAL|VIEW))"
)


def view_of(dataset: Dataset) -> View:
    """PA, AP, LATERAL, or UNKNOWN when nothing says so or the sources contradict themselves."""
    position = word(dataset, "ViewPosition")
    return (
        _POSITION.get(position)
        or _from_text([position], is_of_this_image=True)
        or _from_code(dataset)
        or _from_orientation(dataset)
        or _from_text([text for keyword in _FREE_TEXT for text in words(dataset, keyword)])
        or "UNKNOWN"
    )


def _from_code(dataset: Dataset) -> View | None:
    item = first_item(dataset, "ViewCodeSequence")
    if item is None:
        return None
    return _CODE.get(word(item, "CodeValue")) or _from_text(
        [word(item, "CodeMeaning")], is_of_this_image=True
    )


def _from_orientation(dataset: Dataset) -> View | None:
    """LATERAL where a row runs to the patient's front or back (PS3.3 C.7.6.1.1.1)."""
    return "LATERAL" if directions_of(dataset).axes[0] == "AP" else None


def _from_text(texts: Iterable[str], *, is_of_this_image: bool = False) -> View | None:
    """UNKNOWN where the texts name several views.

    "CHEST PA AND LAT" describes the series, not this image.
    """
    views: set[View] = set()
    for text in texts:
        for reading in readings(text):
            views |= _named(" ".join(tokens(reading)), is_of_this_image=is_of_this_image)
    if len(views) > 1:
        return "UNKNOWN"
    return views.pop() if views else None


@lru_cache(1024)
def _named(text: str, *, is_of_this_image: bool) -> frozenset[View]:
    """The views that a text of words in capitals names."""
    spaced = _TOGETHER.sub(r"\1 ", text)
    parts = frozenset(spaced.split())
    if _DECUBITUS_WORDS & parts:
        return frozenset[View](["UNKNOWN"])
    is_oblique = any(map(_OBLIQUE.fullmatch, parts))
    if is_of_this_image and (is_oblique or _OBLIQUE_POSITIONS & parts):
        return frozenset[View](["LATERAL"])  # an AP oblique is no frontal view
    views = {view for pattern, view in _FRONTAL if pattern.search(spaced)}
    views |= {view for word, view in _UNSPACED.items() if word in spaced}
    if is_oblique or any(map(_LATERAL.fullmatch, parts)):
        views.add("LATERAL")
    if is_of_this_image:
        views |= {_POSITION[part] for part in parts if part in _POSITION}
    return frozenset(views)
