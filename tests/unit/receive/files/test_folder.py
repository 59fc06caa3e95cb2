"""Files into the archive without a process around.

What is taken, what is refused, and what must never be waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydicom import dcmread
from pydicom.uid import XRayRadiationDoseSRStorage

from hilum.domain import Priority
from hilum.errors import Retry
from hilum.processes import watcher
from hilum.receive.files.folder import FileOutcome, FolderIntake, TakenFile
from hilum.receive.files.traversal import Traversal
from hilum.services.image_decisions import open_decisions
from hilum.services.ingest import FileOrigin, ingest, taking
from hilum.services.launch_spec import LaunchSpec
from hilum.settings import Receive, Settings, Site, Watch
from hilum.store.admin.decisions import Decisions
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.queries.views import LedgerViews
from testing.phantoms.phantom import make_instance, save
from tests.support.machine.accounts import as_stranger, folder_of_stranger, open_to_all
from tests.support.machine.waiting import wait_for
from tests.support.objects.notes import key_objects

DX = "1.2.840.10008.5.1.4.1.1.1.1"
ORIGIN = FileOrigin("SCANNER", "HILUM", Priority.LIVE)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(
        site=Site(state_dir=tmp_path / "state"),
        receive=Receive(reserve_bytes=0, maximum_object_bytes=1 << 20),
    )
    made.site.state_dir.mkdir()
    migrate(made.ledger_url)
    return made


def must_not_wait(reason: str) -> None:
    raise AssertionError(reason)


def must_not_hear(taken: TakenFile) -> None:
    raise AssertionError(taken)


@pytest.fixture
def intake(settings: Settings) -> Iterator[FolderIntake]:
    with taking(settings, ORIGIN, must_not_wait, threading.Event()) as (found, _):
        yield found


def drawn(path: Path, seed: int = 1, rows: int = 64) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return save(make_instance(seed, rows=rows, columns=64), path)


def test_an_object_beyond_the_limit_is_refused_and_not_waited_for(
    intake: FolderIntake, tmp_path: Path
) -> None:
    taken = intake.take(drawn(tmp_path / "large.dcm", rows=9000))
    assert taken.fate is FileOutcome.REFUSED
    assert taken.detail == "Larger than the limit of 1 MiB (receive.maximum_object_bytes)"


def test_files_leave_the_room_that_associations_need(settings: Settings, tmp_path: Path) -> None:
    free = Archive(settings.archive_dir).free().bytes
    small = settings.model_copy(update={"receive": Receive(reserve_bytes=0, reject_bytes=2 * free)})
    with (
        pytest.raises(AssertionError, match="of disk are free"),
        taking(small, ORIGIN, must_not_wait, threading.Event()) as (intake, _),
    ):
        intake.take(drawn(tmp_path / "1.dcm"))


def test_what_the_archive_has_lost_is_taken_again(settings: Settings, tmp_path: Path) -> None:
    file, archive = drawn(tmp_path / "1.dcm"), Archive(settings.archive_dir)

    def take() -> FileOutcome:
        with taking(settings, ORIGIN, must_not_wait, threading.Event()) as (intake, _):
            return intake.take(file).fate

    assert [take(), take()] == [FileOutcome.STORED, FileOutcome.KNOWN]
    (lost,) = archive.placed()
    lost.unlink()
    assert [take(), take()] == [FileOutcome.STORED, FileOutcome.KNOWN]
    (found,) = archive.placed()
    assert found.read_bytes()[-100:] == file.read_bytes()[-100:]


@pytest.mark.parametrize("verb", [None, Decisions.keep, Decisions.discard])
def test_what_quarantine_has_lost_is_taken_again_unless_it_was_discarded(
    settings: Settings, tmp_path: Path, verb: Callable[[Decisions, int], object] | None
) -> None:
    file, archive = drawn(tmp_path / "1.dcm"), Archive(settings.archive_dir)
    other = drawn(tmp_path / "other.dcm", seed=2)
    object_ = dcmread(other)
    object_.SOPInstanceUID = object_.file_meta.MediaStorageSOPInstanceUID = dcmread(
        file, stop_before_pixels=True
    ).SOPInstanceUID
    object_.save_as(other)

    def take() -> FileOutcome:
        with taking(settings, ORIGIN, must_not_wait, threading.Event()) as (intake, _):
            return intake.take(other).fate

    ingest(settings, [file, other], ORIGIN, 1, lambda _: None, must_not_wait)
    if verb is not None:
        with contextlib.closing(open_decisions(settings)) as decisions:
            verb(decisions, 1)
    known = take()
    for lost in archive.quarantined():
        lost.unlink()
    assert take() is (known if verb is Decisions.discard else FileOutcome.STORED)
    assert len(list(archive.quarantined())) == (verb is not Decisions.discard)
    assert take() is known


def test_what_is_no_uid_is_refused_before_the_ledger_is_asked(
    settings: Settings, tmp_path: Path
) -> None:
    """PostgreSQL takes no NUL in a text, and the process that asked it would end."""
    file = drawn(tmp_path / "1.dcm")
    uid = str(dcmread(file, stop_before_pixels=True).SOPInstanceUID).encode()
    file.write_bytes(file.read_bytes().replace(uid, uid[:4] + b"\0\0" + uid[6:]))

    class NeverAsked:
        def is_disputed(self, sop_instance_uid: str, file: Path) -> bool | None:
            raise AssertionError(sop_instance_uid, file)

    with taking(settings, ORIGIN, must_not_wait, threading.Event()) as (found, _):
        taken = replace(found, known=NeverAsked()).take(file)
    assert (taken.fate, taken.detail) == (
        FileOutcome.REFUSED,
        "Media Storage SOP Instance UID (0002,0003) is not a valid UID",
    )


def test_what_is_ours_and_links_to_folders_are_passed_over_and_said(tmp_path: Path) -> None:
    for name in (
        "in/1.dcm",
        "in/below/2.dcm",
        "state/archive/3.dcm",
        "state.txt",
        "key.pem",
        "elsewhere/4.dcm",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, target in (
        ("elsewhere", "elsewhere"),
        ("around", "in"),
        ("mine", "state/archive"),
        ("gone", "nowhere"),
    ):
        (tmp_path / "in" / name).symlink_to(tmp_path / target)
    heard = list[TakenFile]()
    ours = {tmp_path / "state": "site.state_dir", tmp_path / "key.pem": "receive.tls_key_file"}
    walk = Traversal([tmp_path / "in"], ours, heard.append)
    assert [path.relative_to(tmp_path / "in").as_posix() for path in walk.files()] == [
        "1.dcm",
        "gone",
        "below/2.dcm",
    ]
    assert {(taken.path.name, taken.fate) for taken in heard} == {
        ("elsewhere", FileOutcome.FAILED),
        ("mine", FileOutcome.SKIPPED),
    }
    heard.clear()
    assert len(list(replace(walk, paths=[tmp_path / "in", tmp_path / "elsewhere"]).files())) == 4
    assert [taken.path.name for taken in heard] == ["mine"]
    heard.clear()
    assert [path.name for path in replace(walk, paths=[tmp_path]).files()] == [
        "state.txt",
        "4.dcm",
        "1.dcm",
        "gone",
        "2.dcm",
    ]
    assert [(taken.path.name, taken.detail) for taken in heard] == [
        ("state", "Hilum's own (site.state_dir)"),
        ("key.pem", "Hilum's own (receive.tls_key_file)"),
    ]
    problems = replace(
        walk, paths=[tmp_path / "in", tmp_path / "state/archive", tmp_path / "key.pem"]
    ).problems()
    assert ["site.state_dir" in problems[0], "receive.tls_key_file" in problems[1]] == [True, True]


def test_a_link_to_itself_is_a_file_that_cannot_be_read(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    own = settings.model_copy(
        update={"receive": settings.receive.model_copy(update={"tls_key_file": tmp_path / "self"})}
    )
    assert own.own_paths
    heard = list[TakenFile]()
    ingest(settings, [tmp_path / "self"], ORIGIN, 1, heard.append, must_not_wait)
    assert [(taken.fate, taken.detail) for taken in heard] == [
        (FileOutcome.FAILED, "cannot be read: Too many levels of symbolic links")
    ]


def test_a_pipe_is_not_opened(intake: FolderIntake, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert intake.take(tmp_path / "pipe").fate is FileOutcome.SKIPPED


def test_a_file_that_does_not_say_its_transfer_syntax_is_refused(
    intake: FolderIntake, tmp_path: Path
) -> None:
    file = drawn(tmp_path / "1.dcm")
    content = file.read_bytes()
    at = content.index(b"\x02\x00\x10\x00UI")
    length = int.from_bytes(content[at + 6 : at + 8], "little")
    file.write_bytes(content[: at + 8] + bytes(length) + content[at + 8 + length :])
    taken = intake.take(file)
    assert (taken.fate, taken.detail) == (
        FileOutcome.REFUSED,
        "File Meta Information lacks Transfer Syntax UID (0002,0010)",
    )


def test_a_file_that_is_no_image_is_discarded_and_is_no_trouble(
    settings: Settings, tmp_path: Path
) -> None:
    report = make_instance(1, rows=16, columns=16)
    del report.PixelData
    report.SOPClassUID = report.file_meta.MediaStorageSOPClassUID = XRayRadiationDoseSRStorage
    (tmp_path / "in").mkdir()
    save(report, tmp_path / "in" / "1.dcm")
    save(key_objects([make_instance(1, rows=16, columns=16)], "113000"), tmp_path / "in" / "2.dcm")
    drawn(tmp_path / "in" / "3.dcm")
    heard: list[TakenFile] = []
    fates = ingest(settings, [tmp_path / "in"], ORIGIN, 1, heard.append, must_not_wait)
    assert fates == {FileOutcome.DISCARDED: 2, FileOutcome.STORED: 1}
    assert {taken.detail for taken in heard if taken.fate is FileOutcome.DISCARDED} == {
        (
            "no image but X-Ray Radiation Dose SR Storage, of which nothing is kept"
            " (receive.other_objects)"
        ),
        (
            "no image but Key Object Selection Document Storage, of which nothing is kept"
            " (receive.other_objects)"
        ),
    }


def test_a_file_that_is_refused_is_told_in_its_own_words(
    intake: FolderIntake, tmp_path: Path
) -> None:
    """There is no command in a file, and its reader can see all that it says."""
    image, detail = make_instance(1, rows=16, columns=16), []
    image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    content = save(image, tmp_path / "1.dcm").read_bytes()
    data_set = content.index(b"\x08\x00\x16\x00UI")
    dx, mammography = DX.encode(), DX.replace(".1.1.1.1", ".1.1.1.2").encode()
    for changed in (
        content[:data_set] + content[data_set:].replace(b"1.2.3\0", b"1.2.4\0"),
        content[:data_set] + content[data_set:].replace(dx, mammography),
        content.replace(dx, mammography),
    ):
        (tmp_path / "1.dcm").write_bytes(changed)
        taken = intake.take(tmp_path / "1.dcm")
        assert taken.fate is FileOutcome.REFUSED
        detail.append(taken.detail)
    assert detail == [
        (
            "SOP Instance UID (0008,0018) differs from the file's (0002,0003); correct the file,"
            " both must say the same"
        ),
        (
            "SOP Class UID (0008,0016) differs from the file's (0002,0002); correct the file, both"
            " must say the same"
        ),
        (
            "SOP Class not accepted: Digital Mammography X-Ray Image Storage - For Presentation. "
            "Send CR, DX and Secondary Capture images only"
        ),
    ]


def test_a_folder_that_cannot_be_read_is_not_passed_over(
    intake: FolderIntake, tmp_path: Path
) -> None:
    first, gone = drawn(tmp_path / "study/1.dcm"), tmp_path / "study/series"
    gone.mkdir()
    walked = Traversal([tmp_path / "study"], {}, must_not_hear).files()
    assert next(walked) == first
    gone.rmdir()  # as good as one that may not be read: root may read all
    assert [intake.take(path).fate for path in walked] == [FileOutcome.FAILED]


def renamed(settings: Settings, old: str, new: str) -> None:
    with sqlite3.connect(settings.site.state_dir / "ledger.sqlite") as connection:
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")


def test_files_whose_rows_are_missing_at_the_end_are_no_success(
    settings: Settings, tmp_path: Path
) -> None:
    file, heard = drawn(tmp_path / "1.dcm"), list[TakenFile]()
    renamed(settings, "study", "away")
    with pytest.raises(Retry, match="1 files are durable in the archive and wait for their rows"):
        ingest(settings, [file], ORIGIN, 1, heard.append, must_not_wait)
    assert [taken.fate for taken in heard] == [FileOutcome.STORED]
    renamed(settings, "away", "study")
    ingest(settings, [file], ORIGIN, 1, heard.append, must_not_wait)
    with sqlite3.connect(settings.site.state_dir / "ledger.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM instance").fetchone() == (1,)


def test_every_watched_folder_has_a_place_of_its_own_beside_other_commands(
    settings: Settings, tmp_path: Path
) -> None:
    sections = {f"{number}": Watch(path=tmp_path / f"{number}") for number in range(17)}
    many = settings.model_copy(update={"watch": sections})
    with contextlib.ExitStack() as stack:
        stop = threading.Event()
        places = {
            stack.enter_context(taking(many, ORIGIN, must_not_wait, stop))[1].process
            for _ in range(len(sections) + 1)
        }
    assert len(places) == 18


def test_a_bug_that_ends_the_indexing_ends_the_taking(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    broken, stop = settings.model_copy(update={"studies": None}), threading.Event()
    with contextlib.ExitStack() as stack:
        intake, _ = stack.enter_context(taking(broken, ORIGIN, must_not_wait, stop))
        assert intake.take(drawn(tmp_path / "1.dcm")).fate is FileOutcome.STORED
        assert stop.wait(60), "a waiting thread hears of it"
        with pytest.raises(AttributeError):
            stack.close()


@pytest.fixture
def watched(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Watch], None]]:
    monkeypatch.setattr(
        threading, "excepthook", threading.excepthook
    )  # the watcher's process sets its own
    stop, ledger = threading.Event(), Ledger(settings.ledger_url)
    threads: list[threading.Thread] = []

    def begin(watch: Watch) -> None:
        with_folder = settings.model_copy(update={"watch": {"scanner": watch}})
        charge = LaunchSpec("watcher", os.getpid(), settings.dump())
        threads.append(
            threading.Thread(target=watcher.run, args=(charge, with_folder, ledger, stop))
        )
        threads[0].start()

    yield begin
    stop.set()
    for thread in threads:
        thread.join()
    ledger.close()


def test_a_file_that_cannot_be_moved_holds_up_nobody_and_stays_out_of_the_log(
    watched: Callable[[Watch], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stuck, folder = (
        f"{'DOE^JANE' * 31}123.dcm",
        tmp_path / "inbox",
    )  # as long as a name may be, so there is none beside it
    for name, seed in ((f"taken/{stuck}", 1), (stuck, 2), ("x.dcm", 3)):
        drawn(folder / name, seed)
    watched(Watch(path=folder, settle_seconds=0))
    wait_for((folder / "taken/x.dcm").exists, what="the file behind it")
    assert (folder / stuck).exists()
    assert "DOE" not in "".join(capfd.readouterr())
    (line,) = (tmp_path / "state/not_taken/scanner.txt").read_text().splitlines()
    assert line.endswith(f"\tstored; not moved: File name too long\t{stuck}")


def test_a_file_that_is_refused_where_files_are_kept_is_named_in_a_list_until_it_is_right(
    watched: Callable[[Watch], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, listed = tmp_path / "inbox", tmp_path / "state/not_taken/scanner.txt"
    for file in ("a/DOE^JANE.dcm", "a\n\tb.dcm"):
        drawn(folder / file).write_bytes(bytes(128) + b"DICM")
    before = sorted(folder.rglob("*"))
    listed.parent.mkdir()
    listed.write_text("of an earlier process\n")
    watched(Watch(path=folder, when_taken="keep", settle_seconds=0))
    wait_for(
        lambda: listed.exists() and len(listed.read_text().splitlines()) == 2, what="both names"
    )
    moments, reasons, names = zip(
        *(line.split("\t") for line in sorted(listed.read_text().splitlines())), strict=True
    )
    assert all(moment.endswith("Z") for moment in moments)
    assert set(reasons) == {"refused: The file ends behind its File Meta Information"}
    assert names == ("'a\\n\\tb.dcm'", "a/DOE^JANE.dcm")
    assert sorted(folder.rglob("*")) == before, "nothing is written there"
    drawn(tmp_path / "new.dcm", seed=2).replace(folder / "a/DOE^JANE.dcm")
    wait_for(
        lambda: len(listed.read_text().splitlines()) == 1,
        what="the list without the file that is right now",
    )
    said = "".join(capfd.readouterr())
    assert "DOE" not in said
    assert f"named_in={listed}" in said


def test_a_conflict_that_is_met_again_is_a_line_without_a_name(
    watched: Callable[[Watch], None],
    settings: Settings,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = drawn(tmp_path / "first.dcm")
    image = dcmread(first)
    image.PixelData = bytes(len(image.PixelData))
    others = save(image, tmp_path / "others.dcm")
    for file, fates in ((first, {FileOutcome.STORED: 1}), (others, {FileOutcome.CONFLICT: 1})):
        assert ingest(settings, [file], ORIGIN, 1, lambda _: None, must_not_wait) == fates
    capfd.readouterr()
    others.replace(drawn(tmp_path / "inbox/DOE^JANE.dcm", seed=2))
    watched(Watch(path=tmp_path / "inbox", settle_seconds=0))
    wait_for((tmp_path / "inbox/taken/DOE^JANE.dcm").exists, what="the file where it goes")
    said = "".join(
        capfd.readouterr()
    )  # before it was moved the line could not be there, behind it a moment later
    while "hilum conflicts list" not in said:
        said += wait_for(lambda: "".join(capfd.readouterr()), what="the line")
    assert ("watch=scanner" in said, "DOE" in said) == (True, False)


def test_a_link_of_another_account_is_followed_only_within_the_folder() -> None:
    with open_to_all() as site:
        given = folder_of_stranger(site / "given")
        (site / "secret.dcm").write_bytes(b"elsewhere")
        (site / "secret.dcm").chmod(0o600)
        as_stranger("sh", "-c", "printf within > 1.dcm", folder=given)
        as_stranger("ln", "-s", "1.dcm", "within.dcm", folder=given)
        as_stranger("ln", "-s", site / "secret.dcm", "out.dcm", folder=given)
        (given / "mine.dcm").symlink_to(site / "secret.dcm")
        walk = Traversal([given], {}, list[TakenFile]().append)
        assert walk.open(given / "within.dcm").read() == b"within"
        assert walk.open(given / "mine.dcm").read() == b"elsewhere", (
            "a person of this account has made it"
        )
        with pytest.raises(OSError, match="a link of another account that leads elsewhere"):
            walk.open(given / "out.dcm")


def test_a_file_of_a_study_without_a_name_is_refused_with_what_to_do(
    intake: FolderIntake, tmp_path: Path
) -> None:
    image = make_instance(11, rows=64, columns=64)
    image.StudyInstanceUID = "0.0"
    taken = intake.take(save(image, tmp_path / "1.dcm"))
    assert (taken.fate, taken.detail) == (
        FileOutcome.REFUSED,
        "Study Instance UID (0020,000D) is all zeros; fill it in",
    )


def test_a_note_about_images_of_another_sender_is_refused_as_a_file(
    intake: FolderIntake, settings: Settings, tmp_path: Path
) -> None:
    assert intake.take(drawn(tmp_path / "1.dcm", seed=12)).fate is FileOutcome.STORED
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        image = make_instance(12, rows=64, columns=64)
        wait_for(lambda: views.digests([image.SOPInstanceUID]))
        note = save(key_objects([image], "113001"), tmp_path / "note.dcm")
        with taking(
            settings, replace(ORIGIN, calling_ae_title="OTHER"), must_not_wait, threading.Event()
        ) as (of_another, _):
            taken = of_another.take(note)
        assert (taken.fate, "may_reject" in taken.detail) == (FileOutcome.REFUSED, True)
        (listed,) = views.rejections_without_effect()
        assert (listed["sop_instance_uid"], listed["calling_ae_title"]) == (
            image.SOPInstanceUID,
            "OTHER",
        )
        assert intake.take(note).fate is FileOutcome.STORED, "its own sender may"
        assert views.rejections_without_effect() == []


def test_a_file_that_cannot_be_read_for_a_comparison_holds_nobody_up(
    settings: Settings, tmp_path: Path
) -> None:
    class BadSector:
        def is_disputed(self, sop_instance_uid: str, file: Path) -> bool | None:
            raise OSError(
                errno.EIO, f"Input/output error {sop_instance_uid[:0]}{file.name[:0]}".strip()
            )

    with taking(settings, ORIGIN, must_not_wait, threading.Event()) as (found, _):
        taken = replace(found, known=BadSector()).take(drawn(tmp_path / "1.dcm"))
    assert (taken.fate, taken.detail) == (FileOutcome.FAILED, "cannot be read: Input/output error")
