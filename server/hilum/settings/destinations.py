"""Settings of destinations: a model for each kind, and the table of kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from hilum.domain import (
    DOCUMENT_KINDS,
    FHIR,
    HL7,
    JSON,
    NOTICE,
    SR,
    SR_CLASS_PREFERENCE,
    DocumentKind,
    orderable_kinds,
)
from hilum.settings.fields import (
    AeTitle,
    Host,
    OptionalAeTitle,
    OptionalHost,
    Port,
    Section,
)
from hilum.settings.peers.hl7 import Hl7MessageSettings
from hilum.settings.peers.http import HttpPeer
from hilum.settings.peers.tls import TlsClient
from hilum.settings.tables import ByKind, OneOf

_Documents = tuple[Annotated[str, OneOf("kind of document", orderable_kinds)], ...]


def _sr_classes() -> list[str]:
    return [item.name for item in SR_CLASS_PREFERENCE]


class Destination(Section):
    """A receiver of documents, `[destinations.<name>]`: the part that all kinds have."""

    has_one_place: ClassVar[bool] = True
    """False: each document decides where it goes, so one place that is away delays no other."""
    carried: ClassVar[str] = "document"
    """The noun for the documents of `can_carry`, for people."""

    kind: str
    documents: _Documents = Field(
        (SR.key,),
        min_length=1,
        description=(
            "Kinds of document it receives. heatmap: a Secondary Capture image, linked from the SR;"
            " sheet: the result on one page, as Secondary Capture; pdf: that page as Encapsulated"
            " PDF; text_sr: Basic Text SR; gsps: a presentation state with the findings over the"
            " images; hl7: an ORU^R01 message; notice: a small JSON without patient data; fhir: a"
            " transaction Bundle of FHIR R4. See docs/destinations/documents.md."
        ),
    )
    accept_untrained: bool = Field(
        default=False,
        description="Takes results of untrained weights; refuse them for any clinical receiver.",
    )
    report_not_analysed: bool = Field(
        default=False,
        description=(
            "Also receives reports (sr, sheet, pdf, text_sr, hl7, fhir) on studies of which no"
            " image could be analysed, with the reason. Such a study has no presentation state."
        ),
    )

    @property
    def address(self) -> str:
        """Where its documents go, for people."""
        raise NotImplementedError

    @classmethod
    def can_carry(cls, _kind: DocumentKind) -> bool:
        """Return whether documents of a kind can go there."""
        return True

    @field_validator("documents")
    @classmethod
    def _can_be_carried(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        taken = [name for name in orderable_kinds() if cls.can_carry(DOCUMENT_KINDS[name])]
        for key in value:
            if key not in taken:
                raise ValueError(
                    f"a destination of this kind cannot take {key!r}, which is no"
                    f" {cls.carried}; it takes {', '.join(taken)}"
                )
        return value

    @property
    def folder(self) -> Path | None:
        """The folder into which it writes; it must not be in the archive."""
        return None

    @property
    def tls_client(self) -> TlsClient | HttpPeer | None:
        """The settings of TLS to it; None: its kind has none."""
        return None

    def for_sender(self, _host: str, _ae_title: str) -> Destination | None:
        """Return the destination of documents on studies of this sender; None: it has none."""
        return self

    @property
    def commitment_scps(self) -> frozenset[str]:
        """The AE Titles that are asked for storage commitment, and may report it."""
        return frozenset()


class ObjectDestination(Destination):
    """A destination that gets DICOM objects."""

    carried: ClassVar[str] = "DICOM object"

    sr_classes: tuple[Annotated[str, OneOf("class of reports", _sr_classes)], ...] = Field(
        tuple(item.name for item in SR_CLASS_PREFERENCE),
        min_length=1,
        description=(
            "SOP Classes of structured reports, in this order; the first that the receiver takes"
            " is sent."
        ),
    )

    @classmethod
    def can_carry(cls, kind: DocumentKind) -> bool:
        """DICOM objects alone."""
        return kind.is_dicom

    @field_validator("sr_classes")
    @classmethod
    def _follow_the_ladder(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        ladder = _sr_classes()
        if list(value) != [name for name in ladder if name in value]:
            raise ValueError(f"name each class once and in this order: {', '.join(ladder)}")
        return value


class CStoreDestination(TlsClient, ObjectDestination):
    """A destination that gets DICOM objects by C-STORE."""

    calling_ae_title: AeTitle = Field("HILUM", description="our AE Title.")
    timeout_seconds: float = Field(30.0, gt=0, description="limit for each message.")
    idle_release_seconds: float = Field(
        20.0, ge=0, description="an association unused this long is released."
    )
    commitment: bool = Field(
        default=False,
        description=(
            "asks it to commit to keep each document that it accepted (Storage Commitment Push"
            " Model). See docs/destinations/commitment.md."
        ),
    )
    commitment_hours: float = Field(
        24.0, gt=0, le=720, description="wait for its report before it is asked again, in hours."
    )
    commitment_tries: int = Field(
        3,
        ge=1,
        le=10,
        description="requests for a document; after the last one, the delivery needs a person.",
    )
    commitment_wait_seconds: float = Field(
        5.0,
        ge=0,
        le=600,
        description=(
            "how long the association of a request stays open for its report; a later report"
            " comes to our listener."
        ),
    )

    @property
    def tls_client(self) -> TlsClient:
        """Its own."""
        return self


class DicomDestination(CStoreDestination):
    """C-STORE to one receiver."""

    kind: Literal["dicom"] = Field(
        "dicom",
        description=(
            "dicom: C-STORE; folder: files, renamed into place when complete; sender:"
            " C-STORE back to the study's sender; stow: STOW-RS of DICOMweb; hl7:"
            " HL7 v2 over MLLP; webhook: signed HTTP POST; fhir: transactions of FHIR R4."
        ),
    )
    host: Host = Field("127.0.0.1", description="host of the receiver.")
    port: Port = Field(4242, description="port of the receiver.")
    ae_title: AeTitle = Field("PACS", description="Called AE Title.")
    commitment_host: OptionalHost = Field(
        "", description="host that is asked for storage commitment; empty: `host`."
    )
    commitment_port: Port | None = Field(
        None, description="port that is asked for storage commitment; none: `port`."
    )
    commitment_ae_title: OptionalAeTitle = Field(
        "",
        description=(
            "Called AE Title for storage commitment, and the Calling AE Title of its reports;"
            " empty: `ae_title`."
        ),
    )

    @property
    def address(self) -> str:
        """AE_TITLE@HOST:PORT."""
        return f"{self.ae_title}@{self.host}:{self.port}"

    @property
    def commitment_scps(self) -> frozenset[str]:
        """The one that is asked."""
        title = self.commitment_ae_title or self.ae_title
        return frozenset({title.strip()} if self.commitment else ())


class FolderDestination(Destination):
    """Files in a folder."""

    kind: Literal["folder"] = "folder"
    path: Path = Field(description="where the files go.")

    @property
    def address(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.path


class SenderDestination(CStoreDestination):
    """C-STORE back to the sender of each study."""

    has_one_place: ClassVar[bool] = False

    kind: Literal["sender"] = "sender"
    ports: Mapping[AeTitle, Port] = Field(
        min_length=1,
        description=(
            "the port of each sender, by the AE Title that it calls from; the host is that of its"
            " association."
        ),
    )

    @property
    def address(self) -> str:
        """In words."""
        return "the sender of each study"

    @property
    def commitment_scps(self) -> frozenset[str]:
        """The senders."""
        return frozenset(title.strip() for title in self.ports) if self.commitment else frozenset()

    def for_sender(self, host: str, ae_title: str) -> DicomDestination | None:
        """Return the sender as a receiver; None: the settings name no port for it."""
        if not host or ae_title not in self.ports:
            return None
        given = {name: getattr(self, name) for name in CStoreDestination.model_fields}
        place = {"kind": "dicom", "host": host, "port": self.ports[ae_title], "ae_title": ae_title}
        return DicomDestination.model_construct(**{**given, **place})


class HttpDestination(HttpPeer):
    """The part that destinations by HTTP have."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_commitment(cls, given: object) -> object:
        if isinstance(given, Mapping) and any(str(key).startswith("commitment") for key in given):
            raise ValueError(
                "a destination by HTTP is not asked for storage commitment, which is a service of"
                " DIMSE: remove the setting, or deliver with kind dicom"
            )
        return given

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    @property
    def tls_client(self) -> HttpPeer:
        """Its own."""
        return self


