"""A PACS that misbehaves: limits hold, the next request goes on, and nothing is believed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from hilum.domain import ExpectedImage
from hilum.retrieve.dimse import association
from hilum.retrieve.dimse.source import CGetImageSource, CMoveImageSource, DimseImageSource
from hilum.retrieve.source import Answers, FetchReport, FetchRequest, Level, Query, SourceError
from hilum.settings import CGetSource, CMoveSource
from tests.support.machine.waiting import wait_for
from tests.support.peers.archives import (
    CALLING_TITLE,
    DX,
    ArchivedSeries,
    archived_report,
    archived_series,
    contents_of,
    read_part10,
)
from tests.support.peers.peers import free_port
from tests.support.peers.scripted_archive import Ending, ScriptedArchive
from tests.support.retrieve.kept_objects import MemoryStore

SERIES = archived_series("1.2.3.4", 3)
STUDIES = Query(Level.STUDY, {"StudyDate": "20190102", "StudyInstanceUID": ""}, 5)


@contextmanager
def source_of(archive: ScriptedArchive, kind: str = "c-move", **changes: Any) -> Iterator[Any]:
    """A source on the archive with short time limits."""
    common = {
        "host": "127.0.0.1",
        "port": archive.port,
        "ae_title": "ARCHIVE",
        "calling_ae_title": CALLING_TITLE,
        "timeout_seconds": 1.0,
        **changes,
    }
    made: DimseImageSource = (
        CMoveImageSource(CMoveSource(**common))
        if kind == "c-move"
        else CGetImageSource(CGetSource(**common))
    )
    with closing(made):
        yield made


def studies(count: int) -> list[dict[str, str]]:
    """So many matches of a study query."""
    return [{"StudyInstanceUID": f"1.2.3.{n}"} for n in range(count)]


def image_answers(series: ArchivedSeries) -> list[dict[str, str]]:
    """The matches of an image query."""
    return [
        {
            "StudyInstanceUID": series.study_instance_uid,
            "SeriesInstanceUID": series.series_instance_uid,
            "SOPInstanceUID": uid,
            "SOPClassUID": DX,
        }
        for uid in series.sop_instance_uids
    ]


def request_of(series: ArchivedSeries = SERIES, seconds: float = 60.0) -> FetchRequest:
    """All images of a series."""
    images = [ExpectedImage(uid) for uid in series.sop_instance_uids]
    return FetchRequest(
        series.study_instance_uid, series.series_instance_uid, images, True, seconds
    )


def fetch(
    source: DimseImageSource,
    wanted: FetchRequest | None = None,
    store: MemoryStore | None = None,
    stop: threading.Event | None = None,
) -> FetchReport:
    """Fetch; by default all of SERIES."""
    return source.fetch(wanted or request_of(), store or MemoryStore(), stop or threading.Event())


def test_a_silent_cut_at_the_limit_is_not_seen_and_not_invented() -> None:
    with ScriptedArchive(answers=studies(5)) as archive, source_of(archive) as source:
        found = source.find(STUDIES)

    assert (len(found.items), found.is_cut_off) == (5, False)


def test_more_matches_than_asked_for_are_cut_off_by_our_cancel() -> None:
    with ScriptedArchive(answers=studies(50)) as archive, source_of(archive) as source:
        found = source.find(STUDIES)
        again = source.find(STUDIES)
        associations = len(archive.associations)

    assert (len(found.items), found.is_cut_off) == (6, True)
    assert len(again.items) == 6
    assert associations == 1  # the cancel was honoured, so the association was kept


def test_an_ignored_cancel_ends_in_an_abort_and_the_next_query_goes_on() -> None:
    archive = ScriptedArchive(
        answers=studies(50), ending=Ending.PENDING_FOR_EVER, ignores_cancel=True
    )
    with archive, source_of(archive) as source:
        found = source.find(STUDIES)
        archive.ending = Ending.FINAL
        archive.answers = studies(2)
        after = source.find(STUDIES)

    assert (len(found.items), found.is_cut_off) == (6, True)
    assert len(after.items) == 2


@pytest.mark.parametrize("status", [0xFE00, 0xA700])
def test_a_status_of_its_own_limit_is_a_cut_off(status: int) -> None:
    with ScriptedArchive(answers=studies(3), final=status) as archive, source_of(archive) as source:
        found = source.find(STUDIES)

    assert (len(found.items), found.is_cut_off) == (3, True)


def test_ff01_names_the_optional_keys_as_ignored() -> None:
    keys = {"StudyDate": "20190102", "ModalitiesInStudy": "DX", "StudyInstanceUID": ""}
    with (
        ScriptedArchive(answers=studies(2), pending=0xFF01) as archive,
        source_of(archive) as source,
    ):
        found: Answers = source.find(Query(Level.STUDY, keys, 5))

    assert found.ignored == ("ModalitiesInStudy",)


@pytest.mark.parametrize("status", [0xA900, 0xC000, 0x0110])
def test_a_failed_query_says_its_status_and_is_no_outage(status: int) -> None:
    with (
        ScriptedArchive(final=status) as archive,
        source_of(archive) as source,
        pytest.raises(SourceError, match=f"{status:04X}, ") as caught,
    ):
        source.find(STUDIES)

    assert not caught.value.is_outage


def test_pending_for_ever_below_the_limit_of_answers_ends_at_the_total_limit_of_time() -> None:
    archive = ScriptedArchive(
        answers=studies(1), ending=Ending.PENDING_FOR_EVER, ignores_cancel=True
    )
    with (
        archive,
        source_of(archive, timeout_seconds=0.2) as source,
        pytest.raises(SourceError, match="did not end its answer"),
    ):
        source.find(Query(Level.STUDY, STUDIES.keys, 50_000))


@pytest.mark.parametrize(
    ("ending", "words"),
    [(Ending.SILENCE, "gave no answer within 1 s"), (Ending.ABORT, "ended the association")],
)
def test_a_query_without_an_answer_is_an_error_and_the_next_one_goes_on(
    ending: Ending, words: str
) -> None:
    with (
        ScriptedArchive(answers=studies(2), ending=ending) as archive,
        source_of(archive) as source,
    ):
        with pytest.raises(SourceError, match=words) as caught:
            source.find(STUDIES)
        archive.ending = Ending.FINAL
        after = source.find(STUDIES)

    assert not caught.value.is_outage
    assert len(after.items) == 2


def test_two_series_without_an_answer_in_a_row_are_an_outage() -> None:
    with ScriptedArchive(ending=Ending.ABORT) as archive, source_of(archive) as source:
        with pytest.raises(SourceError) as first:
            source.images("1.2.3", "1.2.3.1")
        with pytest.raises(SourceError) as second:
            source.images("1.2.4", "1.2.4.1")

    assert (first.value.is_outage, second.value.is_outage) == (False, True)


def test_images_of_other_series_and_classes_are_left_out_and_doubles_too() -> None:
    answers = image_answers(SERIES)
    others = image_answers(archived_series("1.2.3.9", 2))
    report = {
        **answers[0],
        "SOPInstanceUID": "1.2.3.77",
        "SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.11",
    }
    odd = {**answers[0], "SOPInstanceUID": "1.2.*"}
    archive = ScriptedArchive(answers=[*answers, *others, report, odd, answers[0]])
    with archive, source_of(archive) as source:
        found = source.images(SERIES.study_instance_uid, SERIES.series_instance_uid)

    assert [item.sop_instance_uid for item in found] == list(SERIES.sop_instance_uids)


def test_availability_is_passed_on_and_never_asked_for() -> None:
    answers = [{**item, "InstanceAvailability": "NEARLINE"} for item in image_answers(SERIES)]
    with ScriptedArchive(answers=answers) as archive, source_of(archive) as source:
        found = source.images(SERIES.study_instance_uid, SERIES.series_instance_uid)

    assert {item.availability for item in found} == {"NEARLINE"}
    assert "InstanceAvailability" not in archive.requests[0]


def test_a_list_of_images_that_is_cut_off_is_an_error() -> None:
    with (
        ScriptedArchive(answers=image_answers(SERIES), final=0xFE00) as archive,
        source_of(archive) as source,
        pytest.raises(SourceError, match="does not list all images"),
    ):
        source.images(SERIES.study_instance_uid, SERIES.series_instance_uid)


def test_a_move_ends_at_its_limit_although_the_server_says_pending_for_ever() -> None:
    with ScriptedArchive(ending=Ending.PENDING_FOR_EVER) as archive, source_of(archive) as source:
        report = fetch(source, request_of(seconds=1.0))

    assert (report.status, report.may_follow) == ("timed out", True)
    assert "its limit of 1 s" in report.problem


def test_a_move_whose_cancel_is_ignored_is_aborted_and_the_next_request_goes_on() -> None:
    archive = ScriptedArchive(
        answers=studies(1), ending=Ending.PENDING_FOR_EVER, ignores_cancel=True
    )
    with archive, source_of(archive) as source:
        report = fetch(source, request_of(seconds=0.5))
        archive.ending = Ending.FINAL
        after = source.find(STUDIES)

    assert report.status == "timed out"
    assert len(after.items) == 1


@pytest.mark.parametrize(
    ("ending", "status"), [(Ending.SILENCE, "timed out"), (Ending.ABORT, "connection lost")]
)
def test_a_move_without_an_answer_is_reported_and_no_outage_by_itself(
    ending: Ending, status: str
) -> None:
    with ScriptedArchive(ending=ending) as archive, source_of(archive) as source:
        first = fetch(source, request_of(seconds=0.5))
        second = fetch(source, request_of(archived_series("1.2.3.5", 1), seconds=0.5))

    assert (first.status, first.is_outage) == (status, False)
    assert second.is_outage


def test_a_stop_ends_a_move_by_a_cancel() -> None:
    stop = threading.Event()
    with ScriptedArchive(ending=Ending.PENDING_FOR_EVER) as archive, source_of(archive) as source:
        setter = threading.Thread(target=lambda: (wait_for(lambda: archive.requests), stop.set()))
        setter.start()
        report = fetch(source, stop=stop)
        setter.join()

    assert report.status == "stopped"
    assert not report.is_outage


def test_success_with_all_sub_operations_failed_is_a_problem() -> None:
    with ScriptedArchive(counts=(0, 3, 0)) as archive, source_of(archive) as source:
        report = fetch(source)

    assert report.status == "0000"
    assert "0 sent, 3 failed" in report.problem


@pytest.mark.parametrize(("status", "is_final"), [(0xC000, False), (0xA702, False), (0xA801, True)])
def test_a_failed_move_is_named_with_its_advice(status: int, is_final: bool) -> None:
    with ScriptedArchive(counts=(0, 3, 0), final=status) as archive, source_of(archive) as source:
        report = fetch(source)

    assert report.status == f"{status:04X}"
    assert report.is_final == is_final
    assert not report.is_outage


def test_a_get_stores_what_was_asked_for_and_discards_the_rest() -> None:
    other = archived_series("1.2.3.9", 2)
    objects = [read_part10(item) for item in contents_of([SERIES, other])]
    store = MemoryStore()
    with ScriptedArchive(objects=objects) as archive, source_of(archive, "c-get") as source:
        fetch(source, store=store)

    assert store.uids() == list(SERIES.sop_instance_uids)
    assert archive.statuses == [0x0000] * 3 + [0xB006] * 2


def test_a_get_of_a_class_that_we_do_not_take_stores_the_images() -> None:
    report = read_part10(archived_report("1.2.3.4", "1.2.3.4.1", "1.2.3.4.1.9"))
    images = [read_part10(item) for item in contents_of([SERIES])]
    store = MemoryStore()
    with (
        ScriptedArchive(objects=[report, *images]) as archive,
        source_of(archive, "c-get") as source,
    ):
        ended = fetch(source, store=store)

    assert store.uids() == list(SERIES.sop_instance_uids)
    assert ended.status == "B000"


def test_an_object_that_the_store_refuses_is_answered_a700_and_said() -> None:
    objects = [read_part10(item) for item in contents_of([SERIES])]
    store = MemoryStore(refuses=lambda number: number == 2)
    with ScriptedArchive(objects=objects) as archive, source_of(archive, "c-get") as source:
        report = fetch(source, store=store)

    assert archive.statuses == [0x0000, 0xA700, 0x0000]
    assert (report.status, report.may_follow) == ("B000", False)
    assert report.problem == "not stored: the disk is full"


def test_a_get_that_is_aborted_in_the_middle_keeps_whole_objects_only() -> None:
    objects = [read_part10(item) for item in contents_of([SERIES])]
    store = MemoryStore()
    archive = ScriptedArchive(objects=objects, ending=Ending.ABORT)
    with archive, source_of(archive, "c-get") as source:
        report = fetch(source, store=store)

    assert report.status == "connection lost"
    assert store.uids() == list(SERIES.sop_instance_uids[:1])


def test_nothing_that_listens_is_an_outage_with_the_address() -> None:
    port = free_port()
    section = CMoveSource(host="127.0.0.1", port=port, ae_title="ARCHIVE", timeout_seconds=2.0)
    with closing(CMoveImageSource(section)) as source:
        report = fetch(source)
        with pytest.raises(SourceError, match=f"127.0.0.1:{port}") as caught:
            source.find(STUDIES)

    assert report.is_outage
    assert caught.value.is_outage


def test_an_unknown_called_title_is_final_with_its_remedy() -> None:
    with (
        ScriptedArchive(only_called=True) as archive,
        source_of(archive, ae_title="OTHER") as source,
        pytest.raises(SourceError, match="correct the AE Title of this source") as caught,
    ):
        source.find(STUDIES)

    assert caught.value.is_final


def test_an_unknown_calling_title_is_final_with_its_remedy() -> None:
    with (
        ScriptedArchive(known_callers=("SOMEONE",)) as archive,
        source_of(archive) as source,
        pytest.raises(SourceError, match="register HILUM there") as caught,
    ):
        source.find(STUDIES)

    assert caught.value.is_final


def test_closing_releases_the_association_and_may_be_repeated() -> None:
    with ScriptedArchive(answers=studies(1)) as archive, source_of(archive) as source:
        source.find(STUDIES)
        source.close()
        source.close()
        (association,) = archive.associations
        wait_for(lambda: association.is_released or association.is_aborted)

        assert association.is_released


def test_an_association_that_the_server_has_ended_is_opened_anew() -> None:
    with ScriptedArchive(answers=studies(1)) as archive, source_of(archive) as source:
        source.find(STUDIES)
        archive.associations[0].abort()
        found = source.find(STUDIES)

    assert len(found.items) == 1
    assert len(archive.associations) == 2


def test_an_idle_association_is_released_and_opened_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(association, "_IDLE_SECONDS", 0.05)
    monkeypatch.setattr(association, "_REUSED_SECONDS", 0.04)  # less, as there
    with ScriptedArchive(answers=studies(1)) as archive, source_of(archive) as source:
        source.find(STUDIES)
        wait_for(lambda: archive.associations[0].is_released)
        found = source.find(STUDIES)

    assert len(found.items) == 1
    assert len(archive.associations) == 2


def test_requests_that_follow_share_one_association() -> None:
    with ScriptedArchive(answers=studies(1)) as archive, source_of(archive) as source:
        for _ in range(5):
            source.find(STUDIES)
        count = len(archive.associations)

    assert count == 1
