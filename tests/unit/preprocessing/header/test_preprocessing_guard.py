"""The input guard: which objects are read as a frontal chest radiograph, and the reason why the others are not."""

from __future__ import annotations

import pytest
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.sr.codedict import codes
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    CTImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    EncapsulatedPDFStorage,
)

from hilum_preprocessing import NotAnalysable, Reason, check_tags, view_of
from testing.phantoms.phantom import make_instance
from tests.support.objects.radiograph import radiograph, scene, spec

PICTURE = scene(8, 8)


def reason_of(dataset: Dataset, **changes: object) -> Reason:
    with pytest.raises(NotAnalysable) as refused:
        check_tags(dataset, spec(**changes))
    return refused.value.reason


@pytest.mark.parametrize("modality", ["DX", "CR", "SC"])
@pytest.mark.parametrize("view", ["PA", "AP"])
def test_frontal_chest_radiographs_of_every_class_pass(modality, view):
    dataset = make_instance(0, view, modality=modality, rows=16, columns=16)
    assert check_tags(dataset, spec()) == view


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"Modality": "CT", "SOPClassUID": CTImageStorage}, Reason.WRONG_MODALITY),
        ({"Modality": "OT"}, Reason.WRONG_MODALITY),
        ({"Modality": None}, Reason.WRONG_MODALITY),
        ({"Modality": ""}, Reason.WRONG_MODALITY),
        ({"SOPClassUID": EncapsulatedPDFStorage}, Reason.WRONG_MODALITY),
        ({"SOPClassUID": None}, Reason.WRONG_MODALITY),
        ({"PresentationIntentType": "FOR PROCESSING"}, Reason.NOT_FOR_PRESENTATION),
        (
            {"Modality": "DX", "SOPClassUID": DigitalXRayImageStorageForProcessing},
            Reason.NOT_FOR_PRESENTATION,
        ),
        ({"BodyPartExamined": "HAND"}, Reason.NOT_CHEST),
        ({"BodyPartExamined": "CHESTABDOMEN"}, Reason.NOT_CHEST),
        ({"BodyPartExamined": "TSPINE"}, Reason.NOT_CHEST),
        ({"ViewPosition": "LL"}, Reason.LATERAL_NOT_SUPPORTED),
        ({"ViewPosition": "RLO"}, Reason.LATERAL_NOT_SUPPORTED),
        ({"PixelData": None}, Reason.NO_PIXEL_DATA),
        ({"PixelData": b""}, Reason.NO_PIXEL_DATA),
        ({"FloatPixelData": b"\0\0\0\0"}, Reason.UNSUPPORTED_PIXEL_FORMAT),
        ({"NumberOfFrames": 2}, Reason.MULTI_FRAME),
        ({"NumberOfFrames": -1}, Reason.CORRUPT_HEADER),
        ({"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"}, Reason.NOT_MONOCHROME),
        (
            {"SamplesPerPixel": 3, "PhotometricInterpretation": "YBR_FULL_422"},
            Reason.NOT_MONOCHROME,
        ),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, Reason.NOT_MONOCHROME),
        ({"PhotometricInterpretation": None}, Reason.CORRUPT_HEADER),
        ({"SamplesPerPixel": None}, Reason.CORRUPT_HEADER),
        ({"Rows": None}, Reason.CORRUPT_HEADER),
        ({"Rows": 0}, Reason.CORRUPT_HEADER),
        ({"Columns": None}, Reason.CORRUPT_HEADER),
        ({"Columns": [8, 8]}, Reason.CORRUPT_HEADER),
        ({"BitsAllocated": None}, Reason.CORRUPT_HEADER),
        ({"BitsStored": None}, Reason.CORRUPT_HEADER),
        ({"PixelRepresentation": None}, Reason.CORRUPT_HEADER),
        ({"BitsAllocated": 32, "BitsStored": 32, "HighBit": 31}, Reason.UNSUPPORTED_PIXEL_FORMAT),
        ({"BitsAllocated": 1, "BitsStored": 1, "HighBit": 0}, Reason.UNSUPPORTED_PIXEL_FORMAT),
        ({"BitsStored": 0}, Reason.UNSUPPORTED_PIXEL_FORMAT),
        ({"BitsStored": 12, "HighBit": 10}, Reason.UNSUPPORTED_PIXEL_FORMAT),
        ({"BitsStored": 12, "HighBit": 16}, Reason.UNSUPPORTED_PIXEL_FORMAT),
    ],
)
def test_what_is_no_frontal_chest_radiograph_has_a_reason(attributes, reason):
    """Traps 21, 22 and 23 among them."""
    assert reason_of(radiograph(PICTURE, **attributes)) is reason


