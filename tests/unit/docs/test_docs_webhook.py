"""The code of docs/destinations/webhook.md, word by word, and what the page says of a notice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from hilum.report import build_documents
from testing.phantoms.phantom import make_study
from testing.webhook_receiver import SECRET
from tests.support.deliver.webhook_receiver import SENT, client_at
from tests.support.reports.results import CONTEXT, make_release, report_of
from tests.support.retrieve.web_server import Received, WebServer, reply

PAGE = Path(__file__).parents[3] / "docs" / "destinations" / "webhook.md"
OTHER = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
Verify = Callable[[str, Mapping[str, str], bytes], None]


@pytest.fixture
def verify() -> Verify:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    found: Verify = names["verify"]
    return found


def sent(folder: Path, *secrets: str, **options: Any) -> Received:
    with WebServer(lambda _: reply(204)) as server:
        port = int(server.url.rpartition(":")[2])
        with client_at(port, folder, *secrets, **options) as client:
            client.deliver(SENT)
    return server.received[0]


def test_it_accepts_what_is_sent_with_one_secret_or_two(verify: Verify, tmp_path: Path) -> None:
    plain = sent(tmp_path)
    verify(SECRET, plain.headers, plain.body)
    both = sent(tmp_path, OTHER, SECRET)
    verify(SECRET, both.headers, both.body)
    verify(OTHER, both.headers, both.body)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_1"},
        {"webhook-timestamp": "1790000007"},
        {"webhook-signature": "v1,AAAA v2,"},
        {"webhook-signature": "ä"},
        {"webhook-signature": ""},
    ],
)
def test_it_refuses_another_header(
    verify: Verify, change: Mapping[str, str], tmp_path: Path
) -> None:
    given = sent(tmp_path)
    with pytest.raises(ValueError, match="the request is"):
        verify(SECRET, {**given.headers, **change}, given.body)


def test_it_refuses_other_bytes_another_secret_and_an_old_request(
    verify: Verify, tmp_path: Path
) -> None:
    given = sent(tmp_path)
    with pytest.raises(ValueError, match="not signed"):
        verify(SECRET, given.headers, given.body + b" ")
    with pytest.raises(ValueError, match="not signed"):
        verify(OTHER, given.headers, given.body)
    old = sent(tmp_path, clock=lambda: 1_790_000_000.0)
    with pytest.raises(ValueError, match="is old"):
        verify(SECRET, old.headers, old.body)


def test_the_page_describes_each_field() -> None:
    release = make_release()
    job = report_of(make_study(1, views=("PA",), rows=16, columns=16), release)
    (document,) = build_documents(job, release, CONTEXT, ("notice",))
    content = orjson.loads(document.content)
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(content["data"])
    (example,) = re.findall(r"\n\n(\{\n\"type\".*?\n\})\n```", page, re.DOTALL)
    shown = orjson.loads(example)
    assert list(shown) == list(content)
    assert list(shown["data"]) == list(content["data"])
    assert len(document.content) < 20_000
