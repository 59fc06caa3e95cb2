"""A PNG or JPEG file as a Secondary Capture object, which the archive takes.

The pixels stay as they are. JPEG Baseline of one component keeps its codestream. Everything else is
stored uncompressed. The object says that it is a picture file, so each recipe takes it where the
recipe takes such files (`hilum_preprocessing.pictures.mark`). The same arguments give the same
bytes.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Final

from pydicom import dcmwrite
from pydicom.config import IGNORE
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import UID, JPEGBaseline8Bit

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, decode
from hilum_preprocessing.errors import NotAnalysable
from hilum_preprocessing.pictures.image_input import ImageInput

_DAY: Final = re.compile(r"\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
# PS3.5 6.2: CS.
_CODE: Final = re.compile(r"[A-Z0-9_ ]{0,16}")
# PS3.5 6.2: LO, without the backslash, control characters and leading or trailing spaces.
_LONG_STRING: Final = re.compile(r"(?! )[^\\\x00-\x1f\x7f]{0,64}(?<! )")
_JPEG_METHOD: Final = "ISO_10918_1"
# Type 2: present, and empty where the value is not known.
_UNKNOWN: Final = (
    "StudyTime",
    "AccessionNumber",
    "Manufacturer",
    "ReferringPhysicianName",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyID",
    "SeriesNumber",
    "InstanceNumber",
    "PatientOrientation",
    "Laterality",
)


class PictureRefused(Exception):
    """The file or a value beside it gives no object. `detail`: the reason and the remedy.

    `detail` repeats no value of the list. `cause`: of the file; None: a value beside it is at
    fault.
    """

    def __init__(self, detail: str, cause: NotAnalysable | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.cause = cause


def picture_object(
    data: bytes,
    study_uid: str,
    series_uid: str,
    sop_uid: str,
    *,
    view: str = "",
    study_date: str = "",
    patient_id: str = "",
    maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS,
) -> bytes:
    """Return a Part 10 file.

    `view`: as View Position has it, in any case (PA, AP, LL); empty: unknown. `study_date`:
    YYYYMMDD, or empty. Raises PictureRefused: neither PNG nor JPEG, colour, transparency, Exif
    metadata that turn the picture, a cut or damaged file, more than `maximum_pixels`, or an
    argument that its attribute cannot hold.
    """
    named = {"StudyInstanceUID": study_uid, "SeriesInstanceUID": series_uid}
    values = {
        **_uids({**named, "SOPInstanceUID": sop_uid}),
        "ViewPosition": _view(view),
        "StudyDate": _matching(_DAY, study_date, "the study date is no day as YYYYMMDD"),
        "PatientID": _matching(
            _LONG_STRING, patient_id, "the patient id is longer than 64 characters or has others"
        ),
    }
    dataset = _data_set(data, values["ViewPosition"], maximum_pixels)
    del values["ViewPosition"]
    _identify(dataset, values)
    _describe(dataset, len(data))
    return _encoded(dataset)


def _data_set(data: bytes, view: str, maximum_pixels: int) -> Dataset:
    """The data set of the file, decoded once, so that a damaged file is refused here."""
    try:
        dataset = ImageInput(data, view).data_set(maximum_pixels)
        decode(dataset, maximum_pixels)
    except NotAnalysable as error:
        raise PictureRefused(str(error), error) from None
    return dataset


def _uids(named: dict[str, str]) -> dict[str, str]:
    for keyword, uid in named.items():
        if not UID(uid, validation_mode=IGNORE).is_valid:
            raise PictureRefused(f"{keyword} is no UID (PS3.5 9.1)")
    return named


def _view(view: str) -> str:
    return _matching(
        _CODE,
        view.strip().upper(),
        "the view is no word of View Position; write PA, AP, LL or RL, or leave it empty",
    )


def _matching(pattern: re.Pattern[str], value: str, problem: str) -> str:
    if value and pattern.fullmatch(value) is None:
        raise PictureRefused(problem)
    return value


def _identify(dataset: Dataset, values: dict[str, str]) -> None:
    dataset.SpecificCharacterSet = "ISO_IR 192"
    for keyword in _UNKNOWN:
        setattr(dataset, keyword, None)
    for keyword, value in values.items():
        setattr(dataset, keyword, value)
    syntax = dataset.file_meta.TransferSyntaxUID
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.file_meta.ImplementationClassUID = UID(IMPLEMENTATION_CLASS_UID)
    dataset.file_meta.ImplementationVersionName = IMPLEMENTATION_VERSION_NAME


def _describe(dataset: Dataset, file_bytes: int) -> None:
    """Say in words where the pixels come from, and how far JPEG compressed them."""
    is_jpeg = dataset.get("LossyImageCompression") == "01"
    is_as_it_was = dataset.file_meta.TransferSyntaxUID == JPEGBaseline8Bit
    kept = "codestream unchanged" if is_as_it_was else "pixels unchanged"
    dataset.DerivationDescription = (
        f"{'JPEG' if is_jpeg else 'PNG'} file, {kept}; window, polarity and device are not known"
    )
    if is_jpeg:
        ratio = dataset.Rows * dataset.Columns / file_bytes
        dataset.LossyImageCompressionRatio = f"{ratio:.2f}"
        dataset.LossyImageCompressionMethod = _JPEG_METHOD


def _encoded(dataset: Dataset) -> bytes:
    target = BytesIO()
    dcmwrite(target, dataset, enforce_file_format=True)
    return target.getvalue()
