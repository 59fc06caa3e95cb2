"""Frozen settings: defaults, then a TOML file, then `HILUM_<SECTION>__<NAME>`.

Every error is reported at once.

`docs/settings.md` is generated from the descriptions here. Units are in the names.
"""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import itertools
import json
import os
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hilum.dicom.text import LongString, Named, Paragraph
from hilum.domain import IMAGE_SOP_CLASSES, SR_LADDER, TRANSFER_SYNTAXES
from hilum.environment import Overlaid, overlay
from hilum.errors import ConfigurationError
from hilum_preprocessing.doubts import REFUSED_TOGETHER


def _ae_title(value: str) -> str:
    """PS3.5 6.2, VR AE: the basic characters without the backslash; spaces around mean nothing."""
    title = value.strip(" ")
    if len(title) > 16 or not all(" " <= letter <= "~" and letter != "\\" for letter in title):
        raise ValueError(
            "an AE Title has at most 16 characters: letters without accents, digits, spaces and"
            " signs, but no backslash"
        )
    return title


def _no_blank_ae_title(value: str) -> str:
    if not value:
        raise ValueError("an AE Title must not be blank")
    return value


OptionalAeTitle = Annotated[str, AfterValidator(_ae_title)]
OtherObjects = Literal["discard", "refuse"]
AeTitle = Annotated[OptionalAeTitle, AfterValidator(_no_blank_ae_title)]


def _host(value: str) -> str:
    """What the resolver takes: it raises UnicodeError for others, not OSError, and ValueError for a null character."""
    try:
        value.encode("idna")
    except UnicodeError as error:
        raise ValueError(
            "no host name: one part of it, between dots, is empty, longer than 63 characters or"
            " holds signs that none has"
        ) from error
    if any(letter <= " " or letter == "\x7f" for letter in value):
        raise ValueError("no host name: it holds a space or a control character")
    return value


Host = Annotated[str, Field(min_length=1), AfterValidator(_host)]
Port = Annotated[int, Field(ge=1, le=65535)]


def _network(value: str) -> str:
    """An address or a range; host bits that are set would silently widen what somebody meant."""
    ipaddress.ip_network(value)
    return value


Network = Annotated[str, AfterValidator(_network)]
FINGERPRINT = "sha256:"


def certificate_name(value: str) -> str:
    """As names of certificates compare.

    Fingerprints without colons, host names in whatever case (RFC 5280 7.2); a URI as it is.
    """
    if value.casefold().startswith(FINGERPRINT):
        return FINGERPRINT + value[len(FINGERPRINT) :].replace(":", "").lower()
    return value if "://" in value or value.startswith("urn:") else value.casefold()


def _certificate_name(value: str) -> str:
    name = certificate_name(value)
    if not name.strip():
        raise ValueError("a name of a certificate must not be blank")
    if name.startswith(FINGERPRINT) and not re.fullmatch(
        "[0-9a-f]{64}", name.removeprefix(FINGERPRINT)
    ):
        raise ValueError(
            "no SHA-256 fingerprint: it is sha256: and 64 hexadecimal digits (openssl x509 -noout"
            " -fingerprint -sha256)"
        )
    return name


CertificateName = Annotated[str, AfterValidator(_certificate_name)]


def _require_path(value: Path) -> None:
    if "\0" in str(value):
        raise ValueError("must not hold a null character")
    try:
        value.resolve()
    except RuntimeError as error:  # not an OSError: everybody who resolves it later would end
        raise ValueError("links on its way lead in a circle") from error


def _sop_class(value: str) -> str:
    return _require_known(value, "image SOP Class that is taken here", IMAGE_SOP_CLASSES)


def _transfer_syntax(value: str) -> str:
    return _require_known(value, "Transfer Syntax that is taken here", TRANSFER_SYNTAXES)


def _require_known(value: str, what: str, known: Iterable[str]) -> str:
    if value not in known:
        raise ValueError(f"no {what}{_nearest(value, list(known))}")
    return value


SopClass = Annotated[str, AfterValidator(_sop_class)]
TransferSyntax = Annotated[str, AfterValidator(_transfer_syntax)]
LaneName = Literal["urgent", "live", "reanalysis"]
_TYPE_WORDS: Mapping[object, str] = {
    str: "text",
    bool: "true or false",
    int: "integer",
    float: "number",
    Path: "path",
}
_LARGEST = 2_000_000
_MANIFESTS = Path(__file__).resolve().parents[2] / "model_repository"
_SQLITE = "sqlite:///"
_POSTGRESQL = "postgresql+psycopg://"
# As SQLAlchemy divides it; else what is left of a password with an @ in it is taken for a host, or
# a port, and shown in errors.
_SERVER = re.compile(r"([^@]*@)?(\[[^]@/?]+\]|[^][@:/?]*)(:[0-9]+)?([/?].*)?")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_ae_title(text: str) -> bool:
    """Whether a setting may hold it."""
    try:
        TypeAdapter(AeTitle).validate_python(text)
    except ValidationError:
        return False
    return True


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _is_usable(cls, value: object) -> object:
        """Infinity has no JSON, in which children get the settings, and poll(2) waits for 2^31 ms at most."""
        if isinstance(value, float) and not abs(value) <= _LARGEST:
            raise ValueError(f"must be at most {_LARGEST}; no number says for ever")
        if isinstance(value, Path):
            _require_path(value)
        return value


class Site(_Section):
    """Who runs this installation."""

    name: LongString = Field(
        "Hilum", description="Institution or installation name; written into reports. No backslash."
    )
    state_dir: Path = Field(
        Path("state"),
        description="Folder for the archive, the ledger, built models and run-time files.",
    )