class StowDestination(HttpDestination, ObjectDestination):
    """STOW-RS to one server."""

    kind: Literal["stow"] = "stow"
    url: str = Field(
        pattern=r"^https?://[^\s@?#]+$",
        description=(
            "root of a DICOMweb service, such as https://pacs.example.org/dicom-web; the address"
            " of a webhook's receiver, which is shown without its path."
        ),
    )


class Hl7Destination(TlsClient, Hl7MessageSettings, Destination):
    """HL7 v2 messages over MLLP."""

    carried: ClassVar[str] = "HL7 message"

    kind: Literal["hl7"] = "hl7"
    documents: _Documents = Field((HL7.key,), min_length=1, description="hl7 alone.")
    host: Host = Field(description="host of the receiver.")
    port: Port = Field(2575, description="port of the receiver.")
    timeout_seconds: float = Field(
        30.0, gt=0, description="limit for the connection, and for each acknowledgement."
    )
    idle_seconds: float = Field(
        60.0,
        ge=0,
        description=(
            "a connection unused this long is replaced before the next message, because firewalls"
            " drop unused ones silently."
        ),
    )

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"

    @property
    def tls_client(self) -> TlsClient:
        """Its own."""
        return self

    @classmethod
    def can_carry(cls, kind: DocumentKind) -> bool:
        """HL7 messages alone."""
        return kind.key == HL7.key


