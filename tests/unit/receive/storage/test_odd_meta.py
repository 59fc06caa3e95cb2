"""Files whose File Meta Information is not as the standard has it: read, they are taken, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from pydicom import dcmread
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.receive.files.folder import FileOutcome, FolderIntake
from hilum.receive.headers import file_meta
from hilum.receive.indexing.same_bytes import is_same_data_set
from hilum.services.ingest import FileOrigin, taking
from hilum.services.stow import StowStore, stow_store
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum_preprocessing import read_file
from testing.phantoms.phantom import make_instance
from tests.support.objects.odd_meta import ODD_META, file_with, usual
from tests.support.server.listening import make_settings

SYNTAXES = {"explicit": ExplicitVRLittleEndian, "implicit": ImplicitVRLittleEndian}


def image(syntax: str) -> bytes:
    drawn = make_instance(7, rows=64, columns=64)
    drawn.file_meta.TransferSyntaxUID = SYNTAXES[syntax]
    buffer = BytesIO()
    drawn.save_as(
        buffer, implicit_vr=syntax == "implicit", little_endian=True, enforce_file_format=True
    )
    return buffer.getvalue()


IMAGES = {syntax: image(syntax) for syntax in SYNTAXES}
READABLE = [
    (name, syntax)
    for name in ODD_META
    for syntax in SYNTAXES
    if "of implicit VR, whatever" not in name or syntax == "explicit"
]


def must_not_wait(reason: str) -> None:
    raise AssertionError(reason)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return make_settings(tmp_path_factory.mktemp("odd_meta") / "state")


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[tuple[FolderIntake, Archive]]:
    with taking(
        make_settings(tmp_path / "state"),
        FileOrigin("SCANNER", "HILUM", None),
        must_not_wait,
        threading.Event(),
    ) as found:
        yield found


@pytest.fixture(scope="module")
def stow(settings: Settings) -> Iterator[StowStore]:
    ledger, views = Ledger(settings.ledger_url), LedgerViews(settings.ledger_url)
    with stow_store(settings, ledger, views, threading.Event()) as found:
        yield found
    views.close()
    ledger.close()


@pytest.mark.filterwarnings(
    "ignore:Expected .*plicit VR:UserWarning"
)  # of pydicom, which the server drops
@pytest.mark.parametrize(("name", "syntax"), READABLE)
def test_what_is_read_for_preparation_is_ingested_and_known_once_more(
    intake: tuple[FolderIntake, Archive], tmp_path: Path, name: str, syntax: str
) -> None:
    file = tmp_path / "odd.dcm"
    file.write_bytes(ODD_META[name](IMAGES[syntax]))
    expected = dcmread(BytesIO(IMAGES[syntax])).PixelData
    assert bytes(read_file(file).PixelData) == expected

    assert intake[0].take(file).fate is FileOutcome.STORED
    (stored,) = intake[1].unindexed()
    assert bytes(read_file(stored).PixelData) == expected
    assert dcmread(stored).file_meta.TransferSyntaxUID == SYNTAXES[syntax]
    assert is_same_data_set(file, stored), "what comes again is known by that"


@pytest.mark.parametrize("piece", [7, 150, 100_000])
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_part_of_a_stow_request_is_taken_however_it_is_cut(
    stow: StowStore, syntax: str, piece: int
) -> None:
    for name in [name for name, of in READABLE if of == syntax]:
        content = ODD_META[name](IMAGES[syntax])
        part = stow.open("10.0.0.7").begin(None)
        for start in range(0, len(content), piece):
            part.write(content[start : start + piece])
        outcome = part.end()
        assert (outcome.failure, outcome.comment) == (None, ""), name
        assert outcome.sop_instance_uid == dcmread(BytesIO(IMAGES[syntax])).SOPInstanceUID


def without_transfer_syntax(file: bytes) -> bytes:
    return file_with(
        {number: found for number, found in usual(file)[0].items() if number != 0x0010},
        usual(file)[1],
    )


def of_another(number: int, uid: bytes, syntax: str = "explicit") -> bytes:
    elements, data_set = usual(IMAGES[syntax])
    return file_with({**elements, number: (b"UI", uid)}, data_set)


REFUSED = {
    "no Transfer Syntax": (
        without_transfer_syntax(IMAGES["explicit"]),
        FileOutcome.REFUSED,
        "File Meta Information lacks Transfer Syntax UID (0002,0010)",
    ),
    "no meta information behind DICM": (
        bytes(128) + b"DICM" + usual(IMAGES["explicit"])[1],
        FileOutcome.REFUSED,
        "lacks Transfer Syntax UID",
    ),
    "nothing behind it": (
        file_with(usual(IMAGES["explicit"])[0], b""),
        FileOutcome.REFUSED,
        "The file ends behind its File Meta Information",
    ),
    "cut within it": (
        IMAGES["explicit"][:200],
        FileOutcome.REFUSED,
        "File Meta Information (group 0002) is cut or damaged",
    ),
    "more than is read": (
        file_with({**usual(IMAGES["explicit"])[0], 0x0102: (b"OB", bytes(70_000))}, b""),
        FileOutcome.REFUSED,
        "More than 64 KiB of File Meta Information; leave private data out",
    ),
    "another object's": (
        of_another(0x0003, b"1.2.3"),
        FileOutcome.REFUSED,
        "SOP Instance UID (0008,0018) differs from the file's (0002,0003)",
    ),
    "another class": (
        of_another(0x0002, b"1.2.840.10008.5.1.4.1.1.7"),
        FileOutcome.REFUSED,
        "SOP Class UID (0008,0016) differs from the file's",
    ),
    "an instance that is none": (
        of_another(0x0003, b"999.1"),
        FileOutcome.REFUSED,
        "Media Storage SOP Instance UID (0002,0003) must start with 0-2",
    ),
    "implicit VR that is called explicit": (
        of_another(0x0010, ExplicitVRLittleEndian.encode(), "implicit"),
        FileOutcome.REFUSED,
        "The data set is not encoded in its Transfer Syntax",
    ),
    "no preamble": (
        IMAGES["explicit"][132:],
        FileOutcome.SKIPPED,
        "not a DICOM file: no DICM after 128 bytes (PS3.10 7.1)",
    ),
    "a data set alone": (
        usual(IMAGES["explicit"])[1],
        FileOutcome.SKIPPED,
        "not a DICOM file: no DICM after 128 bytes (PS3.10 7.1)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_taken_is_told_the_true_reason(
    intake: tuple[FolderIntake, Archive], tmp_path: Path, name: str
) -> None:
    content, fate, said = REFUSED[name]
    file = tmp_path / "odd.dcm"
    file.write_bytes(content)
    taken = intake[0].take(file)
    assert taken.fate is fate
    assert said in taken.detail
    assert not list(intake[1].unindexed())


def test_our_own_meta_information_is_read_as_it_was_written() -> None:
    meta, start = file_meta.decode(IMAGES["explicit"])
    encoded = file_meta.encode(meta)
    assert file_meta.decode(encoded) == (meta, len(encoded))
    assert file_meta.decode(encoded + IMAGES["explicit"][start:]) == (meta, len(encoded))
