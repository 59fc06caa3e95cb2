"""The documentation site: each page once in the navigation, links that hold, nothing from afar."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.site import build

LOADING = {
    "a.html": '<script src="https://unpkg.com/a.js"></script>',
    "b.html": "<link rel=stylesheet href=//fonts.example.org/a.css>",
    "c.html": '<img alt="x" src="http://example.org/a.png">',
    "d.css": "@import url(https://fonts.example.org/a.css);",
}
HARMLESS = {
    "a.html": '<a href="https://example.org">a page for people</a><img src="pictures/a.png">',
    "b.css": "a { background: url(data:image/png;base64,AA) }",
}


def test_each_page_is_once_in_the_navigation() -> None:
    found = list(build.nav())
    apart = {
        name
        for name in build.staged().values()
        if name.startswith("decisions/") and not name.endswith("README.md")
    }
    assert sorted(found) == sorted(set(build.staged().values()) - apart)


def test_each_decision_is_once_on_the_page_of_decisions() -> None:
    text = (build.DOCS / "decisions/README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([a-z0-9-]+\.md)\)", text)
    there = {path.name for path in (build.DOCS / "decisions").glob("*.md")} - {"README.md"}
    assert sorted(linked) == sorted(there)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("[a](docs/start/glossary.md)", "[a](../start/glossary.md)"),
        ("[a](docs/start/glossary.md#terms)", "[a](../start/glossary.md#terms)"),
        ("[a](CHANGELOG.md)", "[a](CHANGELOG.md)"),
        ("[why](docs/decisions)", "[why](../decisions/README.md)"),
        ("[a](pyproject.toml)", "`a`"),
        ("[`a`](pyproject.toml)", "`a`"),
        ("[a](https://example.org)", "[a](https://example.org)"),
        ("`[a](pyproject.toml)`", "`[a](pyproject.toml)`"),
        ('<img src="docs/pictures/study.png">', '<img src="../pictures/study.png">'),
    ],
)
def test_a_link_holds_in_the_site(given: str, expected: str) -> None:
    assert build.mended(given, build.ROOT / "README.md", "project/README.md") == expected


@pytest.mark.parametrize("name", LOADING)
def test_an_address_that_a_browser_would_load_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LOADING[name])
    assert [path for path, _ in build.loaded_from_elsewhere(tmp_path)] == [name]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_link_for_people_and_a_file_of_the_site_are_allowed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(HARMLESS[name])
    assert list(build.loaded_from_elsewhere(tmp_path)) == []