class WebhookDestination(HttpDestination, Destination):
    """Signed webhooks to one program."""

    carried: ClassVar[str] = "JSON document"

    kind: Literal["webhook"] = "webhook"
    documents: _Documents = Field((NOTICE.key,), min_length=1, description="notice, json, or both.")
    secret_files: tuple[Path, ...] = Field(
        min_length=1,
        max_length=2,
        description=(
            "files with a signing secret each: whsec_ and 24 to 64 bytes in base64. Two while a"
            " secret is replaced: each document has a signature by both."
        ),
    )

    @property
    def address(self) -> str:
        """Scheme and host of the URL: its path may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @classmethod
    def can_carry(cls, kind: DocumentKind) -> bool:
        """JSON alone."""
        return kind.media_type == JSON.media_type


class FhirDestination(HttpDestination, Destination):
    """Transactions of FHIR R4 to one server."""

    carried: ClassVar[str] = "FHIR Bundle"

    kind: Literal["fhir"] = "fhir"
    documents: _Documents = Field((FHIR.key,), min_length=1, description="fhir alone.")
    url: str = Field(
        pattern=r"^https?://[^\s@?#]+$",
        description="base of the service, such as https://ris.example.org/fhir.",
    )

    @classmethod
    def can_carry(cls, kind: DocumentKind) -> bool:
        """Bundles of FHIR alone."""
        return kind.key == FHIR.key


def message_settings(destinations: Mapping[str, Destination]) -> Hl7MessageSettings:
    """Return the settings of the one message of a result. Raises ValueError where two differ."""
    first = ""
    found = Hl7MessageSettings()
    for name, item in destinations.items():
        if not isinstance(item, Hl7Destination):
            continue
        given = {field: getattr(item, field) for field in Hl7MessageSettings.model_fields}
        wanted = Hl7MessageSettings.model_construct(**given)
        if first and wanted != found:
            fields = [field for field in given if given[field] != getattr(found, field)]
            raise ValueError(
                f"{first} and {name} must not differ in {', '.join(fields)}: a result has one HL7"
                " message, which goes to both; have an interface engine change it for one of them"
            )
        first = first or name
        found = wanted
    return found


DESTINATION_KINDS: Final[Mapping[str, type[Destination]]] = {
    "dicom": DicomDestination,
    "folder": FolderDestination,
    "sender": SenderDestination,
    "stow": StowDestination,
    "hl7": Hl7Destination,
    "webhook": WebhookDestination,
    "fhir": FhirDestination,
}
AnyDestination = Annotated[Destination, ByKind(DESTINATION_KINDS)]
