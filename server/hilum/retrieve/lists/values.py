"""Faults of a value in a list. A text here never quotes the value."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from hilum.dicom.uid import problem_of_uid
from hilum.retrieve.lists.table import Kind

LONGEST_ACCESSION: Final = 16  # PS3.5 6.2, VR SH
_MONTH: Final = (
    r"(?:jan|feb|mar|mär|mrz|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]{0,6}\.?"
)
_YEAR: Final = r"(?:19|20)[0-9]{2}"
_TIME: Final = r"(?:[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?"
_DATES: Final = (
    rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}{_TIME}",
    rf"[0-9]{{1,2}}\.[0-9]{{1,2}}\.{_YEAR}{_TIME}",
    rf"[0-9]{{1,2}}/[0-9]{{1,2}}/(?:{_YEAR}|[0-9]{{2}}){_TIME}",
    rf"[0-9]{{1,2}}[. -]{{1,2}}{_MONTH}(?:[ -](?:{_YEAR}|[0-9]{{2}}))?",
    rf"{_MONTH}[ -](?:{_YEAR}|[0-9]{{2}})",
)
# In this order: the first that matches is the reason.
_FAULTS: Final = (
    (r"#+", "##### stands for a number that was wider than its column: export the list as text"),
    (
        r"#(?:N/A|REF!|VALUE!|NAME\?|DIV/0!|NUM!|NULL!)",
        "an error of a spreadsheet: export the list as text",
    ),
    (r".*[*?].*", "a wildcard (* or ?): it would match other studies"),
    (r".*\\.*", "a backslash: in DICOM it separates several values"),
    (r"=.*", "a formula of a spreadsheet: keep the value alone"),
    (r"'.*", "an apostrophe before the value, as a spreadsheet marks text: remove it"),
    (
        r"[+-]?[0-9]+(?:[.,][0-9]+)?E\+[0-9]+|[+-]?[0-9]+[.,][0-9]+E-?[0-9]+",
        "scientific notation of a spreadsheet: its digits are lost, export the list as text",
    ),
    (
        r"[0-9]+[.,]0+",
        "it ends in .0, as a number with a decimal point does: export the list as text",
    ),
    ("|".join(_DATES), "a date, which a spreadsheet makes of a number: export the list as text"),
)
_COMPILED: Final = tuple((re.compile(form, re.IGNORECASE), text) for form, text in _FAULTS)


def problem_of_value(value: str, kind: Kind) -> str | None:
    """Return why a value names no study, with the remedy; None: it may name one."""
    if not value:
        return "the cell is empty"
    if any(unicodedata.category(letter).startswith(("C", "Zl", "Zp")) for letter in value):
        return "a control character or an invisible one: remove it"
    for form, text in _COMPILED:
        if form.fullmatch(value):
            return text
    if kind == "study_uid":
        fault = problem_of_uid(value)
        return None if fault is None else f"the Study Instance UID {fault}"
    if len(value) > LONGEST_ACCESSION:
        return f"over {LONGEST_ACCESSION} characters, the most that an accession number may have"
    return None
