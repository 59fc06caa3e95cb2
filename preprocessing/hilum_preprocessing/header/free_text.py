"""Free text of headers as words: capitals, accents, lost characters, wrong character sets.

Torch-free.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

LOST: Final = "?"
"""A lost character: written as it is, as U+FFFD, or as a sign that is no letter."""

_LETTERS: Final = str.maketrans(
    {"Ł": "L", "Ø": "O", "Đ": "D", "Æ": "AE", "Œ": "OE", "İ": "I", "\ufffd": LOST, "¿": LOST}
)
_ESCAPE: Final = re.compile(r"\x1b[$(),\-./]+[0-~]")  # ISO 2022 (PS3.5 6.1.2.5)
# Some senders write these for a lost letter.
_WITHIN_A_WORD: Final = re.compile(r"(?<=[^\W\d_])[*#_~.](?=[^\W\d_])")
# For an attribute whose character set is missing or wrong. UTF-8 comes first, because text of other
# character sets is hardly ever valid UTF-8.
_CODECS: Final = (
    "utf_8",
    "iso2022_jp_2",
    "gb18030",
    "shift_jis",
    "euc_jp",
    "euc_kr",
    "big5",
    "cp1251",
    "koi8_r",
    "iso8859_5",
    "cp866",
    "iso8859_7",
    "iso8859_2",
    "iso8859_9",
    "cp850",
)


def tokens(text: str) -> tuple[str, ...]:
    """The words of a text in capitals, without accents.

    Characters that are no letters separate them, and a lost character is `LOST`.
    """
    return tuple(_plain(text).split())


def readings(text: str) -> Iterator[str]:
    """The text, then other texts that it may have been.

    Its bytes in another character set, its odd letters as lost ones. pydicom decodes a code string
    as Latin-1, with bytes of any character set, and some senders decode and encode once too often.
    """
    yield text
    if not text.isascii() or "\x1b" in text:
        for raw in _bytes_of(text):
            yield from _decoded(raw)
        yield "".join(letter if letter.isascii() else LOST for letter in text)
    yield _WITHIN_A_WORD.sub(LOST, text)


def _plain(text: str) -> str:
    parted = unicodedata.normalize("NFKD", text.upper()).upper()
    bare = "".join(letter for letter in parted if not unicodedata.category(letter).startswith("M"))
    return "".join(
        _letter(letter) for letter in unicodedata.normalize("NFC", bare).translate(_LETTERS)
    )


def _letter(letter: str) -> str:
    if letter.isalpha() or letter == LOST:
        return letter
    is_sign = not letter.isascii() and unicodedata.category(letter)[0] in "SC"
    return LOST if is_sign else " "


def _bytes_of(text: str) -> Iterator[bytes]:
    """The bytes that the text may have been decoded from."""
    for codec in ("latin_1", "cp1252"):
        try:
            yield text.encode(codec)
        except UnicodeEncodeError:
            continue


def _decoded(raw: bytes) -> Iterator[str]:
    bare = _ESCAPE.sub("", raw.decode("latin_1")).encode(
        "latin_1"
    )  # of ISO 2022 IR 58 and 149 the bytes are GB 2312 and EUC-KR
    for codec in _CODECS:
        try:
            yield (raw if codec == "iso2022_jp_2" else bare).decode(codec)
        except UnicodeDecodeError:
            continue
