"""The gate that every structured report has to pass.

Five validators and our own checks of the content.

Each validator misses what another one finds, and most of them end with status 0 whatever they saw,
so what they print is judged:
a line that is not known to be harmless is a complaint, and the absence of the line that shows that
the validator worked is one, too.

Harmless, and nothing else:
* dciodvfy does not know Device UID in Contributing Equipment Sequence, where IHE AI Results wants
  it;
* dcentvfy files Accession Number under two entities and says so for every report (the content check
  compares the values);
* DCMTK's value checker does not know ISO_IR 192.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.errors import InvalidDicomError

from tests.support.peers.peers import missing, require_program

_JAR: Final = Path("/usr/share/java/pixelmed.jar")
# Java 17 ends PixelMed's XSLT at its operator limits, and PixelMed then ends with status 0 and no
# verdict.
_NO_LIMITS: Final = [
    f"-Djdk.xml.xpath{name}=0" for name in ("ExprGrpLimit", "ExprOpLimit", "TotalOpLimit")
]
_QUICK_JVM: Final = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Debian's JRE compiles the one file by itself.
_MANY: Final = Path(__file__).with_name("ValidateReports.java")
_MARK: Final = "== report "
_SECONDS: Final = 150
# What dciodvfy calls the IODs of our SOP Classes.
_IODS: Final = {
    "1.2.840.10008.5.1.4.1.1.88.34": "Comprehensive3DSR",
    "1.2.840.10008.5.1.4.1.1.88.33": "ComprehensiveSR",
    "1.2.840.10008.5.1.4.1.1.88.22": "EnhancedSR",
    "1.2.840.10008.5.1.4.1.1.88.11": "BasicTextSR",
}
_NO_ALGORITHM_SUCCEEDED: Final = "111245"

_DEVICE_UID: Final = re.compile(
    r"Warning - </ContributingEquipmentSequence\(0018,a001\)\[\d+]/DeviceUID\(0018,1002\)> -"
    r" Attribute is not present"
)
_ACCESSION: Final = re.compile(
    r"Different information entities for attribute - Element=<AccessionNumber>"
)
_CHARACTER_SET: Final = re.compile(
    r"W: The VR checker does not support this Specific Character Set: ISO_IR 192"
)
_DCMQI_BANNER: Final = re.compile(r"dcmqi repository URL: ")
_JVM_BANNER: Final = re.compile(r"Picked up \w+: ")
_PIXELMED_FINE: Final = re.compile(
    r"(Found (Comprehensive3D|Comprehensive|Enhanced)SR IOD|"
    r"Found Root Template TID_1500 .*|Root Template Validation Complete|IOD validation complete)$"
)
_PIXELMED_SIGNS: Final = ("Found Root Template TID_1500", "Root Template Validation Complete")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one validator said: its sign of life in `words`; no complaints means clean."""

    validator: str
    words: str
    complaints: tuple[str, ...]


def judge(report: Path, sources: Sequence[Path], validators: Sequence[str] = ()) -> list[Verdict]:
    """Verdicts of these validators (default: all) on a report and all images that it names."""
    return [VALIDATORS[name](report, sources) for name in validators or VALIDATORS]


def assert_clean(report: Path, sources: Sequence[Path], validators: Sequence[str] = ()) -> None:
    """Fail with every complaint."""
    verdicts = judge(report, sources, validators)
    complaints = [
        f"{verdict.validator}: {line}" for verdict in verdicts for line in verdict.complaints
    ]
    assert not complaints, "\n".join(complaints)


def _run(program: str, package: str, *arguments: str) -> list[str]:
    return _lines([require_program(program, package), *arguments])


def _lines(command: list[str], seconds: float = _SECONDS) -> list[str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
    )
    text = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _verdict(
    name: str, lines: Sequence[str], sign: str | None, *harmless: re.Pattern[str]
) -> Verdict:
    bad = [line for line in lines if not any(pattern.search(line) for pattern in harmless)]
    return Verdict(name, sign or "", tuple(bad if sign else [*bad, "no sign of life"]))


def _dciodvfy(report: Path, sources: Sequence[Path]) -> Verdict:
    """Attributes against the IOD (PS3.3). It names the IOD that it recognised."""
    del sources
    lines = _run("dciodvfy", "dicom3tools", "-new", str(report))
    iod = _IODS.get(_sop_class(report))
    sign = iod if iod in lines else None
    return _verdict("dciodvfy", [line for line in lines if line != sign], sign, _DEVICE_UID)


