"""The plan of a campaign that reads a list of pictures, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hilum.domain import IMAGE_SOP_CLASSES, ExpectedImage, ListRow, PlannedSeries, RowOutcome
from hilum.retrieve.files.locations import Locations
from hilum.retrieve.files.picture_list import PictureList, PictureRow
from hilum.retrieve.files.plan import BATCH_FILES, SeriesImages, series_of
from hilum.retrieve.files.scan import error_text
from hilum_preprocessing.pictures.image_input import BEGINNING_BYTES, is_picture_file

_MODALITY = "OT"
_SECONDARY_CAPTURE = IMAGE_SOP_CLASSES["SecondaryCaptureImageStorage"]


@dataclass(frozen=True, slots=True)
class PlannedPictures:
    """One batch of a plan. `cursor`: the number of the row after which the plan continues.

    `rows`: the outcome of each row. The rows of a series may be scattered, so that it is in several
    batches: its images add up.
    """

    cursor: str
    series: SeriesImages
    rows: Sequence[ListRow]


def plan_pictures(
    pictures: PictureList, after: str = "", batch_rows: int = BATCH_FILES
) -> Iterator[PlannedPictures]:
    """Yield batches of so many rows each.

    The first bytes of each file are read; its pixels are checked when it is fetched. Rows up to the
    cursor are read again, for duplicates, without their files. Raises SourceError.
    """
    last = int(after or 0)
    rows: list[ListRow] = []
    images: list[tuple[PlannedSeries, ExpectedImage]] = []
    for row in pictures.rows():
        if row.number <= last:
            continue
        result = row if isinstance(row, ListRow) else _located(pictures.locations, row)
        if isinstance(result, ListRow):
            rows.append(result)
        else:
            images.append(result)
            study = result[0].study_instance_uid
            rows.append(ListRow(row.number, RowOutcome.FOUND, study_instance_uids=(study,)))
        if len(rows) >= batch_rows:
            yield PlannedPictures(str(row.number), series_of(iter(images)), rows)
            rows = []
            images = []
    if rows:
        yield PlannedPictures(str(rows[-1].number), series_of(iter(images)), rows)


def _planned(row: PictureRow, location: str) -> tuple[PlannedSeries, ExpectedImage]:
    origin = f"row {row.number}"
    series = PlannedSeries(
        row.study_instance_uid, row.series_instance_uid, row.day, _MODALITY, origin=origin
    )
    return series, ExpectedImage(row.sop_instance_uid, _SECONDARY_CAPTURE, location)


def _located(
    locations: Locations, row: PictureRow
) -> tuple[PlannedSeries, ExpectedImage] | ListRow:
    """Return the series and the image of a row, or why there is none. Raises SourceError."""
    for location in row.locations:
        try:
            beginning = locations.read(location, BEGINNING_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            locations.require_there(location)
            detail = f"the file cannot be read: {error_text(error)}"
            return ListRow(row.number, RowOutcome.REFUSED, detail)
        if not is_picture_file(beginning):
            return ListRow(row.number, RowOutcome.REFUSED, "the file is neither PNG nor JPEG")
        return _planned(row, location)
    locations.require_there(row.locations[0])
    return ListRow(row.number, RowOutcome.NONE, "the file is not there")
