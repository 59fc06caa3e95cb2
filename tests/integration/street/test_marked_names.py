"""No patient data outside of documents: a marked patient goes down the whole street with everything going wrong, and no marker leaves it but in documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pydicom
import pytest
from pydicom.uid import DigitalXRayImageStorageForPresentation
from sqlalchemy import LargeBinary, create_engine, select

from hilum.deliver.send import send
from hilum.store.schema.tables import instance, metadata
from testing.serving import Hilum
from tests.support.models.releases import Tiny
from tests.support.objects import marked
from tests.support.peers.peers import StoreScp
from tests.support.peers.raw_scu import RawScu
from tests.support.server import commands
from tests.support.server.decoding import crash_while_held, held_up, reading_of
from tests.support.server.installation import START_SECONDS, hilum_with, save_all, send_to, wait_for

pytestmark = pytest.mark.slow
GOOD, CUT, TEXT, BROKEN, CORRUPT, CRASHED = (marked.image(seed) for seed in range(701, 707))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, refuser: StoreScp, tiny: Tiny
) -> Iterator[Hilum]:
    """A server that logs all it can, after the patient has been through it."""
    folder = tmp_path_factory.mktemp("marked")
    destinations = {
        "folder": {"kind": "folder", "path": str(folder / "out"), "documents": ["sr", "json"]},
        "refuser": {
            "kind": "dicom",
            "host": "127.0.0.1",
            "port": refuser.port,
            "ae_title": "REFUSER",
        },
        "down": {"kind": "dicom", "host": "127.0.0.1", "port": 1, "ae_title": "DOWN"},
    }
    log = {"level": "debug", "format": "json"}
    with hilum_with(folder, tiny, destinations, quiet_seconds=0.3, log=log) as running:
        running.wait_until_ready(START_SECONDS)
        go_wrong_in_every_way(running, folder / "sent")
        yield running


def go_wrong_in_every_way(server: Hilum, folder: Path) -> None:
    cut, text = marked.truncated(702), marked.undecodable(703)
    assert send_to(server, save_all(folder / "good", [GOOD, cut, text])).is_ok
    broken = marked.malformed(marked.image(704), folder / "broken.dcm")
    corrupt = marked.malformed(
        marked.image(705, RescaleSlope="1"), folder / "corrupt.dcm", only="PatientSize"
    )
    corrupt.write_bytes(
        corrupt.read_bytes().replace(
            b"\x28\x00\x53\x10DS\x02\x001 ", b"\x28\x00\x53\x10DS\x02\x00ZQ"
        )
    )
    assert send_to(server, [broken, corrupt]).is_ok
    wait_for(lambda: len(list((server.folder / "out").glob("*.dcm"))) >= 2, what="the reports")
    assert send_to(server, save_all(folder / "conflict", [marked.other_pixels(701)])).is_ok
    assert send_to(
        server, save_all(folder / "merged", [marked.image(701, PatientName="ZQXMARRIED^NAME")])
    ).is_ok
    refused_on_the_wire(server, broken)
    with held_up(server, folder / "crashed", [CRASHED]) as held:
        crash_while_held(server, held)
    for image in (GOOD, cut, text, BROKEN, CORRUPT, CRASHED):
        wait_for(
            lambda image=image: (
                reading_of(server, image).get("state") in ("analysed", "not_analysed")
            ),
            what="a reading",
        )
    wait_for(lambda: server.get("/api/v1/queues").json()["stuck"], what="the dead letter")


def refused_on_the_wire(server: Hilum, path: Path) -> None:
    assert not send(
        [path],
        "127.0.0.1",
        server.dicom_port,
        f"{marked.AE_SIGN}CALLED",
        f"{marked.AE_SIGN}CALLING",
    ).is_ok
    with RawScu(server.dicom_port, calling=f"{marked.AE_SIGN}RAW") as scu:
        assert scu.store(b"ZQXNAME is no data set", "1.2.3")[0] == 0xC000
        no_study = b"\x08\x00\x18\x00UI\x06\x001.2.3\x00" + b"\x10\x00\x10\x00PN\x08\x00ZQXNAME "
        assert scu.store(no_study, "1.2.3")[0] == 0xC000
        assert (
            scu.store(no_study, "1.2.3", sop_class_uid=DigitalXRayImageStorageForPresentation[:-2])[
                0
            ]
            != 0
        )


def text_of(server: Hilum, *paths: str) -> str:
    return "\n".join(server.get(path).text for path in paths)


def nothing_in(text: str, *signs: str) -> None:
    assert text
    assert list(marked.found_in(text, signs or marked.SIGNS)) == []


def test_the_control_markers_are_where_they_belong(server: Hilum) -> None:
    reports = [pydicom.dcmread(path) for path in (server.folder / "out").glob("*.dcm")]
    assert {str(report.PatientID) for report in reports} == {"ZQXID"}
    assert {reading_of(server, image)["state"] for image in (GOOD, BROKEN, CRASHED)} == {"analysed"}
    assert {reading_of(server, image)["reason"] for image in (CUT, TEXT, CORRUPT)} == {
        "truncated_pixel_data",
        "undecodable",
        "corrupt_header",
    }
    assert reading_of(server, CRASHED)["attempts"] == 2
    assert any("ZQXID" in path.read_text() for path in (server.folder / "out").glob("*.json"))


def test_no_line_of_any_log(server: Hilum) -> None:
    for path in (server.log, server.folder / "state/run/tritonserver.log"):
        nothing_in(path.read_text(errors="replace"), *marked.SIGNS, marked.AE_SIGN)
    assert "decode_process_died" in server.log.read_text(), "the control: it did go wrong"
    assert "0xC000" in server.log.read_text()


def test_no_metric_and_no_file_of_metrics(server: Hilum) -> None:
    nothing_in(text_of(server, "/metrics"), *marked.SIGNS, marked.AE_SIGN)
    files = [path for path in (server.folder / "state/run").rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)
    for path in files:
        assert (
            list(
                marked.found_in(
                    path.read_bytes().decode("latin-1"), (*marked.SIGNS, marked.AE_SIGN)
                )
            )
            == []
        ), path


def test_no_answer_of_rest_but_documents(server: Hilum) -> None:
    paths = [
        "/api/v1/studies",
        "/api/v1/conflicts",
        "/api/v1/queues",
        "/api/v1/releases",
        "/health/ready",
        "/health/live",
        "/",
    ]
    paths += [
        f"/api/v1/studies/{image.StudyInstanceUID}"
        for image in (GOOD, CUT, TEXT, BROKEN, CORRUPT, CRASHED)
    ]
    paths += [f"/api/v1/studies/{GOOD.StudyInstanceUID}/documents"]
    nothing_in(text_of(server, *paths))


def test_associations_name_ae_titles_and_nothing_else_of_the_sender(server: Hilum) -> None:
    rows = server.get("/api/v1/associations?limit=200").json()["associations"]
    assert any(row["refused"] for row in rows)
    assert f"{marked.AE_SIGN}CALLED" in {row["called_ae_title"] for row in rows}, "the control"
    nothing_in(str(rows))
    others = [
        {
            key: value
            for key, value in row.items()
            if key not in ("calling_ae_title", "called_ae_title")
        }
        for row in rows
    ]
    nothing_in(str(others), marked.AE_SIGN)


PROBLEMS: list[tuple[str, str, Any]] = [
    ("GET", "/api/v1/studies/ZQXNAME", None),
    ("GET", "/api/v1/studies?limit=ZQX&state=ZQX&cursor=ZQX&received_since=ZQX", None),
    ("GET", "/api/v1/documents/ZQXID", None),
    ("GET", "/api/v1/associations?outcome=ZQX", None),
    ("GET", "/ZQXNAME", None),
    ("DELETE", "/api/v1/studies/ZQXNAME", None),
    ("POST", "/api/v1/requeue", b'{"stage": "ZQXNAME"}'),
    ("POST", "/api/v1/requeue", b'{"stage": "analyse", "ZQXNAME": 1}'),
    ("POST", "/api/v1/requeue", b'{"stage": ZQXNAME'),
    ("POST", "/api/v1/requeue", b"ZQX" * 1000),
]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    PROBLEMS,
    ids=[f"{method} {path[:24]} {number}" for number, (method, path, _) in enumerate(PROBLEMS)],
)
def test_no_problem_repeats_what_was_sent(
    server: Hilum, method: str, path: str, body: bytes | None
) -> None:
    answer = httpx.request(
        method, server.api + path, content=body, headers=server.headers, timeout=60
    )
    assert answer.status_code >= 400
    nothing_in(answer.text)
    nothing_in(server.log.read_text(errors="replace"))


def test_no_token_is_repeated_or_logged(server: Hilum) -> None:
    answer = httpx.get(
        f"{server.api}/api/v1/studies", headers={"Authorization": "Bearer ZQXTOKEN"}, timeout=60
    )
    assert answer.status_code == 401
    nothing_in(answer.text)
    nothing_in(server.log.read_text(errors="replace"))
    nothing_in(
        server.log.read_text(errors="replace"),
        server.headers["Authorization"].removeprefix("Bearer "),
    )


def test_the_doctor_and_the_study_command(server: Hilum) -> None:
    for words in (
        ("check",),
        ("study", str(GOOD.StudyInstanceUID)),
        ("requeue", "analyse", "--study", "1.2.3"),
    ):
        done = commands.hilum(*server.command(*words)[1:])
        nothing_in(
            done.stdout + done.stderr,
            *marked.SIGNS,
            marked.AE_SIGN if words == ("check",) else "ZQX",
        )


def test_the_ledger_holds_it_in_headers_and_documents_only(server: Hilum) -> None:
    engine = create_engine(f"sqlite:///{server.folder / 'state/ledger.sqlite'}")
    with engine.connect() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.c if not isinstance(column.type, LargeBinary)]
            rows = connection.execute(select(*columns)).all()
            assert list(marked.found_in(str(rows))) == [], table.name
        headers = connection.execute(select(instance.c.header)).scalars().all()
    engine.dispose()
    assert all(b"ZQXID" in header for header in headers), "the control"
