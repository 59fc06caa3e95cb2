"""Lists of PNG and JPEG files: columns, UIDs, outcomes of rows, and the objects that come of them."""

from __future__ import annotations

import csv
import gzip
import io
import threading
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydicom import dcmread

from hilum.domain import ExpectedImage, ListRow, PlannedSeries, RowOutcome
from hilum.retrieve.files.picture_layout import PictureColumns
from hilum.retrieve.files.picture_list import PictureList, PictureRow
from hilum.retrieve.files.picture_plan import plan_pictures
from hilum.retrieve.files.pictures_source import PicturesSource
from hilum.retrieve.source import FetchReport, FetchRequest, SourceError
from tests.support.objects.small_files import KeptStore, write


def picture(mode: str = "L", form: str = "PNG") -> bytes:
    target = BytesIO()
    Image.new(mode, (4, 3), 7 if mode != "RGB" else (200, 10, 30)).save(target, form)
    return target.getvalue()


def listed(folder: Path, *rows: str, name: str = "list.csv") -> Path:
    return write(folder / name, "".join(f"{row}\n" for row in rows).encode())


def rows_of(file: Path, **options: object) -> list[PictureRow | ListRow]:
    return list(PictureList(str(file), **options).rows())  # type: ignore[arg-type]


def pictures_of(file: Path, **options: object) -> list[PictureRow]:
    found = rows_of(file, **options)
    assert all(isinstance(row, PictureRow) for row in found), found
    return [row for row in found if isinstance(row, PictureRow)]


def outcomes(file: Path) -> dict[int, tuple[RowOutcome, str]]:
    return {
        row.number: (row.outcome, row.detail)
        for batch in plan_pictures(PictureList(str(file)))
        for row in batch.rows
    }


def planned(pictures: PictureList) -> list[tuple[PlannedSeries, Sequence[ExpectedImage]]]:
    return [item for batch in plan_pictures(pictures) for item in batch.series]


def fetch(pictures: PictureList, store: KeptStore) -> FetchReport:
    source = PicturesSource(pictures)
    ((series, images),) = planned(pictures)
    wanted = FetchRequest(
        series.study_instance_uid,
        series.series_instance_uid,
        images,
        are_all=True,
        limit_seconds=600.0,
    )
    report = source.fetch(wanted, store, threading.Event())
    source.close()
    return report


def test_a_list_gives_paths_studies_views_and_days(tmp_path: Path) -> None:
    file = listed(
        tmp_path, "Path,Study,View,Date", "a/1.png,s1,PA,2019-01-02", "/x/2.jpg,s1,LL,20190102"
    )

    first, second = pictures_of(file)

    assert first.locations == (f"{tmp_path}/a/1.png",)
    assert second.locations == ("/x/2.jpg",)
    assert first.study_instance_uid == second.study_instance_uid
    assert first.series_instance_uid == second.series_instance_uid
    assert first.sop_instance_uid != second.sop_instance_uid
    assert [(row.number, row.view, row.day) for row in (first, second)] == [
        (2, "PA", "20190102"),
        (3, "LL", "20190102"),
    ]


def test_a_row_without_a_study_is_a_study_of_its_own(tmp_path: Path) -> None:
    first, second = pictures_of(listed(tmp_path, "path", "1.png", "2.png"))

    assert first.study_instance_uid != second.study_instance_uid


def test_uids_are_the_same_each_time_and_differ_between_lists(tmp_path: Path) -> None:
    one = listed(tmp_path / "one", "path", "1.png")
    other = listed(tmp_path / "other", "path", "1.png")

    assert pictures_of(one) == pictures_of(one)
    assert pictures_of(one)[0].sop_instance_uid != pictures_of(other)[0].sop_instance_uid


def test_a_named_collection_keeps_the_uids_when_the_list_moves(tmp_path: Path) -> None:
    one = listed(tmp_path / "one", "path", "1.png")
    other = listed(tmp_path / "other", "path", "1.png")

    uids = [pictures_of(file, collection="mine")[0].sop_instance_uid for file in (one, other)]

    assert uids[0] == uids[1]


def test_columns_of_other_names_are_named(tmp_path: Path) -> None:
    file = listed(tmp_path, "Datei;Fall", "1.png;7")

    (row,) = pictures_of(file, columns=PictureColumns(path="datei", study="Fall"))

    assert row.locations == (f"{tmp_path}/1.png",)


