"""Identifiers: no retrieve without full UIDs, and no query key that must not be sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.domain import ExpectedImage
from hilum.retrieve.dimse.identifiers import (
    is_full_uid,
    optional_keys,
    query_identifier,
    retrieve_identifiers,
)
from hilum.retrieve.source import FetchRequest, Level, Query, SourceError

FULL = "1.2.840.99.1"
_digits = st.integers(0, 10**9).map(str)
full_uids = st.lists(_digits, min_size=2, max_size=6).map(".".join)
odd_uids = st.one_of(
    st.sampled_from(
        ["", " ", "*", "?", "1.2.*", "1.2\\1.3", "1.2.3 ", "1.2.3\0", "1..2", ".1", "1"]
    ),
    st.text(max_size=70),
    st.just("1." + "2" * 64),
)
any_uids = st.one_of(full_uids, odd_uids)


def _request(study: str, series: str, images: list[str], *, are_all: bool) -> FetchRequest:
    return FetchRequest(study, series, [ExpectedImage(uid) for uid in images], are_all, 60.0)


@given(any_uids, any_uids, st.lists(any_uids, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_no_retrieve_is_built_with_an_empty_wildcard_or_invalid_unique_key(
    study: str, series: str, images: list[str], are_all: bool, by_lists: bool
) -> None:
    wanted = _request(study, series, images, are_all=are_all)

    if all(map(is_full_uid, (study, series, *images))):
        found = retrieve_identifiers(wanted, by_lists=by_lists)
        assert all(item.StudyInstanceUID == study for item in found)
        assert all(item.SeriesInstanceUID == series for item in found)
    else:
        with pytest.raises(SourceError, match="is not one full UID"):
            retrieve_identifiers(wanted, by_lists=by_lists)


@given(st.lists(full_uids, min_size=1, max_size=350, unique=True), st.booleans())
def test_lists_name_each_image_once_and_at_most_a_hundred_at_a_time(
    images: list[str], by_lists: bool
) -> None:
    found = retrieve_identifiers(_request(FULL, FULL, images, are_all=False), by_lists=by_lists)
    values = [item.SOPInstanceUID for item in found]
    named = [[value] if isinstance(value, str) else list(value) for value in values]

    assert [uid for uids in named for uid in uids] == images
    assert max(map(len, named)) <= (100 if by_lists else 1)
    assert all(item.QueryRetrieveLevel == "IMAGE" for item in found)


@pytest.mark.parametrize("uid", ["1.2", "1.2.840.10008", "2.25." + "9" * 38, "1.02.3"])
def test_a_full_uid_is_digits_and_dots(uid: str) -> None:
    assert is_full_uid(uid)


def test_a_whole_series_is_asked_for_by_its_uid_alone() -> None:
    (found,) = retrieve_identifiers(
        _request("1.2", "1.2.3", ["1.2.3.4"], are_all=True), by_lists=True
    )

    assert found.QueryRetrieveLevel == "SERIES"
    assert "SOPInstanceUID" not in found


def test_ignored_keys_and_availability_are_never_sent() -> None:
    keys = {"StudyDate": "20190101", "ModalitiesInStudy": "DX", "InstanceAvailability": ""}

    found = query_identifier(Query(Level.STUDY, keys, 10), ["ModalitiesInStudy"])

    assert [item.keyword for item in found] == ["StudyDate", "QueryRetrieveLevel"]


@pytest.mark.parametrize(
    ("level", "keys"),
    [
        (Level.SERIES, {"AccessionNumber": "1"}),
        (Level.SERIES, {"StudyInstanceUID": ""}),
        (Level.IMAGE, {"StudyInstanceUID": "1.2", "SeriesInstanceUID": "*"}),
        (Level.IMAGE, {"StudyInstanceUID": "1.2\\1.3", "SeriesInstanceUID": "1.2.3"}),
    ],
)
def test_a_query_below_the_study_names_the_levels_above(level: Level, keys: dict[str, str]) -> None:
    with pytest.raises(SourceError, match="needs one full"):
        query_identifier(Query(level, keys, 10), ())


def test_a_date_range_is_sent_as_it_is() -> None:
    query = Query(Level.STUDY, {"StudyDate": "20190101-20190102"}, 10)

    assert query_identifier(query, ())["StudyDate"].value == "20190101-20190102"


def test_a_key_beyond_ascii_declares_its_character_set() -> None:
    found = query_identifier(Query(Level.STUDY, {"StudyDescription": "Thorax übersicht"}, 10), ())

    assert found.SpecificCharacterSet == "ISO_IR 192"


def test_only_optional_keys_may_be_unsupported() -> None:
    keys = {"StudyDate": "20190101", "StationName": "DX1", "ModalitiesInStudy": "DX"}

    found = query_identifier(Query(Level.STUDY, keys, 10), ())

    assert set(optional_keys(found)) == {"StationName", "ModalitiesInStudy"}


def test_an_unknown_keyword_is_an_error() -> None:
    with pytest.raises(SourceError, match="keyword"):
        query_identifier(Query(Level.STUDY, {"NoSuchKey": ""}, 10), ())
