"""What storage commitment may promise: only what is durable, and no sooner than that is known."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)
from pynetdicom.dsutils import encode

from hilum.domain import CommitmentJob, CommitmentRequest, CommitmentVerdict, Lease, SopReference
from hilum.errors import Refused, Retry
from hilum.receive.commitment.report import answered, event_type_of, information_of
from hilum.receive.commitment.request import CommitmentRefused, read_information
from hilum.receive.commitment.safekeeping import Safekeeping
from hilum.receive.headers import file_meta
from hilum.receive.indexing.indexer import index
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from tests.support.ledger.database import change, transaction
from tests.support.ledger.storing import DigitalXRayImageStorageForPresentation, data_set, meta
from tests.support.ledger.street import Clock
from tests.support.peers.committing import action_information
from tests.support.server.listening import make_settings

DX = str(DigitalXRayImageStorageForPresentation)
CR = "1.2.840.10008.5.1.4.1.1.1"
NOT_THERE = CommitmentVerdict((), ((SopReference(DX, "1.2.3"), 0x0112),))
KEPT = CommitmentVerdict((SopReference(DX, "1.2.3"),), ())


class House:
    """An archive and a ledger; time stands still. The request comes at `asked_at`."""

    asked_at = 1_000_000.0

    def __init__(self, state: Path) -> None:
        self.settings: Settings = make_settings(state)
        self.ledger, self.archive = (
            Ledger(self.settings.ledger_url),
            Archive(self.settings.archive_dir, "listener-1"),
        )
        self.clock = Clock(self.asked_at)
        self.custody = Safekeeping(self.ledger, self.archive, 10.0, self.clock)

    def acknowledge(
        self,
        uid: str,
        pixels: bytes = b"\0" * 512,
        calling: str = "MODALITY",
        at: float = asked_at - 1,
    ) -> Path:
        """A durable file without a row."""
        written = meta(uid)
        with self.archive.begin() as incoming:
            incoming.write(
                file_meta.encode(
                    type(written)(
                        written.sop_class_uid, uid, written.transfer_syntax_uid, calling, "HILUM"
                    )
                )
            )
            incoming.write(data_set(uid, pixels=pixels))
            file = incoming.commit()
        os.utime(file, (at, at))
        return file

    def index(self, file: Path) -> None:
        index([file], self.settings, self.ledger, self.archive)

    def verdict(
        self, *references: SopReference, after: float = 0.0, calling: str = "MODALITY"
    ) -> CommitmentVerdict:
        self.clock.now = self.asked_at + after
        asked = CommitmentRequest(
            "1.9", references or (SopReference(DX, "1.2.3"),), calling, "HILUM"
        )
        return self.custody.verdict(
            CommitmentJob(Lease(1, "t", 1, 0), asked, self.asked_at, is_duplicate=False)
        )


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "state")
    yield made
    made.ledger.close()


def test_an_acknowledged_image_is_waited_for_until_it_has_its_row(house: House) -> None:
    file = house.acknowledge("1.2.3")
    for seconds in (0.0, 11.0, 39.0):
        with pytest.raises(Retry):
            house.verdict(after=seconds)
    house.index(file)
    assert house.verdict() == KEPT


def test_what_is_promised_is_written_down_before_anybody_hears_of_it(house: House) -> None:
    for uid in ("1.2.3", "1.2.4"):
        house.index(house.acknowledge(uid))
    house.verdict(SopReference(DX, "1.2.3"), SopReference(CR, "1.2.4"))
    with transaction(house.ledger) as connection:
        rows = connection.exec_driver_sql(
            "SELECT sop_instance_uid, committed_at IS NOT NULL FROM instance ORDER BY 1"
        ).all()
    assert [tuple(row) for row in rows] == [("1.2.3", 1), ("1.2.4", 0)]


def test_nobody_can_say_of_an_image_whose_row_does_not_come(house: House) -> None:
    house.acknowledge("1.2.3")
    assert house.verdict(after=41.0).failed == ((SopReference(DX, "1.2.3"), 0x0110),)


def test_what_was_never_acknowledged_fails_after_the_wait(house: House) -> None:
    with pytest.raises(Retry):
        house.verdict(after=9.0)
    assert house.verdict(after=11.0) == NOT_THERE


def test_what_comes_after_the_request_is_not_waited_for_longer(house: House) -> None:
    house.acknowledge("1.2.4", at=house.asked_at + 1)
    assert house.verdict(after=11.0) == NOT_THERE


def test_another_class_is_a_conflict(house: House) -> None:
    house.index(house.acknowledge("1.2.3"))
    wrong = SopReference(CR, "1.2.3")
    assert house.verdict(wrong) == CommitmentVerdict((), ((wrong, 0x0119),))


def test_pixels_that_have_left_are_not_kept(house: House) -> None:
    house.index(house.acknowledge("1.2.3"))
    change(house.ledger, "UPDATE instance SET pixels_removed_at = 1.0")
    assert house.verdict(after=11.0) == NOT_THERE


def test_who_sent_other_pixels_must_not_delete_his(house: House) -> None:
    house.index(house.acknowledge("1.2.3"))
    house.index(house.acknowledge("1.2.3", pixels=b"\1" * 512, calling="OTHER"))
    assert house.verdict(calling="OTHER").failed == ((SopReference(DX, "1.2.3"), 0x0110),)
    assert house.verdict(calling="MODALITY") == KEPT


def test_other_pixels_on_their_way_to_a_row_are_waited_for(house: House) -> None:
    house.index(house.acknowledge("1.2.3"))
    house.acknowledge("1.2.3", pixels=b"\1" * 512, calling="OTHER")
    with pytest.raises(Retry):
        house.verdict(calling="OTHER")


def test_a_thousand_references_in_one_request(house: House) -> None:
    house.index(house.acknowledge("1.2.3"))
    references = [SopReference(DX, f"1.2.4.{number}") for number in range(1200)]
    found = house.verdict(*references, SopReference(DX, "1.2.3"), after=11.0)
    assert (len(found.failed), found.committed) == (1200, KEPT.committed)


@pytest.mark.parametrize(
    "syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian]
)
def test_a_request_is_read_in_each_transfer_syntax_and_names_each_object_once(syntax: str) -> None:
    asked = action_information("1.9", [(DX, "1.2.3"), (DX, "1.2.4"), (DX, "1.2.3")])
    encoded = encode(asked, syntax == ImplicitVRLittleEndian, syntax != ExplicitVRBigEndian)
    assert read_information(encoded, syntax) == (
        "1.9",
        (SopReference(DX, "1.2.3"), SopReference(DX, "1.2.4")),
    )


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\0" * 40,
        b"\x08\x00\x99\x11SQ\0\0\xff\xff\xff\xff\xfe\xff",
        b"0I\n",
        bytes(range(256)) * 8,
    ],
)
def test_what_is_no_data_set_is_an_invalid_argument(encoded: bytes) -> None:
    with pytest.raises(CommitmentRefused) as refused:
        read_information(encoded, ExplicitVRLittleEndian)
    assert refused.value.answer.status == 0x0115


def test_too_much_is_asked_in_several_requests() -> None:
    with pytest.raises(CommitmentRefused) as refused:
        read_information(bytes((4 << 20) + 1), DeflatedExplicitVRLittleEndian)
    assert refused.value.answer.status == 0x0213


def test_a_report_says_what_is_kept_and_what_is_not() -> None:
    information = information_of("1.9", CommitmentVerdict(KEPT.committed, NOT_THERE.failed))
    assert information.TransactionUID == "1.9"
    assert [item.ReferencedSOPInstanceUID for item in information.ReferencedSOPSequence] == [
        "1.2.3"
    ]
    assert [
        (item.ReferencedSOPInstanceUID, item.FailureReason)
        for item in information.FailedSOPSequence
    ] == [("1.2.3", 0x0112)]
    assert (event_type_of(KEPT), event_type_of(NOT_THERE)) == (1, 2)
    assert "FailedSOPSequence" not in information_of("1.9", KEPT)
    assert "ReferencedSOPSequence" not in information_of("1.9", NOT_THERE)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, Retry),
        (0x0110, Retry),
        (0x0213, Retry),
        (0x0112, Refused),
        (0x0117, Refused),
        (0x0211, Refused),
    ],
)
def test_an_answer_that_is_no_success(status: int | None, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        answered(status, KEPT)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_thousand_damaged_requests_are_read_or_refused() -> None:
    asked = action_information("1.9", [(DX, f"1.2.3.{number}") for number in range(4)])
    whole, chance = encode(asked, is_implicit_vr=False, is_little_endian=True), random.Random(1)
    for _ in range(1000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 5)):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                (0, 0xFF, chance.randrange(256))
            )
        del damaged[chance.randrange(2, 2 * len(damaged)) :]
        with contextlib.suppress(CommitmentRefused):
            transaction_uid, references = read_information(bytes(damaged), ExplicitVRLittleEndian)
            assert transaction_uid
            assert references