class Receive(_Section):
    """The DICOM listener (C-ECHO, C-STORE)."""

    host: Host = Field(
        # A PACS router on another host must reach it.
        "0.0.0.0",  # noqa: S104
        description="Address to bind. Restrict it, or allow-list senders, on a shared network.",
    )
    port: Port = Field(11112, description="TCP port of the DICOM listener.")
    ae_titles: tuple[AeTitle, ...] = Field(
        ("HILUM",),
        min_length=1,
        description="Called AE Titles that are answered; any other is rejected (1,1,7).",
    )
    calling_ae_titles: tuple[AeTitle, ...] = Field(
        (),
        description=(
            "Calling AE Titles that may connect, beside those that `senders` names; others are"
            " rejected (1,1,3); empty: any."
        ),
    )
    peers: tuple[Network, ...] = Field(
        (),
        description=(
            "Addresses that may connect, single ones or CIDR ranges (`10.1.0.0/16`); others are"
            " rejected (1,1,1); empty: any."
        ),
    )
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description=(
            "Listener processes on the one listening socket; two pay for 16 senders at once."
        ),
    )
    maximum_associations: int = Field(
        50,
        ge=1,
        le=4096,
        description=(
            "Simultaneous associations of all processes together; one more is rejected (2,3,2)."
        ),
    )
    maximum_associations_of_address: int | None = Field(
        None,
        ge=1,
        description=(
            "Of them those from one address to one process, so that one machine leaves room for the"
            " others; default: no limit."
        ),
    )
    sop_classes: tuple[SopClass, ...] = Field(
        tuple(IMAGE_SOP_CLASSES),
        min_length=1,
        description="SOP Classes of images that are taken; contexts of another one are answered 3.",
    )
    transfer_syntaxes: tuple[TransferSyntax, ...] = Field(
        tuple(TRANSFER_SYNTAXES),
        min_length=1,
        description=(
            "Transfer Syntaxes of images, in order of preference: of those that a context proposes"
            " the first in this order is accepted; one that proposes none of them is answered 4."
            " Uncompressed first costs least here, and most on the network."
        ),
    )
    other_objects: OtherObjects = Field(
        "discard",
        description=(
            "What is no image, as reports of others, key objects, presentation states, PDF:"
            " `discard`: answered Success, counted and not kept, because a refusal makes some"
            " archives (Orthanc) give up the whole study; `refuse`: its contexts are answered 3."
            " Images of other SOP Classes are refused in either case."
        ),
    )
    write_out_bytes: int = Field(
        1 << 20,
        ge=0,
        description=(
            "So many bytes of an object go to the disk while the rest comes in; 0: all at its end,"
            " for spinning and network disks."
        ),
    )
    direct_io: bool = Field(
        default=False,
        description=(
            "Write what is large past the page cache (O_DIRECT), for less CPU; decode processes"
            " then read it from the disk, in the same way. For a disk that takes and gives more"
            " than twice what comes in. Only where receiving is compiled, and not with TLS."
        ),
    )
    name_sync: Literal["auto", "twice"] = Field(
        "auto",
        description=(
            "How a received file is made durable under its name. auto: on XFS, and ext4 with a"
            " journal, with one commit of the journal, which several files share; elsewhere, or"
            " with twice, by a sync of the file and then one of its folder, which is two."
        ),
    )
    maximum_pdu_bytes: int = Field(
        131072, ge=4096, le=1 << 24, description="Largest PDU that senders may use."
    )
    maximum_object_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="Largest data set accepted; a larger one is answered 0xA700.",
    )
    acse_timeout_seconds: float = Field(
        30.0, gt=0, description="Limit for negotiation and release."
    )
    dimse_timeout_seconds: float = Field(
        60.0,
        gt=0,
        description=(
            "So long the answer to a report of storage commitment is waited for, on the association"
            " of its request."
        ),
    )
    network_timeout_seconds: float = Field(
        60.0,
        gt=0,
        description=(
            "An association on which nothing comes for longer, between messages or inside one, is"
            " aborted; a STOW-RS request is answered 408."
        ),
    )
    minimum_bytes_per_second: int = Field(
        1024,
        ge=0,
        le=1 << 20,
        description=(
            "A sender is aborted (too_slow; a STOW-RS request is answered 408) if less than this"
            " comes of a message for twice network_timeout_seconds, and yet something; 0: only"
            " silence ends it."
        ),
    )
    reserve_bytes: int = Field(
        2 << 30,
        ge=0,
        description="Free disk space that is never used: below it C-STORE is answered 0xA700.",
    )
    reject_bytes: int | None = Field(
        None,
        ge=0,
        description=(
            "Below this much free disk space new associations are rejected (2,3,2). Default: twice"
            " reserve_bytes."
        ),
    )
    reserve_files: int = Field(
        1000,
        ge=0,
        description=(
            "Free inodes that are never used: below it C-STORE is answered 0xA700, below twice as"
            " many new associations are rejected (2,3,2). Nothing is looked at where the file"
            " system counts none, as btrfs."
        ),
    )
    maximum_due_readings: int = Field(
        0,
        ge=0,
        description=(
            "With so many readings of the lanes urgent and live waiting, new associations are"
            " rejected (2,3,2); 0: never."
        ),
    )

    storage_commitment: bool = Field(
        default=True,
        description=(
            "Storage commitment is offered (PS3.4 annex J): what it promises stays for"
            " retention.committed_days. False: its contexts are refused."
        ),
    )
    commitment_wait_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description=(
            "So long a request for storage commitment waits for objects that have not come, before"
            " they fail."
        ),
    )
    commitment_hours: float = Field(
        24.0,
        ge=0,
        description=(
            "For so long the report of a storage commitment is tried again; then it is dead, until"
            " it is requeued."
        ),
    )
    plain: bool = Field(
        default=True, description="Whether `port`, without TLS, is open; false: only tls_port is."
    )
    tls_port: int = Field(
        0, ge=0, le=65535, description="TCP port for TLS (2762 is the registered one); 0: no TLS."
    )
    tls_certificate_file: Path | None = Field(
        None,
        description="PEM file of our certificate and its chain. A new one is used without restart.",
    )
    tls_key_file: Path | None = Field(None, description="PEM file of the key to it, not encrypted.")
    tls_client_ca_file: Path | None = Field(
        None,
        description=(
            "PEM file of the authority that must have signed the sender's certificate; none:"
            " senders show no certificate."
        ),
    )
    tls_crl_file: Path | None = Field(
        None,
        description=(
            "PEM file of that authority's certificate revocation list, and of each other one's that"
            " signs certificates of senders. A new one is used without restart; one that has"
            " expired lets nobody in."
        ),
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Receive:
        files = (self.tls_certificate_file, self.tls_key_file)
        if self.tls_port and not all(files):
            raise ValueError("tls_port needs tls_certificate_file and tls_key_file")
        if not self.tls_port and any((*files, self.tls_client_ca_file)):
            raise ValueError(
                "tls_certificate_file, tls_key_file and tls_client_ca_file need tls_port"
            )
        if self.tls_crl_file and not self.tls_client_ca_file:
            raise ValueError(
                "tls_crl_file needs tls_client_ca_file: senders show no certificate without it"
            )
        if not self.tls_port and not self.plain:
            raise ValueError("plain = false needs tls_port: no port would be open")
        return self

    @property
    def reject_below_files(self) -> int:
        """The soft watermark of inodes."""
        return 2 * self.reserve_files

    @property
    def reject_below_bytes(self) -> int:
        """The soft watermark: never below the hard one."""
        return max(
            self.reserve_bytes,
            2 * self.reserve_bytes if self.reject_bytes is None else self.reject_bytes,
        )


class Studies(_Section):
    """When a study is complete."""

    quiet_seconds: float = Field(
        10.0, ge=0, le=86400, description="No new image for this long closes a study."
    )
    maximum_wait_seconds: float = Field(
        120.0,
        ge=0,
        description=(
            "A study that keeps growing closes this long after its first image; later images"
            " revise it."
        ),
    )


class Retention(_Section):
    """When pixels leave the archive.

    Rows of studies and documents stay; what is not delivered or not read yet always stays.
    """

    days: float = Field(
        0.0,
        ge=0,
        description="Days after the last delivery of a study until its pixels leave; 0: they stay.",
    )
    reanalysis_days: float = Field(
        0.0, ge=0, description="The same for studies of the lane reanalysis."
    )
    pressure_free_bytes: int = Field(
        0,
        ge=0,
        description=(
            "Below this much free disk space pixels leave at once, oldest delivered first; 0:"
            " never. Above reject_bytes."
        ),
    )
    association_days: float = Field(
        365.0,
        ge=0,
        description=(
            "Days that associations, and what was refused on them, can be looked up; 0: for ever."
        ),
    )
    audit_days: float = Field(
        0.0, ge=0, description="Days that rows of the audit are kept (docs/audit.md); 0: for ever."
    )
    commitment_days: float = Field(
        365.0, ge=0, description="The same for requests for storage commitment that have ended."
    )
    committed_days: float = Field(
        0.0,
        ge=0,
        description=(
            "Days that an image stays at least after storage commitment has promised it, whatever"
            " its age and the disk; 0: as long as the promise has no other end."
        ),
    )
    hourly_share: float = Field(
        0.02,
        gt=0,
        le=1,
        description=(
            "Share of the archive's images that may leave by age within an hour; more wait for the"
            " next one. At least 1000, and four times what days makes of it in an hour."
        ),
    )
    check_seconds: float = Field(60.0, gt=0, description="How often it is looked what may leave.")


class Models(_Section):
    """Which releases read the images."""

    manifests: Path | None = Field(
        None,
        description=(
            "Folder of `<release>/manifest.toml`; default: model_repository of the installation."
        ),
    )
    built: Path | None = Field(
        None, description="Folder of the built Triton trees; default: <state_dir>/models."
    )
    releases: tuple[str, ...] = Field(
        ("densenet121_untrained@1",),
        min_length=1,
        description="Releases (name@version) that read every image.",
    )


def _grpc_address(value: str) -> str:
    """host:port, as gRPC takes it; empty where nothing is named."""
    host, _, port = value.rpartition(":")
    if value and (not host or "/" in value or not (port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError("must be host:port, such as gpu1:8001")
    _host(host)
    return value


GrpcAddress = Annotated[str, AfterValidator(_grpc_address)]


def is_loopback(host: str) -> bool:
    """Whether it is this machine, by its usual names."""
    return host.strip("[]") in LOOPBACK


def printable_token(value: str) -> str:
    """The token, if a header can carry it (RFC 9110 5.5). Raises ValueError.

    One that was read from a file often ends with a line end.
    """
    if value != value.strip() or any(unicodedata.category(letter) == "Cc" for letter in value):
        raise ValueError(
            "a token must not begin or end with white space, nor hold a line end or another control"
            " character"
        )
    return value


class Triton(_Section):
    """Where the models run."""

    url: GrpcAddress = Field(
        "",
        description=(
            "gRPC address host:port of a Triton that somebody else runs; empty: Hilum starts the"
            " embedded one."
        ),
    )
    urls: tuple[GrpcAddress, ...] = Field(
        (),
        description=(
            "Several of them, instead of url: batches are spread over those that answer, and one"
            " that is away is left out."
        ),
    )
    shared_memory: bool = Field(
        default=True,
        description=(
            "Batches go by shared memory to the embedded Triton, and to others at a loopback"
            " address if they can map it."
        ),
    )
    tls: bool = Field(
        default=False, description="TLS to a Triton of yours; its certificate is verified."
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "tls: PEM file of the authority that signed its certificate; none: the system's."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="tls: PEM file of our certificate, for a Triton that asks for one."
    )
    key_file: Path | None = Field(
        None, description="tls: PEM file of the key to it, not encrypted."
    )
    tls_server_name: str = Field(
        "", description="tls: name in its certificate, where it is not the host of the address."
    )
    token: str = Field(
        "",
        description=(
            "tls: bearer token, sent with each call, for a proxy before it. Give it by"
            " HILUM_TRITON__TOKEN."
        ),
        repr=False,
    )
    token_file: Path | None = Field(
        None,
        description="tls: file that holds the token, instead of token; read when a process starts.",
    )
    other_models: tuple[str, ...] = Field(
        (),
        description=(
            "Models of others that a Triton of yours serves as well; any further one is a problem"
            " that readiness names."
        ),
    )
    start_timeout_seconds: float = Field(
        120.0, gt=0, description="Limit for the embedded server to become ready."
    )
    exit_timeout_seconds: float = Field(
        8.0, gt=0, description="Limit for the embedded server to finish its queue at shutdown."
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Tritons that somebody else runs; empty: the embedded one."""
        return self.urls or ((self.url,) if self.url else ())

    @model_validator(mode="after")
    def _one_way_to_name_them(self) -> Triton:
        if self.url and self.urls:
            raise ValueError("give url or urls, not both")
        if "" in self.urls or len(set(self.urls)) < len(self.urls):
            raise ValueError("urls names an address twice, or none")
        return self

    @field_validator("token")
    @classmethod
    def _token_can_be_sent(cls, value: str) -> str:
        return printable_token(value)

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Triton:
        _require_whole_tls(self)
        if self.tls and not self.addresses:
            raise ValueError(
                "tls needs url or urls: the embedded Triton is reached by a socket of its own"
            )
        if (self.token or self.token_file) and not self.tls:
            raise ValueError(
                "token and token_file need tls = true: others would read the token on the way"
            )
        if self.token and self.token_file:
            raise ValueError("give token or token_file, not both")
        return self


class Analyse(_Section):
    """Decoding, preprocessing and inference."""

    processes: int = Field(1, ge=1, le=16, description="Analyser processes (one a GPU).")
    device: str = Field(
        "cpu",
        pattern=r"^(cpu|cuda(:\d+)?)$",
        description="Where tensors are prepared: cpu, cuda or cuda:N.",
    )
    decode_processes: int = Field(
        0,
        ge=0,
        le=256,
        description="Decode processes of one analyser; 0: one fewer than the cores, at least one.",
    )
    placement: Literal["worker", "device"] = Field(
        "worker",
        description=(
            "Who prepares tensors. worker: each decode process, its images only; device: the"
            " analyser, on `device`, from stored values that decode processes leave in shared"
            " memory (for a GPU)."
        ),
    )
    slot_bytes: int = Field(
        64 << 20,
        ge=1 << 16,
        description=(
            "Shared memory of an image on its way out of a decode process; it is taken when"
            " touched. Larger images take a pipe."
        ),
    )
    reads_once: bool = Field(
        default=True,
        description=(
            "Read a file that is not in memory past the page cache, and give the memory that holds"
            " one back to the system once it is decoded; false: where releases are read at"
            " different times and the archive's disk is slow."
        ),
    )
    decode_seconds: float = Field(
        60.0,
        gt=0,
        le=100,
        description="Limit for one image; a decode process that takes longer is ended.",
    )
    batches_in_flight: int = Field(
        2, ge=1, le=16, description="Batches on their way to each Triton at once, for each release."
    )
    deadline_seconds: float = Field(30.0, gt=0, description="Limit for one inference request.")
    maximum_pixels: int = Field(
        100_000_000,
        ge=1,
        description=(
            "Images with more pixels are not analysed (too_large). What a recipe makes of one on"
            " the way to its input has a limit of its own: docs/preprocessing.md."
        ),
    )
    canary_seconds: float = Field(
        15.0,
        gt=0,
        description="A known image is sent through each release this often; readiness rests on it.",
    )


_FLAGS_OF_PIXELS = Literal[
    "low_contrast", "few_levels", "saturated", "asymmetric", "looks_inverted", "unusual_aspect"
]
_FLAGS_OF_HEADER = Literal["body_part_unknown", "view_unknown", "age_unknown", "burned_in_text"]
_FLAGS_OF_LEVELS = Literal[
    "voi_unusable",
    "voi_doubtful",
    "lut_corrected",
    "lut_doubtful",
    "padding_unusable",
    "polarity_doubtful",
]
_FLAGS_OF_ORIENTATION = Literal[
    "orientation_upside_down", "orientation_mirrored", "orientation_turned", "orientation_lateral"
]
RefusedFlag = Literal[_FLAGS_OF_PIXELS, _FLAGS_OF_LEVELS, _FLAGS_OF_ORIENTATION, _FLAGS_OF_HEADER]
"""What `guard.refuses` may name. The others are no doubts about what a model would see."""


class Guard(_Section):
    """What a usual frontal chest radiograph looks like, and which doubts about an image mean no finding. Others are flags on the result."""

    span_at_least: float = Field(
        0.05,
        ge=0,
        le=1,
        description=(
            "Share of the nominal range between 1st and 99th percentile; less: low_contrast."
        ),
    )
    entropy_at_least: float = Field(
        4.5, ge=0, le=6, description="Bits of entropy of the levels in 64 steps; less: few_levels."
    )
    saturation_at_most: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Share of pixels at an end of the nominal range; more: saturated.",
    )
    symmetry_at_least: float = Field(
        0.0, ge=-1, le=1, description="Correlation with the mirror image; less: asymmetric."
    )
    spine_contrast_at_least: float = Field(
        -0.03,
        ge=-1,
        le=1,
        description=(
            "How much brighter the spine is than the lungs beside it; less: looks_inverted. Nothing"
            " is inverted."
        ),
    )
    aspect_at_least: float = Field(
        0.6, gt=0, description="Rows over columns; less: unusual_aspect."
    )
    aspect_at_most: float = Field(1.6, gt=0, description="Rows over columns; more: unusual_aspect.")
    refuses: tuple[RefusedFlag, ...] = Field(
        (),
        description=(
            "Flags whose images are not analysed (implausible_pixels). Look at your own flags for a"
            " while first."
        ),
    )
    refuses_together: tuple[tuple[RefusedFlag, ...], ...] = Field(
        REFUSED_TOGETHER,  # type: ignore[arg-type]  # they are words of RefusedFlag: a test compares them
        description=(
            "Combinations of flags whose images are not analysed (implausible_pixels). An empty"
            " list analyses them all, with their flags."
        ),
    )
    chest_words: tuple[Named, ...] = Field(
        (),
        description=(
            "Words or phrases of your senders' Body Part Examined and descriptions that mean the"
            " chest. They come before the built-in ones. Case, accents, digits and punctuation make"
            " no difference."
        ),
    )
    other_body_part_words: tuple[Named, ...] = Field(
        (), description="The same for other body parts: not_chest."
    )

    @model_validator(mode="after")
    def _some_aspect_is_usual(self) -> Guard:
        if self.aspect_at_least > self.aspect_at_most:
            raise ValueError("aspect_at_least is above aspect_at_most: no image would be usual")
        return self

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of the pixel statistics, by name."""
        return self.model_dump(
            exclude={"refuses", "refuses_together", "chest_words", "other_body_part_words"}
        )

    @property
    def site_words(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Words for the chest, and for other body parts."""
        return self.chest_words, self.other_body_part_words


class Pipeline(_Section):
    """Leases, retries and back-off of every stage."""

    maximum_attempts: int = Field(
        8, ge=1, description="Tries before a reading fails or a delivery is dead."
    )
    maximum_lapses: int = Field(
        3, ge=1, description="Leases that may lapse (a worker died) before an item fails."
    )
    backoff_seconds: float = Field(
        2.0,
        gt=0,
        description=(
            "First pause between tries; it doubles with each that counts. One that failed for an"
            " outage does not count. A destination that is away is knocked at after this time, and"
            " then ever more rarely, up to each 30 s."
        ),
    )
    maximum_backoff_seconds: float = Field(300.0, gt=0, description="Longest pause between tries.")
    poll_seconds: float = Field(
        5.0, gt=0, description="A stage looks for work this often even if no doorbell rings."
    )
    dispatchers: int = Field(
        1, ge=1, le=16, description="Dispatcher processes (assemble, report, deliver)."
    )
    report_processes: int = Field(
        1, ge=1, le=64, description="Processes of one dispatcher that build reports."
    )


def _ledger_url(value: str) -> str:
    """In a file or on a server: in memory each process would have its own."""
    _, _, database = value.partition("://")
    is_file = (
        value.startswith(_SQLITE)
        and database.strip("/") not in {"", ":memory:"}
        and "\0" not in value
    )
    is_server = value.startswith(_POSTGRESQL) and database
    if value and not is_file and not is_server:
        raise ValueError(
            "must be postgresql+psycopg://user@host/database, or sqlite:////folder/ledger.sqlite on"
            " one machine"
        )
    if is_server and not _SERVER.fullmatch(database):
        raise ValueError(
            "its host or port is none; in a password @ is written as %40, / as %2F and : as %3A"
        )
    return value


class Ledger(_Section):
    """Where the rows are."""

    url: Annotated[str, AfterValidator(_ledger_url)] = Field(
        "",
        description=(
            "SQLAlchemy URL; empty: SQLite in the state folder; postgresql+psycopg://… for many"
            " hosts (operations.md)."
        ),
    )

    @property
    def file(self) -> Path | None:
        """Of SQLite, where `url` names one."""
        return (
            Path(self.url.removeprefix(_SQLITE).partition("?")[0])
            if self.url.startswith(_SQLITE)
            else None
        )


class Report(_Section):
    """What every document says about its maker."""

    manufacturer: Named = Field(
        "Hilum project",
        description="Manufacturer (0008,0070) of documents. At most 64 characters, no backslash.",
    )
    series_number: int = Field(
        9001, ge=1, le=2147483647, description="Series Number of the SR series."
    )
    heat_map_series_number: int = Field(
        9002, ge=1, le=2147483647, description="Series Number of the heat maps' series."
    )
    intended_use: Literal["research", "triage"] = Field(
        "research",
        description=(
            "Profile of intended use. triage: heat maps are neither made nor linked, whatever a"
            " destination asks for (a triage device notifies and does not mark the image, 21 CFR"
            " 892.2080)."
        ),
    )
    disclaimer: Paragraph = Field(
        "AI result, not verified by a physician. For research use only, not for diagnosis.",
        description="Sentence that accompanies every result.",
    )


class Destination(_Section):
    """One receiver of documents: `[destinations.<name>]`."""

    kind: Literal["dicom", "folder", "sender"] = Field(
        "dicom",
        description=(
            "dicom: C-STORE; folder: files, renamed into place when complete; sender: C-STORE back"
            " to who sent the study."
        ),
    )
    host: Host = Field("127.0.0.1", description="dicom: host of the receiver.")
    port: Port = Field(4242, description="dicom: port of the receiver.")
    ae_title: AeTitle = Field("PACS", description="dicom: Called AE Title.")
    calling_ae_title: AeTitle = Field("HILUM", description="dicom: our AE Title.")
    path: Path | None = Field(None, description="folder: where the files go.")
    ports: Mapping[AeTitle, Port] = Field(
        {},
        description=(
            "sender: the port of each sender, by the AE Title that it calls from; the host is that"
            " of its association."
        ),
    )
    documents: tuple[Literal["sr", "json", "heatmap"], ...] = Field(
        ("sr",),
        min_length=1,
        description=(
            "Kinds of document it receives. heatmap: a Secondary Capture image, linked from the SR."
        ),
    )
    accept_untrained: bool = Field(
        default=False,
        description="Takes results of untrained weights; refuse them for any clinical receiver.",
    )
    report_not_analysed: bool = Field(
        default=False,
        description=(
            "Also gets a structured report on studies of which no image could be analysed, saying"
            " why."
        ),
    )
    sr_classes: tuple[
        Literal["comprehensive_3d", "comprehensive", "enhanced", "basic_text"], ...
    ] = Field(
        ("comprehensive_3d", "comprehensive", "enhanced", "basic_text"),
        min_length=1,
        description=(
            "dicom: SOP Classes of structured reports to propose; the first in this order that the"
            " receiver accepts is sent."
        ),
    )
    timeout_seconds: float = Field(30.0, gt=0, description="dicom: limit for each message.")
    idle_release_seconds: float = Field(
        20.0, ge=0, description="dicom: an association unused this long is released."
    )
    tls: bool = Field(
        default=False,
        description=(
            "dicom: TLS 1.2 or later to the receiver (PS3.15 Annex B); its certificate is verified."
        ),
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "tls: PEM file of the authority that signed the receiver's certificate; none: the"
            " system's."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="tls: PEM file of our certificate, for receivers that ask for one."
    )
    key_file: Path | None = Field(
        None, description="tls: PEM file of the key to it, not encrypted."
    )
    tls_server_name: str = Field(
        "", description="tls: name in the receiver's certificate, where it is not host."
    )

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Destination:
        if self.kind == "folder" and self.path is None:
            raise ValueError('a folder destination needs path = "…"')
        if self.kind == "sender" and not self.ports:
            raise ValueError('a sender destination needs ports = { "<CALLING_AE_TITLE>" = 104 }')
        if self.kind != "folder" and "json" in self.documents:
            raise ValueError(
                'a dicom destination cannot take "json"; use documents = ["sr"] or ["sr",'
                ' "heatmap"]'
            )
        return self

    @property
    def address(self) -> str:
        """Where its documents go, for people."""
        if self.kind == "folder":
            return str(self.path)
        return (
            "the sender of each study"
            if self.kind == "sender"
            else f"{self.ae_title}@{self.host}:{self.port}"
        )

    @field_validator("sr_classes")
    @classmethod
    def _follow_the_ladder(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        ladder = [item.name for item in SR_LADDER]
        if list(value) != [name for name in ladder if name in value]:
            raise ValueError(f"name each class once and in this order: {', '.join(ladder)}")
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Destination:
        _require_whole_tls(self)
        return self


def _require_whole_tls(peer: Destination | CommitmentPeer | Triton) -> None:
    if not peer.tls and (
        peer.ca_file or peer.certificate_file or peer.key_file or peer.tls_server_name
    ):
        raise ValueError("ca_file, certificate_file, key_file and tls_server_name need tls = true")
    if (peer.certificate_file is None) != (peer.key_file is None):
        raise ValueError("certificate_file and key_file belong together; give both or none")


class Route(_Section):
    """What is different for studies that are sent to one Called AE Title.

    `[routes.<CALLED_AE_TITLE>]`.

    The first image of a study decides; what is left out is as without a route.
    """

    releases: tuple[str, ...] = Field(
        (), description="Releases that read these studies; empty: models.releases."
    )
    destinations: tuple[str, ...] = Field(
        (), description="Names of the destinations of their documents; empty: all."
    )
    quiet_seconds: float | None = Field(
        None, ge=0, le=86400, description="Quiet period; none: studies.quiet_seconds."
    )
    lane: LaneName = Field("live", description="Priority from the door to the engine.")


class Sender(_Section):
    """What is different for one Calling AE Title: `[senders.<CALLING_AE_TITLE>]`.

    What is left out is as for all.

    Of a study the sender of its first image decides, and before the route of the Called AE Title.
    """

    peers: tuple[Network, ...] = Field(
        (),
        description=(
            "Addresses that may use this AE Title, instead of receive.peers; others are rejected"
            " (1,1,1)."
        ),
    )
    certificate_names: tuple[CertificateName, ...] = Field(
        (),
        description=(
            "The AE Title is rejected (1,1,3) unless its certificate holds one of these: the"
            " subject's CN, a SAN dNSName or URI, or `sha256:` and the certificate's fingerprint."
            " Needs receive.tls_client_ca_file; empty: any, and none."
        ),
    )
    called_ae_titles: tuple[AeTitle, ...] = Field(
        (),
        description=(
            "Those of receive.ae_titles that it may call; another is rejected (1,1,7); empty: all."
        ),
    )
    maximum_associations: int | None = Field(
        None,
        ge=0,
        description=(
            "Its simultaneous associations, of all processes together and within"
            " receive.maximum_associations, so that a busy archive leaves room for the modalities;"
            " one more is rejected (2,3,2); 0: it is shut out."
        ),
    )
    sop_classes: tuple[SopClass, ...] = Field(
        (), description="SOP Classes of images that it may send, instead of receive.sop_classes."
    )
    transfer_syntaxes: tuple[TransferSyntax, ...] = Field(
        (),
        description=(
            "Transfer Syntaxes of its images, in order of preference, instead of"
            " receive.transfer_syntaxes."
        ),
    )
    other_objects: OtherObjects | None = Field(
        None, description="What is no image of it, instead of receive.other_objects."
    )
    may_reject: bool | None = Field(
        None,
        description=(
            "Whether its rejection notes (IHE IOCM) count: true: for images of every sender, as"
            " those of an archive; false: never; none: for images that it has sent itself."
        ),
    )
    may_correct: bool | None = Field(
        None,
        description=(
            "Whether the same pixels with another header correct an image: true: of every sender,"
            " as an archive does it; false: of none; none: of images that it has sent itself. What"
            " does not count is a conflict, which a person decides."
        ),
    )
    quiet_seconds: float | None = Field(
        None, ge=0, le=86400, description="Quiet period of its studies."
    )
    maximum_wait_seconds: float | None = Field(
        None,
        ge=0,
        description="How long its studies may grow, instead of studies.maximum_wait_seconds.",
    )
    lane: LaneName | None = Field(
        None, description="Priority of its studies from the door to the engine."
    )
    releases: tuple[str, ...] = Field((), description="Releases that read its studies.")
    destinations: tuple[str, ...] = Field(
        (), description="Names of the destinations of their documents."
    )


@dataclass(frozen=True, slots=True)
class Handling:
    """What shall happen with a study: nothing is left to be looked up. Times in seconds."""

    lane: LaneName
    releases: tuple[str, ...]
    destinations: tuple[str, ...]
    quiet_seconds: float
    maximum_wait_seconds: float


class Watch(_Section):
    """A folder into which somebody puts DICOM files: `[watch.<name>]`.

    What cannot be taken goes to `refused/` in it, beside the reason.
    """

    path: Path = Field(
        description=(
            "The folder; folders below it are watched, too, but for `taken`, `refused` and names"
            " with a dot."
        )
    )
    when_taken: Literal["keep", "delete", "move"] = Field(
        "move",
        description=(
            "What becomes of a file that is in the archive: move to `taken/`, delete, or keep (and"
            " what is refused, too)."
        ),
    )
    settle_seconds: float = Field(
        5.0,
        ge=0,
        description=(
            "A file that has not changed for so long is whole. Rename files into place if you can."
        ),
    )
    called_ae_title: OptionalAeTitle = Field(
        "",
        description="Called AE Title whose route applies; empty: the first of receive.ae_titles.",
    )
    calling_ae_title: AeTitle = Field(
        "HILUM_WATCH",
        description=(
            "AE Title that the files are said to come from; its section of `senders` applies."
        ),
    )
    lane: LaneName = Field(
        "reanalysis",
        description="Priority from the door to the engine, whatever route and sender say.",
    )


class CommitmentPeer(_Section):
    """Where reports of storage commitment go that this AE Title has asked for.

    `[commitment.<CALLING_AE_TITLE>]`.

    Without one they go back over the association of the request, if it is still open.
    """

    host: Host = Field(description="Host on which the asker takes N-EVENT-REPORT.")
    port: Port = Field(description="Its TCP port.")
    ae_title: OptionalAeTitle = Field("", description="Its AE Title; empty: that of the section.")
    timeout_seconds: float = Field(
        30.0, gt=0, description="Limit for the connection and for each message."
    )
    tls: bool = Field(
        default=False,
        description="TLS 1.2 or later to it (PS3.15 Annex B); its certificate is verified.",
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "tls: PEM file of the authority that signed its certificate; none: the system's."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="tls: PEM file of our certificate, where it asks for one."
    )
    key_file: Path | None = Field(
        None, description="tls: PEM file of the key to it, not encrypted."
    )
    tls_server_name: str = Field(
        "", description="tls: name in its certificate, where it is not host."
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> CommitmentPeer:
        _require_whole_tls(self)
        return self


class Api(_Section):
    """REST, pages, health and metrics.

    Everybody needs a token: `hilum token create`, or this setting.
    """

    host: Host = Field(
        "127.0.0.1", description="Address to bind. Beyond loopback, set up TLS or a proxy."
    )
    port: Port = Field(8640, description="TCP port of REST, health and metrics.")
    names: tuple[Host, ...] = Field(
        (),
        description=(
            "Names of this server. Health is told to strangers under these, the host's own name,"
            " localhost and addresses."
        ),
    )
    token: str = Field(
        "",
        description=(
            "A token named `settings` that may do everything; empty: none. Named tokens are better:"
            " they end and can be revoked."
        ),
        repr=False,
    )
    open_metrics: bool = Field(default=False, description="Whether /metrics needs no token.")
    show_identifiers: bool = Field(
        default=False,
        description=(
            "Whether pages show Patient ID, Accession Number and Study Date, and pages and REST"
            " find studies by them. Each look is a row of the audit (docs/audit.md)."
        ),
    )
    tls_certificate_file: Path | None = Field(
        None,
        description=(
            "PEM file of our certificate and its chain, for HTTPS. A new one is used without"
            " restart."
        ),
    )
    tls_key_file: Path | None = Field(None, description="PEM file of the key to it, not encrypted.")
    proxies: tuple[Network, ...] = Field(
        (),
        description=(
            "Addresses of proxies that end TLS. X-Forwarded-For and X-Forwarded-Proto are believed"
            " from them alone."
        ),
    )

    @field_validator("token")
    @classmethod
    def _token_can_be_sent(cls, value: str) -> str:
        return printable_token(value)

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Api:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError(
                "tls_certificate_file and tls_key_file belong together; give both or none"
            )
        return self

    @property
    def is_public(self) -> bool:
        """Whether other machines reach it."""
        return self.host not in LOOPBACK

    @property
    def is_tls(self) -> bool:
        """Whether it speaks HTTPS itself."""
        return self.tls_certificate_file is not None


class Stow(_Section):
    """Images by DICOMweb: `POST /dicom-web/studies` on the port of REST (STOW-RS).

    One request is one whole study, or several.
    """

    enabled: bool = Field(
        default=True,
        description="Whether images are taken so. It needs a token of the scope operate.",
    )
    called_ae_title: OptionalAeTitle = Field(
        "",
        description="Called AE Title whose route applies; empty: the first of receive.ae_titles.",
    )
    calling_ae_title: AeTitle = Field(
        "STOW_RS",
        description=(
            "AE Title that the images are said to come from; its section of `senders` applies."
        ),
    )
    maximum_parts: int = Field(
        10_000, ge=1, description="Most objects in one request; one with more is answered 413."
    )


class Log(_Section):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field(
        "console", description="console for people, json for collectors."
    )


class Tracing(_Section):
    """OpenTelemetry spans of each study, from its association to the SR that is accepted (docs/tracing.md)."""

    endpoint: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description=(
            "Where spans are posted (OTLP over HTTP), path included, as"
            " http://127.0.0.1:4318/v1/traces; empty: no traces."
        ),
    )
    share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of studies that are traced; all processes choose the same ones.",
    )


class Syslog(_Section):
    """A collector of audit messages (PS3.15 A.5 by RFC 5424).

    They wait in the ledger while it is away.
    """

    host: str = Field("", description="Host name or address of the collector; empty: none.")
    port: int = Field(
        6514, ge=1, le=65535, description="Registered ones: 6514 for tls and tcp, 514 for udp."
    )
    protocol: Literal["udp", "tcp", "tls"] = Field(
        "tls",
        description=(
            "udp: RFC 5426, may lose messages. tcp: RFC 6587, octets counted. tls: RFC 5425."
        ),
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "With tls: PEM file of the authority behind its certificate; none: those of the host."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="With tls: PEM file of our certificate and its chain, if it asks for one."
    )
    key_file: Path | None = Field(
        None, description="With tls: PEM file of the key to it, not encrypted."
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Syslog:
        if bool(self.certificate_file) != bool(self.key_file):
            raise ValueError("certificate_file and key_file go together")
        if self.protocol != "tls" and any((self.ca_file, self.certificate_file)):
            raise ValueError('ca_file, certificate_file and key_file need protocol = "tls"')
        return self


class Audit(_Section):
    """Who did what (docs/audit.md)."""

    look_minutes: float = Field(
        5.0,
        ge=0,
        le=1440,
        description=(
            "Repeated looks of one actor at one study within so long are counted in one row; 0:"
            " each is a row."
        ),
    )
    syslog: Syslog = Syslog()


class Settings(_Section):
    """All settings of one installation."""

    site: Site = Site()
    receive: Receive = Receive()
    studies: Studies = Studies()
    retention: Retention = Retention()
    models: Models = Models()
    triton: Triton = Triton()
    analyse: Analyse = Analyse()
    guard: Guard = Guard()
    pipeline: Pipeline = Pipeline()
    ledger: Ledger = Ledger()
    report: Report = Report()
    destinations: Mapping[str, Destination] = {}
    routes: Mapping[AeTitle, Route] = {}
    senders: Mapping[AeTitle, Sender] = {}
    commitment: Mapping[AeTitle, CommitmentPeer] = {}
    watch: Mapping[str, Watch] = {}  # after all that names files of ours
    api: Api = Api()
    stow: Stow = Stow()
    log: Log = Log()
    tracing: Tracing = Tracing()
    audit: Audit = Audit()

    @field_validator("destinations")
    @classmethod
    def _folders_lie_beside_the_archive(
        cls, value: Mapping[str, Destination], info: ValidationInfo
    ) -> Mapping[str, Destination]:
        archive = info.data["site"].state_dir / "archive" if "site" in info.data else None
        bad = [
            name
            for name, item in value.items()
            if item.path and archive and item.path.resolve().is_relative_to(archive.resolve())
        ]
        if bad:
            raise ValueError(f"path must not lie in the archive ({archive}): {', '.join(bad)}")
        return value

    @field_validator("destinations")
    @classmethod
    def _names_are_simple(cls, value: Mapping[str, Destination]) -> Mapping[str, Destination]:
        bad = [name for name in value if not name.replace("_", "").replace("-", "").isalnum()]
        if bad:
            raise ValueError(f"names may hold letters, digits, _ and - only: {', '.join(bad)}")
        return value

    @model_validator(mode="after")
    def _pixels_leave_before_associations_are_rejected(self) -> Settings:
        pressure = self.retention.pressure_free_bytes
        reject = self.receive.reject_below_bytes
        if 0 < pressure <= reject:
            raise ValueError(
                f"retention.pressure_free_bytes: must be above {reject}, where receive begins to"
                " reject associations, or 0"
            )
        return self

    @field_validator("routes", "senders", "commitment", mode="before")
    @classmethod
    def _titles_differ(cls, value: object) -> object:
        titles = [str(title).strip(" ") for title in value] if isinstance(value, Mapping) else []
        if twice := sorted({title for title in titles if titles.count(title) > 1}):
            raise ValueError(
                f"titles must not differ in the spaces around them only: {', '.join(twice)}"
            )
        return value

    @field_validator("routes")
    @classmethod
    def _routes_lead_somewhere(
        cls, value: Mapping[str, Route], info: ValidationInfo
    ) -> Mapping[str, Route]:
        """A section that is wrong itself is not in `info.data`.

        Then its own problem is reported.
        """
        problems: list[str] = []
        for title, route in value.items():
            if "receive" in info.data and title not in info.data["receive"].ae_titles:
                problems.append(f"{title} is not in receive.ae_titles; add it there")
            problems += _unknown_destinations(title, route.destinations, info)
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @field_validator("senders")
    @classmethod
    def _senders_name_what_there_is(
        cls, value: Mapping[str, Sender], info: ValidationInfo
    ) -> Mapping[str, Sender]:
        problems: list[str] = []
        for title, sender in value.items():
            known = list(
                info.data["receive"].ae_titles
                if "receive" in info.data
                else sender.called_ae_titles
            )
            wrong = [called for called in sender.called_ae_titles if called not in known]
            problems += [
                f"{title}: called_ae_titles: {called!r} is not in"
                f" receive.ae_titles{_nearest(called, known)}"
                for called in wrong
            ]
            problems += _unknown_destinations(title, sender.destinations, info)
            if (
                sender.certificate_names
                and "receive" in info.data
                and not info.data["receive"].tls_client_ca_file
            ):
                problems.append(
                    f"{title}: certificate_names needs receive.tls_client_ca_file: senders show no"
                    " certificate without it"
                )
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @field_validator("watch")
    @classmethod
    def _watched_folders_are_their_own(
        cls, value: Mapping[str, Watch], info: ValidationInfo
    ) -> Mapping[str, Watch]:
        """What lies in them is moved or deleted, which must not befall our own files, nor what another one watches."""
        taken = {name: path.resolve() for name, path in _our_paths(info.data)}
        for name, watch in value.items():
            _require_called(watch.called_ae_title, info)
            folder = watch.path.resolve()
            for other, theirs in taken.items():
                if folder.is_relative_to(theirs) or theirs.is_relative_to(folder):
                    raise ValueError(
                        f"{name}: path must lie beside {other}, not in it or around it"
                    )
            taken[f"the path of {name}"] = folder
        return value

    @field_validator("stow")
    @classmethod
    def _stow_has_a_route(cls, value: Stow, info: ValidationInfo) -> Stow:
        _require_called(value.called_ae_title, info)
        return value

    def sender(self, calling_ae_title: str) -> Sender:
        """What is different for this AE Title."""
        return self.senders.get(calling_ae_title.strip(), _ANY_SENDER)

    def handling_of(self, calling_ae_title: str, called_ae_title: str) -> Handling:
        """Of studies whose first image came from the one to the other.

        As the sender's section says, else the route, else as for all.
        """
        sender = self.sender(calling_ae_title)
        route = self.routes.get(called_ae_title, _NO_ROUTE)
        return Handling(
            lane=sender.lane or route.lane,
            releases=tuple(
                dict.fromkeys(sender.releases or route.releases or self.models.releases)
            ),  # each reads an image once
            destinations=sender.destinations or route.destinations or tuple(self.destinations),
            quiet_seconds=_first(
                sender.quiet_seconds, route.quiet_seconds, self.studies.quiet_seconds
            ),
            maximum_wait_seconds=_first(
                sender.maximum_wait_seconds, self.studies.maximum_wait_seconds
            ),
        )

    @property
    def active_releases(self) -> tuple[str, ...]:
        """Every release that reads some studies, those of routes and senders included."""
        some = [item.releases for item in self.routes.values()] + [
            item.releases for item in self.senders.values()
        ]
        return tuple(dict.fromkeys([*self.models.releases, *itertools.chain(*some)]))

    @property
    def limited_senders(self) -> tuple[str, ...]:
        """Calling AE Titles with a limit of their own, in an order on which all processes agree."""
        return tuple(
            sorted(
                title
                for title, sender in self.senders.items()
                if sender.maximum_associations is not None
            )
        )

    @property
    def own_paths(self) -> dict[Path, str]:
        """Files and folders that these settings name, resolved, each with its setting.

        Not watched ones, which hold what others make.
        """
        sections = {
            name: getattr(self, name) for name in type(self).model_fields if name != "watch"
        }
        # Not path.resolve(), which raises for a link to itself: who uses the file says what is
        # wrong with it.
        return {Path(os.path.realpath(path)): name for name, path in _our_paths(sections)}

    @property
    def archive_dir(self) -> Path:
        """Where received objects are kept."""
        return self.site.state_dir / "archive"

    @property
    def run_dir(self) -> Path:
        """Sockets, metrics files and process files of the running server."""
        return self.site.state_dir / "run"

    @property
    def built_dir(self) -> Path:
        """Built Triton model trees."""
        return self.models.built or self.site.state_dir / "models"

    @property
    def manifests_dir(self) -> Path:
        """Manifests, one folder a release."""
        return self.models.manifests or _MANIFESTS

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.ledger.url or f"sqlite:///{(self.site.state_dir / 'ledger.sqlite').resolve()}"

    def dump(self) -> str:
        """JSON that `restore` takes back, for a child process.

        Secrets included, so it never goes to disk.
        """
        return self.model_dump_json()


_ANY_SENDER = Sender()
_NO_ROUTE = Route()


def _our_paths(sections: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Files and folders that these settings name, each with the setting.

    A section that is wrong itself is not there.
    """
    for section, value in sections.items():
        named = value if isinstance(value, Mapping) else {"": value}
        for name, item in named.items():
            yield from _paths_of(item, *filter(None, (section, name)))
    if "models" in sections and sections["models"].manifests is None:
        yield "models.manifests", _MANIFESTS
    if "ledger" in sections and sections["ledger"].file:
        yield "ledger.url", sections["ledger"].file


def _paths_of(section: _Section, *place: str) -> Iterator[tuple[str, Path]]:
    for key, value in section:
        if isinstance(value, _Section):
            yield from _paths_of(value, *place, key)
        elif isinstance(value, Path):
            yield ".".join((*place, key)), value


def _first(*values: float | None) -> float:
    """The first that is said; the last one always is."""
    return next(value for value in values if value is not None)


def _unknown_destinations(title: str, names: Iterable[str], info: ValidationInfo) -> list[str]:
    if "destinations" not in info.data:
        return []
    known = list(info.data["destinations"])
    return [
        f"{title}: no destination {name!r}{_nearest(name, known)}"
        for name in names
        if name not in known
    ]


def _require_called(called_ae_title: str, info: ValidationInfo) -> None:
    if (
        called_ae_title
        and "receive" in info.data
        and called_ae_title not in info.data["receive"].ae_titles
    ):
        raise ValueError(
            f"called_ae_title {called_ae_title} is not in receive.ae_titles; add it there"
        )


# Sections that hold named tables: of what model, and what the name is.
_NAMED: Mapping[str, tuple[type[_Section], str]] = {
    "destinations": (Destination, "<name>"),
    "routes": (Route, "<CALLED_AE_TITLE>"),
    "senders": (Sender, "<CALLING_AE_TITLE>"),
    "watch": (Watch, "<name>"),
    "commitment": (CommitmentPeer, "<CALLING_AE_TITLE>"),
}

_SECRETS = {("api", "token"), ("ledger", "url")}
_SECRET_NAME = re.compile("token$|password|secret|webhook", re.IGNORECASE)
_PASSWORD = re.compile("://[^/@]*:[^/@]+@")

# What was a table of its own once, and is in the senders' now.
_MOVED: Mapping[tuple[str, ...], str] = {
    ("receive", "maximum_associations_by_ae"): "maximum_associations",
    ("studies", "quiet_seconds_by_ae"): "quiet_seconds",
}


def restore(text: str) -> Settings:
    """Settings from `Settings.dump`; the environment is not read again, so all processes agree.

    Raises ConfigurationError for those of another version, as when it was installed over one that
    runs.
    """
    sections: dict[str, Any] = {}
    for section, value in json.loads(text).items():
        try:
            if section in _NAMED:
                sections[section] = {
                    name: _NAMED[section][0].model_validate(item) for name, item in value.items()
                }
            else:
                sections[section] = _section(section).model_validate(value)
        except (ValidationError, KeyError) as error:
            problem = (
                f"settings: [{section}] is not of this version of Hilum: stop `hilum serve` and"
                " start it again."
            )
            raise ConfigurationError([problem]) from error
    return Settings.model_construct(**sections)


def find_file(explicit: Path | None) -> Path | None:
    """The settings file: --config, HILUM_CONFIG, ./hilum.toml, /etc/hilum/hilum.toml.

    None: defaults only.
    """
    if explicit is not None:
        return explicit
    if named := os.environ.get("HILUM_CONFIG"):
        return Path(named)
    return next(
        (p for p in (Path("hilum.toml"), Path("/etc/hilum/hilum.toml")) if _is_there(p)), None
    )


def _is_there(file: Path) -> bool:
    """Not in a folder that this user may not enter, as the home of who says `sudo -u hilum hilum ...`."""
    with contextlib.suppress(PermissionError):
        return file.is_file()
    return False


def load(path: Path | None = None) -> Settings:
    """Settings from the file (see `find_file`) and the environment.

    Raises ConfigurationError with all problems.
    """
    file = find_file(path)
    given = overlay(_content(file) if file else {}, Settings, os.environ)
    problems = [
        f"{item.variable}: {_unknown(item.place, item.known)}" for item in given.unknown
    ] + given.unreadable
    try:
        settings = Settings(**given.content)
    except ValidationError as error:
        raise ConfigurationError(
            [*problems, *(_explain(item, file, given) for item in error.errors())]
        ) from error
    if problems:
        raise ConfigurationError(problems)
    return settings


def secrets_in(file: Path) -> list[str]:
    """Settings in a file that nobody else should read: tokens, passwords, also that in an address.

    Raises ConfigurationError.
    """
    return list(_secrets((), _content(file)))


def _secrets(place: tuple[str, ...], value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets((*place, str(name)), item)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(place, item)
    elif (
        isinstance(value, str)
        and value
        and (_SECRET_NAME.search(place[-1]) or _PASSWORD.search(value))
    ):
        yield ".".join(place)


def _content(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(
            file.read_text(encoding="utf-8-sig")
        )  # some editors begin a file with a byte order mark
    except OSError as error:
        raise ConfigurationError(
            [f"{file}: {error.strerror}. Give an existing file with --config or HILUM_CONFIG."]
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(
            [f"{file}: not UTF-8, as TOML has to be (at line {line}). Save it as UTF-8."]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{file}: not valid TOML: {error}"]) from error


def _section(name: str) -> type[BaseModel]:
    annotation = Settings.model_fields[name].annotation
    if not (
        isinstance(annotation, type) and issubclass(annotation, BaseModel)
    ):  # pragma: no cover - guarded by the callers
        raise TypeError(name)
    return annotation


def _known(prefix: tuple[str, ...]) -> list[str]:
    """Names that may stand after this prefix."""
    if not prefix:
        return list(Settings.model_fields)
    if prefix[0] in _NAMED:
        return list(_NAMED[prefix[0]][0].model_fields) if len(prefix) == 2 else []
    return _names_in(Settings, prefix)


def _names_in(model: type[BaseModel], prefix: tuple[str, ...]) -> list[str]:
    """Of the section there; empty where there is none."""
    for name in prefix:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (
        f"; did you mean {close[0]!r}?"
        if close
        else f"; known: {', '.join(known)}"
        if known
        else ""
    )


def _unknown(place: tuple[str, ...], known: list[str]) -> str:
    if place == ("receive", "listener"):
        return "unknown setting; leave it out, there is one listener"
    if place in _MOVED:
        return f"unknown setting; say it in [senders.<CALLING_AE_TITLE>], as {_MOVED[place]}"
    return f"unknown setting{_nearest(place[-1], known)}"


def _explain(item: Mapping[str, Any], file: Path | None, given: Overlaid) -> str:
    place = tuple(str(part) for part in item["loc"] if part != "[key]")
    where = _origin(place, file, given)
    if item["type"] == "extra_forbidden":
        return f"{where}{'.'.join(place)}: {_unknown(place, _known(place[:-1]))}"
    is_secret = any(
        secret[: len(place)] == place for secret in _SECRETS
    )  # or its section: ledger = "postgresql+psycopg://…"
    value = (
        "" if is_secret or isinstance(item.get("input"), dict) else f" (got {item.get('input')!r})"
    )
    return f"{where}{'.'.join(place)}{': ' if place else ''}{item['msg'].removeprefix('Value error, ')}{value}"


def _origin(place: tuple[str, ...], file: Path | None, given: Overlaid) -> str:
    """Who says what is wrong: the variable, else the file."""
    above = (place[:length] for length in range(len(place), 0, -1))
    said = next((given.variables[some] for some in above if some in given.variables), file)
    return f"{said}: " if said else ""


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, description) of every setting, for the documentation."""
    for section in Settings.model_fields:
        model, prefix = (
            (_NAMED[section][0], f"{section}.{_NAMED[section][1]}")
            if section in _NAMED
            else (_section(section), section)
        )
        yield from _described(model, prefix)


def _described(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """A section's own settings, then those of the sections in it."""
    inner = {name: info.annotation for name, info in model.model_fields.items()}
    sections = {
        name: kind
        for name, kind in inner.items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }
    for name, info in model.model_fields.items():
        if name not in sections:
            default = _as_toml(None if info.is_required() else info.get_default())
            yield f"{prefix}.{name}", _type_name(info.annotation), default, info.description or ""
    for name, kind in sections.items():
        yield from _described(kind, f"{prefix}.{name}")


def _type_name(annotation: object) -> str:
    """A type in the words of TOML."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Literal:
        return " or ".join(arguments)
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if origin is Mapping:
        return "table"
    if arguments:  # Annotated[X, …] and X | None
        return _type_name(arguments[0])
    return _TYPE_WORDS[annotation]


def _as_toml(value: object) -> str:
    """A default as it would stand in the file; empty where there is none."""
    if value is None:
        return ""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