@pytest.mark.parametrize(
    "body_part", ["CHEST", "chest", "THORAX", "CHEST PA", "PORTABLE_CHEST", "", None]
)
def test_body_part_is_accepted_when_it_says_chest_or_nothing(body_part):
    assert check_tags(radiograph(PICTURE, BodyPartExamined=body_part), spec()) == "PA"


def test_raw_detector_signal_is_read_where_the_specification_says_so():
    raw = make_instance(0, "PA", rows=16, columns=16, presentation_intent="FOR PROCESSING")
    assert raw.SOPClassUID == DigitalXRayImageStorageForProcessing
    assert reason_of(raw) is Reason.NOT_FOR_PRESENTATION
    assert check_tags(raw, spec(presentation_intent="any")) == "PA"


def test_a_lateral_is_read_where_the_specification_takes_any_view():
    lateral = make_instance(0, "LATERAL", rows=16, columns=16)
    assert reason_of(lateral) is Reason.LATERAL_NOT_SUPPORTED
    assert check_tags(lateral, spec(views="any")) == "LATERAL"


def test_an_unreadable_attribute_is_a_reason_without_its_value():
    """pydicom's own message repeats the value.

    A reason must not, because a value may be a patient's.
    """
    broken = radiograph(PICTURE)
    broken.add_new("NumberOfFrames", "IS", "1")
    broken["NumberOfFrames"]._value = "1A^DOE"
    with pytest.raises(NotAnalysable) as refused:
        check_tags(broken, spec())
    assert refused.value.reason is Reason.CORRUPT_HEADER
    assert "NumberOfFrames" in refused.value.detail
    assert "DOE" not in str(refused.value)


def view(**attributes: object) -> str:
    dataset = Dataset()
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    return view_of(dataset)


def code(value: str, meaning: str = "") -> Sequence:
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = value, "SCT", meaning
    return Sequence([item])


