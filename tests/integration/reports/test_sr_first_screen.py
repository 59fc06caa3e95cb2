"""The first screen of a report: the decisions by name, then comments, then what programs read."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

import pytest
from highdicom.sr import srread
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hilum.domain import SR_CLASS_PREFERENCE, Document
from hilum.report import derive, sr_text
from hilum.report.sr.document_header import encode
from tests.support.peers.peers import require_program
from tests.support.reports import sr_gate
from tests.support.reports.read_back import PRESENCE, items, lines_in_text
from tests.support.reports.report_variants import VARIANTS, Built, make
from tests.support.reports.results import parse

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
EVALUATIONS, LIBRARY, MEASUREMENTS, FINDINGS = "C0034375", "111028", "126010", "121070"
NAMES = ("CR_mixed", "DX_doubted", "SC_untrained", "DX_calibrated", "CR_not_analysed")


def in_every_class(built: Built) -> dict[str, Document]:
    """The report as each SOP Class that goes out."""
    lower = {
        wanted.name: derive(built.sr, wanted, built.job.result.identifiers[wanted.kind])
        for wanted in SR_CLASS_PREFERENCE[1:]
    }
    return {SR_CLASS_PREFERENCE[0].name: built.sr, **lower}


def shown(document: Document, folder: Path) -> str:
    """The text of DCMTK's HTML, which shows the names of items as viewers do."""
    (folder / "report.dcm").write_bytes(document.content)
    program = require_program("dsr2html", "dcmtk")
    subprocess.run(
        [program, folder / "report.dcm", folder / "report.html"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    body = (folder / "report.html").read_text(encoding="utf-8").split("<body>")[1]
    return html.unescape(re.sub(r"<[^>]*>", " ", body))


@pytest.mark.parametrize("name", NAMES)
def test_containers_hold_separate_items(name: str) -> None:
    for document in in_every_class(make(VARIANTS[name])).values():
        report = parse(document.content)
        containers = [
            report,
            *(item for item in sr_gate.walk(report) if item.ValueType == "CONTAINER"),
        ]
        assert {item.ContinuityOfContent for item in containers} == {"SEPARATE"}


@pytest.mark.parametrize("name", NAMES)
def test_the_decisions_come_first_then_the_images_then_the_groups(name: str) -> None:
    built = make(VARIANTS[name])
    documents = in_every_class(built)
    text = parse(documents.pop("basic_text").content)
    assert [
        sr_gate.name_of(item) for item in text.ContentSequence if item.ValueType == "CONTAINER"
    ] == [FINDINGS]
    expected = [EVALUATIONS, LIBRARY, *([MEASUREMENTS] if built.content["findings"] else [])]
    for document in documents.values():
        report = parse(document.content)
        assert [
            sr_gate.name_of(item)
            for item in report.ContentSequence
            if item.ValueType == "CONTAINER"
        ] == expected


@pytest.mark.parametrize("name", [name for name in NAMES if name != "CR_not_analysed"])
def test_dcmtk_shows_every_decision_with_its_finding_before_anything_else(
    name: str, tmp_path: Path
) -> None:
    built = make(VARIANTS[name])
    for kind, document in in_every_class(built).items():
        seen = " ".join(shown(document, tmp_path).split())
        first_screen = seen[
            : min(
                seen.index(word)
                for word in ("Image Library", "Measurement Group", "Comment")
                if word in seen
            )
        ]
        for finding in built.content["findings"]:
            is_private = finding["code"]["scheme"].startswith("99")
            label = finding["text"] if is_private else finding["code"]["meaning"]
            assert re.search(rf"{label}: {PRESENCE[finding['decision']][1]}\b", first_screen), (
                kind,
                label,
                first_screen,
            )


def test_dcmtk_shows_why_there_is_no_finding_before_anything_else(tmp_path: Path) -> None:
    built = make(VARIANTS["CR_not_analysed"])
    for document in in_every_class(built).values():
        seen = " ".join(shown(document, tmp_path).split())
        first_screen = seen.split("Image Library")[0]
        assert (
            f"Not analysed ({built.content['reason']}): {built.content['reason_text']}"
            in first_screen
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_of_forty_lines_shows_every_decision(name: str) -> None:
    built = make(VARIANTS[name])
    first_screen = "\n".join(sr_text(built.sr.content).splitlines()[:40])
    assert all(
        f"{PRESENCE[item['decision']][1]}" in first_screen for item in built.content["findings"]
    )
    assert "Qualitative Evaluations" in first_screen
    assert "Measurement Group" not in first_screen


def test_highdicom_reads_all_groups(tmp_path: Path) -> None:
    built = make(VARIANTS["DX_doubted"])
    (tmp_path / "report.dcm").write_bytes(built.sr.content)
    content = srread(tmp_path / "report.dcm").content
    assert len(content.get_image_measurement_groups()) == len(built.content["findings"])


def in_the_order_of_before(report: Dataset) -> None:
    """As reports were stored whose evaluations came last."""
    last = [item for item in report.ContentSequence if sr_gate.name_of(item) == EVALUATIONS]
    report.ContentSequence = Sequence(
        [*(item for item in report.ContentSequence if item not in last), *last]
    )


def test_a_report_stored_before_says_the_same_as_basic_text(tmp_path: Path) -> None:
    built = make(VARIANTS["CR_mixed"])
    (tmp_path / "report.dcm").write_bytes(built.sr.content)
    stored = dcmread(tmp_path / "report.dcm")
    in_the_order_of_before(stored)
    earlier = Document("sr", built.sr.media_type, encode(stored))
    (now, then) = (
        parse(derive(item, SR_CLASS_PREFERENCE[3], "2.25.1").content)
        for item in (built.sr, earlier)
    )
    assert list(lines_in_text(then)) == list(lines_in_text(now))
    assert [item.TextValue for item in items(then, "121106")] == [
        item.TextValue for item in items(now, "121106")
    ]
