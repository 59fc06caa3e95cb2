"""The pages in a real browser (Debian's Chromium): keys, refresh, the policy, the password, forms of other sites, narrow screens.

Screenshots of all pages are written to the folder that SCREENSHOTS names.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import gallery
from tests.support.api_client import TOKEN, Rig, open_rig
from tests.support.peers import require_program

sync_api = pytest.importorskip("playwright.sync_api")
PAGES = ["/", f"/studies/{gallery.TRAINED}", f"/studies/{gallery.DEAD}", f"/studies/{gallery.FAILED}", "/associations"]
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = require_program("chromium", "chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        yield launched
        launched.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with open_rig(tmp_path) as opened:
        gallery.fill(opened)
        yield opened


@pytest.fixture
def address(rig: Rig) -> Iterator[str]:
    with gallery.served(rig) as url:
        yield url


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """For tests that change nothing."""
    with open_rig(tmp_path_factory.mktemp("pages")) as opened:
        gallery.fill(opened)
        with gallery.served(opened) as url:
            yield url


@contextmanager
def opened(browser: Any, **options: Any) -> Iterator[Any]:
    """A tab in a profile of its own. Fails the test on a dialog (somebody's script ran) and on an error in ours."""
    context = browser.new_context(**options)
    tab = context.new_page()
    tab.errors = []
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.on("dialog", lambda dialog: tab.errors.append(f"dialog: {dialog.message}"))
    tab.on("console", lambda said: tab.errors.append(said.text) if "Content Security Policy" in said.text else None)
    try:
        yield tab
        assert tab.errors == []
    finally:
        context.close()


def focused(tab: Any) -> str:
    """The address of the link that has the focus, or the words of another element."""
    found: str = tab.evaluate(
        "document.activeElement.getAttribute('href') || document.activeElement.id || document.activeElement.textContent"
    )
    return found


def test_pages_load_nothing_from_elsewhere_and_show_their_pictures(browser: Any, read_only: str) -> None:
    with opened(browser, viewport={"width": 1280, "height": 900}) as tab:
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        for path in PAGES:
            tab.goto(read_only + path)
            tab.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
            tab.wait_for_load_state("networkidle")
            widths = tab.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
            assert all(widths), f"a picture of {path} does not show"
        assert [url for url in asked if not url.startswith(read_only + "/")] == []
        assert any(url.endswith(".png") for url in asked)


def test_keys(browser: Any, read_only: str) -> None:
    with opened(browser) as tab:
        tab.goto(read_only)
        tab.keyboard.press("j")
        assert focused(tab) == f"/studies/{gallery.COLLECTING}"
        tab.keyboard.press("j")
        tab.keyboard.press("j")
        tab.keyboard.press("k")
        assert focused(tab) == f"/studies/{gallery.LATERAL}"
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"**/studies/{gallery.LATERAL}")
        tab.keyboard.press("u")
        tab.wait_for_url(f"{read_only}/")
        tab.keyboard.press("?")
        assert tab.locator("#help").is_visible()
        tab.keyboard.press("j")
        tab.keyboard.press("Escape")
        assert not tab.locator("#help").is_visible()


def test_the_filter_narrows_while_typing(browser: Any, read_only: str) -> None:
    with opened(browser) as tab:
        tab.goto(read_only)
        tab.keyboard.press("/")
        tab.keyboard.type("needs a person")
        assert tab.locator("[data-line]:visible").count() == 2
        tab.locator("#filter").fill("nothing like this")
        assert tab.locator("#nothing").is_visible()
        tab.locator("#filter").fill(gallery.DEAD)
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"**/studies/{gallery.DEAD}")


def test_requeue_by_keys_alone(browser: Any, address: str) -> None:
    with opened(browser) as tab:
        tab.goto(f"{address}/?show=needs_person")
        tab.keyboard.press("j")
        tab.keyboard.press("r")
        tab.wait_for_url(f"**/studies/{gallery.DEAD}#requeue")
        tab.wait_for_function("document.activeElement.textContent === 'Send 1 document again'")
        tab.keyboard.press("Enter")
        tab.get_by_text("1 item is due again.").wait_for()
        assert tab.locator("#requeue").count() == 0