@pytest.mark.parametrize(
    ("header", "columns", "words"),
    [
        ("name,label", PictureColumns(), "--path-column"),
        ("path", PictureColumns(study="case"), "no column 'case'"),
        ("path,Path", PictureColumns(), "two columns"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_with_the_remedy(
    tmp_path: Path, header: str, columns: PictureColumns, words: str
) -> None:
    with pytest.raises(SourceError, match=words):
        rows_of(listed(tmp_path, header, "1,2"), columns=columns)


def test_mimic_is_known_by_its_header(tmp_path: Path) -> None:
    file = listed(
        tmp_path,
        "dicom_id,subject_id,study_id,ViewPosition,StudyDate",
        "02aa804e-bde0afdd,10000032,50414267,PA,21800506",
        "174413ec-4ec4c1f7,10000032,50414267,LATERAL,21800506",
    )

    first, second = pictures_of(file, patient_key=b"key")

    assert first.locations == (f"{tmp_path}/files/p10/p10000032/s50414267/02aa804e-bde0afdd.jpg",)
    assert first.study_instance_uid == second.study_instance_uid
    assert (first.view, first.day) == ("PA", "21800506")
    assert first.patient == second.patient != ""
    assert "10000032" not in first.patient


def test_a_compressed_list_is_read(tmp_path: Path) -> None:
    content = gzip.compress(b"dicom_id,study_id,subject_id,split\nab,5,12,test\n")

    (row,) = pictures_of(write(tmp_path / "split.csv.gz", content))

    assert row.locations == (f"{tmp_path}/files/p12/p12/s5/ab.jpg",)


def test_chest_x_ray_14_is_known_by_its_header(tmp_path: Path) -> None:
    file = listed(tmp_path, "Image Index,Patient ID,View Position", "00000001_000.png,1,AP")
    write(tmp_path / "images_002" / "images" / "00000001_000.png", picture())

    ((_, images),) = planned(PictureList(str(file)))

    assert images[0].origin == f"{tmp_path}/images_002/images/00000001_000.png"


def test_chexpert_is_known_by_its_header(tmp_path: Path) -> None:
    folder = tmp_path / "CheXpert-v1.0"
    file = listed(
        folder,
        "Path,Sex,Frontal/Lateral,AP/PA",
        "CheXpert-v1.0/train/p1/study1/view1_frontal.jpg,M,Frontal,AP",
        "CheXpert-v1.0/train/p1/study1/view2_lateral.jpg,M,Lateral,",
    )
    write(folder / "train/p1/study1/view1_frontal.jpg", picture(form="JPEG"))

    frontal, lateral = pictures_of(file)

    assert frontal.study_instance_uid == lateral.study_instance_uid
    assert (frontal.view, lateral.view) == ("AP", "LL")
    assert outcomes(file) == {
        2: (RowOutcome.FOUND, ""),
        3: (RowOutcome.NONE, "the file is not there"),
    }


def test_each_row_has_its_outcome(tmp_path: Path) -> None:
    write(tmp_path / "1.png", picture())
    write(tmp_path / "2.png", b"words")
    file = listed(
        tmp_path,
        "path,study,date",
        "1.png,a,",
        "1.png,a,",
        "2.png,a,",
        "3.png,a,",
        ",a,",
        "1.png,a,yesterday",
        "1.png,a",
        "https://example.org/1.png,a,",
    )

    found = outcomes(file)

    assert {number: outcome for number, (outcome, _) in found.items()} == {
        2: RowOutcome.FOUND,
        3: RowOutcome.DUPLICATE,
        4: RowOutcome.REFUSED,
        5: RowOutcome.NONE,
        6: RowOutcome.REFUSED,
        7: RowOutcome.REFUSED,
        8: RowOutcome.REFUSED,
        9: RowOutcome.REFUSED,
    }
    assert "neither PNG nor JPEG" in found[4][1]
    assert "YYYYMMDD" in found[7][1]
    assert "in quotes" in found[8][1]


def test_a_plan_continues_after_a_row_and_still_knows_duplicates(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.png", picture())
    file = listed(tmp_path, "path", *(f"{number}.png" for number in range(5)), "0.png")
    pictures = PictureList(str(file))
    first = next(plan_pictures(pictures, batch_rows=3))

    rest = list(plan_pictures(pictures, after=first.cursor, batch_rows=3))

    assert [row.number for row in first.rows] == [2, 3, 4]
    assert [(row.number, row.outcome) for batch in rest for row in batch.rows] == [
        (5, RowOutcome.FOUND),
        (6, RowOutcome.FOUND),
        (7, RowOutcome.DUPLICATE),
    ]


def test_a_list_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="CSV UTF-8"):
        rows_of(write(tmp_path / "list.csv", b"path\nh\xe4.png\n"))


def test_a_list_that_is_away_is_an_error_of_the_source(tmp_path: Path) -> None:
    source = PicturesSource(PictureList(str(tmp_path / "gone.csv")))

    lines = source.probe()

    source.close()
    assert [(line.is_ok, line.text) for line in lines] == [
        (False, "the list cannot be read: No such file or directory")
    ]


texts = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12).filter(
    lambda text: "://" not in text and text.strip()
)


@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=8, unique_by=lambda row: row[0]),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["", "\ufeff"]),
)
def test_every_row_of_a_csv_is_read_as_it_was_written(
    cells: list[tuple[str, str]], delimiter: str, mark: str
) -> None:
    target = io.StringIO()
    csv.writer(target, delimiter=delimiter).writerows([("path", "study"), *cells])
    fsspec.filesystem("memory").pipe("/lists/1.csv", (mark + target.getvalue()).encode())

    found = list(PictureList("memory://lists/1.csv").rows())

    assert [row.number for row in found] == list(range(2, 2 + len(cells)))
    assert len({row.study_instance_uid for row in found if isinstance(row, PictureRow)}) == len(
        {study for _, study in cells}
    )


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_picture_becomes_a_secondary_capture_object(tmp_path: Path, form: str) -> None:
    write(tmp_path / "1.x", picture(form=form))
    file = listed(tmp_path, "path,study,view,date,patient", "1.x,s,PA,20190102,Doe")
    pictures = PictureList(str(file), patient_key=b"key")
    store = KeptStore()

    report = fetch(pictures, store)

    (row,) = pictures_of(file, patient_key=b"key")
    made = dcmread(BytesIO(store.objects[f"{tmp_path}/1.x"]))
    assert report == FetchReport("stored")
    assert made.SOPInstanceUID == row.sop_instance_uid
    assert made.StudyInstanceUID == row.study_instance_uid
    assert (made.ViewPosition, made.StudyDate) == ("PA", "20190102")
    assert made.PatientID == row.patient
    assert "Doe" not in str(made)


