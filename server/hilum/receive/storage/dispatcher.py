"""The kind of an object: an image, a returned document of our own, a rejection note, or other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydicom import uid
from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import Rejection
from hilum.observability import telemetry
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.headers.header import MAXIMUM_HEADER_BYTES, Header
from hilum.receive.policy.advice import advise_on_object
from hilum.receive.policy.association_policy import Policy
from hilum.receive.policy.other_objects import OtherObject, is_known, is_other
from hilum.receive.policy.sender_policy import (
    KEY_OBJECT_SELECTION,
    REPORT_SOP_CLASSES,
    SenderPolicy,
)
from hilum.receive.sinks import ObjectSink, PiecewiseSink, StoreOutcome
from hilum.receive.statuses import (
    CannotUnderstand,
    OutOfResources,
    SopClassNotNegotiated,
    UnsupportedObject,
)
from hilum.receive.storage.image_store import ImageStore
from hilum.receive.storage.incoming_object import Arriving
from hilum.receive.storage.rejection_note import read_note
from hilum.receive.storage.store_command import StoreCommand
from hilum.store.ledger import Ledger

_log = telemetry.logger("receive")

# every UID of ours is derived from a UUID (PS3.5 B.2), so the others need not be looked up
_OUR_ARC = "2.25."
# what our documents may come back as; objects of others in the last class are images
_OWN_SOP_CLASSES = (*REPORT_SOP_CLASSES, uid.SecondaryCaptureImageStorage)


@dataclass(frozen=True, slots=True)
class EquipmentIdentity:
    """The origin in our documents.

    It is Manufacturer (0008,0070) and Device Serial Number (0018,1000).
    """

    manufacturer: str
    serial: str


class ObjectDispatcher:
    """The intake of objects, for any number of threads."""

    def __init__(
        self, intake: ImageStore, ledger: Ledger, maker: EquipmentIdentity, policy: Policy
    ) -> None:
        self._intake = intake
        self._ledger = ledger
        self._maker = maker
        self._policy = policy

    def begin(self, command: StoreCommand) -> Arriving:
        """Return a new object in transit; close it. Raises Refusal."""
        return Arriving(command, self.taker, self.unread_taker)

    def unread_taker(
        self, command: StoreCommand, problem: CannotUnderstand | None
    ) -> ObjectSink | None:
        """Return the taker of an object without its header; None: there is none.

        It is called at once, and after a `problem` with the header. Possible images and rejection
        notes have to be readable. Reports need not be, because they may be ours.
        """
        sop_class = command.meta.sop_class_uid
        is_let_go = (
            self._policy.terms(command.meta.calling_ae_title).discards_others
            and is_other(sop_class)
            and is_known(sop_class)
        )
        if (
            not is_let_go
            or sop_class == KEY_OBJECT_SELECTION
            or (problem is None and sop_class in REPORT_SOP_CLASSES)
        ):
            return None
        return OtherObject()

    def taker(self, command: StoreCommand, header: Header) -> ObjectSink:
        """Return the taker of an object with a known header. Raises Refusal."""
        sop_class = command.meta.sop_class_uid
        terms = self._policy.terms(command.meta.calling_ae_title)
        if sop_class == KEY_OBJECT_SELECTION:
            self._intake.require_room(0)
            return _Note(command.meta, self._ledger, terms)
        if sop_class in _OWN_SOP_CLASSES and self._is_ours(header):
            return _OwnDocument()
        if sop_class in terms.sop_classes:
            return self._intake.begin(command, header)
        if (
            terms.discards_others
            and is_other(sop_class)
            and (is_known(sop_class) or header.pixels_start is None)
        ):
            return OtherObject()
        if sop_class in REPORT_SOP_CLASSES:
            raise UnsupportedObject(
                "Only our own reports are taken here, and discarded; send images"
            )
        raise SopClassNotNegotiated(*advise_on_object(sop_class, terms))

    def _is_ours(self, header: Header) -> bool:
        """Return whether the object is our own, so that a returned report is not read as input.

        The header decides, and the UID where an archive has changed the header.
        """
        if EquipmentIdentity(header.manufacturer, header.device_serial_number) == self._maker:
            return True
        try:
            return header.sop_instance_uid.startswith(_OUR_ARC) and self._ledger.is_own_document(
                header.sop_instance_uid
            )
        except SQLAlchemyError:
            raise OutOfResources("The ledger is not available; send again later") from None


class _OwnDocument(PiecewiseSink):
    """An own document that is acknowledged and discarded."""

    def write(self, _pieces: Sequence[memoryview]) -> None:
        """Ignore the bytes."""

    def commit(self) -> StoreOutcome:
        """Count the object here; images are counted when they have their rows."""
        telemetry.INSTANCES_RECEIVED.labels(outcome=StoreOutcome.OWN_DOCUMENT.value).inc()
        return StoreOutcome.OWN_DOCUMENT

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _Note(PiecewiseSink):
    """A rejection note, whose effect is rows; its bytes are not kept.

    The rows are durable when the ledger has committed them. A note from a sender that may not
    reject is acknowledged as well: after a failure routers would send it again forever.
    """

    def __init__(self, meta: FileMeta, ledger: Ledger, terms: SenderPolicy) -> None:
        self._meta = meta
        self._ledger = ledger
        self._terms = terms
        self._data_set = bytearray()

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take the next bytes. Raises CannotUnderstand for a document that is too large."""
        for piece in pieces:
            self._data_set += piece
        if len(self._data_set) > MAXIMUM_HEADER_BYTES:
            raise CannotUnderstand("A Key Object Selection document of more than 16 MiB")

    def commit(self) -> StoreOutcome:
        """Reject the images of the note. Raises Refusal."""
        try:
            rejections = read_note(
                self._meta, self._data_set, holds_for_all=self._terms.may_reject is True
            )
        except UnsupportedObject:  # it has another title
            if not self._terms.discards_others:
                raise
            return OtherObject().commit()
        try:
            removed, of_others = self._reject(rejections)
        except SQLAlchemyError:
            raise OutOfResources("The ledger is not available; send again later") from None
        _log.info(
            "rejection_note",
            reason=rejections[0].reason.value,
            named=len(rejections),
            removed=removed,
        )
        taken = StoreOutcome.NOTE_NOT_PERMITTED if of_others else StoreOutcome.REJECTION_NOTE
        if of_others:
            _log.warning(
                taken.value,
                named=len(rejections),
                kept=of_others,
                advice="GET /api/v1/associations names the sender",
            )
        telemetry.INSTANCES_RECEIVED.labels(outcome=taken.value).inc()
        return taken

    def _reject(self, rejections: Sequence[Rejection]) -> tuple[int, int]:
        """Return how many images leave results, and how many the sender may not reject."""
        if self._terms.may_reject is False:
            return 0, len(rejections)
        return self._ledger.reject(rejections), self._ledger.count_of_others(rejections)

    def close(self) -> None:
        """Do nothing: nothing is open."""
