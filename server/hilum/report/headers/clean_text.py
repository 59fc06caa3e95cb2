"""One value of a header, made valid for its Value Representation (PS3.5 6.2), or None.

None: no valid value can be made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import Any, Final

from pydicom.datadict import dictionary_VM, keyword_for_tag
from pydicom.multival import MultiValue
from pydicom.sequence import Sequence
from pydicom.tag import BaseTag

from hilum.dicom.charset import without_escapes
from hilum.domain import ImageReason
from hilum.errors import NotAnalysed
from hilum.report.headers.inherited import IDENTIFIERS

# Enumerated values of the optional attributes that a report inherits (PS3.3 C.7.1.1, C.7.2.2).
ENUMERATED: Final[Mapping[str, tuple[Any, ...]]] = {
    "PregnancyStatus": (1, 2, 3, 4),
    "SmokingStatus": ("YES", "NO", "UNKNOWN"),
    "PatientSexNeutered": ("ALTERED", "UNALTERED"),
    "QualityControlSubject": ("YES", "NO"),
    "PatientIdentityRemoved": ("YES", "NO"),
    "LongitudinalTemporalInformationModified": ("UNMODIFIED", "MODIFIED", "REMOVED"),
    "TypeOfPatientID": ("TEXT", "RFID", "BARCODE"),
}
# PS3.5 Table 6.2-1: characters of one value. A name may be longer (64 for each of its groups) and
# is left as it is.
LONGEST: Final[Mapping[str, int]] = {
    "SH": 16,
    "LO": 64,
    "ST": 1024,
    "LT": 10240,
    "DS": 16,
    "IS": 12,
}
# PS3.5 6.1.3: Unicode has no use for the escape of ISO 2022; line ends and tabs belong into the
# text representations only.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_DAY: Final = re.compile(r"[0-9]{8}")
TIME: Final = re.compile(r"([01]\d|2[0-3])([0-5]\d([0-5]\d(\.\d{1,6})?)?)?")
DATE_TIME: Final = re.compile(r"\d{4}(\d{2}){0,5}(\.\d{1,6})?([+-]\d{4})?")
_UID: Final = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*))+")
_CODE_STRING: Final = re.compile(r"[A-Z0-9_ ]{0,16}")


def cleaned(tag: BaseTag, vr: str, value: Any, encodings: Collection[str] = ()) -> Any:  # noqa: ANN401 - any type of pydicom's
    """Return the value as it may be written, or None to leave the element out.

    `encodings`: those of pydicom's decoding. Raises NotAnalysed for an identifier that is damaged.
    """
    keyword = keyword_for_tag(tag)
    clean = _cleaned(tag, keyword, vr, value, encodings)
    return None if keyword in ENUMERATED and clean not in ENUMERATED[keyword] else clean


def _cleaned(tag: BaseTag, keyword: str, vr: str, value: Any, encodings: Collection[str]) -> Any:  # noqa: ANN401 - as above
    if vr in ("US", "SS", "UL", "SL"):
        return value if isinstance(value, int) else None
    if vr not in _CLEANERS or isinstance(value, bytes | Sequence):
        return None
    clean = _identifier if keyword in IDENTIFIERS else _CLEANERS[vr]
    given = list(value) if isinstance(value, MultiValue | list | tuple) else [value]
    values = [
        clean("" if item is None else without_escapes(str(item), encodings)) for item in given
    ]
    if any(item is None for item in values):
        return None
    if len(values) > 1 and dictionary_VM(tag) == "1" and clean is not _identifier:
        return _one(vr, values)
    return values[0] if len(values) == 1 else values


def _one(vr: str, values: list[str | None]) -> str | None:
    """Several values where one belongs.

    A backslash in a text was meant as text, of names the first counts, the rest is unreadable.
    """
    if vr in ("SH", "LO", "UC"):
        return _CLEANERS[vr](" / ".join(item or "" for item in values))
    return values[0] if vr == "PN" else None


def _identifier(value: str) -> str:
    """Return the identifier without padding. Raises NotAnalysed for control characters."""
    text = value.strip("\0")
    if _CONTROL.search(text):
        raise NotAnalysed(
            ImageReason.CORRUPT_HEADER,
            "an identifier of the patient or the order holds control characters",
        )
    return text


def _line(value: str) -> str:
    return _CONTROL.sub("", value)


def _name(value: str) -> str:
    """At most the three groups that there are: alphabetic, ideographic, phonetic (PS3.5 6.2.1.2).

    Each is left as it is.
    """
    return "=".join(_line(value).split("=")[:3])


def _short_line(longest: int) -> Callable[[str], str]:
    return lambda value: _line(value)[:longest]


def _paragraph(longest: int | None) -> Callable[[str], str]:
    return lambda value: _CONTROL_IN_TEXT.sub("", value)[:longest]


def _code_string(value: str) -> str | None:
    upper = _line(value).strip().upper()
    return upper if _CODE_STRING.fullmatch(upper) else None


def _date(value: str) -> str | None:
    """YYYYMMDD, or the YYYY.MM.DD of ACR-NEMA (PS3.5 6.2, note to DA)."""
    digits = _line(value).strip().replace(".", "")
    if not digits:
        return ""
    return digits if _DAY.fullmatch(digits) and _is_in_calendar(digits) else None


def _is_in_calendar(digits: str) -> bool:
    try:
        date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return True


def _time(value: str) -> str | None:
    text = _line(value).strip().replace(":", "")
    return text if not text or TIME.fullmatch(text) else None


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        text = _line(value).strip()
        return text if not text or pattern.fullmatch(text) else None

    return check


def _number(longest: int) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        text = _line(value).strip()
        try:
            is_number = not text or abs(float(text)) < float("inf")
        except ValueError:
            return None
        return text if is_number and len(text) <= longest else None

    return check


_CLEANERS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "PN": _name,
    "UC": _line,
    **{vr: _short_line(LONGEST[vr]) for vr in ("SH", "LO")},
    **{vr: _paragraph(LONGEST.get(vr)) for vr in ("LT", "ST", "UT")},
    **{vr: _number(LONGEST[vr]) for vr in ("DS", "IS")},
    "CS": _code_string,
    "DA": _date,
    "TM": _time,
    "DT": _matching(DATE_TIME),
    "AS": _matching(re.compile(r"\d{3}[DWMY]")),
    "UI": _matching(_UID),
}
