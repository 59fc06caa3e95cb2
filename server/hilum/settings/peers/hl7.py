"""Settings of the HL7 v2 message of a result."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hilum.dicom.text import LongString
from hilum.settings.fields import Section

Hl7CharacterSet = Literal["UNICODE UTF-8", "8859/1"]
AccessionField = Literal["OBR-2", "OBR-3", "OBR-18"]


class Hl7MessageSettings(Section):
    """The settings of an HL7 destination that are in the message itself.

    A result has one message, which is made once. So all HL7 destinations have the same.
    """

    sending_application: LongString = Field("HILUM", description="MSH-3, our name.")
    sending_facility: LongString = Field("", description="MSH-4.")
    receiving_application: LongString = Field("", description="MSH-5.")
    receiving_facility: LongString = Field("", description="MSH-6.")
    processing_id: Literal["P", "T", "D"] = Field(
        "P", description="MSH-11. P: production, T: training, D: debugging."
    )
    acknowledgement: Literal["original", "enhanced"] = Field(
        "original",
        description=(
            "original: the receiver answers AA, AE or AR. enhanced: MSH-15 is AL and MSH-16 is NE,"
            " and it answers CA, CE or CR."
        ),
    )
    character_set: Hl7CharacterSet = Field(
        "UNICODE UTF-8",
        description=(
            "MSH-18, and the bytes of the message. 8859/1: a message with a letter outside it is"
            " not sent, and the delivery says so."
        ),
    )
    assigning_authority: LongString = Field(
        "",
        description=(
            "PID-3.4, the domain of Patient IDs, where the images name none (Issuer of Patient ID)."
        ),
    )
    assigning_authority_oid: Annotated[str, Field(pattern=r"^([0-2](\.(0|[1-9]\d*))+)?$")] = Field(
        "", description="its OID, the second part of PID-3.4."
    )
    accession_fields: tuple[AccessionField, ...] = Field(
        ("OBR-18",),
        description=(
            "fields that hold the Accession Number. OBR-3 holds a number of ours, if it is not"
            " among them."
        ),
    )
