"""Each reason of the closed list is provoked.

By a stored file through the decode process's own function, or by the analyse stage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import MPEG2MPML, CTImageStorage, JPEGBaseline8Bit

from hilum import domain
from hilum.analyse.analyser import Analyser
from hilum.analyse.decode.pool import DecodePool
from hilum.analyse.decode.prepare import prepare_for_releases
from hilum.analyse.decode.worker import DecodeRequest, NotReady, Ready
from hilum.domain import Instance, Lease, Priority, ReadingJob, Release
from hilum.errors import NotAnalysed
from hilum.settings import Analyse
from hilum_preprocessing import Reason
from testing.phantoms import phantom
from tests.support.objects.codecs import load_breaking
from tests.support.objects.radiograph import jpeg

TESTS = Path(__file__).parents[3]
ADULTS = {
    "recipe": "torchxrayvision_224",
    "population": {"minimum_age_years": 18, "cites": "a test"},
}
MAXIMUM_PIXELS = 200 * 200


def image(**overrides: Any) -> Dataset:
    return phantom.make_instance(7, rows=64, columns=64, overrides=overrides)


def cut(dataset: Dataset) -> Dataset:
    dataset.PixelData = dataset.PixelData[:1000]
    return dataset


def constant(dataset: Dataset) -> Dataset:
    dataset.PixelData = b"\x01\x00" * (64 * 64)
    return dataset


def two_levels(dataset: Dataset) -> Dataset:
    dataset.PixelData = (b"\x00\x00" * 32 + b"\xff\x0f" * 32) * 64
    return dataset


def of_jpeg(codestream: bytes) -> Dataset:
    dataset = phantom.make_instance(7, rows=64, columns=64, transfer_syntax_uid=JPEGBaseline8Bit)
    dataset.PixelData = encapsulate([codestream])
    return dataset


def relabelled(dataset: Dataset, transfer_syntax_uid: str) -> Dataset:
    dataset.file_meta.TransferSyntaxUID = transfer_syntax_uid
    dataset["PixelData"].VR, dataset["PixelData"].is_undefined_length = "OB", True
    return dataset


PROVOKED: dict[Reason, Callable[[], Dataset]] = {
    Reason.WRONG_MODALITY: lambda: image(Modality="CT", SOPClassUID=CTImageStorage),
    Reason.NOT_FOR_PRESENTATION: lambda: image(PresentationIntentType="FOR PROCESSING"),
    Reason.NOT_CHEST: lambda: image(BodyPartExamined="HAND"),
    Reason.LATERAL_NOT_SUPPORTED: lambda: image(ViewPosition="LL"),
    Reason.CHILD: lambda: image(PatientAge="009Y"),
    Reason.NOT_MONOCHROME: lambda: image(
        PhotometricInterpretation="RGB", SamplesPerPixel=3, PlanarConfiguration=0
    ),
    Reason.MULTI_FRAME: lambda: image(NumberOfFrames=2),
    Reason.NO_PIXEL_DATA: lambda: image(PixelData=None),
    Reason.TRUNCATED_PIXEL_DATA: lambda: cut(image()),
    Reason.EXCESS_PIXEL_DATA: lambda: image(NumberOfFrames=None, PixelData=2 * image().PixelData),
    Reason.UNDECODABLE: lambda: of_jpeg(b"\xff\xd8 no codestream \xff\xd9"),
    Reason.CODESTREAM_MISMATCH: lambda: of_jpeg(jpeg(np.zeros((32, 64), np.uint8))),
    Reason.DEPTH_CONTRADICTED: lambda: image(BitsStored=10, HighBit=9),
    Reason.TRANSFER_SYNTAX_NOT_SUPPORTED: lambda: relabelled(
        of_jpeg(b"\xff\xd8\xff\xd9"), MPEG2MPML
    ),
    Reason.CORRUPT_HEADER: lambda: image(Rows=None),
    Reason.TOO_LARGE: lambda: image(Rows=201, Columns=200),
    Reason.CONSTANT_IMAGE: lambda: constant(image()),
    Reason.UNSUPPORTED_PIXEL_FORMAT: lambda: image(BitsAllocated=32, BitsStored=32, HighBit=31),
    Reason.IMPLAUSIBLE_PIXELS: lambda: two_levels(image()),
}


def answer_to(
    dataset: Dataset, folder: Path, refused_flags: tuple[str, ...] = ()
) -> Ready | NotReady:
    path = phantom.save(dataset, folder / "image.dcm")
    request = DecodeRequest(
        path, {"adults@1": ADULTS}, MAXIMUM_PIXELS, "cpu", refused_flags=refused_flags
    )
    return prepare_for_releases(request)["adults@1"]


@pytest.mark.parametrize("reason", Reason)
def test_the_file_that_ends_for_this_reason(reason: Reason, tmp_path: Path) -> None:
    answer = answer_to(
        PROVOKED[reason](), tmp_path, ("few_levels",) if reason is Reason.IMPLAUSIBLE_PIXELS else ()
    )
    assert isinstance(answer, NotReady), "it gave a tensor"
    assert answer.reason == reason.value, answer.detail
    assert answer.detail, "a reason says what was seen"


def test_the_control_gives_a_tensor(tmp_path: Path) -> None:
    assert isinstance(answer_to(image(), tmp_path), Ready)


def handle(release: str, tmp_path: Path) -> domain.Advance:
    """The analyse stage on a job whose file is gone."""
    known = Release(
        "tiny",
        "1",
        "onnx",
        "tiny__1",
        ADULTS,
        (),
        "sigmoid",
        "max",
        "f32",
        "openvino",
        False,
        True,
        None,
        "x",
        "x",
        "x",
        "x",
        "",
    )
    instance = Instance(
        "1.2.3",
        "1.2",
        "1.2.4",
        "1.2.5",
        "1.2.840.10008.1.2.1",
        "gone.dcm",
        1,
        "d",
        "p",
        0.0,
        "A",
        "B",
        id=1,
    )

    def find(_: Instance) -> Path:
        raise FileNotFoundError

    async def run() -> domain.Advance:
        pool = DecodePool(1, 1.0, load_breaking)
        analyser = Analyser(Analyse(), {"tiny@1": known}, None, pool, find)  # type: ignore[arg-type]
        return await analyser.handle(
            ReadingJob(Lease(1, "t", 1, 0), release, Priority.LIVE, instance)
        )

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("release", "reason"), [("other@1", "release_not_available"), ("tiny@1", "instance_missing")]
)
def test_reasons_of_the_analyse_stage(release: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotAnalysed) as ended:
        handle(release, tmp_path)
    assert ended.value.reason == reason


def test_every_reason_of_the_server_is_provoked_somewhere() -> None:
    texts = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("unit", "contract", "integration")
        for path in (TESTS / folder).rglob("*.py")
    )
    here = {reason.value for reason in Reason}
    elsewhere = [reason for reason in domain.REASONS.values() if reason.value not in here]
    assert [
        reason.value
        for reason in elsewhere
        if f'"{reason.value}' not in texts and f"Reason.{reason.name}" not in texts
    ] == []
    assert here <= set(domain.REASONS)
