"""Which body part a header names: the chest, another one, or no known one. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, Literal

from pydicom.dataset import Dataset

from hilum_preprocessing.errors import NotAnalysable
from hilum_preprocessing.header.body_part_words import (
    CHEST,
    OTHER,
    OTHER_ALONE,
    OTHER_UNLESS_PLACED,
)
from hilum_preprocessing.header.elements import first_item, texts
from hilum_preprocessing.header.free_text import LOST, readings, tokens

Named = Literal["CHEST", "OTHER"]

_NOT: Final = frozenset({"NOT", "NON", "EXCEPT", "WITHOUT", "NICHT", "OHNE", "SIN", "SEM", "SANS"})
_UNSPACED: Final = re.compile(
    "[\u0590-\u08ff\u0900-\u0e7f\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_LATIN: Final = re.compile("[A-Z]")
_DEVICES: Final = re.compile(r"\bC[ -]?ARM\b|\bHAND[ -]?HELD\b", re.IGNORECASE)  # devices
_DENTAL_DEVICE: Final = re.compile(
    "PANTOMO|PANORAM|PANOREX|ORTHOPHOS|ORTHORALIX|CRANEX|PROMAX|VERAVIEW"
)
_LOST_RUN: Final = re.compile(r"\?+")
_SHORTEST_BEGINNING: Final = 4
_SHORTEST_END: Final = 5
_LONGEST: Final = 256  # characters of a text that are looked at: a description has 64 (PS3.5 6.2)
_LONGEST_TOKEN: Final = 64
_MOST_LOST: Final = 4  # runs of lost characters in one word that are tried
_FEWEST_KNOWN: Final = 3
# PS3.16 CID 4031, SNOMED CT and SNOMED-RT: chest (two codes), thoracic cavity, lung, entire thorax.
_CHEST_CODES: Final = frozenset(
    {"816094009", "51185008", "T-D3000", "43799004", "T-D3010", "39607008", "T-28000", "302551006"}
)

_PARTS: Final[Mapping[str, Named]] = {
    **dict.fromkeys(tokens(CHEST), "CHEST"),
    **dict.fromkeys(tokens(OTHER), "OTHER"),
}
_PLACED: Final = frozenset(tokens(OTHER_UNLESS_PLACED))
_WORDS: Final[Mapping[str, Named]] = {
    **_PARTS,
    **dict.fromkeys(tokens(OTHER_ALONE), "OTHER"),
    **dict.fromkeys(_PLACED, "OTHER"),
}
_WITHIN: Final = tuple(
    sorted((word for word in _PARTS if _UNSPACED.search(word)), key=len, reverse=True)
)


@dataclass(frozen=True, slots=True)
class SiteWords:
    """Words of a site's own senders for Body Part Examined; they come before the table's.

    A word may be a phrase.
    """

    chest: frozenset[str] = field(default_factory=frozenset)
    other: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, chest: Iterable[str] = (), other: Iterable[str] = ()) -> SiteWords:
        """From words as they are written in the settings."""
        return cls(frozenset(map(_phrase, chest)), frozenset(map(_phrase, other)))

    def named_by(self, text: str) -> Named | None:
        """The site's own meaning of this text."""
        if not self.chest and not self.other:
            return None
        padded = f" {_phrase(text)} "
        if any(f" {phrase} " in padded for phrase in self.other):
            return "OTHER"
        return "CHEST" if any(f" {phrase} " in padded for phrase in self.chest) else None


NO_WORDS: Final = SiteWords()


def body_part(dataset: Dataset, site: SiteWords = NO_WORDS) -> tuple[Named | None, str]:
    """The body part, and the attribute that names it.

    Body Part Examined, else the Anatomic Region, else a description.

    (None, "") where no attribute names a body part that is known. Placeholders such as UNKNOWN or 0
    name none.
    A description that names the chest and another body part speaks of several images, and is passed
    over.
    Raises NotAnalysable (corrupt_header) where Body Part Examined is unreadable; the others then
    say nothing.
    """
    if found := named_in(texts(dataset, "BodyPartExamined"), site):
        return found, "Body Part Examined"
    for name, read in _ELSEWHERE:
        try:
            found = read(dataset, site)
        except NotAnalysable:
            continue
        if found:
            return found, name
    return None, ""


def named_in(values: Collection[str], site: SiteWords = NO_WORDS) -> Named | None:
    """The body part that the values of an attribute name.

    Another body part beside the chest counts as another: CHEST ABDOMEN, THORACIC SPINE.
    """
    text = " ".join(values)[:_LONGEST]
    return site.named_by(text) or _named(text)[0] if text else None


def _region(dataset: Dataset, site: SiteWords) -> Named | None:
    item = first_item(dataset, "AnatomicRegionSequence")
    if item is None:
        return None
    if set(texts(item, "CodeValue")) & _CHEST_CODES:
        return "CHEST"
    return named_in(texts(item, "CodeMeaning"), site)


