"""The documentation site as a reader opens it: from a folder, without a network, with a search."""

from __future__ import annotations

import subprocess

import pytest

from deploy.site import build
from tests.support.peers.peers import missing, require_program

sync_api = pytest.importorskip("playwright.sync_api")
PYTHON = build.ROOT / ".venv/docs/bin/python"
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.mark.slow
def test_the_site_opens_from_a_folder_and_finds_words_without_a_network() -> None:
    program = require_program("chromium", "chromium")
    if not PYTHON.exists():
        missing("the site is not set up: make docs-site")
    done = subprocess.run(
        [PYTHON, build.FOLDER / "build.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        tab = browser.new_page()
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((build.SITE / "reference/states.html").as_uri())
        assert tab.locator(".diagram svg").count() >= 7
        tab.locator("input[name=query]").click()
        tab.keyboard.type("storage commitment")
        tab.locator(".md-search-result__item a").first.wait_for()
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        browser.close()
