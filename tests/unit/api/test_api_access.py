"""Access: scopes, expiry, revocation, sessions, login links, lock-out, Host, shared answers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from structlog.testing import capture_logs

from hilum.api.answers.shared import SharedAnswer
from hilum.api.auth import wrong_tokens
from hilum.api.auth.access import Access
from hilum.api.auth.actor import ActorHere
from hilum.api.auth.local_token import ensure_local_token, local_token_file
from hilum.api.auth.login_links import base_address
from hilum.api.auth.wrong_tokens import Guesses, source_of
from hilum.api.guard import Admission
from hilum.api.serve import serve_api
from hilum.domain import Scope
from hilum.settings import Api
from hilum.store.audit.access_tokens import PREFIX, digest_of
from hilum.store.audit.log import AuditFilter
from hilum.verbs import Verb
from tests.support.reports.html import Strict
from tests.support.server.api_client import TOKEN, Rig, open_rig, settings_for

OPEN = {"/health/live", "/icon.svg", "/login", "/logout"}
STUDY = "/api/v1/studies"
PAUSE = "/api/v1/destinations/pacs/pause"
ERASE = "/api/v1/erase"
AUDIT = "/api/v1/audit"  # who looked at whom: for those who operate the server
# They change nothing, and are posted so that no address holds what is looked for.
SEARCHES = {"/find", "/api/v1/studies/find"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with open_rig(tmp_path, token=TOKEN) as opened:
        yield opened


@pytest.fixture(scope="module")
def opened_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    api = {"names": ("pacs.test",)}
    with open_rig(tmp_path_factory.mktemp("access"), token=TOKEN, api=api) as opened:
        yield opened


@pytest.fixture
def shared(opened_once: Rig) -> Rig:
    """One API for all tests that change nothing. Each begins without cookies."""
    opened_once.client.cookies.clear()
    return opened_once


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def scopes_of(route: RouteContext) -> list[Scope]:
    """What its dependencies ask for, as the web framework runs them."""
    return [
        found.call.scope
        for found in route.dependant.dependencies
        if isinstance(found.call, Admission)
    ]


def all_routes(rig: Rig) -> list[RouteContext]:
    app = rig.client.app
    assert isinstance(app, FastAPI)
    found = list(iter_route_contexts(app.routes))
    assert len(found) > 40
    return found


def test_every_route_declares_the_scope_that_it_needs(shared: Rig) -> None:
    declared = {
        (method, str(route.path)): scopes_of(route)
        for route in all_routes(shared)
        for method in route.methods or ()
    }
    assert {path for (_, path), scopes in declared.items() if not scopes} == OPEN
    assert {path for (_, path), scopes in declared.items() if scopes == [Scope.ERASE]} == {ERASE}
    changing = {
        path
        for (method, path), scopes in declared.items()
        if method != "GET" and scopes == [Scope.READ]
    }
    assert changing == SEARCHES, "what changes something needs more than read"
    looks = {
        path: scopes for (method, path), scopes in declared.items() if method == "GET" and scopes
    }
    assert {path for path, scopes in looks.items() if scopes != [Scope.READ]} == {AUDIT}


def test_every_route_refuses_those_without_a_token(rig: Rig) -> None:
    """By asking: no list of ours decides."""
    asked = [
        (method, re.sub(r"{[^}]*}", "1", str(route.path)))
        for route in all_routes(rig)
        for method in route.methods or ()
    ]
    answers = {
        (method, path): rig.client.request(method, path, follow_redirects=False).status_code
        for method, path in asked
    }
    assert {path for (_, path), status in answers.items() if status != 401} == OPEN | {
        "/health/ready"
    }


@pytest.mark.parametrize(
    ("scope", "statuses"),
    [
        (Scope.READ, (200, 403, 403)),
        (Scope.OPERATE, (200, 200, 403)),
        (Scope.ERASE, (200, 200, 200)),
    ],
)
def test_a_scope_includes_those_before_it_and_no_others(
    rig: Rig, scope: Scope, statuses: tuple[int, ...]
) -> None:
    (rig.folder / "archive" / "locks").mkdir(parents=True)
    headers = bearer(rig.tokens.create("night", scope, 1))
    order = {"study_instance_uid": "1.2.3", "is_dry_run": True}
    answers = (
        rig.client.get(STUDY, headers=headers),
        rig.client.post(PAUSE, headers=headers),
        rig.client.post(ERASE, json=order, headers=headers),
    )
    assert tuple(answer.status_code for answer in answers) == statuses


def test_a_token_ends_with_its_days(rig: Rig) -> None:
    headers = bearer(rig.tokens.create("night", Scope.READ, 1))
    assert rig.client.get(STUDY, headers=headers).status_code == 200
    rig.clock.now += 86400
    assert rig.client.get(STUDY, headers=headers).status_code == 401


def test_a_token_that_is_revoked_opens_nothing_from_then_on(rig: Rig) -> None:
    headers = bearer(rig.tokens.create("night", Scope.READ, None))
    assert rig.client.get(STUDY, headers=headers).status_code == 200
    assert rig.tokens.revoke("night")
    assert rig.client.get(STUDY, headers=headers).status_code == 401
    assert not rig.tokens.revoke("night")


def test_the_ledger_holds_digests_and_no_secrets(rig: Rig) -> None:
    secret = rig.tokens.create("night", Scope.READ, None)
    assert (secret.startswith(PREFIX), len(secret)) == (True, 49)
    with contextlib.closing(sqlite3.connect(rig.folder / "ledger.sqlite")) as connection:
        (row,) = connection.execute("SELECT * FROM access_token").fetchall()
    assert digest_of(secret) in row
    assert secret not in "".join(map(str, row))


def test_the_last_use_is_written_once_an_hour(rig: Rig) -> None:
    headers = bearer(rig.tokens.create("night", Scope.READ, None))

    def noted() -> float | None:
        (token,) = rig.views.access_tokens()
        return token.last_used_at

    def use() -> None:
        assert rig.client.get(STUDY, headers=headers).status_code == 200
        for thread in threading.enumerate():
            if thread.name == "token-use":
                thread.join(30)

    first = rig.clock.now
    for later, expected in ((0, first), (3599, first), (3600, first + 3600)):
        rig.clock.now = first + later
        use()
        assert noted() == expected


def test_a_known_token_opens_the_metrics_while_the_ledger_is_away(rig: Rig) -> None:
    """Else nobody would be told that it is away."""
    headers = bearer(rig.tokens.create("prometheus", Scope.READ, None))
    assert rig.client.get("/metrics", headers=headers).status_code == 200
    for file in rig.folder.glob("ledger.sqlite*"):
        file.rename(file.with_name(f"{file.name}.away"))
    assert "hilum_ledger_up 0.0" in rig.client.get("/metrics", headers=headers).text
    assert rig.client.get("/metrics", headers=bearer(PREFIX + "x" * 43)).status_code == 503


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        (bearer(TOKEN), "settings"),
        (basic("jane", TOKEN), "settings/jane"),
        (basic("Jane Doe\r\n<b>", TOKEN), "settings/JaneDoeb"),
        (basic("j" * 200, TOKEN), "settings/" + "j" * 55),
    ],
)
def test_the_actor_is_the_token_and_the_user_of_basic(
    rig: Rig, headers: dict[str, str], name: str
) -> None:
    app = rig.client.app
    assert isinstance(app, FastAPI)

    @app.get("/who", dependencies=[Depends(Admission(Scope.READ))])
    def who(actor: ActorHere) -> str:
        return actor.name

    assert rig.client.get("/who", headers=headers).json() == name


def test_metrics_and_descriptions_need_the_scope_read(rig: Rig) -> None:
    headers = bearer(rig.tokens.create("night", Scope.READ, None))
    for path in ("/metrics", "/docs", "/openapi.json"):
        assert rig.client.get(path).status_code == 401
        assert rig.client.get(path, headers=headers).status_code == 200


def test_metrics_may_be_opened(tmp_path: Path) -> None:
    with open_rig(tmp_path, token=TOKEN, api={"open_metrics": True}) as rig:
        assert rig.client.get("/metrics").status_code == 200
        assert rig.client.get("/metrics", headers={"Host": "evil.example"}).status_code == 403
        assert rig.client.get(STUDY).status_code == 401


def test_probes_tell_strangers_nothing_but_yes_or_no(rig: Rig) -> None:
    assert rig.client.get("/health/live").json() == {"status": "alive"}
    told = rig.client.get("/health/ready")
    assert told.status_code == 503
    assert [item["checks"] for item in told.json()["roles"]] == [[], [], []]
    assert "destination pacs" in rig.client.get("/health/ready", headers=bearer(TOKEN)).text


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8640",
        "localhost",
        "LOCALHOST.:80",
        "[::1]:8640",
        "10.1.2.3",
        socket.gethostname(),
        "pacs.test",
    ],
)
def test_probes_are_answered_under_addresses_and_our_names(shared: Rig, host: str) -> None:
    for path in ("/health/live", "/health/ready"):
        assert shared.client.get(path, headers={"Host": host}).status_code in (200, 503)


_FOREIGN_NAMES = [
    "evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "evil.example#127.0.0.1",
]
_NO_NAMES = ["", " ", "[evil]", "127.0.0.1:x", "0x7f.1"]


@pytest.mark.parametrize("host", [*_FOREIGN_NAMES, *_NO_NAMES])
def test_probes_are_not_answered_under_other_names(shared: Rig, host: str) -> None:
    """Names that point to this machine (DNS rebinding), and what URL parsers read as another host."""
    for path in ("/health/live", "/health/ready"):
        assert shared.client.get(path, headers={"Host": host}).status_code == 403


def test_a_request_without_a_host_is_not_answered(shared: Rig) -> None:
    with (
        served(shared) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as caller,
    ):
        caller.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        assert caller.recv(100).startswith(b"HTTP/1.1 403 ")


@contextlib.contextmanager
def served(rig: Rig, api: Api | None = None) -> Iterator[int]:
    """By a real web server, on this port."""
    listening, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()
    thread = threading.Thread(
        target=serve_api, args=(rig.client.app, listening, stop), kwargs={"api": api}
    )
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        stop.set()
        thread.join(30)


@dataclass
class Ticks:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Door:
    """A lock-out and its clock."""

    clock: Ticks = field(default_factory=Ticks)

    def __post_init__(self) -> None:
        self.guesses = Guesses(self.clock)

    def try_often(self, address: str, times: int = wrong_tokens.MOST) -> None:
        for _ in range(times):
            self.guesses.note(address)


def test_many_wrong_tokens_lock_an_address_out_for_a_while() -> None:
    door = Door()
    door.try_often("10.0.0.1", wrong_tokens.MOST - 1)
    assert door.guesses.locked_seconds("10.0.0.1") == 0
    door.try_often("10.0.0.1", 1)
    assert door.guesses.locked_seconds("10.0.0.1") == wrong_tokens.LOCKED_SECONDS
    assert door.guesses.locked_seconds("10.0.0.2") == 0
    door.clock.now += wrong_tokens.LOCKED_SECONDS / 2
    door.try_often("10.0.0.1")
    assert door.guesses.locked_seconds("10.0.0.1") == wrong_tokens.LOCKED_SECONDS / 2, (
        "others there wait no longer for it"
    )
    door.clock.now += wrong_tokens.LOCKED_SECONDS / 2
    assert door.guesses.locked_seconds("10.0.0.1") == 0
    door.try_often("10.0.0.1")
    assert door.guesses.locked_seconds("10.0.0.1") == wrong_tokens.LOCKED_SECONDS


def test_few_wrong_tokens_in_each_minute_lock_nobody_out() -> None:
    door = Door()
    for _ in range(10):
        door.try_often("10.0.0.1", wrong_tokens.MOST - 1)
        door.clock.now += wrong_tokens.WINDOW_SECONDS
    assert door.guesses.locked_seconds("10.0.0.1") == 0


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.1.2.3", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("a unix socket", "a unix socket"),
    ],
)
def test_an_address_counts_with_all_that_one_guesser_may_have(address: str, source: str) -> None:
    assert source_of(address) == source


def test_guesses_from_a_million_addresses_take_bounded_memory() -> None:
    door = Door()
    for number in range(12_000):
        door.try_often(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1)
    assert len(door.guesses._attempts) == len(door.guesses._unsaid) - 1 == 10_000


def test_the_log_names_each_address_once_a_minute() -> None:
    door = Door()
    door.try_often("10.0.0.1", 400)
    door.try_often("10.0.0.2", 3)
    with capture_logs() as lines:
        door.guesses.report()
        door.guesses.report()
    assert [(line["address"], line["count"], line["is_locked_out"]) for line in lines] == [
        ("10.0.0.1", 400, True),
        ("10.0.0.2", 3, False),
    ]


def test_while_an_address_is_locked_out_only_what_cannot_be_guessed_opens(rig: Rig) -> None:
    """All accounts of a machine have one address: one that guesses must not lock the others out."""
    named = rig.tokens.create("night", Scope.READ, None)
    statuses = [
        rig.client.get(STUDY, headers=bearer(f"guess {number}")).status_code
        for number in range(wrong_tokens.MOST + 1)
    ]
    assert statuses == [401] * wrong_tokens.MOST + [429]
    refused = rig.client.get(STUDY, headers=bearer(TOKEN))
    assert (
        refused.status_code,
        0 < int(refused.headers["retry-after"]) <= wrong_tokens.LOCKED_SECONDS,
    ) == (429, True)
    assert rig.client.get(STUDY, headers=bearer(named)).status_code == 200
    assert rig.client.get("/health/live").status_code == 200
    assert rig.client.get(STUDY).status_code == 401, "no guess"


def verbs_of(rig: Rig) -> list[tuple[Verb, str]]:
    """Who did what, oldest first."""
    return [(row["verb"], row["actor"]) for row in reversed(list(rig.audit.all(AuditFilter())))]


def test_a_lock_out_is_a_row_of_the_audit_and_single_wrong_tokens_are_none(rig: Rig) -> None:
    for number in range(wrong_tokens.MOST + 5):
        rig.client.get(STUDY, headers=bearer(f"guess {number}"))
    assert verbs_of(rig) == [(Verb.LOCK_OUT, "stranger")]


def test_a_login_by_link_is_a_row_of_the_audit_and_a_spent_link_is_none(rig: Rig) -> None:
    path = code_of(rig.access)
    for _ in range(2):
        rig.client.get(path)
    assert verbs_of(rig) == [(Verb.LOGIN, "local/jane")]


def test_who_may_only_read_does_not_read_the_audit(rig: Rig) -> None:
    reader, operator = (
        rig.tokens.create("reader", Scope.READ, None),
        rig.tokens.create("operator", Scope.OPERATE, None),
    )
    statuses = [
        rig.client.get(AUDIT, headers=bearer(token)).status_code for token in (reader, operator)
    ]
    assert statuses == [403, 200]
    assert verbs_of(rig) == [(Verb.READ_AUDIT, "reader"), (Verb.READ_AUDIT, "operator")]


def test_an_address_that_a_program_claims_is_not_believed(rig: Rig) -> None:
    """Else each guess would come from another one."""
    with served(rig) as port:
        statuses = {_guess(port, f"10.0.0.{number}") for number in range(wrong_tokens.MOST + 2)}
        assert 429 in statuses


def test_an_address_that_a_proxy_of_the_settings_names_is_believed(rig: Rig) -> None:
    with served(rig, Api(proxies=("127.0.0.1/32",))) as port:
        assert {_guess(port, f"10.0.0.{number}") for number in range(wrong_tokens.MOST + 2)} == {
            401
        }
        assert [_guess(port, "10.0.0.99") for _ in range(wrong_tokens.MOST + 1)][-1] == 429
        answer = httpx.get(
            f"http://127.0.0.1:{port}{STUDY}",
            headers={**bearer(TOKEN), "X-Forwarded-For": "10.0.0.98"},
            timeout=60,
        )
        assert answer.status_code == 200, "the right token from another address"


def _guess(port: int, claimed: str) -> int:
    answer = httpx.get(
        f"http://127.0.0.1:{port}{STUDY}",
        headers={**bearer("guess"), "X-Forwarded-For": claimed},
        timeout=60,
    )
    return answer.status_code


def logged_in(rig: Rig, secret: str = TOKEN, **form: str) -> httpx.Response:
    return rig.client.post("/login", data={"token": secret, **form}, follow_redirects=False)


def test_a_form_begins_a_session_whose_cookie_holds_no_token(rig: Rig) -> None:
    answer = logged_in(rig, name="jane", next="/associations?outcome=rejected")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/associations?outcome=rejected",
    )
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    content = base64.urlsafe_b64decode(
        rig.client.cookies["hilum_session_8640"].partition(".")[0]
    ).decode()
    assert TOKEN not in content + cookie
    assert digest_of(TOKEN) not in content
    assert rig.client.get("/").status_code == 200
    assert rig.client.get(STUDY).status_code == 200


def test_a_name_of_any_length_leaves_a_cookie_that_browsers_keep(rig: Rig) -> None:
    answer = logged_in(rig, name="\u00e9<" * 5000)
    assert (answer.status_code, len(answer.headers["set-cookie"]) < 1000) == (303, True)
    assert rig.client.get("/").status_code == 200


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb"]
)
def test_the_form_leads_to_no_other_site(rig: Rig, wanted: str) -> None:
    assert logged_in(rig, next=wanted).headers["location"] == "/"


def test_a_wrong_token_begins_no_session(rig: Rig) -> None:
    answer = logged_in(rig, "wrong")
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert [logged_in(rig, "wrong").status_code for _ in range(wrong_tokens.MOST)][-1] == 429


def test_a_session_ends_when_its_person_logs_out(rig: Rig) -> None:
    logged_in(rig)
    cookie = rig.client.cookies["hilum_session_8640"]
    rig.client.post("/logout", headers={"Sec-Fetch-Site": "same-origin"})
    assert (
        rig.client.get("/", headers={"Cookie": f"hilum_session_8640={cookie}"}).status_code == 401
    )


@pytest.mark.parametrize("end", ["revoked", "expired", "twelve hours"])
def test_a_session_ends_with_its_token_and_with_its_time(rig: Rig, end: str) -> None:
    logged_in(rig, rig.tokens.create("night", Scope.OPERATE, 0.25 if end == "expired" else None))
    assert rig.client.get("/").status_code == 200
    if end == "revoked":
        rig.tokens.revoke("night")
    else:
        rig.clock.now += 0.25 * 86400 if end == "expired" else 12 * 3600
    assert rig.client.get("/").status_code == 401


@pytest.mark.parametrize("change", ["", "x", "signature", "content"])
def test_a_cookie_that_was_changed_opens_nothing(rig: Rig, change: str) -> None:
    logged_in(rig)
    content, _, signature = rig.client.cookies["hilum_session_8640"].partition(".")
    changed = {
        "signature": f"{content}.{signature[::-1]}",
        "content": f"{content[:-4]}AAAA.{signature}",
    }.get(change, change)
    rig.client.cookies.clear()
    assert (
        rig.client.get("/", headers={"Cookie": f"hilum_session_8640={changed}"}).status_code == 401
    )


def test_a_session_never_erases(rig: Rig) -> None:
    """A cookie reaches every port of its host, and so a server of another account."""
    logged_in(rig)
    ours = {"Sec-Fetch-Site": "same-origin"}
    assert rig.client.post(PAUSE, headers=ours).status_code == 200
    assert (
        rig.client.post(
            ERASE, json={"study_instance_uid": "1.2.3", "is_dry_run": True}, headers=ours
        ).status_code
        == 403
    )


_FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "https://127.0.0.1:8640"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "null"},
    {},
]


@pytest.mark.parametrize("headers", _FOREIGN)
@pytest.mark.parametrize("path", [PAUSE, "/studies/1.2.3/requeue", "/logout"])
def test_nothing_is_changed_for_a_page_of_another_site(
    shared: Rig, headers: dict[str, str], path: str
) -> None:
    """This includes another port or scheme of our host: the cookie comes along with its requests.

    It also includes a browser that does not name the page.
    """
    logged_in(shared)
    assert shared.client.post(path, headers=headers).status_code == 403
    assert shared.client.get("/").status_code == 200


def test_a_page_of_another_site_logs_nobody_in(shared: Rig) -> None:
    answer = shared.client.post(
        "/login", data={"token": TOKEN}, headers={"Origin": "http://evil.example"}
    )
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def code_of(access: Access) -> str:
    link = access.links.make("jane")
    assert link.startswith("http://127.0.0.1:8640/login?code=")
    return link.removeprefix("http://127.0.0.1:8640")


def test_a_link_logs_in_once(rig: Rig) -> None:
    path = code_of(rig.access)
    welcome = rig.client.get(path)
    assert (welcome.status_code, Strict(welcome.text).problems) == (200, [])
    assert "local/jane" in rig.client.get("/login").text
    rig.client.cookies.clear()
    again = rig.client.get(path)
    assert (again.status_code, "set-cookie" in again.headers, "used already" in again.text) == (
        401,
        False,
        True,
    )


def test_a_link_ends_after_ten_minutes(rig: Rig) -> None:
    path = code_of(rig.access)
    rig.clock.now += 600
    assert rig.client.get(path).status_code == 401


@pytest.mark.parametrize("code", ["", "x", "../../api-token", "%00", "A" * 65])
def test_a_code_that_is_none_logs_nobody_in(rig: Rig, code: str) -> None:
    answer = rig.client.get(f"/login?code={code}")
    assert (answer.status_code in (401, 422), "set-cookie" in answer.headers) == (True, False)


def test_the_file_of_a_link_holds_no_code(rig: Rig) -> None:
    code = code_of(rig.access).partition("=")[2]
    (file,) = (rig.folder / "run/login").iterdir()
    assert code not in file.name + file.read_text()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_token_of_the_host_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    first = ensure_local_token(settings)
    assert ensure_local_token(settings) == first
    assert local_token_file(settings).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("harm", ["readable", "cut", "link"])
def test_a_token_of_the_host_that_others_may_know_is_replaced(tmp_path: Path, harm: str) -> None:
    settings = settings_for(tmp_path)
    first, file = ensure_local_token(settings), local_token_file(settings)
    if harm == "readable":
        file.chmod(0o644)
    elif harm == "cut":
        file.write_text(first[:10])
    else:
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    made = ensure_local_token(settings)
    assert made != first
    assert (file.is_symlink(), file.stat().st_mode & 0o777) == (False, 0o600)


def test_those_who_ask_together_share_one_answer() -> None:
    clock, made = Ticks(), []
    gate = threading.Event()

    def make() -> int:
        assert gate.wait(30)
        made.append(len(made))
        return made[-1]

    async def ask() -> list[list[int]]:
        shared = SharedAnswer(make, 1.0, clock)
        waiting = [asyncio.create_task(shared.get()) for _ in range(128)]
        await asyncio.sleep(0)
        gate.set()
        first = list(await asyncio.gather(*waiting))
        clock.now += 0.9
        second = [await shared.get()]
        clock.now += 0.1
        return [first, second, [await shared.get()]]

    assert asyncio.run(ask()) == [[0] * 128, [0], [1]]


def test_probes_and_scrapes_are_answered_while_every_thread_waits(tmp_path: Path) -> None:
    """128 scrapes, of which one is made, and more requests than the web process has threads."""
    gate = threading.Event()

    def slow(*_: object, **__: object) -> int:
        assert gate.wait(60)
        return 0

    async def ask(app: object) -> list[int]:
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            order = {"stage": "report", "all": True}
            waiting = [
                asyncio.create_task(
                    client.post("/api/v1/requeue", json=order, headers=bearer(TOKEN))
                )
                for _ in range(60)
            ]
            waiting += [
                asyncio.create_task(client.get("/metrics", headers=bearer(TOKEN)))
                for _ in range(128)
            ]
            await asyncio.sleep(0.5)
            try:
                probes = ("/health/live", "/health/ready", "/metrics")
                asked = [
                    await asyncio.wait_for(client.get(path, headers=bearer(TOKEN)), 20)
                    for path in probes
                ]
            finally:
                gate.set()
            await asyncio.gather(*waiting)
            return [answer.status_code for answer in asked]

    with open_rig(tmp_path, token=TOKEN, requeue=slow) as rig:
        assert asyncio.run(ask(rig.client.app)) == [200, 503, 200]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "http://127.0.0.1:8640"),
        ({"host": "::1"}, "http://[::1]:8640"),
        ({"names": ("pacs.test",)}, "http://127.0.0.1:8640"),
        ({"host": "0.0.0.0", "port": 80}, "http://127.0.0.1:80"),
        ({"host": "0.0.0.0", "names": ("pacs.test",)}, "http://pacs.test:8640"),
        (
            {"host": "10.0.0.1", "tls_certificate_file": Path("c"), "tls_key_file": Path("k")},
            "https://10.0.0.1:8640",
        ),
        ({"names": ("pacs.test",), "proxies": ("127.0.0.1",)}, "https://pacs.test"),
    ],
)
def test_a_link_leads_to_where_a_browser_reaches_the_pages(
    given: dict[str, Any], address: str
) -> None:
    assert base_address(Api(**given)) == address