def _described(keyword: str, dataset: Dataset, site: SiteWords) -> Named | None:
    text = " ".join(texts(dataset, keyword))[:_LONGEST]
    if not text:
        return None
    if found := site.named_by(text):
        return found
    named, is_alone = _named(text)
    return named if is_alone else None


def _device(dataset: Dataset, site: SiteWords) -> Named | None:  # noqa: ARG001 - as its neighbours are called
    """Devices that make dental images alone.

    Other words of the table may be names of devices for all of the body.
    """
    return (
        "OTHER"
        if _DENTAL_DEVICE.search(
            "".join(tokens(" ".join(texts(dataset, "ManufacturerModelName"))[:_LONGEST]))
        )
        else None
    )


# From attributes of this image to attributes of its study. The device comes last.
_ELSEWHERE: Final[Sequence[tuple[str, Callable[[Dataset, SiteWords], Named | None]]]] = (
    ("Anatomic Region Sequence", _region),
    ("Series Description", partial(_described, "SeriesDescription")),
    ("Protocol Name", partial(_described, "ProtocolName")),
    (
        "Acquisition Device Processing Description",
        partial(_described, "AcquisitionDeviceProcessingDescription"),
    ),
    (
        "Performed Procedure Step Description",
        partial(_described, "PerformedProcedureStepDescription"),
    ),
    ("Requested Procedure Description", partial(_described, "RequestedProcedureDescription")),
    ("Study Description", partial(_described, "StudyDescription")),
    ("Manufacturer's Model Name", _device),
)


@lru_cache(1024)
def _named(text: str) -> tuple[Named | None, bool]:
    """The body part that the text names, and whether it names that one alone, beyond doubt."""
    for reading in readings(text):
        parts = tokens(_DEVICES.sub("", reading))
        each = [_of_token(part) for part in parts]
        found = _united(each)
        sure = _united(
            named for part, named in zip(parts, each, strict=True) if part not in _PLACED
        )
        if sure == {"CHEST"}:
            return ("OTHER", False) if _is_denied(parts, each) else ("CHEST", True)
        if found:
            return "OTHER", len(sure) == 1
    return None, True


def _united(each: Iterable[set[Named]]) -> set[Named]:
    return set[Named]().union(*each)


def _is_denied(parts: Sequence[str], each: Sequence[set[Named]]) -> bool:
    """Whether a word such as NOT stands right before one that names a body part."""
    return any(part in _NOT and named for part, named in zip(parts, each[1:], strict=False))


def _of_token(token: str) -> set[Named]:
    token = token[:_LONGEST_TOKEN]
    if LOST in token:
        return _of_damaged(token)
    if named := _WORDS.get(token):
        return {named}
    if _UNSPACED.search(token):
        return _of_unspaced(token)
    return set(_of_compound(token))


def _of_unspaced(token: str) -> set[Named]:
    """The longest words that the text holds.

    胸椎 is the thoracic spine, and 胸 within it is not the chest.

    Beside Latin letters one character is not enough: Übersicht in Latin-1 also is a Chinese
    character and "ersicht" in GB 18030.
    """
    found: set[Named] = set()
    shortest = 2 if _LATIN.search(token) else 1
    for word in _WITHIN:
        if len(word) >= shortest and word in token:
            found.add(_WORDS[word])
            token = token.replace(word, " ")
    return found


def _of_compound(token: str) -> Iterator[Named]:
    """The same for compound words, by their beginning and end.

    THORAXAUFNAHME begins with a word, RXTORAX ends with one, CHESTABDOMEN and BRUSTWIRBELSAULE do
    both.
    """
    for length in range(len(token), _SHORTEST_BEGINNING - 1, -1):
        if named := _PARTS.get(token[:length]):
            yield named
            token = token[length:]
            break
    for start in range(len(token) - _SHORTEST_BEGINNING + 1):
        is_long_enough = len(token) - start >= _SHORTEST_END or start == 0
        if is_long_enough and (named := _PARTS.get(token[start:])):
            yield named
            return


def _of_damaged(token: str) -> set[Named]:
    """The same for words with lost characters: T?RAX."""
    parts = [part for part in token.split(LOST) if part]
    found = {named for part in parts for named in _of_token(part)}
    if found or len(_LOST_RUN.findall(token)) > _MOST_LOST or sum(map(len, parts)) < _FEWEST_KNOWN:
        return found
    pattern = re.compile(_LOST_RUN.sub(_any_letters, token))
    return {named for word, named in _WORDS.items() if pattern.fullmatch(word)}


def _any_letters(run: re.Match[str]) -> str:
    """A run of lost characters stands for as many letters or fewer.

    One letter may have been several bytes.
    """
    return f".{{1,{min(len(run[0]), 4)}}}"


def _phrase(text: str) -> str:
    """As it is compared; a text without letters, such as a number, is compared as it stands."""
    return " ".join(tokens(text)) or text.strip().upper()
