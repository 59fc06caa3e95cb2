"""The README's diagram, docs/pictures/diagram-light.svg and diagram-dark.svg: the way of an image.

`make docs-pictures` writes it. GitHub and the documentation site choose by the reader's theme.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs/pictures"
_SIZE: Final = (880, 330)
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
# Of each theme: words, quiet words, lines, boxes of others, our box, our stages and their words.
_THEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "light": {
        "word": "#1f2328",
        "quiet": "#59636e",
        "line": "#818b98",
        "box": "#f6f8fa",
        "ours": "#e7f3f4",
        "accent": "#0c6b75",
        "stage": "#0c6b75",
        "stage_word": "#ffffff",
    },
    "dark": {
        "word": "#f0f6fc",
        "quiet": "#9198a1",
        "line": "#7d8590",
        "box": "#161b22",
        "ours": "#0f2a2e",
        "accent": "#4fb3bf",
        "stage": "#4fb3bf",
        "stage_word": "#06181b",
    },
}
_STAGES: Final = ("receive", "analyse", "assemble", "report", "deliver")
_OTHERS: Final = (
    # x, y, width, height, title, second line
    (6, 62, 142, 58, "PACS or router", "CR and DX images"),
    (6, 150, 142, 58, "Files, STOW-RS", "archives, folders"),
    (724, 62, 150, 58, "PACS", "reports beside images"),
    (724, 150, 150, 58, "Programs", "worklists, research"),
    (262, 268, 190, 52, "NVIDIA Triton", "your models, CPU or GPU"),
)
_ARROWS: Final = (
    # from x, y to x, y, word, x and y of the word, both ways
    (148, 91, 216, 91, "C-STORE", 182, 82, False),
    (148, 179, 216, 179, "files", 182, 170, False),
    (664, 91, 720, 91, "SR", 690, 82, False),
    (664, 179, 720, 179, "JSON", 690, 170, False),
    (357, 222, 357, 264, "tensors, logits", 367, 248, True),
)


def svg(theme: str) -> str:
    """The whole picture."""
    colours = _THEMES[theme]
    width, height = _SIZE
    parts = (*_ours(colours), *_others(colours), *_arrows(colours))
    return "\n".join(
        (
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
                f' font-family="{_FONT}" font-size="14">'
            ),
            (
                "<title>Images come from the PACS to Hilum, Triton reads them, and reports go back"
                "</title>"
            ),
            (
                f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
                f' markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"'
                f' fill="{colours["line"]}"/></marker></defs>'
            ),
            *parts,
            "</svg>\n",
        )
    )


def _ours(colours: Mapping[str, str]) -> Iterator[str]:
    """Hilum: its stages, and below them the two places where it keeps things."""
    yield _box(220, 20, 440, 200, colours["ours"], colours["accent"])
    yield _word(236, 47, "Hilum", colours["accent"], "font-size='18' font-weight='700'")
    yield _word(644, 46, "one command, or a few roles", colours["quiet"], "text-anchor='end'")
    for number, stage in enumerate(_STAGES):
        x = 232 + 84 * number
        yield _box(x, 74, 80, 34, colours["stage"], colours["stage"])
        yield _word(x + 40, 96, stage, colours["stage_word"], _MIDDLE)
    for x, title, second in (
        (232, "Archive", "each image, as it was received"),
        (444, "Ledger", "SQLite or PostgreSQL"),
    ):
        yield _box(x, 140, 204, 58, colours["box"], colours["line"])
        yield _word(x + 102, 164, title, colours["word"], f"{_MIDDLE} font-weight='600'")
        yield _word(x + 102, 184, second, colours["quiet"], f"{_MIDDLE} font-size='12'")


def _others(colours: Mapping[str, str]) -> Iterator[str]:
    for x, y, width, height, title, second in _OTHERS:
        middle = x + width // 2
        yield _box(x, y, width, height, colours["box"], colours["line"])
        yield _word(middle, y + 25, title, colours["word"], f"{_MIDDLE} font-weight='600'")
        yield _word(middle, y + 44, second, colours["quiet"], f"{_MIDDLE} font-size='12'")


def _arrows(colours: Mapping[str, str]) -> Iterator[str]:
    for x, y, to_x, to_y, word, word_x, word_y, is_both in _ARROWS:
        start = ' marker-start="url(#tip)"' if is_both else ""
        yield (
            f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{colours["line"]}" stroke-width="1.5"'
            f' marker-end="url(#tip)"{start}/>'
        )
        anchor = "" if is_both else _MIDDLE
        yield _word(word_x, word_y, word, colours["quiet"], f"{anchor} font-size='12'")


_MIDDLE: Final = "text-anchor='middle'"


def _box(x: int, y: int, width: int, height: int, fill: str, stroke: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}"'
        f' stroke="{stroke}"/>'
    )


def _word(x: int, y: int, text: str, fill: str, attributes: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{fill}" {attributes.strip()}>{text}</text>'


def write() -> None:
    """Both themes."""
    for theme in _THEMES:
        path = FOLDER / f"diagram-{theme}.svg"
        path.write_text(svg(theme), encoding="utf-8")
        print(f"docs/pictures/{path.name}: {path.stat().st_size} bytes")
