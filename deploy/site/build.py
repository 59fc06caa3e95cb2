"""`make docs-site`: the documentation as a site in state/site, which needs no network to be read.

The pages of docs/ and those of the root are staged in state/site-pages. There a link to a file that
is no page becomes its plain name, and a Mermaid diagram becomes a picture. MkDocs then builds the
site. It fails on a broken link, and this script fails where a page would load something from
elsewhere. It runs in .venv/docs, and imports nothing of Hilum.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parents[1]
DOCS: Final = ROOT / "docs"
CONFIGURATION: Final = FOLDER / "mkdocs.yml"
PAGES: Final = ROOT / "state/site-pages"
SITE: Final = ROOT / "state/site"
# Pages of the root that the site has, too.
PROJECT: Final = ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")
_ICON: Final = ROOT / "server/hilum/api/pages/icon.svg"
_LINK: Final = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_CODE: Final = re.compile(r"(^```.*?^```$|``[^\n]+?``|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_PICTURE: Final = re.compile(r'((?:src|srcset)=")([^"]+)(")')
_MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOADED: Final = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)="
    r"[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
_LOADED_BY_STYLE: Final = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")


def main() -> int:
    """Exit status 0: the site is built, and loads nothing from elsewhere."""
    stage()
    draw_diagrams()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean"]
    command += ["-f", str(CONFIGURATION)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    if subprocess.run(command, check=False, env=environment).returncode:
        return 1
    found = [f"{path}: {address}" for path, address in loaded_from_elsewhere(SITE)]
    print("\n".join(found) or f"{SITE.relative_to(ROOT)}/index.html")
    return 1 if found else 0


def stage() -> None:
    """Write the pages as MkDocs reads them."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES)
    (PAGES / "project").mkdir()
    for source, target in staged().items():
        text = source.read_text(encoding="utf-8")
        (PAGES / target).write_text(mended(text, source, target), encoding="utf-8")
    shutil.copy(_ICON, PAGES / "pictures/icon.svg")
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(FOLDER / name, PAGES / name)


def staged() -> Mapping[Path, str]:
    """Each page of the repository → its name in the site."""
    pages = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    return pages | {ROOT / f"{name}.md": f"project/{name}.md" for name in PROJECT}


def mended(text: str, source: Path, target: str) -> str:
    """The page with links and pictures that hold in the site. Code stays as it is."""
    parts = _CODE.split(_linked_code(text))
    mend = [
        part
        if number % 2
        else _PICTURE.sub(
            lambda found: found[1] + _address(found[2], source, target, "") + found[3],
            _LINK.sub(lambda found: _link(found, source, target), part),
        )
        for number, part in enumerate(parts)
    ]
    return "".join(mend)


def _linked_code(text: str) -> str:
    """Links whose words are code, as [`name`](address): their words lose the marks of code."""
    return re.sub(r"(?<!!)\[`([^`\]]+)`\](?=\([^)\s]+\))", r"[\1]", text)


def _link(found: re.Match[str], source: Path, target: str) -> str:
    words, address, anchor = found[1], found[2], found[3] or ""
    if not address or "://" in address:
        return found[0]
    there = _address(address, source, target, anchor)
    return f"[{words}]({there})" if there else f"`{words}`"


def _address(address: str, source: Path, target: str, anchor: str) -> str:
    """The address from the staged page; "" where the file is not in the site."""
    file = Path(os.path.normpath(source.parent / address))
    pages = staged()
    if file == DOCS / "decisions":
        file /= "README.md"
    if file == DOCS:
        file /= "README.md"
    if file in pages:
        name = pages[file]
    elif file.is_relative_to(DOCS) and file.is_file():
        name = file.relative_to(DOCS).as_posix()
    else:
        return ""
    return os.path.relpath(name, Path(target).parent) + anchor


def draw_diagrams() -> None:
    """Each Mermaid diagram becomes a picture, so that no reader's browser needs Mermaid."""
    import mermaidx  # noqa: PLC0415 - a package of .venv/docs only

    for path in sorted(PAGES.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        drawn = _MERMAID.sub(lambda found: _diagram(mermaidx.render(found[1]).svg()), text)
        if drawn != text:
            path.write_text(drawn, encoding="utf-8")


_drawn: Final[list[str]] = []


def _diagram(svg: str) -> str:
    """A picture in the page. Its style names its id, and a page has several."""
    _drawn.append(svg)
    found = re.search(r'<svg[^>]*\bid="([^"]+)"', svg)
    if found:
        svg = svg.replace(found[1], f"diagram-{len(_drawn)}")
    return f'<div class="diagram">{svg}</div>'.replace("\n", " ")


def loaded_from_elsewhere(site: Path) -> Iterator[tuple[str, str]]:
    """Each page and style with an address that a browser would load by itself.

    A link that a person may follow is none. The search and the theme have no address of their own:
    the check of a real browser is in the tests.
    """
    for path in sorted(site.rglob("*")):
        if path.suffix not in {".html", ".css"}:
            continue
        text = path.read_text(encoding="utf-8")
        pattern = _LOADED if path.suffix == ".html" else _LOADED_BY_STYLE
        for found in pattern.findall(text):
            address = found if isinstance(found, str) else "".join(found)
            yield path.relative_to(site).as_posix(), address


def nav() -> Iterator[str]:
    """Each page that the navigation names, in its order."""
    configuration = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    yield from _leaves(configuration["nav"])


def _leaves(item: object) -> Iterator[str]:
    if isinstance(item, str):
        yield item
        return
    parts = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    for part in parts:
        yield from _leaves(part)


if __name__ == "__main__":
    sys.exit(main())