def _dcentvfy(report: Path, sources: Sequence[Path]) -> Verdict:
    """The same patient, study and series in all files.

    With -v it tells each file that it has finished.
    """
    lines = _run("dcentvfy", "dicom3tools", "-v", *map(str, sources), str(report))
    done = sum("Done processing file" in line for line in lines)
    said = [line for line in lines if re.search(r"\b(Error|Warning|Abort)\b", line)]
    return _verdict(
        "dcentvfy", said, f"{done} files" if done == len(sources) + 1 else None, _ACCESSION
    )


def _dsrdump(report: Path, sources: Sequence[Path]) -> Verdict:
    """The tree as DCMTK reads it: relationships, value types, codes."""
    del sources
    lines = _run("dsrdump", "dcmtk", "+Pn", "+Pc", str(report))
    sign = next((line for line in lines if line.endswith(" SR Document")), None)
    return _verdict(
        "dsrdump", [line for line in lines if re.match(r"[WEF]: ", line)], sign, _CHARACTER_SET
    )


def _pixelmed(report: Path, sources: Sequence[Path]) -> Verdict:
    """The tree against the templates of PS3.16: TID 1500 and below."""
    del sources
    return judge_templates([report])[0]


def judge_templates(reports: Sequence[Path]) -> list[Verdict]:
    """PixelMed's verdicts.

    It takes seconds to compile its rules and seconds for each report, so it is started once for all
    of them.
    """
    if not _JAR.is_file():
        missing(f"{_JAR} is not installed (Debian package libpixelmed-java)")
    java = require_program("java", "default-jre-headless")
    lines = _lines(
        [java, *_NO_LIMITS, *_QUICK_JVM, "-cp", str(_JAR), str(_MANY), *map(str, reports)],
        _SECONDS * len(reports),
    )
    starts = [number for number, line in enumerate(lines) if line.startswith(_MARK)]
    if len(starts) != len(reports):
        return [_verdict("pixelmed", lines, None)] * len(reports)
    ends = [*starts[1:], len(lines)]
    return [
        _template_verdict([*lines[: starts[0]], *lines[start + 1 : end]])
        for start, end in zip(starts, ends, strict=True)
    ]


def _template_verdict(lines: Sequence[str]) -> Verdict:
    is_alive = all(any(line.startswith(sign) for line in lines) for sign in _PIXELMED_SIGNS)
    return _verdict(
        "pixelmed", lines, "TID 1500" if is_alive else None, _PIXELMED_FINE, _JVM_BANNER
    )


def _tid1500reader(report: Path, sources: Sequence[Path]) -> Verdict:
    """The measurement groups as dcmqi reads them, which is how programs outside would."""
    del sources
    beside = Path(sys.executable).with_name("tid1500reader")
    program = str(beside) if beside.exists() else shutil.which("tid1500reader")
    if program is None:
        missing("tid1500reader is not installed (Python package dcmqi)")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "groups.json")
        lines = _lines([str(program), "--inputDICOM", str(report), "--outputMetadata", str(target)])
        groups = (
            len(json.loads(target.read_bytes()).get("Measurements", [])) if target.exists() else 0
        )
        is_read = groups > 0 or (target.exists() and says_not_analysed(dcmread(report)))
    return _verdict(
        "tid1500reader",
        lines,
        f"{groups} groups" if is_read else None,
        _DCMQI_BANNER,
        _CHARACTER_SET,
    )


def _content(report: Path, sources: Sequence[Path]) -> Verdict:
    """What no validator looks at."""
    document = dcmread(report)
    images = [dcmread(path, stop_before_pixels=True) for path in sources]
    groups = [item for item in walk(document) if name_of(item) == "125007"]
    complaints = [
        *_flags(document),
        *_identity(document, images),
        *_groups(groups),
        *_numbers(document),
        *_evidence(document, images),
    ]
    return _verdict(
        "content",
        complaints,
        (
            f"{len(groups)} groups"
            if groups or says_not_analysed(document) or _is_text(document)
            else None
        ),
    )


