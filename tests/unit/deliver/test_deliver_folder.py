from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from hilum.deliver import open_client
from hilum.deliver.folder import file_name
from hilum.domain import Document, file_stem
from hilum.errors import Refused, Retry
from hilum.report import build_documents
from hilum.settings import FolderDestination
from testing.phantoms.phantom import make_study
from tests.support.machine.accounts import as_stranger, folder_of_stranger, open_to_all
from tests.support.reports.results import CONTEXT, make_release, report_of

SR = Document(
    "sr",
    "application/dicom",
    b"bytes",
    sop_class_uid="1.2.840.10008.5.1.4.1.1.88.34",
    sop_instance_uid="2.25.1",
)


def client_to(path):
    return open_client("folder", FolderDestination(path=path, documents=("sr", "json")))


def test_a_file_appears_whole_under_its_uid(tmp_path):
    client_to(tmp_path / "out").deliver(SR)
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "out").iterdir()] == [
        ("2.25.1.dcm", b"bytes")
    ]


def test_the_same_document_again_changes_nothing(tmp_path):
    client = client_to(tmp_path)
    client.deliver(SR)
    before = (tmp_path / "2.25.1.dcm").stat()
    client.deliver(SR)
    client.close()
    client.close()
    after = (tmp_path / "2.25.1.dcm").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_other_bytes_under_its_name_are_not_overwritten(tmp_path):
    (tmp_path / "2.25.1.dcm").write_bytes(b"somebody's work")
    with pytest.raises(Refused, match="requeue"):
        client_to(tmp_path).deliver(SR)
    assert (tmp_path / "2.25.1.dcm").read_bytes() == b"somebody's work"


def test_what_a_crash_left_half_written_is_written_anew(tmp_path):
    (tmp_path / ".2.25.1.dcm.part").write_bytes(b"by")
    client_to(tmp_path).deliver(SR)
    assert [path.name for path in tmp_path.iterdir()] == ["2.25.1.dcm"]


def test_a_missing_parent_is_an_outage_and_is_not_created(tmp_path):
    with pytest.raises(Retry, match="mounted") as caught:
        client_to(tmp_path / "unmounted" / "share").deliver(SR)
    assert caught.value.is_outage
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_an_outage(tmp_path):
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(Retry, match="check that the folder exists"):
        client_to(tmp_path / "out").deliver(SR)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_write_permission_is_an_outage(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(Retry, match="Permission denied"):
        client_to(tmp_path).deliver(SR)


def test_json_is_named_by_study_release_and_revision(tmp_path):
    release = make_release()
    job = report_of(make_study(1, views=("PA",), rows=16, columns=16), release)
    (document,) = build_documents(job, release, CONTEXT, ("json",))
    stem = file_stem(job.result.study_instance_uid, release.id, job.result.revision)
    client_to(tmp_path).deliver(replace(document, stem=stem))
    (written,) = tmp_path.iterdir()
    assert written.name == f"{job.result.study_instance_uid}_densenet121@2_r1.json"
    assert json.loads(written.read_bytes())["revision"] == 1


def test_a_name_never_leaves_the_folder():
    stem = file_stem("1.2", "../../evil@/1", 1)
    name = file_name(Document("json", "application/json", b"{}", stem=stem))
    assert name == "1.2_.._.._evil@_1_r1.json"


def test_a_link_of_another_account_leads_no_document_elsewhere():
    with open_to_all() as site:
        out, state = folder_of_stranger(site / "out"), site / "state"
        state.mkdir(0o700)
        (state / "ledger.sqlite").write_bytes(b"rows")
        as_stranger("ln", "-s", state / "ledger.sqlite", ".2.25.1.dcm.part", folder=out)
        client_to(out).deliver(SR)
        assert (state / "ledger.sqlite").read_bytes() == b"rows"
        assert [(path.name, path.read_bytes()) for path in out.iterdir()] == [
            ("2.25.1.dcm", b"bytes")
        ]


def test_a_link_under_the_documents_name_is_left_and_refused():
    with open_to_all() as site:
        out = folder_of_stranger(site / "out")
        (site / "same.dcm").write_bytes(b"bytes")
        as_stranger("ln", "-s", site / "same.dcm", "2.25.1.dcm", folder=out)
        with pytest.raises(Refused, match="is a link"):
            client_to(out).deliver(SR)
