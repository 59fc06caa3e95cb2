"""A result sheet as PDF with text that can be searched: one A4 page, or more where words need them.

ReportLab sets it. The bytes hold no clock: the date of the PDF is that of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from html import escape
from io import BytesIO
from typing import Final

from PIL import Image as Pillow
from reportlab import rl_config
from reportlab.lib.colors import Color
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import registerFont, registerFontFamily
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, Image, Paragraph, SimpleDocTemplate, Spacer, Table

from hilum.report.heat_map.blocks import Picture, drawable, font_file
from hilum.report.heat_map.panel import Panel, pictured, with_scale
from hilum.report.result_sheet.content import FindingLine, SheetContent, SheetImage

_PLAIN: Final = "HilumSans"
_BOLD: Final = "HilumSans-Bold"
_MARGIN: Final = 14 * mm
_FOOT: Final = 10 * mm
_PADDING: Final = 6  # of ReportLab's frame
_WIDTH: Final = A4[0] - 2 * _MARGIN - 2 * _PADDING
_GAP: Final = 5 * mm
_LEFT: Final = 64 * mm
_RIGHT: Final = _WIDTH - _LEFT - _GAP
_HIGHEST: Final = 95 * mm  # of a picture: the words below it shall stay on the page
_LONGEST: Final = 0.7 * A4[1]  # of a table beside a picture: such a row cannot be parted
_PIXELS: Final = 560  # of the longer side of a picture
_MAP_PIXELS: Final = 400
_MAP_HEIGHT: Final = 60 * mm
_ALERT: Final = Color(0.6, 0.25, 0)
_GREY: Final = Color(0.35, 0.35, 0.35)
_NUMBERS: Final = (13 * mm, 19 * mm, 18 * mm, 24 * mm)
_NAME_WIDTH: Final = 32 * mm
_TIGHT: Final = [
    ("LEFTPADDING", (0, 0), (-1, -1), 0),
    ("RIGHTPADDING", (0, 0), (-1, -1), 4),
    ("TOPPADDING", (0, 0), (-1, -1), 1),
    ("BOTTOMPADDING", (0, 0), (-1, -1), 1),
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ("FONT", (0, 0), (-1, -1), _PLAIN, 8),
]


def sheet_pdf(content: SheetContent, created_at: float) -> bytes:
    """Return the PDF. `created_at`: the time of the result, seconds since 1970.

    The same content gives the same bytes.
    """
    _register_fonts()
    target = BytesIO()
    document = SimpleDocTemplate(
        target,
        pagesize=A4,
        leftMargin=_MARGIN,
        rightMargin=_MARGIN,
        topMargin=_MARGIN,
        bottomMargin=_MARGIN + _FOOT,
        title=content.title,
        author=dict(content.provenance).get("Program", ""),
        subject=content.subtitle,
        creator="Hilum",
        invariant=1,
        initialFontName=_PLAIN,
        lang="en",
    )
    draw = partial(_draw_frame, content=content, created_at=created_at)
    document.build(
        list(_story(content)),
        onFirstPage=draw,
        onLaterPages=draw,
    )
    return target.getvalue()


@lru_cache(maxsize=1)
def _register_fonts() -> None:
    rl_config.useA85 = 0  # streams of bytes, not of letters: a fifth smaller, and sooner done
    registerFont(TTFont(_PLAIN, font_file()))
    registerFont(TTFont(_BOLD, font_file(is_bold=True)))
    registerFontFamily(_PLAIN, normal=_PLAIN, bold=_BOLD, italic=_PLAIN, boldItalic=_BOLD)


def _draw_frame(
    canvas: Canvas, document: SimpleDocTemplate, *, content: SheetContent, created_at: float
) -> None:
    """Draw the foot of each page, which is read alone when pages are parted."""
    moment = datetime.fromtimestamp(created_at, UTC)
    canvas.setDateFormatter(lambda *_: f"D:{moment:%Y%m%d%H%M%S}+00'00'")
    canvas.setFont(_PLAIN, 7)
    canvas.setFillColor(_GREY)
    study = dict(content.provenance)["Study"]
    canvas.drawString(_MARGIN + _PADDING, _MARGIN, f"{content.title}. Study {study}")
    canvas.drawRightString(A4[0] - _MARGIN - _PADDING, _MARGIN, f"page {document.page}")


def _story(content: SheetContent) -> Iterator[Flowable]:
    yield _text(content.title, 15, _ALERT, is_bold=True)
    yield _text(content.subtitle, 9)
    for warning in content.warnings:
        yield _text(warning, 9, _ALERT, is_bold=True)
    yield Spacer(0, _GAP / 2)
    yield from _body(content)
    if content.maps:
        yield Spacer(0, _GAP / 2)
        yield _maps(content.maps)
    if content.map_note:
        yield _text(content.map_note, 7, _GREY)
    yield Spacer(0, _GAP / 2)
    yield from _remarks(content)
    yield Spacer(0, _GAP / 2)
    yield _provenance(content)
    yield Spacer(0, _GAP / 2)
    yield _text(content.disclaimer, 9, _ALERT, is_bold=True)


def _body(content: SheetContent) -> Iterator[Flowable]:
    """Yield pictures at the left and findings at the right; a table that is long by itself."""
    if content.reason:
        yield _text(content.reason, 10, _ALERT)
    if not content.images:
        yield from _findings(content, _WIDTH)
        return
    beside = list(_findings(content, _RIGHT))
    if sum(piece.wrap(_RIGHT, A4[1])[1] for piece in beside) < _LONGEST:
        in_a_row = 1 if len(content.images) == 1 else 2
        pictures = _pictures(content.images, in_a_row, _LEFT)
        widths = [_LEFT + _GAP, _RIGHT]
        yield Table([[pictures, beside]], colWidths=widths, style=_TIGHT, hAlign="LEFT")
        return
    yield _pictures(content.images, max(len(content.images), 3), _WIDTH)
    yield from _findings(content, _WIDTH)


def _pictures(images: Sequence[SheetImage], in_a_row: int, width: float) -> Table:
    """Return the pictures as rows of so many, each with the words below it."""
    each = width / in_a_row
    cells = [list(_captioned(image, each - 4)) for image in images]
    rows = [cells[start : start + in_a_row] for start in range(0, len(cells), in_a_row)]
    rows[-1] += [[]] * (in_a_row - len(rows[-1]))
    return Table(rows, colWidths=[each] * in_a_row, style=_TIGHT, hAlign="LEFT")


def _captioned(image: SheetImage, width: float) -> Iterator[Flowable]:
    if image.panel is not None:
        yield _picture(pictured(image.panel, _PIXELS), width, _HIGHEST)
    yield _text(image.caption, 7)


def _picture(picture: Picture, width: float, height: float) -> Image:
    """Return the picture as large as fits, with its pixels as they are."""
    target = BytesIO()
    grey = picture.convert("L")
    is_grey = Pillow.merge("RGB", (grey, grey, grey)).tobytes() == picture.tobytes()
    (grey if is_grey else picture).save(target, "PNG")
    target.seek(0)
    factor = min(width / picture.width, height / picture.height)
    return Image(target, picture.width * factor, picture.height * factor, hAlign="LEFT")


def _findings(content: SheetContent, width: float) -> Iterator[Flowable]:
    if not content.findings:
        return
    has_probability = content.has_probabilities
    numbers = _NUMBERS if has_probability else (_NUMBERS[0], *_NUMBERS[2:])
    head = ["Finding", "Score", "Probability", "Operating point", "Result"]
    named = head if has_probability else [*head[:2], *head[3:]]
    rows = [[_text(text, 7, _GREY) for text in named]]
    rows += [_cells(row, has_probability=has_probability) for row in content.findings]
    line = ("LINEBELOW", (0, 0), (-1, 0), 0.5, _GREY)
    yield Table(
        rows,
        colWidths=[width - sum(numbers), *numbers],
        style=[*_TIGHT, line],
        repeatRows=1,
        hAlign="LEFT",
    )
    yield _text(content.remark, 7, _GREY)


def _cells(row: FindingLine, *, has_probability: bool) -> list[Paragraph]:
    said = [row.text, row.score, row.probability, row.operating_point, row.decision]
    shown = said if has_probability else [*said[:2], *said[3:]]
    colour = _ALERT if row.is_present else None
    return [_text(text, 8, colour, is_bold=row.is_present) for text in shown]


def _maps(maps: Sequence[Panel]) -> Table:
    """Return the heat maps in a row, each with its words as text above it."""
    width = _WIDTH / max(len(maps), 2)
    columns = [
        [
            *(_text(line.text, 7) for line in panel.heading),
            _picture(with_scale(panel, _MAP_PIXELS), width - 4, _MAP_HEIGHT),
        ]
        for panel in maps
    ]
    return Table([columns], colWidths=[width] * len(maps), style=_TIGHT, hAlign="LEFT")


def _remarks(content: SheetContent) -> Iterator[Paragraph]:
    if content.doubts:
        yield _text("In doubt, or not used", 8, _ALERT, is_bold=True)
    for text in content.doubts:
        yield _text(text, 8, _ALERT)
    for text in content.notes:
        yield _text(text, 8)


def _provenance(content: SheetContent) -> Table:
    rows = [[_text(name, 7, _GREY), _text(value, 7)] for name, value in content.provenance]
    return Table(rows, colWidths=[_NAME_WIDTH, _WIDTH - _NAME_WIDTH], style=_TIGHT, hAlign="LEFT")


def _text(
    text: str, size: float, colour: Color | None = None, *, is_bold: bool = False
) -> Paragraph:
    """Return words that are wrapped, also within a word that is too long."""
    style = ParagraphStyle(
        "words",
        fontName=_BOLD if is_bold else _PLAIN,
        fontSize=size,
        leading=size * 1.25,
        textColor=colour or Color(0, 0, 0),
        splitLongWords=1,
    )
    return Paragraph(escape(drawable(text), quote=False), style)
