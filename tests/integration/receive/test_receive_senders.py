"""Each sender on its own terms, through the real listeners and DCMTK's storescu.

What it may send, from where, whereto, how often.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    RLELossless,
)
from pynetdicom import AE

from hilum.domain import Priority
from testing.phantoms.phantom import make_instance, save, uid_for
from tests.support.machine.waiting import wait_for
from tests.support.objects.encoders import encoded
from tests.support.objects.radiograph import ramp
from tests.support.peers.peers import require_program
from tests.support.peers.raw_scu import RawScu, rejection_of
from tests.support.server.listening import ListenerProcess, make_settings

SENDERS = {
    "ARCHIVE": {
        "transfer_syntaxes": ["JPEG2000Lossless", "ExplicitVRLittleEndian"],
        "maximum_associations": 1,
        "called_ae_titles": ["HILUM"],
        "quiet_seconds": 77.0,
        "priority": "reanalysis",
        "releases": ["other@1"],
    },
    "CASSETTES": {"sop_classes": ["ComputedRadiographyImageStorage"], "priority": "urgent"},
    "ELSEWHERE": {"peers": ["192.0.2.0/24"]},
    "STORESCU": {},
}


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    state = tmp_path_factory.mktemp("senders") / "state"
    settings = make_settings(
        state, SENDERS, ae_titles=("HILUM", "ER"), calling_ae_titles=("ANYBODY",)
    )
    with ListenerProcess(settings) as running:
        yield running


def storescu(
    listener: ListenerProcess, calling: str, *arguments: object, called: str = "HILUM"
) -> subprocess.CompletedProcess[str]:
    program = require_program("storescu", "dcmtk")
    command = [
        program,
        "-v",
        "-aet",
        calling,
        "-aec",
        called,
        "127.0.0.1",
        str(listener.port),
        *map(str, arguments),
    ]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TCP_NODELAY": "1"},
    )


def compressed() -> Dataset:
    dataset = encoded(ramp(32, 32), JPEG2000Lossless, 12)
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = (
        DigitalXRayImageStorageForPresentation
    )
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = uid_for("senders", 1)
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = (
        uid_for("senders", 2),
        uid_for("senders", 3),
    )
    return dataset


def plain(seed: int, sop_class: str) -> Dataset:
    dataset = make_instance(seed, rows=64, columns=64, transfer_syntax_uid=ExplicitVRLittleEndian)
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = sop_class
    return dataset


def row_of(listener: ListenerProcess, calling: str, reason: str) -> dict[str, Any]:
    query = (
        f"SELECT * FROM association WHERE calling_ae_title = '{calling}' AND reason = '{reason}'"
    )
    return dict(wait_for(lambda: listener.rows(query))[0])


def accepted_of(listener: ListenerProcess, calling: str) -> list[str]:
    """Transfer Syntaxes that are accepted of a context that proposes three, the most compressed one last."""
    scu = AE(calling)
    proposed = [ExplicitVRLittleEndian, RLELossless, JPEG2000Lossless]
    scu.add_requested_context(DigitalXRayImageStorageForPresentation, proposed)
    assoc = scu.associate("127.0.0.1", listener.port, ae_title="HILUM")
    accepted = [str(context.transfer_syntax[0]) for context in assoc.accepted_contexts]
    assoc.release()
    return accepted


def test_one_that_prefers_jpeg_2000_gets_it_and_keeps_it(
    listener: ListenerProcess, tmp_path: Path
) -> None:
    dataset = compressed()
    answer = storescu(listener, "ARCHIVE", "-xv", "+C", save(dataset, tmp_path / "j2k.dcm"))
    assert answer.returncode == 0, answer.stderr
    query = f"SELECT * FROM instance WHERE sop_instance_uid = '{dataset.SOPInstanceUID}'"
    (row,) = wait_for(lambda: listener.rows(query))
    assert (row["transfer_syntax_uid"], row["calling_ae_title"]) == (JPEG2000Lossless, "ARCHIVE")
    assert accepted_of(listener, "CASSETTES") == []


def test_of_the_same_proposal_each_gets_the_first_of_its_own_order(
    listener: ListenerProcess,
) -> None:
    assert accepted_of(listener, "STORESCU") == [ExplicitVRLittleEndian]
    wait_for(lambda: accepted_of(listener, "ARCHIVE") == [JPEG2000Lossless])


def test_its_study_waits_hurries_and_is_read_as_its_section_says(
    listener: ListenerProcess, tmp_path: Path
) -> None:
    for calling, sop_class, seed in (
        ("ARCHIVE", DigitalXRayImageStorageForPresentation, 3),
        ("CASSETTES", ComputedRadiographyImageStorage, 4),
    ):
        file = save(plain(seed, sop_class), tmp_path / f"{seed}.dcm")
        wait_for(
            lambda file=file, calling=calling: storescu(listener, calling, file).returncode == 0
        )
    query = (
        "SELECT s.*, r.release FROM study s JOIN reading r USING (study_instance_uid) WHERE"
        " s.study_instance_uid = '{}'"
    )
    (archive,) = wait_for(
        lambda: listener.rows(
            query.format(plain(3, ComputedRadiographyImageStorage).StudyInstanceUID)
        )
    )
    (urgent,) = wait_for(
        lambda: listener.rows(
            query.format(plain(4, ComputedRadiographyImageStorage).StudyInstanceUID)
        )
    )
    assert archive["release"] == "other@1"
    assert archive["quiet_until"] - archive["collecting_since"] == pytest.approx(77.0)
    assert urgent["quiet_until"] - urgent["collecting_since"] == pytest.approx(10.0)
    assert urgent["release"] == "densenet121_untrained@1"
    assert archive["priority"] > urgent["priority"]


def test_who_sends_a_later_image_of_a_study_changes_nothing(
    listener: ListenerProcess, tmp_path: Path
) -> None:
    first, later = (
        plain(6, ComputedRadiographyImageStorage),
        plain(7, ComputedRadiographyImageStorage),
    )
    later.StudyInstanceUID = first.StudyInstanceUID
    both = "SELECT r.release, s.priority FROM reading r JOIN study s USING (study_instance_uid)"
    query = f"{both} WHERE study_instance_uid = '{first.StudyInstanceUID}'"
    for number, (calling, image) in enumerate((("ARCHIVE", first), ("CASSETTES", later)), 1):
        file = save(image, tmp_path / f"{number}.dcm")
        wait_for(
            lambda file=file, calling=calling: storescu(listener, calling, file).returncode == 0
        )
        wait_for(lambda number=number: len(listener.rows(query)) == number)
    assert [(row["release"], Priority(row["priority"])) for row in listener.rows(query)] == [
        ("other@1", Priority.REANALYSIS)
    ] * 2


def test_one_that_may_send_cr_only_is_told_so(listener: ListenerProcess, tmp_path: Path) -> None:
    answer = storescu(
        listener,
        "CASSETTES",
        "-R",
        save(plain(5, DigitalXRayImageStorageForPresentation), tmp_path / "dx.dcm"),
    )
    assert answer.returncode != 0
    row = row_of(listener, "CASSETTES", "sop_class_not_accepted")
    assert (row["outcome"], row["stored"]) == ("released", 0) or row["outcome"] == "aborted"
    assert (
        "Send Computed Radiography Image Storage only, or add to senders.CASSETTES.sop_classes."
        in row["advice"]
    )
    with RawScu(listener.port, calling="CASSETTES") as scu:
        assert [context.result for context in scu.assoc.rejected_contexts] == [3]
        assert scu.echo() == 0


def test_a_syntax_that_is_not_on_its_list_is_refused_with_result_4(
    listener: ListenerProcess,
) -> None:
    def results() -> list[int]:
        with RawScu(listener.port, transfer_syntax_uid=RLELossless, calling="ARCHIVE") as scu:
            return [context.result for context in scu.assoc.rejected_contexts]

    wait_for(lambda: results() == [4])
    row = row_of(listener, "ARCHIVE", "transfer_syntax_not_accepted")
    assert "or add to senders.ARCHIVE.transfer_syntaxes" in row["advice"]


def test_its_second_association_is_one_too_many(listener: ListenerProcess) -> None:
    def first() -> RawScu | None:
        scu = RawScu(listener.port, calling="ARCHIVE")
        return scu if scu.assoc.is_established else None

    with wait_for(first), RawScu(listener.port, calling="STORESCU") as other:
        assert other.echo() == 0
        assert rejection_of(RawScu(listener.port, calling="ARCHIVE").assoc) == (2, 3, 2)
    assert (
        "senders.ARCHIVE.maximum_associations"
        in row_of(listener, "ARCHIVE", "limit_of_sender_exceeded")["advice"]
    )


@pytest.mark.parametrize(
    ("calling", "called", "code", "reason", "key"),
    [
        ("ELSEWHERE", "HILUM", (1, 1, 1), "peer_address_not_allowed", "senders.ELSEWHERE.peers"),
        (
            "ARCHIVE",
            "ER",
            (1, 1, 7),
            "called_ae_title_not_recognised",
            "senders.ARCHIVE.called_ae_titles",
        ),
        (
            "STRANGER",
            "HILUM",
            (1, 1, 3),
            "calling_ae_title_not_recognised",
            "receive.calling_ae_titles",
        ),
    ],
)
def test_who_is_rejected_reads_the_setting_in_its_row(
    listener: ListenerProcess,
    calling: str,
    called: str,
    code: tuple[int, int, int],
    reason: str,
    key: str,
) -> None:
    assert rejection_of(RawScu(listener.port, calling=calling, called=called).assoc) == code
    assert key in row_of(listener, calling, reason)["advice"]
