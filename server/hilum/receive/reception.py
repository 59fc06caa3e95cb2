"""What an object is to us: an image to store, a document of our own that comes back, a rejection note, or nothing that we keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydicom import uid
from sqlalchemy.exc import SQLAlchemyError

from hilum import telemetry
from hilum.domain import Rejection
from hilum.receive.advice import advise_on_object
from hilum.receive.arriving import Arriving
from hilum.receive.file_meta import FileMeta
from hilum.receive.header import MAXIMUM_HEADER_BYTES, Header
from hilum.receive.intake import Intake
from hilum.receive.other_objects import OtherObject, is_known, is_other
from hilum.receive.policy import Policy
from hilum.receive.refusals import CannotUnderstand, NotForUs, OutOfResources, SopClassNotNegotiated
from hilum.receive.rejection_note import read_note
from hilum.receive.store_command import StoreCommand
from hilum.receive.taking import PiecesOnly, Taken, Taker
from hilum.receive.terms import KEY_OBJECT_SELECTION, REPORT_SOP_CLASSES, Terms
from hilum.store.ledger import Ledger

_log = telemetry.logger("receive")

_OUR_ARC = "2.25."  # every UID of ours is derived from a UUID (PS3.5 B.2), so the others need not be looked up


@dataclass(frozen=True, slots=True)
class Maker:
    """How our documents say who made them: Manufacturer (0008,0070), Device Serial Number (0018,1000)."""

    manufacturer: str
    serial: str


class Reception:
    """Takes requests from any number of threads."""

    def __init__(self, intake: Intake, ledger: Ledger, maker: Maker, policy: Policy) -> None:
        self._intake, self._ledger, self._maker, self._policy = intake, ledger, maker, policy

    def begin(self, command: StoreCommand) -> Arriving:
        """An object that comes in piece by piece; close it. Raises Refusal."""
        return Arriving(command, self.taker, self.unread_taker)

    def unread_taker(self, command: StoreCommand, problem: CannotUnderstand | None) -> Taker | None:
        """Who takes an object without its header, at once or after a `problem` with it; None: nobody.

        What may be an image or a rejection note has to be readable. A report has not: ours are.
        """
        sop_class = command.meta.sop_class_uid
        is_let_go = self._policy.terms(command.meta.calling_ae_title).discards_others and is_other(sop_class) and is_known(sop_class)
        if not is_let_go or sop_class == KEY_OBJECT_SELECTION or (problem is None and sop_class in REPORT_SOP_CLASSES):
            return None
        return OtherObject()

    def taker(self, command: StoreCommand, header: Header) -> Taker:
        """Who takes an object, now that its header is known. Raises Refusal."""
        sop_class, terms = command.meta.sop_class_uid, self._policy.terms(command.meta.calling_ae_title)
        if sop_class == KEY_OBJECT_SELECTION:
            self._intake.require_room(0)
            return _Note(command.meta, self._ledger, terms)
        if sop_class in (*REPORT_SOP_CLASSES, uid.SecondaryCaptureImageStorage) and self._is_ours(header):
            return _OwnDocument()
        if sop_class in terms.sop_classes:
            return self._intake.begin(command, header)
        if terms.discards_others and is_other(sop_class) and (is_known(sop_class) or header.pixels_start is None):
            return OtherObject()
        if sop_class in REPORT_SOP_CLASSES:
            raise NotForUs("Only our own SR is taken here, and discarded; send images")
        raise SopClassNotNegotiated(*advise_on_object(sop_class, terms))

    def _is_ours(self, header: Header) -> bool:
        """The loop guard (promise 7): by what the header says, and by UID where an archive has changed the header."""
        if Maker(header.manufacturer, header.device_serial_number) == self._maker:
            return True
        try:
            return header.sop_instance_uid.startswith(_OUR_ARC) and self._ledger.is_own_document(header.sop_instance_uid)
        except SQLAlchemyError:
            raise OutOfResources("The ledger is not available; send again later") from None


class _OwnDocument(PiecesOnly):
    """Acknowledged and forgotten."""

    def write(self, _pieces: Sequence[memoryview]) -> None:
        """Not looked at."""

    def commit(self) -> Taken:
        """Counted here; images are counted when they have their rows."""
        telemetry.INSTANCES_RECEIVED.labels(outcome=Taken.OWN_DOCUMENT.value).inc()
        return Taken.OWN_DOCUMENT

    def close(self) -> None:
        """There is nothing."""


class _Note(PiecesOnly):
    """A rejection note. Its effect is rows, which are durable when the ledger has committed them; its bytes are not kept.

    A note from a sender that may not reject is acknowledged as well: a failure would let routers send it again for ever.
    """

    def __init__(self, meta: FileMeta, ledger: Ledger, terms: Terms) -> None:
        self._meta, self._ledger, self._terms = meta, ledger, terms
        self._data_set = bytearray()

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Raises CannotUnderstand for a document that is larger than any."""
        for piece in pieces:
            self._data_set += piece
        if len(self._data_set) > MAXIMUM_HEADER_BYTES:
            raise CannotUnderstand("A Key Object Selection document of more than 16 MiB")

    def commit(self) -> Taken:
        """Raises Refusal."""
        try:
            rejections = read_note(self._meta, self._data_set, holds_for_all=self._terms.may_reject is True)
        except NotForUs:  # it is of another title
            if not self._terms.discards_others:
                raise
            return OtherObject().commit()
        try:
            removed, of_others = self._reject(rejections)
        except SQLAlchemyError:
            raise OutOfResources("The ledger is not available; send again later") from None
        _log.info("rejection_note", reason=rejections[0].reason.value, named=len(rejections), removed=removed)
        taken = Taken.NOTE_NOT_PERMITTED if of_others else Taken.REJECTION_NOTE
        if of_others:
            _log.warning(taken.value, named=len(rejections), kept=of_others, advice="GET /api/v1/associations names the sender")
        telemetry.INSTANCES_RECEIVED.labels(outcome=taken.value).inc()
        return taken

    def _reject(self, rejections: Sequence[Rejection]) -> tuple[int, int]:
        """How many images it takes out of results, and how many stay because the sender may not reject them."""
        if self._terms.may_reject is False:
            return 0, len(rejections)
        return self._ledger.reject(rejections), self._ledger.count_of_others(rejections)

    def close(self) -> None:
        """There is nothing."""
