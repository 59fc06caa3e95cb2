"""WADO-RS: whole parts are kept, a cut one never, and the report names the problem."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hilum.domain import ExpectedImage
from hilum.retrieve.source import FetchReport, FetchRequest, SourceError
from tests.support.machine.waiting import wait_for
from tests.support.retrieve.kept_objects import KeptObjects
from tests.support.retrieve.sources import web_client
from tests.support.retrieve.web_server import (
    BOUNDARY,
    RELATED,
    Received,
    Reply,
    Script,
    WebServer,
    chunked,
    multipart,
    reply,
    unbounded,
)

FIRST, SECOND, THIRD = (bytes([number]) * 3000 for number in range(1, 4))
WHOLE = multipart(FIRST, SECOND, THIRD)
AS_MULTIPART = {"Content-Type": RELATED}
AS_STORED = 'multipart/related; type="application/dicom"; transfer-syntax=*'


def request_for(count: int = 3, *, are_all: bool = True, seconds: float = 100.0) -> FetchRequest:
    images = [ExpectedImage(f"1.2.3.{number}") for number in range(count)]
    return FetchRequest("1.2", "1.2.3", images, are_all, seconds)


def fetch(
    script: Script, wanted: FetchRequest | None = None, store: KeptObjects | None = None
) -> tuple[FetchReport, KeptObjects, WebServer]:
    kept = store or KeptObjects()
    with WebServer(script) as server, web_client(server.url) as client:
        report = client.fetch(wanted or request_for(), kept, threading.Event())
    return report, kept, server


def test_a_whole_series_is_stored_in_one_request() -> None:
    report, kept, server = fetch(lambda _: reply(200, WHOLE, AS_MULTIPART))

    assert kept.stored == [FIRST, SECOND, THIRD]
    assert report == FetchReport("200")
    assert server.paths() == ["/studies/1.2/series/1.2.3"]
    assert server.received[0].headers["accept"] == AS_STORED


def test_some_images_of_a_series_are_asked_for_one_by_one() -> None:
    report, kept, server = fetch(
        lambda request: reply(200, multipart(request.path[-1:].encode()), AS_MULTIPART),
        request_for(2, are_all=False),
    )

    assert kept.stored == [b"0", b"1"]
    assert report == FetchReport("200")
    assert server.paths() == [
        "/studies/1.2/series/1.2.3/instances/1.2.3.0",
        "/studies/1.2/series/1.2.3/instances/1.2.3.1",
    ]


def test_a_chunked_body_is_taken() -> None:
    pieces = [WHOLE[start : start + 700] for start in range(0, len(WHOLE), 700)]

    report, kept, _ = fetch(lambda _: chunked(pieces))

    assert kept.stored == [FIRST, SECOND, THIRD]
    assert report.problem == ""


def test_a_body_that_ends_with_the_connection_is_taken_with_its_closing_boundary() -> None:
    report, kept, _ = fetch(lambda _: unbounded(WHOLE))

    assert kept.stored == [FIRST, SECOND, THIRD]
    assert report.problem == ""


within_the_third = WHOLE[:-500]
between_parts = multipart(FIRST, SECOND, closing=False) + f"--{BOUNDARY}\r\n".encode()
before_the_delimiter = multipart(FIRST, SECOND, THIRD, closing=False)
half_a_closing = multipart(FIRST, SECOND, THIRD, closing=False) + f"--{BOUNDARY}-".encode()


@pytest.mark.parametrize(
    ("answer", "stored", "problem"),
    [
        (unbounded(within_the_third), [FIRST, SECOND], "without the closing boundary"),
        (unbounded(between_parts), [FIRST, SECOND], "without the closing boundary"),
        (unbounded(before_the_delimiter), [FIRST, SECOND], "without the closing boundary"),
        (unbounded(half_a_closing), [FIRST, SECOND], "without the closing boundary"),
        (unbounded(b""), [], "without the closing boundary"),
        (
            reply(200, within_the_third, AS_MULTIPART),
            [FIRST, SECOND],
            "without the closing boundary",
        ),
        (
            reply(200, within_the_third, AS_MULTIPART, length=len(WHOLE)),
            [FIRST, SECOND],
            "the connection ended before the body did",
        ),
        (
            reply(200, WHOLE, AS_MULTIPART, length=len(WHOLE) - 500),
            [FIRST, SECOND],
            "without the closing boundary",
        ),
        (
            reply(200, WHOLE, AS_MULTIPART, length=len(WHOLE) + 500),
            [FIRST, SECOND, THIRD],
            "the connection ended before the body did",
        ),
        (
            chunked([within_the_third], end=b""),
            [FIRST, SECOND],
            "the connection ended before the body did",
        ),
        (
            chunked([within_the_third], end=b"5dc\r\nabc"),
            [FIRST, SECOND],
            "the connection ended before the body did",
        ),
        (chunked([within_the_third]), [FIRST, SECOND], "without the closing boundary"),
        (
            reply(200, f"--{BOUNDARY}\r\nno colon\r\n\r\n".encode(), AS_MULTIPART),
            [],
            "not well formed",
        ),
        (
            reply(200, WHOLE, {"Content-Type": "multipart/related"}),
            [],
            "no usable boundary",
        ),
    ],
    ids=[
        "closed within a part",
        "closed between parts",
        "closed before the last delimiter",
        "half of the closing boundary",
        "no body",
        "length of a cut body",
        "length of a cut body too large",
        "length too small",
        "length too large",
        "cut chunked body",
        "cut chunk",
        "whole chunks of a cut body",
        "broken headers",
        "no boundary",
    ],
)
def test_a_cut_body_keeps_its_whole_parts_alone(
    answer: Reply, stored: list[bytes], problem: str
) -> None:
    report, kept, _ = fetch(lambda _: answer)

    assert kept.stored == stored
    assert problem in report.problem
    assert not report.is_outage
    assert not report.is_final


def test_the_servers_text_about_a_study_is_not_repeated() -> None:
    refused = reply(403, b"no access to DOE^JANE", {"Content-Type": "text/plain"})
    report, _, _ = fetch(lambda _: refused)

    assert report.status == "403"
    assert "DOE" not in report.problem


def test_the_cut_part_is_abandoned() -> None:
    _, kept, _ = fetch(lambda _: unbounded(within_the_third))

    assert len(kept.abandoned) == 1


def test_206_keeps_its_parts_and_is_a_problem() -> None:
    report, kept, _ = fetch(lambda _: reply(206, multipart(FIRST, SECOND), AS_MULTIPART))

    assert kept.stored == [FIRST, SECOND]
    assert report.status == "206"
    assert "a part of what was asked for" in report.problem


@pytest.mark.parametrize("status", [204, 400, 403, 404, 406, 410, 500, 504])
def test_a_series_that_it_does_not_give_keeps_no_other_from_being_read(status: int) -> None:
    report, kept, _ = fetch(lambda _: reply(status))

    assert kept.stored == []
    assert report.status == str(status)
    assert report.problem
    assert not report.is_final
    assert not report.is_outage


def test_a_missing_image_does_not_end_the_others() -> None:
    def script(request: Received) -> Reply:
        if request.path.endswith("1.2.3.1"):
            return reply(404)
        return reply(200, multipart(request.path[-1:].encode()), AS_MULTIPART)

    report, kept, _ = fetch(script, request_for(3, are_all=False))

    assert kept.stored == [b"0", b"2"]
    assert report.status == "404"
    assert report.problem.startswith("1 of 3 requests: HTTP 404")


def test_an_outage_ends_the_other_images() -> None:
    report, _, server = fetch(lambda _: reply(503), request_for(3, are_all=False))

    assert report.is_outage
    assert len(server.received) == 1


def test_refused_credentials_stop_all_series() -> None:
    report, _, server = fetch(lambda _: reply(401), request_for(3, are_all=False))

    assert report.is_outage
    assert report.is_final
    assert len(server.received) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_an_outage_with_its_seconds(status: int) -> None:
    report, _, _ = fetch(lambda _: reply(status, headers={"Retry-After": "120"}))

    assert report.is_outage
    assert "come back in 120 s" in report.problem


@pytest.mark.parametrize("status", [400, 406])
def test_a_server_without_the_stored_syntax_is_asked_for_any_once(status: int) -> None:
    def script(request: Received) -> Reply:
        if request.headers["accept"] == AS_STORED:
            return reply(status)
        return reply(200, WHOLE, AS_MULTIPART)

    kept = KeptObjects()
    with WebServer(script) as server, web_client(server.url) as client:
        reports = [client.fetch(request_for(), kept, threading.Event()) for _ in range(2)]

    assert [report.problem for report in reports] == ["", ""]
    assert len(kept.stored) == 6
    assert len(server.received) == 3


def test_a_server_that_sends_no_dicom_files_is_asked_twice() -> None:
    report, _, server = fetch(lambda _: reply(406))

    assert "also without transfer-syntax=*" in report.problem
    assert len(server.received) == 2


def test_one_file_in_place_of_a_multipart_body_is_taken() -> None:
    report, kept, _ = fetch(lambda _: reply(200, FIRST, {"Content-Type": "application/dicom"}))

    assert kept.stored == [FIRST]
    assert report.problem == ""


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (unbounded(FIRST, "application/dicom"), "has no length"),
        (
            reply(200, FIRST, {"Content-Type": "application/dicom"}, length=5000),
            "the connection ended before the body did",
        ),
        (
            chunked([FIRST], "application/dicom", end=b""),
            "the connection ended before the body did",
        ),
    ],
    ids=["no length", "cut", "cut chunked"],
)
def test_one_file_that_may_be_cut_is_not_stored(answer: Reply, problem: str) -> None:
    report, kept, _ = fetch(lambda _: answer)

    assert kept.stored == []
    assert problem in report.problem


def test_a_part_shorter_than_its_own_length_is_not_stored() -> None:
    body = multipart(FIRST, head="Content-Type: application/dicom\r\nContent-Length: 3001\r\n")

    report, kept, _ = fetch(lambda _: reply(200, body, AS_MULTIPART))

    assert kept.stored == []
    assert "shorter than its Content-Length" in report.problem


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: application/dicom+json\r\n",
        "Content-Type: application/dicom\r\nContent-Transfer-Encoding: base64\r\n",
    ],
)
def test_a_part_that_is_no_file_is_left_out(head: str) -> None:
    report, kept, _ = fetch(lambda _: reply(200, multipart(FIRST, head=head), AS_MULTIPART))

    assert kept.stored == []
    assert "no DICOM file" in report.problem


def test_an_html_page_is_not_stored() -> None:
    report, kept, _ = fetch(lambda _: reply(200, b"<html>", {"Content-Type": "text/html"}))

    assert kept.stored == []
    assert "text/html" in report.problem


def test_a_compressed_body_is_refused() -> None:
    report, kept, _ = fetch(
        lambda _: reply(200, WHOLE, {**AS_MULTIPART, "Content-Encoding": "gzip"})
    )

    assert kept.stored == []
    assert "compresses" in report.problem


def test_far_more_parts_than_images_are_refused() -> None:
    report, kept, _ = fetch(lambda _: reply(200, multipart(*[b"x"] * 500), AS_MULTIPART))

    assert len(kept.stored) < 200
    assert "more than" in report.problem


def test_a_refusal_of_the_store_stands_in_the_report() -> None:
    report, kept, _ = fetch(
        lambda _: reply(200, WHOLE, AS_MULTIPART), store=KeptObjects("the disk is full; free some")
    )

    assert len(kept.stored) == 3
    assert report.problem == "the disk is full; free some"


@pytest.fixture
def release() -> threading.Event:
    """Set it to end the silence of a server."""
    return threading.Event()


def silent_after(raw: bytes, release: threading.Event) -> Script:
    return lambda _: Reply(raw, hold=release)


@pytest.mark.parametrize("where", ["before the answer", "within a body"])
def test_stop_ends_a_silent_request_and_keeps_whole_parts(
    where: str, release: threading.Event
) -> None:
    raw = unbounded(within_the_third).raw if where == "within a body" else b""
    kept = KeptObjects()
    stop = threading.Event()
    reports: list[FetchReport] = []
    with WebServer(silent_after(raw, release)) as server:
        with web_client(server.url, timeout_seconds=1000.0) as client:
            fetching = threading.Thread(
                target=lambda: reports.append(client.fetch(request_for(), kept, stop))
            )
            fetching.start()
            wait_for(lambda: server.received and (not raw or len(kept.stored) == 2))
            stop.set()
            fetching.join(120)
        release.set()

    assert not fetching.is_alive()
    assert reports[0].status == "stopped"
    assert kept.stored == ([FIRST, SECOND] if raw else [])


def test_the_limit_of_a_request_ends_a_silent_body(release: threading.Event) -> None:
    kept = KeptObjects()
    with WebServer(silent_after(unbounded(within_the_third).raw, release)) as server:
        with web_client(server.url, timeout_seconds=1000.0) as client:
            report = client.fetch(request_for(seconds=4.0), kept, threading.Event())
        release.set()

    assert report.status == "timed out"
    assert kept.stored == [FIRST, SECOND]
    assert not report.is_outage


def test_a_silent_body_ends_after_the_time_for_a_message(release: threading.Event) -> None:
    kept = KeptObjects()
    with WebServer(silent_after(unbounded(within_the_third).raw, release)) as server:
        with web_client(server.url, timeout_seconds=3.0) as client:
            report = client.fetch(request_for(), kept, threading.Event())
        release.set()

    assert "timeout_seconds" in report.problem
    assert report.status == "timed out"
    assert kept.stored == [FIRST, SECOND]


def test_a_client_serves_on_after_a_stop(release: threading.Event) -> None:
    answers = iter([Reply(b"", hold=release), reply(200, WHOLE, AS_MULTIPART)])
    kept = KeptObjects()
    stop = threading.Event()
    with WebServer(lambda _: next(answers)) as server, web_client(server.url) as client:
        stopping = threading.Thread(target=lambda: wait_for(lambda: server.received) and stop.set())
        stopping.start()
        stopped = client.fetch(request_for(), kept, stop)
        stopping.join()
        second = client.fetch(request_for(), kept, threading.Event())
        release.set()

    assert stopped.status == "stopped"
    assert second.problem == ""
    assert kept.stored == [FIRST, SECOND, THIRD]


def test_no_server_is_an_outage() -> None:
    with WebServer(lambda _: reply(200)) as server:
        url = server.url
    with web_client(url) as client:
        report = client.fetch(request_for(), KeptObjects(), threading.Event())

    assert report.is_outage
    assert "check `url`" in report.problem


def test_a_connection_closed_before_the_answer_is_tried_twice() -> None:
    report, _, server = fetch(lambda _: Reply(b""))

    assert "before the answer" in report.problem
    assert not report.is_outage
    assert len(server.received) == 2


def test_a_kept_connection_that_was_closed_meanwhile_is_opened_anew() -> None:
    answers = iter([Reply(b""), reply(200, WHOLE, AS_MULTIPART)])

    report, kept, _ = fetch(lambda _: next(answers))

    assert report == FetchReport("200")
    assert len(kept.stored) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda: FetchRequest("", "1.2", [], are_all=True, limit_seconds=9),
        lambda: FetchRequest("1.2", "*", [], are_all=True, limit_seconds=9),
        lambda: FetchRequest("1.2", "1.3", [ExpectedImage("")], are_all=False, limit_seconds=9),
    ],
)
def test_nothing_is_asked_for_without_whole_uids(change: Callable[[], FetchRequest]) -> None:
    with (
        WebServer(lambda _: reply(200)) as server,
        web_client(server.url) as client,
        pytest.raises(SourceError, match="is no UID"),
    ):
        client.fetch(change(), KeptObjects(), threading.Event())

    assert server.received == []
