"""The template writes byte for byte what highdicom and pydicom write, whatever the images, the findings and the receivers are.

Byte for byte is more than tag by tag: the document of a result is the same whichever way it was
built, before or after a crash.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Sequence
from typing import Any, Final

import pytest
from highdicom._standard_utils import (
    get_iod_module_map,
    get_module_attribute_map,
    get_sop_class_iod_map,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hilum.domain import (
    REASONS,
    SR_CLASS_PREFERENCE,
    Decision,
    Document,
    Finding,
    Instance,
    Outcome,
    ReportJob,
    Result,
    SourceImage,
    mint_uid,
)
from hilum.errors import NotAnalysed
from hilum.receive.policy.sender_policy import STORAGE_SOP_CLASSES
from hilum.report import HeatMap, Unusual, build_documents
from hilum.report.headers.inherited import INHERITED
from hilum.report.template.compile import IMAGES
from hilum.report.template.cut import Template
from hilum_preprocessing import Flag
from testing.phantoms.phantom import make_study
from tests.support.objects.drawn_headers import HEADERS, NUMBERS, TEXTS, localised, maybe
from tests.support.objects.synthetic_header import encoded_header, instance_with
from tests.support.reports.reporting import sent, template_of
from tests.support.reports.results import (
    CONTEXT,
    LABELS,
    NAMESPACE,
    make_release,
    parse,
    report_job,
    report_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
RELEASE: Final = make_release()
SHOWN: Final = [label for label in LABELS if not label.is_masked]
EQUIPMENT: Final = st.fixed_dictionaries(
    {
        "Modality": maybe(("CR", "DX", "DR", "OT", "")),
        "Rows": maybe(("\x00\x02", "\x01", "")),
        "Columns": maybe(("\xff\xff", "")),
        "Manufacturer": maybe(("Maker", "Äther", "a\\b", "")),
        "ManufacturerModelName": maybe(("highdicom", *TEXTS)),
        "SoftwareVersions": maybe(("1", "1\\2.0", "")),
        "InstitutionName": maybe(TEXTS),
        "InstitutionAddress": maybe(TEXTS),
        "StationName": maybe(("S1", "a\\b", "x" * 20)),
        "AcquisitionDateTime": maybe(("20260105083000.5+0100", "20261305", "2026", "", "x")),
        "PatientBodyMassIndex": maybe(NUMBERS),
    }
)
VIEW: Final = st.sampled_from(("PA", "LATERAL", "UNKNOWN", None))
DOUBTS: Final = st.lists(st.sampled_from((*Flag, "of_a_later_version")), max_size=3, unique=True)
NUMBER: Final = st.floats(-40, 40) | st.sampled_from((0.0, 1.0, 1e-7, 0.1 + 0.2))


@st.composite
def findings(draw: st.DrawFn, used: Sequence[str]) -> Finding:
    """Of any label, in any state, on some of the used images."""
    label = draw(st.sampled_from(SHOWN))
    probability = draw(st.none() | st.floats(0, 1))
    score = draw(NUMBER)
    point = draw(
        st.none() | st.floats(0, 1) | st.sampled_from((score, math.nextafter(score, math.inf)))
    )
    images = draw(st.lists(st.sampled_from(used), min_size=1, unique=True))
    return Finding(
        label.key,
        label.text,
        label.code,
        0.0,
        score,
        probability,
        point,
        draw(st.sampled_from(Decision)),
        tuple(images),
    )


@st.composite
def results(draw: st.DrawFn, instances: Sequence[Instance]) -> Result:
    """Of these images: analysed, in part, or not at all."""
    outcome = draw(st.sampled_from((Outcome.ANALYSED, Outcome.PARTIAL, Outcome.NOT_ANALYSED)))
    flags = [
        outcome is not Outcome.NOT_ANALYSED and (number == 0 or draw(st.booleans()))
        for number in range(len(instances))
    ]
    reasons = [
        None if flag else draw(st.sampled_from((*REASONS, "of_a_later_version"))) for flag in flags
    ]
    sources = [
        SourceImage(
            item.sop_instance_uid,
            item.sop_class_uid,
            item.series_instance_uid,
            draw(VIEW),
            flag,
            reason,
            flags=tuple(draw(DOUBTS)),
        )
        for item, flag, reason in zip(instances, flags, reasons, strict=True)
    ]
    used = [image.sop_instance_uid for image in sources if image.is_used]
    return Result(
        study_instance_uid=instances[0].study_instance_uid,
        release=RELEASE.id,
        source_digest="",
        revision=draw(st.integers(1, 1000)),
        outcome=outcome,
        reason=None if used else draw(st.sampled_from(list(REASONS.values()))),
        findings=(
            tuple(draw(st.lists(findings(used), max_size=4, unique_by=lambda item: item.key)))
            if used
            else ()
        ),
        source_images=tuple(sources),
        is_trained=draw(st.booleans()),
        is_calibrated=draw(st.booleans()),
        preprocessing_version=draw(st.none() | st.just("hp1-0123abcd")),
        identifiers={"sr": mint_uid(NAMESPACE, draw(st.text(max_size=3))), "sr_series": "2.25.77"},
        timings={},
        created_at=draw(st.floats(0, 4e9)),
    )


@st.composite
def instances(draw: st.DrawFn) -> list[Instance]:
    """One to four, each with any header."""
    drawn = [
        localised({**draw(HEADERS), **draw(EQUIPMENT)}) for _ in range(draw(st.integers(1, 4)))
    ]
    return [
        dataclasses.replace(
            instance_with(encoded_header(header)),
            id=number,
            sop_instance_uid=f"1.2.3.{10**number}",
            sop_class_uid=draw(st.sampled_from(STORAGE_SOP_CLASSES)),
            series_instance_uid=f"1.3.{draw(st.integers(1, 2))}",
        )
        for number, header in enumerate(drawn, 1)
    ]


@st.composite
def jobs(draw: st.DrawFn) -> ReportJob:
    """A claimed result, which replaces nothing, or one or two documents of any class."""
    images = draw(instances())
    job = report_job(images, draw(results(images)))
    earlier = [
        Document("sr", "", b"", item.sop_class_uid, f"2.25.{number}", f"2.25.9{number % 2}")
        for number, item in enumerate(SR_CLASS_PREFERENCE)
    ]
    held = {
        f"pacs{number}": item
        for number, item in enumerate(draw(st.lists(st.sampled_from(earlier), max_size=3)))
    }
    predecessors = draw(st.just({}) | st.just({"sr": earlier[0]}))
    return dataclasses.replace(job, delivered_reports=held, predecessors=predecessors)


@st.composite
def heat_maps(draw: st.DrawFn) -> HeatMap | None:
    """None, one of some findings, or the reason why there is none."""
    keys = draw(st.lists(st.sampled_from(SHOWN), unique=True))
    named = HeatMap(
        "1.2.840.10008.5.1.4.1.1.7", "2.25.5", "2.25.66", tuple(label.key for label in keys)
    )
    return draw(st.none() | st.just(named) | st.just(HeatMap(left_out="Ein Grund für nichts.")))


def written(job: ReportJob, heat_map: HeatMap | None, template: Any) -> list[Document] | str:
    try:
        return build_documents(job, RELEASE, CONTEXT, ("sr",), heat_map, template)
    except NotAnalysed as error:
        return str(error)


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(jobs(), heat_maps())
def test_any_report_is_what_the_reference_writes(job: ReportJob, heat_map: HeatMap | None) -> None:
    filled, reference = written(job, heat_map, template_of(RELEASE)), written(job, heat_map, None)
    assert readable(filled) == readable(reference)
    assert filled == reference


def readable(documents: list[Document] | str) -> list[str]:
    """The elements, for a message that shows where two documents differ."""
    return (
        str(parse(documents[0].content)).splitlines()
        if documents and not isinstance(documents, str)
        else [str(documents)]
    )


def test_a_template_survives_the_way_from_another_process() -> None:
    job = report_of(make_study(3, rows=16, columns=16), RELEASE)
    used = template_of(RELEASE)
    assert written(job, None, pickle.loads(pickle.dumps(used))) == sent(job, RELEASE, ("sr",))


def test_a_finding_that_the_manifest_does_not_have_any_more_is_for_the_reference() -> None:
    job = report_of(make_study(3, rows=16, columns=16), RELEASE)
    fewer = make_release(labels=LABELS[1:])
    with pytest.raises(Unusual, match="unknown_finding") as caught:
        build_documents(job, fewer, CONTEXT, ("sr",), None, template_of(fewer))
    assert pickle.loads(pickle.dumps(caught.value)).reason == "unknown_finding"
    assert build_documents(job, fewer, CONTEXT, ("sr",)) != []


def test_an_image_of_an_unknown_class_is_for_the_reference() -> None:
    job = report_of(make_study(3, rows=16, columns=16), RELEASE)
    other = tuple(
        dataclasses.replace(item, sop_class_uid="1.2.840.10008.5.1.4.1.1.2")
        for item in job.instances
    )
    with pytest.raises(Unusual, match="unknown_sop_class"):
        sent(dataclasses.replace(job, instances=other), RELEASE)


def test_templates_know_the_images_that_the_listener_lets_in() -> None:
    assert set(IMAGES) == set(STORAGE_SOP_CLASSES)


@pytest.mark.parametrize("sop_class_uid", STORAGE_SOP_CLASSES)
def test_a_report_inherits_what_highdicom_copies(sop_class_uid: str) -> None:
    modules = get_iod_module_map()[get_sop_class_iod_map()[sop_class_uid]]
    keys = [module["key"] for module in modules if module["ie"] in ("Patient", "Study")]
    assert {
        item["keyword"]
        for key in keys
        for item in get_module_attribute_map()[key]
        if not item["path"]
    } == INHERITED


def test_more_sizes_than_a_template_remembers_are_filled_alike() -> None:
    template = Template([b"%d", "value"], "value")
    assert [template.fill(b"x" * size) for size in range(200)] == [
        b"%d" + b"x" * size for size in range(200)
    ]