def test_without_a_key_no_patient_is_named(tmp_path: Path) -> None:
    write(tmp_path / "1.png", picture())
    store = KeptStore()

    fetch(PictureList(str(listed(tmp_path, "path,patient", "1.png,Doe"))), store)

    assert dcmread(BytesIO(store.objects[f"{tmp_path}/1.png"])).PatientID == ""


def test_colour_is_refused_and_a_picture_of_16_bits_is_stored(tmp_path: Path) -> None:
    write(tmp_path / "colour.png", picture("RGB"))
    write(tmp_path / "deep.png", picture("I;16"))
    file = listed(tmp_path, "path,study", "colour.png,s", "deep.png,s")
    store = KeptStore()

    report = fetch(PictureList(str(file)), store)

    assert list(store.objects) == [f"{tmp_path}/deep.png"]
    assert (report.status, report.is_final, report.may_repeat) == ("incomplete", False, False)
    assert "colour" in report.problem


def test_a_row_that_left_the_list_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "1.png", picture())
    file = listed(tmp_path, "path", "1.png")
    pictures = PictureList(str(file))
    ((series, images),) = planned(pictures)
    listed(tmp_path, "path", "2.png")
    source = PicturesSource(pictures)
    wanted = FetchRequest(series.study_instance_uid, "1.2", images, True, 600.0)

    report = source.fetch(wanted, KeptStore(), threading.Event())

    source.close()
    assert "not in the list any more" in report.problem


@pytest.fixture(autouse=True)
def _no_lists() -> Iterator[None]:
    """Leave no list in memory behind."""
    yield
    files = fsspec.filesystem("memory")
    if files.exists("/lists"):
        files.rm("/lists", recursive=True)