def _flags(document: Dataset) -> Iterator[str]:
    wanted = {
        "PreliminaryFlag": "PRELIMINARY",
        "CompletionFlag": "COMPLETE",
        "VerificationFlag": "UNVERIFIED",
        "SpecificCharacterSet": "ISO_IR 192",
    }
    yield from (
        f"{keyword} is {document.get(keyword)}"
        for keyword, value in wanted.items()
        if document.get(keyword) != value
    )
    if "VerifyingObserverSequence" in document:
        yield "a verifying observer, but nobody has verified it"


def _identity(document: Dataset, images: Sequence[Dataset]) -> Iterator[str]:
    if not any(image.StudyInstanceUID == document.StudyInstanceUID for image in images):
        yield "none of the images belongs to the report's study"
    for image in images:
        for keyword in ("PatientID", "AccessionNumber", "StudyInstanceUID"):
            if str(image.get(keyword, "")) != str(document.get(keyword, "")):
                yield f"{keyword} is not that of the image"


def _groups(groups: Sequence[Dataset]) -> Iterator[str]:
    uids = [
        next(
            (child.get("UID") for child in group.ContentSequence if name_of(child) == "112040"),
            None,
        )
        for group in groups
    ]
    if None in uids:
        yield "a measurement group without Tracking Unique Identifier"
    if len(set(uids)) != len(uids):
        yield "two measurement groups with the same Tracking Unique Identifier"


def _numbers(document: Dataset) -> Iterator[str]:
    for item in walk(document):
        for measured in item.get("MeasuredValueSequence", []):
            exact = measured.get("FloatingPointValue")
            if exact is not None and not math.isclose(
                float(measured.NumericValue), exact, rel_tol=1e-6, abs_tol=1e-9
            ):
                yield f"NumericValue {measured.NumericValue} contradicts FloatingPointValue {exact}"


def _evidence(document: Dataset, images: Sequence[Dataset]) -> Iterator[str]:
    """PS3.3 C.17.2.3: every object that the tree refers to stands in the evidence sequence."""
    evidence = {
        instance.ReferencedSOPInstanceUID
        for study in document.get("CurrentRequestedProcedureEvidenceSequence", [])
        for series in study.ReferencedSeriesSequence
        for instance in series.ReferencedSOPSequence
    }
    named = {
        item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID
        for item in walk(document)
        if item.get("ValueType") == "IMAGE"
    }
    if named != evidence:
        yield f"the tree names {len(named)} images, the evidence {len(evidence)}"
    if not evidence <= {image.SOPInstanceUID for image in images}:
        yield "the evidence holds an image that is no source"


def says_not_analysed(document: Dataset) -> bool:
    """Whether the report says that no algorithm succeeded, and so has no measurement group."""
    values = [
        code.CodeValue for item in walk(document) for code in item.get("ConceptCodeSequence", [])
    ]
    return _NO_ALGORITHM_SUCCEEDED in values


def _is_text(document: Dataset) -> bool:
    return document.SOPClassUID == "1.2.840.10008.5.1.4.1.1.88.11"


def _sop_class(report: Path) -> str:
    try:
        return str(dcmread(report, specific_tags=["SOPClassUID"]).SOPClassUID)
    except (InvalidDicomError, AttributeError, EOFError):
        return ""


def walk(parent: Dataset) -> Iterator[Dataset]:
    """All content items below, depth first."""
    for child in parent.get("ContentSequence", []):
        yield child
        yield from walk(child)


def name_of(item: Dataset) -> str | None:
    """Code Value of an item's concept name."""
    sequence = item.get("ConceptNameCodeSequence")
    return str(sequence[0].get("CodeValue", "")) if sequence else None


VALIDATORS: Final[dict[str, Callable[[Path, Sequence[Path]], Verdict]]] = {
    "dciodvfy": _dciodvfy,
    "dcentvfy": _dcentvfy,
    "dsrdump": _dsrdump,
    "pixelmed": _pixelmed,
    "tid1500reader": _tid1500reader,
    "content": _content,
}
# PixelMed judges many at once: test_report_templates.
FAST: Final = tuple(name for name in VALIDATORS if name != "pixelmed")
# For Basic Text SR, which has no measurements: no TID 1500.
TEXT: Final = ("dciodvfy", "dcentvfy", "dsrdump", "content")
