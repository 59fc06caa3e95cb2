"""Pieces of a sheet as pictures: text, rows and columns of pieces.

Pillow's own scalable font, so that every host draws the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

Picture = Image.Image
Colour = tuple[int, int, int]
BACKGROUND: Final[Colour] = (0, 0, 0)  # read in dark rooms, beside radiographs
PLAIN: Final[Colour] = (232, 232, 232)
FAINT: Final[Colour] = (176, 176, 176)
WARNING: Final[Colour] = (255, 190, 60)
GAP: Final = 14
TITLE_SIZE = 26
TEXT_SIZE = 19
NOTE_SIZE = 16


@dataclass(frozen=True, slots=True)
class TextLine:
    """Words of one size and colour; wrapped where they do not fit."""

    text: str
    size: int = TEXT_SIZE
    colour: Colour = PLAIN


@lru_cache(maxsize=16)
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's built-in font at this size."""
    found = ImageFont.load_default(size)
    if not isinstance(found, ImageFont.FreeTypeFont):
        raise RuntimeError(  # noqa: TRY004 - not a wrong argument: a wrong Pillow
            "this Pillow was built without FreeType; install a wheel from PyPI"
        )
    return found


def words(lines: Sequence[TextLine], width: int) -> Picture:
    """Lines of text below each other, in a picture of this width."""
    wrapped = [
        TextLine(part, line.size, line.colour) for line in lines for part in _wrapped(line, width)
    ]
    block = Image.new("RGB", (width, sum(_height(line) for line in wrapped)), BACKGROUND)
    draw = ImageDraw.Draw(block)
    top = 0
    for line in wrapped:
        draw.text((0, top), line.text, fill=line.colour, font=font(line.size))
        top += _height(line)
    return block


def _height(line: TextLine) -> int:
    return round(line.size * 1.35)


def _wrapped(line: TextLine, width: int) -> Iterator[str]:
    used = font(line.size)
    current = ""
    for word in line.text.split(" "):
        longer = f"{current} {word}".strip()
        if current and used.getlength(longer) > width:
            yield current
            current = word
        else:
            current = longer
    yield current


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
