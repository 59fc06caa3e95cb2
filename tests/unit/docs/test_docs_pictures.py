"""The pictures of the README: the diagram is what the script draws, none is large."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from deploy import docs_diagram

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURES = re.findall(r'(?:src|srcset)="([^"]+)"', README)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_diagram_is_what_the_script_draws(theme: str) -> None:
    committed = docs_diagram.FOLDER / f"diagram-{theme}.svg"
    assert committed.read_text(encoding="utf-8") == docs_diagram.svg(theme), "make docs-pictures"
    assert ElementTree.fromstring(docs_diagram.svg(theme)).tag.endswith("svg")


def test_each_picture_of_the_readme_is_there_and_small() -> None:
    assert len(PICTURES) >= 4
    assert [name for name in PICTURES if not (ROOT / name).is_file()] == []
    assert [name for name in PICTURES if (ROOT / name).stat().st_size > 200_000] == []