@pytest.mark.parametrize(
    ("position", "expected"),
    {
        "PA": "PA",
        "AP": "AP",
        "pa ": "PA",
        "AP AXIAL": "AP",
        "LL": "LATERAL",
        "RL": "LATERAL",
        "LATERAL": "LATERAL",
        "LEFT LATERAL": "LATERAL",
        "LLO": "LATERAL",
        **dict.fromkeys(
            ("PA ERECT", "PA 1", "P-A", "P/A", "P.A.", "p a", "PAERECT", "P->A", "CHEST^PA"), "PA"
        ),
        **dict.fromkeys(
            ("AP SUPINE", "AP PORTABLE", "AP_SEMIERECT", "APSUPINE", "A-P", "A.P.", "AP LORDOTIC"),
            "AP",
        ),
        **dict.fromkeys(
            ("POSTEROANTERIOR", "POSTERO-ANTERIOR", "Postero Anterior", "POSTERIOR-ANTERIOR"), "PA"
        ),
        **dict.fromkeys(
            ("POSTERIOR TO ANTERIOR", "PÓSTERO-ANTERIOR", "POSTÉRO-ANTÉRIEUR", "posteroanteriore"),
            "PA",
        ),
        **dict.fromkeys(
            ("dorsoventral", "ЗАДНЕ-ПЕРЕДНЯЯ", "后前位", "POSTERO-ANTERIOR ERECT"), "PA"
        ),
        **dict.fromkeys(
            ("ANTEROPOSTERIOR", "ANTERO-POSTERIOR", "ANTERIOR POSTERIOR", "Anteroposterior supino"),
            "AP",
        ),
        **dict.fromkeys(("ventro-dorsal", "ПЕРЕДНЕ-ЗАДНЯЯ", "前后位"), "AP"),
        **dict.fromkeys(
            (
                "LAT",
                "L LAT",
                "LLAT",
                "RT LATERAL",
                "LATERALE",
                "LATERO-LATERALE",
                "LL ERECT",
                "seitlich",
            ),
            "LATERAL",
        ),
        **dict.fromkeys(
            (
                "Perfil",
                "PROFIL",
                "БОКОВАЯ",
                "側面",
                "侧位",
                "BOCZNE",
                "OBLIQUE",
                "AP OBLIQUE",
                "oblicua",
                "PA LAO",
                "RPO ERECT",
            ),
            "LATERAL",
        ),
        **dict.fromkeys(
            (
                "AP/PA",
                "PA OR AP",
                "PA AND LATERAL",
                "FRONTAL",
                "SUPINE",
                "POST ANTIBIOTICS",
                "LEFT SIDE",
            ),
            "UNKNOWN",
        ),
        "LLD": "UNKNOWN",
        "RLD": "UNKNOWN",
        "XYZ": "UNKNOWN",
        "": "UNKNOWN",
    }.items(),
)
def test_view_position(position, expected):
    assert view(ViewPosition=position) == expected


@pytest.mark.parametrize(
    ("concept", "expected"),
    [
        ("PosteroAnterior", "PA"),
        ("AnteroPosterior", "AP"),
        ("LateralProjection", "LATERAL"),
        ("LeftLateral", "LATERAL"),
        ("RightLateral", "LATERAL"),
        ("LateralMedial", "LATERAL"),
        ("MedioLateralProjection", "LATERAL"),
        ("ObliqueProjection", "LATERAL"),
        ("LeftAnteriorOblique", "LATERAL"),
        ("RightPosteriorOblique", "LATERAL"),
    ],
)
def test_view_codes_are_those_of_cid_4010_in_both_of_their_spellings(concept, expected):
    from pydicom.sr._snomed_dict import mapping

    value = getattr(codes.cid4010, concept).value
    assert view(ViewCodeSequence=code(value)) == expected
    assert view(ViewCodeSequence=code(mapping["SCT"][value])) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"ViewPosition": "PA", "ViewCodeSequence": code("399348003")}, "PA"),
        (
            {
                "ViewPosition": "",
                "ViewCodeSequence": code("272479007"),
                "SeriesDescription": "Chest AP",
            },
            "PA",
        ),
        ({"ViewCodeSequence": Sequence([]), "SeriesDescription": "Chest AP"}, "AP"),
        ({"ViewCodeSequence": code("1234"), "ProtocolName": "Thorax PA"}, "PA"),
        ({"PatientOrientation": ["A", "F"]}, "LATERAL"),
        ({"PatientOrientation": ["P", "F"], "SeriesDescription": "Chest PA"}, "LATERAL"),
        ({"PatientOrientation": ["L", "F"]}, "UNKNOWN"),
        ({"SeriesDescription": "view: PA"}, "PA"),
        ({"SeriesDescription": "Chest LAT"}, "LATERAL"),
        ({"SeriesDescription": "Chest PA and LAT"}, "UNKNOWN"),
        ({"SeriesDescription": "Bilateral chest"}, "UNKNOWN"),
        ({"SeriesDescription": "Left lateral decubitus"}, "UNKNOWN"),
        ({"AcquisitionDeviceProcessingDescription": "CANINE LATERAL THORAX 0-15cm"}, "LATERAL"),
        ({"SeriesDescription": "Chest AP", "ProtocolName": "AP portable"}, "AP"),
        ({"StudyDescription": "CHEST PA AND LATERAL"}, "UNKNOWN"),
        ({"ViewPosition": "AP", "SeriesDescription": "CHEST (PA AND LAT)"}, "AP"),
        ({"ViewPosition": "AP/PA", "SeriesDescription": "CHEST AP"}, "UNKNOWN"),
        ({"ViewCodeSequence": code("LOCAL1", "Postero-anterior"), "SeriesDescription": "AP"}, "PA"),
        ({"ViewCodeSequence": code("LOCAL2", "left lateral")}, "LATERAL"),
        ({"SeriesDescription": "Thorax p.a."}, "PA"),
        ({"SeriesDescription": "Thorax seitl."}, "LATERAL"),
        ({"SeriesDescription": "TORAX POSTEROANTERIOR"}, "PA"),
        ({"SeriesDescription": "CHEST OBLIQUE"}, "LATERAL"),
        ({"SeriesDescription": "CHEST PA AND OBLIQUE"}, "UNKNOWN"),
        ({"BodyPartExamined": "THORAX^PA"}, "PA"),
        ({"BodyPartExamined": "CHEST LAT"}, "LATERAL"),
    ],
)
def test_view_resolver_takes_the_first_source_that_speaks(attributes, expected):
    assert view(**attributes) == expected


