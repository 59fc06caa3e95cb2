"""QIDO-RS: the end of a list, answers that are cut off, and servers that page in their own way."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hilum.retrieve.source import Answers, Level, Query, SourceError
from tests.support.retrieve.sources import web_client
from tests.support.retrieve.web_server import (
    Received,
    Reply,
    Script,
    WebServer,
    dicom_json,
    element,
    page_of,
    reply,
    study,
)

MORE = {"Warning": "299 archive: There are 7 additional results that can be requested"}
HIDDEN_LIMIT = 6


def honest(count: int) -> Script:
    """A server with so many studies, which pages as the standard says; a key finds all but one."""

    def script(request: Received) -> Reply:
        held = count if "StudyDate" in request.query else count + 1
        return dicom_json(page_of([study(n) for n in range(held)], request))

    return script


def find(script: Script, limit: int = 1000, **settings: Any) -> tuple[Answers, WebServer]:
    with WebServer(script) as server, web_client(server.url, **settings) as client:
        found = client.find(Query(Level.STUDY, {"StudyDate": "20240101"}, limit))
    return found, server


def uids(found: Answers) -> list[str]:
    return [item["StudyInstanceUID"] for item in found.items]


def expected(count: int) -> list[str]:
    return [f"1.2.{n}" for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 99, 100, 101, 250])
def test_all_answers_of_an_honest_server_are_found(count: int) -> None:
    found, _ = find(honest(count))

    assert uids(found) == expected(count)
    assert not found.is_cut_off


def test_one_more_than_wanted_is_cut_off() -> None:
    found, server = find(honest(40), limit=10)

    assert found.is_cut_off
    assert len(found.items) == 11
    assert server.received[0].query["limit"] == "11"


def test_as_many_as_wanted_are_not_cut_off() -> None:
    found, _ = find(honest(10), limit=10)

    assert uids(found) == expected(10)
    assert not found.is_cut_off


def test_204_is_no_answer() -> None:
    found, _ = find(lambda _: reply(204))

    assert found == Answers(())


def test_200_without_a_body_is_no_answer() -> None:
    found, _ = find(lambda _: reply(200))

    assert found == Answers(())


def test_413_is_cut_off() -> None:
    found, _ = find(lambda _: reply(413))

    assert found.is_cut_off


def test_a_server_that_ignores_offset_ends_the_query_and_is_cut_off() -> None:
    def script(request: Received) -> Reply:
        return dicom_json([study(n) for n in range(int(request.query["limit"]))])

    found, server = find(script)

    assert uids(found) == expected(100)
    assert found.is_cut_off
    assert len(server.received) == 2


def test_a_page_larger_than_asked_for_is_taken() -> None:
    def script(request: Received) -> Reply:
        return dicom_json([study(n) for n in range(300 if "StudyDate" in request.query else 400)])

    found, _ = find(script)

    assert uids(found) == expected(300)
    assert not found.is_cut_off


def test_a_fixed_page_larger_than_asked_for_is_cut_off() -> None:
    found, _ = find(lambda _: dicom_json([study(n) for n in range(300)]))

    assert len(found.items) == 300
    assert found.is_cut_off


def test_a_server_with_smaller_pages_gives_all() -> None:
    def script(request: Received) -> Reply:
        held = [study(n) for n in range(60 if "StudyDate" in request.query else 61)]
        return dicom_json(page_of(held, request)[:25])

    found, _ = find(script)

    assert uids(found) == expected(60)


def test_a_list_that_grows_at_its_head_gives_each_answer_once() -> None:
    """Azure lists the newest first, so each new study shifts all others by one."""
    requests = 0

    def script(request: Received) -> Reply:
        nonlocal requests
        requests += 1
        newest = [study(1000 + n) for n in reversed(range(requests))]
        return dicom_json(page_of([*newest, *[study(n) for n in range(250)]], request))

    found, _ = find(script)

    assert set(expected(250)) <= set(uids(found))
    assert len(uids(found)) == len(set(uids(found)))


def test_a_list_that_shrinks_is_cut_off() -> None:
    """An answer behind a removed one moves to an earlier page, which was read already."""
    held = [study(n) for n in range(250)]

    def script(request: Received) -> Reply:
        page = page_of(held, request)
        del held[0:3]
        return dicom_json(page)

    found, _ = find(script)

    assert found.is_cut_off


def test_a_server_that_never_ends_is_ended() -> None:
    """Each page brings a few new answers: the number of requests is bounded."""

    def script(request: Received) -> Reply:
        start = int(request.query.get("offset", "0"))
        return dicom_json([study(n) for n in range(start, start + 6)])

    found, server = find(script, limit=25_000)

    assert found.is_cut_off
    assert len(server.received) < 600


def test_a_warning_of_more_results_leads_to_the_next_page() -> None:
    def script(request: Received) -> Reply:
        page = page_of([study(n) for n in range(3)], request)
        return dicom_json(page[:2], MORE if "offset" not in request.query else {})

    found, _ = find(script)

    assert uids(found) == expected(3)
    assert not found.is_cut_off


def test_a_warning_of_more_results_that_never_come_is_cut_off() -> None:
    def script(request: Received) -> Reply:
        return dicom_json(page_of([study(1), study(2)], request), MORE)

    found, _ = find(script)

    assert found.is_cut_off


@pytest.mark.parametrize("word", ["StudyDate", "(00080020)"])
def test_a_warning_that_names_a_key_says_that_it_is_ignored(word: str) -> None:
    found, _ = find(
        lambda _: dicom_json([study(1)], {"Warning": f'299 archive: "{word} is not supported"'})
    )

    assert found.ignored == ("StudyDate",)
    assert not found.is_cut_off


def test_an_unknown_warning_is_taken_for_cut_off() -> None:
    found, _ = find(lambda _: dicom_json([study(1)], {"Warning": "299 archive: truncated"}))

    assert found.is_cut_off


def test_a_warning_about_fuzzy_matching_means_nothing() -> None:
    text = "299 archive: The fuzzymatching parameter is not supported."
    found, _ = find(lambda _: dicom_json([study(1)], {"Warning": text}))

    assert not found.is_cut_off


def capped(request: Received) -> Reply:
    """Orthanc with LimitFindResults: no query has more answers than that."""
    return dicom_json(page_of([study(n) for n in range(HIDDEN_LIMIT)], request))


def test_as_many_answers_as_the_server_ever_gives_are_cut_off() -> None:
    found, _ = find(capped)

    assert uids(found) == expected(HIDDEN_LIMIT)
    assert found.is_cut_off


def test_the_limit_of_the_server_is_looked_for_once() -> None:
    with WebServer(honest(20)) as server, web_client(server.url) as client:
        for _ in range(3):
            found = client.find(Query(Level.STUDY, {"StudyDate": "20240101"}, 500))
            assert not found.is_cut_off

    assert sum("StudyDate" not in request.query for request in server.received) == 1


def test_a_server_that_refuses_a_query_without_keys_is_not_suspected() -> None:
    def script(request: Received) -> Reply:
        if "StudyDate" not in request.query:
            return reply(400)
        return dicom_json(page_of([study(n) for n in range(20)], request))

    found, _ = find(script)

    assert not found.is_cut_off


def image(number: int) -> dict[str, Any]:
    return {
        "0020000D": element("UI", "1.2"),
        "0020000E": element("UI", "1.2.3"),
        "00080018": element("UI", f"1.2.3.{number}"),
        "00080016": element("UI", "1.2.840.10008.5.1.4.1.1.1"),
        "00080056": element("CS", "NEARLINE"),
    }


def series_server(listed: int, counted: int) -> Script:
    """It lists so many images of a series, and says at the series that there are `counted`."""

    def script(request: Received) -> Reply:
        if request.path.endswith("/instances"):
            return dicom_json(page_of([image(n) for n in range(listed)], request))
        item = {"0020000E": element("UI", "1.2.3"), "00201209": element("IS", counted)}
        return dicom_json([item])

    return script


def test_images_have_their_class_and_their_availability() -> None:
    with WebServer(series_server(2, 2)) as server, web_client(server.url) as client:
        images = client.images("1.2", "1.2.3")

    assert [item.sop_instance_uid for item in images] == ["1.2.3.0", "1.2.3.1"]
    assert {item.availability for item in images} == {"NEARLINE"}
    assert {item.sop_class_uid for item in images} == {"1.2.840.10008.5.1.4.1.1.1"}
    assert server.paths() == ["/studies/1.2/series/1.2.3/instances"]
    assert "InstanceAvailability" in server.received[0].fields


def test_images_of_other_series_and_repeated_ones_are_left_out() -> None:
    other = {**image(9), "0020000E": element("UI", "1.2.4")}
    script = lambda _: dicom_json([image(1), other, image(1)])  # noqa: E731 - a script in a line
    with WebServer(script) as server, web_client(server.url) as client:
        images = client.images("1.2", "1.2.3")

    assert [item.sop_instance_uid for item in images] == ["1.2.3.1"]


def test_a_list_of_images_shorter_than_the_series_is_refused() -> None:
    with (
        WebServer(series_server(6, 8)) as server,
        web_client(server.url) as client,
        pytest.raises(SourceError, match="cut off"),
    ):
        client.images("1.2", "1.2.3")


@pytest.mark.parametrize(("counted", "is_cut_off"), [(6, False), (8, True)])
def test_a_list_of_series_shorter_than_the_study_is_cut_off(counted: int, is_cut_off: bool) -> None:
    def script(request: Received) -> Reply:
        if request.path == "/studies":
            return dicom_json([{**study(7), "00201206": element("IS", counted)}])
        series = [{"0020000E": element("UI", f"1.2.7.{n}")} for n in range(6)]
        return dicom_json(page_of(series, request))

    query = Query(Level.SERIES, {"StudyInstanceUID": "1.2.7", "Modality": ""}, 100)
    with WebServer(script) as server, web_client(server.url) as client:
        found = client.find(query)

    assert len(found.items) == 6
    assert found.is_cut_off is is_cut_off


def test_a_list_of_images_as_long_as_the_series_is_taken() -> None:
    with WebServer(series_server(8, 8)) as server, web_client(server.url) as client:
        assert len(client.images("1.2", "1.2.3")) == 8


def test_a_query_ends_at_its_limit_however_slowly_its_answer_comes() -> None:
    release = threading.Event()
    cut = dicom_json([study(1)]).raw[:-5]
    with (
        WebServer(lambda _: Reply(cut, hold=release)) as server,
        web_client(server.url, timeout_seconds=1000.0, request_seconds=2.0) as client,
        pytest.raises(SourceError, match="request_seconds"),
    ):
        client.find(Query(Level.STUDY, {}, 10))
    release.set()


def test_an_answer_without_its_uid_is_an_error() -> None:
    with pytest.raises(SourceError, match="without a StudyInstanceUID"):
        find(lambda _: dicom_json([{"00080020": element("DA", "20240101")}]))


def test_html_in_place_of_json_is_an_error_that_names_the_url() -> None:
    page = reply(200, b"<html>Jane Doe</html>", {"Content-Type": "text/html; charset=utf-8"})
    with pytest.raises(SourceError, match=r"text/html.*check `url`") as caught:
        find(lambda _: page)

    assert "Doe" not in caught.value.detail


@pytest.mark.parametrize("key", ["StudyInstanceUID", "SeriesInstanceUID"])
@pytest.mark.parametrize("value", ["", "*", "1.2/../..", "1" * 65])
def test_a_path_has_whole_uids_only(key: str, value: str) -> None:
    keys = {"StudyInstanceUID": "1.2", "SeriesInstanceUID": "1.3", key: value}
    with (
        WebServer(lambda _: reply(500)) as server,
        web_client(server.url) as client,
        pytest.raises(SourceError, match=f"{key} is no UID"),
    ):
        client.find(Query(Level.IMAGE, keys, 10))

    assert server.received == []


def test_keys_with_values_match_and_empty_ones_are_asked_for() -> None:
    keys = {
        "StudyInstanceUID": "1.2\\1.3",
        "PatientName": "Müller^A&B*",
        "ModalitiesInStudy": "DX",
        "AccessionNumber": "",
    }
    with (
        WebServer(lambda _: reply(204)) as server,
        web_client(server.url, ignores=("ModalitiesInStudy",)) as client,
    ):
        client.find(Query(Level.STUDY, keys, 10))

    (request,) = server.received
    assert dict(request.query) == {
        "StudyInstanceUID": "1.2,1.3",
        "PatientName": "Müller^A&B*",
        "includefield": "AccessionNumber",
        "limit": "11",
    }
    assert request.fields == ("ModalitiesInStudy", "AccessionNumber")
    assert request.headers["accept"] == "application/dicom+json"


def test_an_unknown_keyword_is_an_error() -> None:
    with (
        WebServer(lambda _: reply(204)) as server,
        web_client(server.url) as client,
        pytest.raises(SourceError, match="Nonsense is no DICOM keyword"),
    ):
        client.find(Query(Level.STUDY, {"Nonsense": "1"}, 10))


def test_the_word_of_a_server_about_a_bad_query_is_shown() -> None:
    refused = reply(
        400, b'{"error": "limit must be\\n1 to 200"}', {"Content-Type": "application/json"}
    )
    with pytest.raises(SourceError, match=r"HTTP 400.*it says: limit must be 1 to 200"):
        find(lambda _: refused)


def test_the_word_of_a_server_is_not_shown_where_the_query_names_a_patient() -> None:
    refused = reply(400, b"bad value A123", {"Content-Type": "text/plain"})
    with (
        WebServer(lambda _: refused) as server,
        web_client(server.url) as client,
        pytest.raises(SourceError) as caught,
    ):
        client.find(Query(Level.STUDY, {"AccessionNumber": "A123"}, 10))

    assert "A123" not in caught.value.detail
    assert "HTTP 400" in caught.value.detail
