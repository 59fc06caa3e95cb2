"""What an object is to us: an image to store, a document of our own that comes back, a rejection note, or nothing that we take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydicom import uid
from sqlalchemy.exc import SQLAlchemyError

from hilum import telemetry
from hilum.receive.header import Header
from hilum.receive.intake import Intake, StoreRequest, consistent_header
from hilum.receive.policy import KEY_OBJECT_SELECTION, REPORT_SOP_CLASSES
from hilum.receive.refusals import NotForUs, OutOfResources
from hilum.receive.rejection_note import read_note
from hilum.store.ledger import Ledger

_log = telemetry.logger("receive")

_OUR_ARC = "2.25."  # every UID of ours is derived from a UUID (PS3.5 B.2), so the others need not be looked up


class Taken(StrEnum):
    """What became of a request that is answered with Success."""

    IMAGE = "image"
    OWN_DOCUMENT = "own_document"
    REJECTION_NOTE = "rejection_note"


@dataclass(frozen=True, slots=True)
class Maker:
    """How our documents say who made them: Manufacturer (0008,0070), Device Serial Number (0018,1000)."""

    manufacturer: str
    serial: str


class Reception:
    """Takes requests from any number of threads."""

    def __init__(self, intake: Intake, ledger: Ledger, maker: Maker) -> None:
        self._intake, self._ledger, self._maker = intake, ledger, maker

    def store(self, request: StoreRequest) -> Taken:
        """Return when the request may be acknowledged. Raises Refusal or OSError, and then nothing of it is left."""
        taken = self._take(request)
        if taken is not Taken.IMAGE:  # images are counted when they have their rows
            telemetry.INSTANCES_RECEIVED.labels(outcome=taken.value).inc()
        return taken

    def _take(self, request: StoreRequest) -> Taken:
        sop_class = request.meta.sop_class_uid
        if sop_class == KEY_OBJECT_SELECTION:
            return self._take_note(request)
        if sop_class in REPORT_SOP_CLASSES:
            if self._is_ours(consistent_header(request)):
                return Taken.OWN_DOCUMENT
            raise NotForUs("Only our own SR is taken here, and discarded; send images")
        if sop_class == uid.SecondaryCaptureImageStorage and self._is_ours(consistent_header(request)):
            return Taken.OWN_DOCUMENT
        self._intake.store(request)
        return Taken.IMAGE

    def _is_ours(self, header: Header) -> bool:
        """The loop guard (promise 7): by what the header says, and by UID where an archive has changed the header."""
        if Maker(header.manufacturer, header.device_serial_number) == self._maker:
            return True
        try:
            return header.sop_instance_uid.startswith(_OUR_ARC) and self._ledger.is_own_document(header.sop_instance_uid)
        except SQLAlchemyError:
            raise OutOfResources("The ledger is not available; send again later") from None

    def _take_note(self, request: StoreRequest) -> Taken:
        """A note's effect is rows, which are durable when the ledger has committed them; its bytes are not kept."""
        self._intake.require_room(len(request.data_set))
        consistent_header(request)
        rejections = read_note(request)
        try:
            count = self._ledger.reject(rejections)
        except SQLAlchemyError:
            raise OutOfResources("The ledger is not available; send again later") from None
        _log.info("rejection_note", reason=rejections[0].reason.value, named=len(rejections), removed=count)
        return Taken.REJECTION_NOTE
