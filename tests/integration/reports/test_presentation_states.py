"""Presentation states: valid, rendered by DCMTK as the image itself, words and lines in their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from highdicom.content import LUT
from numpy.typing import NDArray
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import JPEGBaseline8Bit

from hilum.deliver.cstore import DicomClient
from hilum.domain import (
    ActivationMaps,
    Code,
    Document,
    ImageReason,
    Label,
    ReadingState,
    Release,
    ReportJob,
    Result,
)
from hilum.report import HeatMapSources, build_report
from hilum.report.heat_map.display import grey_levels
from hilum.settings import DicomDestination
from hilum_preprocessing import InputSpec
from testing.phantoms.phantom import make_study
from tests.support.peers.peers import Orthanc
from tests.support.reports.heat_maps import explained, maps_of
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)
from tests.support.reports.validators import complaints, output_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
WITH_MAPS = make_release(has_cam=True)
UPRIGHT = make_release(
    has_cam=True,
    input_spec={"recipe": "torchxrayvision_224", "source": {"orientation": "patient"}},
)


def unwindowed(image: Dataset) -> None:
    del image.WindowCenter, image.WindowWidth, image.WindowCenterWidthExplanation


def narrow(image: Dataset) -> None:
    """Values in the lower half of the bits, and no window: viewers look for the range."""
    unwindowed(image)
    stored = np.frombuffer(image.PixelData, np.uint16)
    image.PixelData = (stored // 4 + 100).astype(np.uint16).tobytes()


def signed(image: Dataset) -> None:
    """Hounsfield-like: 16 bits signed, a rescale, and a window in its units."""
    stored = np.frombuffer(image.PixelData, np.uint16).astype(np.int32) - 2048
    image.PixelData = stored.astype(np.int16).tobytes()
    image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 15, 1
    image.RescaleSlope, image.RescaleIntercept, image.RescaleType = "2", "-100", "US"
    image.WindowCenter, image.WindowWidth, image.VOILUTFunction = "-200", "5000", "LINEAR"


def curve() -> NDArray[np.uint16]:
    return (np.linspace(0, 1, 4096) ** 0.6 * 4095).astype(np.uint16)


def voi_lut(image: Dataset) -> None:
    unwindowed(image)
    image.VOILUTSequence = [LUT(0, curve())]


def modality_lut(image: Dataset) -> None:
    for keyword in ("RescaleSlope", "RescaleIntercept", "RescaleType"):
        if keyword in image:
            delattr(image, keyword)
    item = LUT(0, (np.arange(4096) * 16).astype(np.uint16))
    item.ModalityLUTType = "US"
    image.ModalityLUTSequence = [item]
    image.WindowCenter, image.WindowWidth = "32768", "65536"


def shuttered(image: Dataset) -> None:
    image.ShutterShape = "RECTANGULAR"
    image.ShutterLeftVerticalEdge, image.ShutterRightVerticalEdge = 11, image.Columns - 10
    image.ShutterUpperHorizontalEdge, image.ShutterLowerHorizontalEdge = 21, image.Rows - 20
    image.ShutterPresentationValue = 0


def tall_pixels(image: Dataset) -> None:
    image.ImagerPixelSpacing = ["0.4", "0.2"]


def lying(image: Dataset) -> None:
    image.PatientOrientation = ["H", "L"]


def as_it_is(image: Dataset) -> None:
    assert image.Rows


SCRIPTS = (
    "右側の胸水",
    "Πλευριτική συλλογή",
    "Плевральный выпот",
    "استرواح الصدر",
    "흉막 삼출",
    "Enlarged cardiomediastinal silhouette with prominent hilar vessels of uncertain significance",
)


def forty() -> Release:
    labels = tuple(
        Label(
            f"finding{number}",
            f"{SCRIPTS[number % len(SCRIPTS)]} {number}",
            Code(f"F{number}", "99HILUM", f"Finding {number}"),
            "C",
            0.5,
        )
        for number in range(40)
    )
    return make_release(has_cam=True, labels=labels)


@dataclass(frozen=True)
class Case:
    """A study: what `make_study` is given, what is changed in each image, and the release."""

    study: Mapping[str, object] = dataclasses.field(default_factory=dict)
    change: Callable[[Dataset], None] = as_it_is
    release: Release = WITH_MAPS
    rows: int = 192
    columns: int = 160


CASES: Mapping[str, Case] = {
    "dx of two views": Case({"views": ("PA", "LATERAL")}),
    "monochrome1": Case({"photometric": "MONOCHROME1"}),
    "jpeg of 8 bits": Case({"transfer_syntax_uid": JPEGBaseline8Bit, "modality": "CR"}),
    "secondary capture": Case({"modality": "SC"}, release=make_release()),
    "signed": Case({"modality": "CR"}, signed),
    "monochrome1 signed": Case({"photometric": "MONOCHROME1", "modality": "CR"}, signed),
    "no window": Case({"modality": "CR"}, narrow),
    "voi lut": Case({"modality": "CR"}, voi_lut),
    "modality lut": Case({"modality": "CR"}, modality_lut),
    "shutter": Case({}, shuttered),
    "tall pixels": Case({}, tall_pixels),
    "lying": Case({}, lying, UPRIGHT, 160, 192),
    "tiny": Case({"modality": "CR"}, rows=16, columns=16),
    "large": Case({"modality": "CR"}, rows=3000, columns=2400),
    "forty findings in scripts": Case(release=forty()),
    "calibrated": Case(
        release=make_release(calibration={"method": "temperature", "temperature": 1.3})
    ),
    "untrained": Case({"views": ("PA", "AP")}, release=make_release(is_trained=False)),
}


@dataclass(frozen=True)
class Layer:
    """The presentation state of a case as a file, its images, and its job."""

    name: str
    path: Path
    images: list[Path]
    job: ReportJob

    @property
    def state(self) -> Dataset:
        return dcmread(self.path)

    def texts(self, image: int = 0) -> list[Dataset]:
        """The text objects over an image: the block at the top, that at the bottom."""
        (found,) = annotations(self.state, self.images[image], "AI TEXT")
        return list(found.TextObjectSequence)

    def lines(self, image: int = 0) -> list[NDArray[np.float64]]:
        found = annotations(self.state, self.images[image], "AI MAP")
        return [
            np.array(item.GraphicData).reshape(-1, 2)
            for annotation in found
            for item in annotation.GraphicObjectSequence
        ]


def annotations(state: Dataset, image: Path, layer: str) -> list[Dataset]:
    uid = dcmread(image, stop_before_pixels=True).SOPInstanceUID
    return [
        item
        for item in state.GraphicAnnotationSequence
        if item.GraphicLayer == layer
        and item.ReferencedImageSequence[0].ReferencedSOPInstanceUID == uid
    ]


def study(case: Case) -> list[Dataset]:
    given = {"views": ("PA",), **case.study}
    images = make_study(21, rows=case.rows, columns=case.columns, **given)
    for image in images:
        case.change(image)
    return images


def job_of(
    images: list[Dataset], release: Release, folder: Path
) -> tuple[ReportJob, HeatMapSources]:
    """As `explained`; a release of other labels gets logits from -2 on in steps of a quarter."""
    if release.labels == WITH_MAPS.labels:
        return explained(images, release, folder)
    _, sources = explained(images, WITH_MAPS, folder)
    labels = len(release.labels)
    logits = tuple(float(number) / 4 - 2 for number in range(labels))
    instances = [instance_of(image, number) for number, image in enumerate(images, 1)]
    readings = [reading_of(item, release, logits=logits) for item in instances]
    (result,) = results_of(study_job(instances, readings), release)
    maps = ActivationMaps(logits, maps_of(labels).tobytes())
    pictures = {uid: dataclasses.replace(item, maps=maps) for uid, item in sources.pictures.items()}
    return report_job(instances, result), dataclasses.replace(sources, pictures=pictures)


def layer_of(job: ReportJob, release: Release, sources: HeatMapSources) -> Document | None:
    built = build_report(job, release, CONTEXT, ("json", "gsps"), sources).documents
    return next((item for item in built if item.kind == "gsps"), None)


@pytest.fixture(scope="module", params=CASES)
def layer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Layer:
    folder = tmp_path_factory.mktemp("states")
    return written(folder, request.param)


def written(folder: Path, name: str) -> Layer:
    case = CASES[name]
    job, sources = job_of(study(case), case.release, folder)
    made = layer_of(job, case.release, sources)
    assert made is not None
    (folder / "gsps.dcm").write_bytes(made.content)
    return Layer(name, folder / "gsps.dcm", sorted(folder.glob("stored*.dcm")), job)


def rendered(folder: Path, image: Path, *options: str) -> NDArray[np.uint8]:
    """What DCMTK shows of an image; it draws no annotations."""
    said = output_of("dcmtk", "dcmp2pgm", *options, str(image), str(folder / "shown.pgm"))
    assert "E:" not in said, said
    with Image.open(folder / "shown.pgm") as picture:
        return np.asarray(picture)


def test_validators_find_nothing(layer: Layer) -> None:
    assert complaints("dciodvfy", layer.path) == []
    assert complaints("dcentvfy", *layer.images, layer.path) == []


def test_dcmtk_shows_each_image_as_the_result_sheet_does(layer: Layer, tmp_path: Path) -> None:
    """Through modality LUT, VOI and polarity of the presentation state, and of nothing else."""
    for image in layer.images:
        if dcmread(image).file_meta.TransferSyntaxUID == JPEGBaseline8Bit:
            plain = tmp_path / "plain.dcm"
            assert output_of("dcmtk", "dcmdjpeg", str(image), str(plain)) == ""
        else:
            plain = image
        shown = rendered(tmp_path, plain, "-p", str(layer.path))
        spec = InputSpec.from_mapping(WITH_MAPS.input_spec)
        ours, _ = grey_levels(image, spec, 100_000_000)
        assert np.abs(shown.astype(int) - ours.astype(int)).max() <= 2
        assert np.ptp(shown) > 150


def test_every_image_is_named_with_its_series(layer: Layer) -> None:
    named = {
        (series.SeriesInstanceUID, item.ReferencedSOPInstanceUID, item.ReferencedSOPClassUID)
        for series in layer.state.ReferencedSeriesSequence
        for item in series.ReferencedImageSequence
    }
    sources = [dcmread(path, stop_before_pixels=True) for path in layer.images]
    assert named == {
        (item.SeriesInstanceUID, item.SOPInstanceUID, item.SOPClassUID) for item in sources
    }


def test_it_is_a_document_of_the_study_in_a_series_of_its_own(layer: Layer) -> None:
    state, uids = layer.state, layer.job.result.identifiers
    source = dcmread(layer.images[0], stop_before_pixels=True)
    for keyword in ("StudyInstanceUID", "PatientName", "PatientID", "AccessionNumber", "StudyDate"):
        assert state.get(keyword) == source.get(keyword)
    assert (state.Modality, state.SeriesNumber, state.InstanceNumber) == ("PR", 9007, 1)
    assert (state.SOPInstanceUID, state.SeriesInstanceUID) == (uids["gsps"], uids["gsps_series"])
    assert (state.ContentLabel, state.PresentationCreationDate) == ("AI FINDINGS", "20260921")
    assert state.ContentDescription.startswith("AI findings, not for diagnosis, ")
    inverse = source.PhotometricInterpretation == "MONOCHROME1"
    assert state.PresentationLUTShape == ("INVERSE" if inverse else "IDENTITY")


def test_words_stay_in_the_corner_and_at_the_foot(layer: Layer) -> None:
    head, foot = layer.texts()
    lines = head.UnformattedTextValue.split("\r\n")
    assert lines[0] == "AI RESULT - NOT FOR DIAGNOSIS"
    assert len(lines) <= 9
    assert len(head.UnformattedTextValue) <= 1024
    assert head.BoundingBoxAnnotationUnits == foot.BoundingBoxAnnotationUnits == "DISPLAY"
    assert max(head.BoundingBoxBottomRightHandCorner[1], 0.17) == 0.17
    assert head.BoundingBoxBottomRightHandCorner[0] <= 0.46
    assert foot.BoundingBoxTopLeftHandCorner[1] > 0.93
    assert foot.UnformattedTextValue.endswith(CONTEXT.disclaimer)


def test_lines_are_closed_and_inside_the_image(layer: Layer) -> None:
    source = dcmread(layer.images[0], stop_before_pixels=True)
    lines = layer.lines()
    assert bool(lines) is CASES[layer.name].release.has_cam
    for line in lines:
        assert (line[0] == line[-1]).all()
        assert line.min() >= 0
        assert (line.max(axis=0) <= (source.Columns, source.Rows)).all()


def test_the_shutter_and_the_shape_of_pixels_are_those_of_the_image(tmp_path: Path) -> None:
    """DCMTK leaves both to the program that shows the picture."""
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    state = written(tmp_path / "one", "shutter").state
    assert (state.ShutterShape, state.ShutterLowerHorizontalEdge) == ("RECTANGULAR", 172)
    (area,) = written(tmp_path / "two", "tall pixels").state.DisplayedAreaSelectionSequence
    assert area.PresentationPixelAspectRatio == [2, 1]
    (area,) = written(tmp_path / "three", "secondary capture").state.DisplayedAreaSelectionSequence
    assert area.PresentationSizeMode == "SCALE TO FIT"


def test_a_line_is_around_the_cell_that_raised_the_score(tmp_path: Path) -> None:
    """Row 2, column 5 of 7 x 7 cells, over the square that the recipe cuts from the middle."""
    made = written(tmp_path, "dx of two views")
    middle = made.lines()[0][:-1].mean(axis=0)
    cell = 160 / 7
    assert np.allclose(middle, (5.5 * cell, 16 + 2.5 * cell), atol=cell / 4)


def test_a_line_over_a_picture_that_was_turned_is_where_the_model_looked(tmp_path: Path) -> None:
    r"""Stored with its rows to the head and its columns to the left: upright is H\L to L\F."""
    made = written(tmp_path, "lying")
    middle = made.lines()[0][:-1].mean(axis=0)
    cell = 160 / 7
    upright = (5.5 * cell, 16 + 2.5 * cell)  # column, row
    assert np.allclose(middle, (192 - upright[1], upright[0]), atol=cell / 4)


def test_forty_findings_in_scripts_are_five_lines_and_a_number(tmp_path: Path) -> None:
    head = written(tmp_path, "forty findings in scripts").texts()[0]
    lines = head.UnformattedTextValue.split("\r\n")
    assert lines[2] == "[1] استرواح الصدر 39: Present, 1.000 (at 0.5)"
    assert lines[4] == "[3] Πλευριτική συλλογή 37: Present, 0.999 (at 0.5)"
    assert lines[-1] == "35 more (27 of them present): see the report."


def not_analysed(job: ReportJob, release: Release) -> ReportJob:
    constant = {
        "state": ReadingState.NOT_ANALYSED,
        "logits": None,
        "reason": ImageReason.CONSTANT_IMAGE.value,
    }
    readings = [reading_of(item, release, **constant) for item in job.instances]
    result: Result = results_of(study_job(job.instances, readings), release)[0]
    return report_job(job.instances, result)


def test_a_study_that_was_not_analysed_has_none_unless_an_earlier_one_lies(tmp_path: Path) -> None:
    job, sources = explained(study(Case()), WITH_MAPS, tmp_path)
    without = not_analysed(job, WITH_MAPS)
    assert layer_of(without, WITH_MAPS, sources) is None
    before = layer_of(job, WITH_MAPS, sources)
    assert before is not None
    after = layer_of(
        dataclasses.replace(without, predecessors={"gsps": before}), WITH_MAPS, sources
    )
    assert after is not None
    state = parse(after.content)
    (said,) = state.GraphicAnnotationSequence
    head = said.TextObjectSequence[0].UnformattedTextValue
    assert "Not analysed: " in head
    assert "no longer hold" in head
    assert after.predecessor_uid == before.sop_instance_uid


def test_of_images_that_no_one_state_can_show_the_larger_group_is_shown(tmp_path: Path) -> None:
    images = make_study(21, "CR", ("PA", "AP", "LATERAL"), rows=64, columns=64)
    images[0].PhotometricInterpretation = "MONOCHROME1"
    job, sources = explained(images, WITH_MAPS, tmp_path)
    made = layer_of(job, WITH_MAPS, sources)
    assert made is not None
    state = parse(made.content)
    named = [
        item.ReferencedSOPInstanceUID
        for series in state.ReferencedSeriesSequence
        for item in series.ReferencedImageSequence
    ]
    assert named == [images[1].SOPInstanceUID, images[2].SOPInstanceUID]
    assert state.PatientID == images[0].PatientID


def test_images_of_other_sizes_and_windows_have_items_of_their_own(tmp_path: Path) -> None:
    images = [
        *make_study(21, "CR", ("PA",), rows=64, columns=48),
        *make_study(21, "CR", ("LATERAL",), rows=48, columns=64),
    ]
    images[1].WindowWidth = "1000"
    job, sources = explained(images, WITH_MAPS, tmp_path)
    made = layer_of(job, WITH_MAPS, sources)
    assert made is not None
    state = parse(made.content)
    areas = state.DisplayedAreaSelectionSequence
    assert [list(item.DisplayedAreaBottomRightHandCorner) for item in areas] == [[48, 64], [64, 48]]
    assert [int(item.WindowWidth) for item in state.SoftcopyVOILUTSequence] == [4096, 1000]
    for items in (areas, state.SoftcopyVOILUTSequence):
        assert [item.ReferencedImageSequence[0].ReferencedSOPInstanceUID for item in items] == [
            image.SOPInstanceUID for image in images
        ]
    (tmp_path / "gsps.dcm").write_bytes(made.content)
    assert complaints("dciodvfy", tmp_path / "gsps.dcm") == []


def test_without_maps_pixels_or_leave_to_mark_there_are_words_alone(tmp_path: Path) -> None:
    job, sources = explained(study(Case()), WITH_MAPS, tmp_path)
    changes = (
        {"pictures": {}},
        {"shows_maps": False},
        {"pictures": {}, "obstacle": "Drawing it ended the process that tried."},
    )
    for change in changes:
        made = layer_of(job, WITH_MAPS, dataclasses.replace(sources, **change))
        assert made is not None
        (said,) = parse(made.content).GraphicAnnotationSequence
        assert said.GraphicLayer == "AI TEXT"
        assert "[1]" not in said.TextObjectSequence[0].UnformattedTextValue


def test_a_picture_in_colour_has_none_and_the_report_goes_out(tmp_path: Path) -> None:
    images = study(Case({"modality": "SC"}))
    images[0].SamplesPerPixel, images[0].PhotometricInterpretation = 3, "RGB"
    images[0].PlanarConfiguration = 0
    images[0].PixelData = bytes(images[0].PixelData) * 3
    job, sources = explained(images, WITH_MAPS, tmp_path)
    built = build_report(job, WITH_MAPS, CONTEXT, ("sr", "gsps"), sources).documents
    assert [item.kind for item in built] == ["sr"]


def test_built_again_it_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    job, sources = explained(study(Case()), WITH_MAPS, tmp_path)
    assert layer_of(job, WITH_MAPS, sources) == layer_of(job, WITH_MAPS, sources)


def test_orthanc_stores_it_and_gives_back_the_same_object(tmp_path: Path) -> None:
    job, sources = explained(study(Case()), WITH_MAPS, tmp_path)
    made = layer_of(job, WITH_MAPS, sources)
    assert made is not None
    with Orthanc() as peer:
        settings = DicomDestination(
            port=peer.dicom_port, ae_title="ORTHANC", documents=("sr", "gsps")
        )
        client = DicomClient("pacs", settings)
        assert client.probe().is_ok
        client.deliver(made)
        client.close()
        (kept,) = [parse(peer.file(identifier)) for identifier in peer.instances()]
    assert kept == parse(made.content)
