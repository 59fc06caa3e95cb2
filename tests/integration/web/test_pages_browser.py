"""The pages in a real browser (Debian's Chromium).

Keys, refresh, the policy, the password, forms of other sites, narrow screens.

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

from tests.support.peers.peers import require_program
from tests.support.server import gallery
from tests.support.server.api_client import TOKEN, Rig, open_rig

sync_api = pytest.importorskip("playwright.sync_api")
PAGES = [
    "/",
    *(f"/studies/{uid}" for uid in (gallery.TRAINED, gallery.DEAD, gallery.FAILED)),
    "/campaigns",
    "/campaigns/chest-2019",
    "/campaigns/ten-years",
    "/associations",
    "/destinations",
    "/find",
]
_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Address(str):
    """Of pages, and what serves them."""

    rig: Rig

    @classmethod
    def of(cls, url: str, rig: Rig) -> Address:
        """Both."""
        made = cls(url)
        made.rig = rig
        return made


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
def address(rig: Rig) -> Iterator[Address]:
    with gallery.served(rig) as url:
        yield Address.of(url, rig)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """For tests that change nothing."""
    with open_rig(tmp_path_factory.mktemp("pages"), api={"show_identifiers": True}) as opened:
        gallery.fill(opened)
        with gallery.served(opened) as url:
            yield Address.of(url, opened)


@contextmanager
def opened(browser: Any, address: Address | None = None, **options: Any) -> Iterator[Any]:
    """A tab in a profile of its own, logged in where an address is given.

    Fails the test on a dialog (somebody's script ran) and on an error in ours.
    """
    context = browser.new_context(**options)
    if address is not None:
        access = address.rig.access
        cookie = access.sessions.begin(access.local, "browser")
        context.add_cookies(
            [
                {
                    "name": access.cookie_name,
                    "value": cookie,
                    "url": "http://127.0.0.1",
                    "sameSite": "Strict",
                }
            ]
        )
    tab = context.new_page()
    tab.errors = []
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.on("dialog", lambda dialog: tab.errors.append(f"dialog: {dialog.message}"))
    tab.on(
        "console",
        lambda said: (
            tab.errors.append(said.text) if "Content Security Policy" in said.text else None
        ),
    )
    try:
        yield tab
        assert tab.errors == []
    finally:
        context.close()


def login_link(address: Address) -> str:
    """A link that logs in once, with the address under which the pages are served here."""
    return address + address.rig.access.links.make("jane").partition(":8640")[2]


def focused(tab: Any) -> str:
    """The address of the link that has the focus, or the words of another element."""
    found: str = tab.evaluate(
        "document.activeElement.getAttribute('href') || document.activeElement.id ||"
        " document.activeElement.textContent"
    )
    return found


def test_pages_load_nothing_from_elsewhere_and_show_their_pictures(
    browser: Any, read_only: Address
) -> None:
    with opened(browser, read_only, viewport={"width": 1280, "height": 900}) as tab:
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        for path in PAGES:
            tab.goto(read_only + path)
            tab.evaluate(
                "document.querySelectorAll('img').forEach(image => image.loading = 'eager')"
            )
            tab.wait_for_load_state("networkidle")
            widths = tab.eval_on_selector_all(
                "img", "images => images.map(image => image.naturalWidth)"
            )
            assert all(widths), f"a picture of {path} does not show"
        assert [url for url in asked if not url.startswith(read_only + "/")] == []
        assert any(url.endswith(".png") for url in asked)


def test_keys(browser: Any, read_only: Address) -> None:
    with opened(browser, read_only) as tab:
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


def test_the_filter_narrows_while_typing(browser: Any, read_only: Address) -> None:
    with opened(browser, read_only) as tab:
        tab.goto(read_only)
        tab.keyboard.press("/")
        tab.keyboard.type("needs a person")
        assert tab.locator("[data-line]:visible").count() == 2
        tab.locator("#filter").fill("nothing like this")
        assert tab.locator("#nothing").is_visible()
        tab.locator("#filter").fill(gallery.DEAD)
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"**/studies/{gallery.DEAD}")


def test_requeue_by_keys_alone(browser: Any, address: Address) -> None:
    with opened(browser, address) as tab:
        tab.goto(f"{address}/?show=needs_person")
        tab.keyboard.press("j")
        tab.keyboard.press("r")
        tab.wait_for_url(f"**/studies/{gallery.DEAD}#requeue")
        tab.wait_for_function("document.activeElement.textContent === 'Send 1 document again'")
        tab.keyboard.press("Enter")
        tab.get_by_text("1 item is due again.").wait_for()
        assert tab.locator("#requeue").count() == 0


def test_everything_can_be_read_and_requeued_without_script(browser: Any, address: Address) -> None:
    with opened(browser, address, java_script_enabled=False) as tab:
        tab.goto(address)
        assert tab.locator("[data-line]").count() == 6
        tab.locator(f"a[href='/studies/{gallery.DEAD}']").click()
        tab.get_by_role("button", name="Send 1 document again").click()
        tab.get_by_text("1 item is due again.").wait_for()
        tab.get_by_role("link", name="Destinations").first.click()
        tab.get_by_role("button", name="Pause: pacs").click()
        tab.get_by_text("pacs is paused.").wait_for()


def test_a_search_by_a_number_leaves_no_trace_in_the_address(
    browser: Any, read_only: Address
) -> None:
    with opened(browser, read_only, java_script_enabled=False) as tab:
        tab.goto(read_only)
        tab.locator("#find summary").click()
        tab.get_by_label("Patient ID").fill("PID-4711")
        tab.get_by_role("button", name="Find").click()
        tab.get_by_text("No studies found").wait_for()
        assert tab.url == f"{read_only}/find"


def test_the_list_refreshes_in_place_and_keeps_the_focus(
    browser: Any, rig: Rig, address: Address
) -> None:
    with opened(browser, address) as tab:
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


def test_a_page_says_that_its_server_does_not_answer(browser: Any, read_only: Address) -> None:
    with opened(browser, read_only) as tab:
        tab.clock.install()
        with gallery.served(read_only.rig) as url:
            tab.goto(f"{url}/studies/{gallery.TRAINED}")
        tab.clock.run_for(6000)
        tab.get_by_text("Not up to date").wait_for()


def test_no_page_is_wider_than_the_screen(browser: Any, read_only: Address) -> None:
    folder = os.environ.get("SCREENSHOTS")
    with opened(browser, read_only) as tab:
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
                    tab.screenshot(
                        path=Path(folder, f"page{number}-{scheme}-{width}.png"), full_page=True
                    )


def test_a_page_is_the_form_to_log_in_and_then_the_page(browser: Any, tmp_path: Path) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig, gallery.served(rig) as url:
        gallery.fill(rig)
        with opened(browser) as tab:
            tab.goto(f"{url}/studies/{gallery.TRAINED}")
            tab.get_by_label("Token", exact=True).fill("wrong")
            tab.get_by_role("button", name="Log in").click()
            tab.get_by_role("alert").wait_for()
            tab.goto(f"{url}/studies/{gallery.TRAINED}")
            tab.get_by_label("Your name").fill("jane")
            tab.get_by_label("Token", exact=True).fill(TOKEN)
            tab.get_by_role("button", name="Log in").click()
            tab.wait_for_url(f"{url}/studies/{gallery.TRAINED}")
            tab.wait_for_load_state("networkidle")
            assert all(
                tab.eval_on_selector_all(
                    "img:not([loading])", "images => images.map(image => image.naturalWidth)"
                )
            )
            tab.goto(f"{url}/studies/{gallery.DEAD}")
            tab.get_by_role("button", name="Send 1 document again").click()
            tab.get_by_text("1 item is due again.").wait_for()
            tab.get_by_role("link", name="Access").click()
            tab.get_by_text("settings/jane").wait_for()
            tab.get_by_role("button", name="Log out").click()
            tab.get_by_role("heading", name="Log in").wait_for()
            tab.goto(url)
            tab.get_by_role("button", name="Log in").wait_for()


@pytest.mark.parametrize("has_script", [True, False])
def test_a_link_logs_a_browser_in_once(browser: Any, read_only: Address, has_script: bool) -> None:
    link = login_link(read_only)
    with opened(browser, java_script_enabled=has_script) as tab:
        tab.goto(link)
        tab.wait_for_url(f"{read_only}/")
        tab.get_by_role("link", name="Associations").click()
        tab.get_by_role("heading", name="Associations").wait_for()
    with opened(browser) as other:
        other.goto(link)
        other.get_by_text("This link was used already").wait_for()
        other.goto(read_only)
        other.get_by_role("button", name="Log in").wait_for()


def test_a_link_on_a_page_of_another_site_logs_in_too(browser: Any, read_only: Address) -> None:
    """For example in the page of a terminal.

    A request from there carries no cookie of ours, so the login may not end with a redirect.
    """
    body = f"<a href='{login_link(read_only)}'>in</a>"
    with opened(browser) as tab:
        tab.route(
            "http://terminal.example/",
            lambda route: route.fulfill(body=body, content_type="text/html"),
        )
        tab.goto("http://terminal.example/")
        tab.get_by_role("link", name="in").click()
        tab.wait_for_url(f"{read_only}/")
        tab.get_by_role("link", name="Associations").wait_for()


@pytest.mark.parametrize("path", [f"/studies/{gallery.DEAD}/requeue", "/api/v1/requeue"])
@pytest.mark.parametrize(
    ("site", "status"), [("http://evil.example/", 401), ("http://127.0.0.1:1024/", 403)]
)
def test_a_form_of_another_site_is_refused(
    browser: Any, read_only: Address, path: str, site: str, status: int
) -> None:
    """The browser sends our cookie for our own site alone: it includes every port of our host."""
    form = (
        f"<form method=post action='{read_only}{path}'><input name=stage"
        " value=deliver></form><script>document.forms[0].submit()</script>"
    )
    with opened(browser, read_only) as tab:
        tab.route(site, lambda route: route.fulfill(body=form, content_type="text/html"))
        with tab.expect_response(read_only + path) as answered:
            tab.goto(site, wait_until="commit")
        assert answered.value.status == status
    states = [
        item["deliveries"]
        for item in read_only.rig.get("/api/v1/studies")["studies"]
        if item["study_instance_uid"] == gallery.DEAD
    ]
    assert states == [{"dead": 1}]
