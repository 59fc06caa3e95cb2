"""Pieces of a page as pictures: text, tables, rows and columns of pieces.

The font comes with a package of ours, so that every host draws the same. It knows the languages of
western Europe, Turkish and much of others that write Latin letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final

from PIL import Image, ImageDraw, ImageFont

Picture = Image.Image
Colour = tuple[int, int, int]
BACKGROUND: Final[Colour] = (0, 0, 0)  # read in dark rooms, beside radiographs
PLAIN: Final[Colour] = (232, 232, 232)
FAINT: Final[Colour] = (176, 176, 176)
WARNING: Final[Colour] = (255, 190, 60)
GAP: Final = 14
_LETTERS: Final = 0.88  # of the size
_NO_CHARACTER: Final = "\uffff"
TITLE_SIZE = 26
TEXT_SIZE = 19
NOTE_SIZE = 16


@dataclass(frozen=True, slots=True)
class TextLine:
    """Words of one size and colour; wrapped where they do not fit."""

    text: str
    size: int = TEXT_SIZE
    colour: Colour = PLAIN
    is_bold: bool = False


def font_file(*, is_bold: bool = False) -> str:
    """Return the path of the font, Bitstream Vera, which ReportLab brings along."""
    return str(files("reportlab") / "fonts" / ("VeraBd.ttf" if is_bold else "Vera.ttf"))


@lru_cache(maxsize=16)
def font(size: int, *, is_bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the font at this size, in pixels of a line; its letters are wide."""
    return ImageFont.truetype(font_file(is_bold=is_bold), size * _LETTERS)


def words(lines: Sequence[TextLine], width: int) -> Picture:
    """Lines of text below each other, in a picture of this width."""
    wrapped = [replace(line, text=part) for line in lines for part in _wrapped(line, width)]
    block = blank(width, sum(_height(line) for line in wrapped))
    draw = ImageDraw.Draw(block)
    top = 0
    for line in wrapped:
        draw.text((0, top), line.text, fill=line.colour, font=_font_of(line))
        top += _height(line)
    return block


def blank(width: int, height: int) -> Picture:
    """A piece without anything on it."""
    return Image.new("RGB", (width, height), BACKGROUND)


def _font_of(line: TextLine) -> ImageFont.FreeTypeFont:
    return font(line.size, is_bold=line.is_bold)


def _height(line: TextLine) -> int:
    return round(line.size * 1.35)


def _wrapped(line: TextLine, width: int) -> Iterator[str]:
    used = _font_of(line)
    current = ""
    for word in _parts(drawable(line.text), used, width):
        longer = f"{current} {word}".strip()
        if current and used.getlength(longer) > width:
            yield current
            current = word
        else:
            current = longer
    yield current


def _parts(text: str, used: ImageFont.FreeTypeFont, width: int) -> Iterator[str]:
    """Yield the words of a text; one that is wider than a line in pieces that are not."""
    for word in text.split():
        rest = word
        while used.getlength(rest) > width and len(rest) > 1:
            most = max(
                (count for count in range(2, len(rest)) if used.getlength(rest[:count]) <= width),
                default=1,
            )
            yield rest[:most]
            rest = rest[most:]
        yield rest


def drawable(text: str) -> str:
    """Return the text as the font can draw it.

    Letters lose marks that the font does not know; any other unknown character is a question mark.
    """
    return "".join(known for character in text for known in _known(character))


@lru_cache(maxsize=4096)
def _known(character: str) -> str:
    if character.isspace() or _has_glyph(character):
        return character
    bare = unicodedata.normalize("NFKD", character)[:1]
    return bare if bare.isascii() and bare.isprintable() else "?"


def _has_glyph(character: str) -> bool:
    """Return whether the font draws this character, and no box in its place."""
    used = font(TEXT_SIZE)
    return bytes(used.getmask(character)) != bytes(used.getmask(_NO_CHARACTER))


def table(rows: Sequence[Sequence[TextLine]], widths: Sequence[int], gap: int = GAP) -> Picture:
    """Rows of cells; a cell that needs several lines makes its row higher."""
    return stacked(
        [
            beside([words([cell], width) for cell, width in zip(row, widths, strict=True)], gap)
            for row in rows
        ],
        4,
    )


def stacked(pieces: Sequence[Picture], gap: int = GAP) -> Picture:
    """Pieces below each other, at the left."""
    width = max(piece.width for piece in pieces)
    whole = Image.new(
        "RGB", (width, sum(piece.height for piece in pieces) + gap * (len(pieces) - 1)), BACKGROUND
    )
    top = 0
    for piece in pieces:
        whole.paste(piece, (0, top))
        top += piece.height + gap
    return whole


def beside(pieces: Sequence[Picture], gap: int = 2 * GAP) -> Picture:
    """Pieces beside each other, at the top."""
    height = max(piece.height for piece in pieces)
    whole = Image.new(
        "RGB", (sum(piece.width for piece in pieces) + gap * (len(pieces) - 1), height), BACKGROUND
    )
    left = 0
    for piece in pieces:
        whole.paste(piece, (left, 0))
        left += piece.width + gap
    return whole


def framed(piece: Picture) -> Picture:
    """With a margin around it."""
    whole = Image.new("RGB", (piece.width + 2 * GAP, piece.height + 2 * GAP), BACKGROUND)
    whole.paste(piece, (GAP, GAP))
    return whole