def test_everything_can_be_read_and_requeued_without_script(browser: Any, address: str) -> None:
    with opened(browser, java_script_enabled=False) as tab:
        tab.goto(address)
        assert tab.locator("[data-line]").count() == 6
        tab.locator(f"a[href='/studies/{gallery.DEAD}']").click()
        tab.get_by_role("button", name="Send 1 document again").click()
        tab.get_by_text("1 item is due again.").wait_for()


def test_the_list_refreshes_in_place_and_keeps_the_focus(browser: Any, rig: Rig, address: str) -> None:
    with opened(browser) as tab:
        tab.clock.install()
        tab.goto(address)
        tab.evaluate("window.sameDocument = true")
        tab.keyboard.press("j")
        tab.keyboard.press("j")
        before = focused(tab)
        rig.clock.now += 60
        rig.street.receive("1.2.3.4711", 1)
        tab.clock.run_for(6000)
        tab.locator("a[href='/studies/1.2.3.4711']").wait_for()
        assert focused(tab) == before
        assert tab.evaluate("window.sameDocument") is True


def test_a_server_that_does_not_answer_is_said(browser: Any, rig: Rig) -> None:
    with opened(browser) as tab:
        tab.clock.install()
        with gallery.served(rig) as url:
            tab.goto(f"{url}/studies/{gallery.TRAINED}")
        tab.clock.run_for(6000)
        tab.get_by_text("Not up to date").wait_for()


def test_no_page_is_wider_than_the_screen(browser: Any, read_only: str) -> None:
    folder = os.environ.get("SCREENSHOTS")
    with opened(browser) as tab:
        for scheme, width in itertools.product(("light", "dark"), (1280, 400)):
            tab.emulate_media(color_scheme=scheme)
            tab.set_viewport_size({"width": width, "height": 900})
            for number, path in enumerate(PAGES):
                tab.goto(read_only + path)
                assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
                ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (ground == "rgb(15, 21, 24)") == (scheme == "dark")
                if folder:
                    tab.wait_for_load_state("networkidle")
                    tab.screenshot(path=Path(folder, f"page{number}-{scheme}-{width}.png"), full_page=True)


def test_the_browser_asks_for_the_token_once(browser: Any, tmp_path: Path) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig, gallery.served(rig) as url:
        gallery.fill(rig)
        with opened(browser) as tab, pytest.raises(sync_api.Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
            tab.goto(url)
        with opened(browser, http_credentials={"username": "anybody", "password": TOKEN}) as tab:
            tab.goto(f"{url}/studies/{gallery.TRAINED}")
            tab.wait_for_load_state("networkidle")
            assert all(tab.eval_on_selector_all("img:not([loading])", "images => images.map(image => image.naturalWidth)"))
            tab.goto(f"{url}/studies/{gallery.DEAD}")
            tab.get_by_role("button", name="Send 1 document again").click()
            tab.get_by_text("1 item is due again.").wait_for()


@pytest.mark.parametrize("path", [f"/studies/{gallery.DEAD}/requeue", "/api/v1/requeue"])
def test_a_form_of_another_site_is_refused(browser: Any, rig: Rig, address: str, path: str) -> None:
    form = f"<form method=post action='{address}{path}'><input name=stage value=deliver></form><script>document.forms[0].submit()</script>"
    with opened(browser) as tab:
        tab.route("http://evil.example/", lambda route: route.fulfill(body=form, content_type="text/html"))
        with tab.expect_response(address + path) as answered:
            tab.goto("http://evil.example/", wait_until="commit")
        assert answered.value.status == 403
    states = [item["deliveries"] for item in rig.get("/api/v1/studies")["studies"] if item["study_instance_uid"] == gallery.DEAD]
    assert states == [{"dead": 1}]