def test_secondary_capture_needs_the_modality_of_a_radiograph():
    dx = radiograph(PICTURE, Modality="DX", SOPClassUID=DigitalXRayImageStorageForPresentation)
    assert check_tags(dx, spec()) == "PA"
    assert reason_of(radiograph(PICTURE, Modality="XC")) is Reason.WRONG_MODALITY


@pytest.mark.parametrize(
    "modality", ["DR", "dr", "CR", "DX", "RG", "DRX", "XR", "OT", "SC", "", None]
)
@pytest.mark.parametrize(
    "sop_class", [DigitalXRayImageStorageForPresentation, ComputedRadiographyImageStorage]
)
def test_the_sop_class_settles_what_modality_says_of_a_radiograph(modality, sop_class):
    assert check_tags(radiograph(PICTURE, Modality=modality, SOPClassUID=sop_class), spec()) == "PA"


@pytest.mark.parametrize("modality", ["PX", "IO", "MG", "CT", "RF", "us"])
def test_a_modality_of_another_kind_is_believed_over_the_sop_class(modality):
    """A dental panoramic is a DX object with Modality PX (PS3.3 C.7.3.1.1.1)."""
    dx = radiograph(PICTURE, Modality=modality, SOPClassUID=DigitalXRayImageStorageForPresentation)
    assert reason_of(dx) is Reason.WRONG_MODALITY


@pytest.mark.parametrize("modality", ["CR", "DX", "DR", "dr", "DRX", "RG", "XR"])
def test_secondary_capture_of_a_radiograph(modality):
    assert check_tags(radiograph(PICTURE, Modality=modality), spec()) == "PA"


def test_raw_signal_is_refused_whatever_its_modality_says():
    raw = radiograph(PICTURE, Modality="DR", SOPClassUID=DigitalXRayImageStorageForProcessing)
    assert reason_of(raw) is Reason.NOT_FOR_PRESENTATION


def test_reasons_are_words_that_the_server_knows():
    from hilum.domain import REASONS

    assert {reason.value for reason in Reason} <= set(REASONS)


def test_not_analysable_crosses_a_process_boundary():
    import pickle

    error = pickle.loads(pickle.dumps(NotAnalysable(Reason.TOO_LARGE, "9 x 9")))
    assert (error.reason, error.detail, str(error)) == (
        Reason.TOO_LARGE,
        "9 x 9",
        "too_large: 9 x 9",
    )
