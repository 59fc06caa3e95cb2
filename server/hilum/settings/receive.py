"""Settings of the DICOM listener."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES
from hilum.settings.fields import (
    AeTitle,
    Host,
    Network,
    OtherObjects,
    Port,
    Section,
    SopClass,
    TransferSyntax,
)


class Receive(Section):
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
            "Objects that are no images, such as reports of other makers, key objects,"
            " presentation states and PDF. `discard`: answered Success, counted and not"
            " kept. A refusal makes some archives (Orthanc) give up the whole study."
            " `refuse`: its contexts are answered 3. Images of other SOP Classes are"
            " refused in either case."
        ),
    )
    write_out_bytes: int = Field(
        1 << 20,
        ge=0,
        description=(
            "Bytes of an object that go to the disk while the rest comes in; 0: all at"
            " its end, for spinning and network disks."
        ),
    )
    durability: Literal["auto", "strict"] = Field(
        "auto",
        description=(
            "How a received file is made durable under its name. auto: on XFS, and ext4 with a"
            " journal, with one commit of the journal, which several files share; elsewhere, or"
            " with strict, by a sync of the file and then one of its folder, which is two."
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
            "Limit for the N-EVENT-REPORT response on the association that requested"
            " storage commitment."
        ),
    )
    network_timeout_seconds: float = Field(
        60.0,
        gt=0,
        description=(
            "An association is aborted when nothing comes for this time, between messages"
            " or inside one. A STOW-RS request is answered 408."
        ),
    )
    minimum_bytes_per_second: int = Field(
        1024,
        ge=0,
        le=1 << 20,
        description=(
            "A sender is aborted (too_slow; a STOW-RS request is answered 408) if it"
            " sends, but less than this of a message for twice network_timeout_seconds; 0:"
            " only silence ends it."
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
            "Free inodes that are never used. Below it C-STORE is answered 0xA700, and"
            " below twice as many new associations are rejected (2,3,2). Not checked where"
            " the file system counts none, as btrfs."
        ),
    )
    maximum_due_readings: int = Field(
        0,
        ge=0,
        description=(
            "New associations are rejected (2,3,2) while this many readings of the"
            " priorities urgent and live wait; 0: never."
        ),
    )

    storage_commitment: bool = Field(
        default=True,
        description=(
            "Storage commitment is offered (PS3.4 annex J). Committed images stay for"
            " retention.committed_days. False: its contexts are refused."
        ),
    )
    commitment_wait_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description=(
            "Time for which a request for storage commitment waits for objects that have"
            " not come, before they fail."
        ),
    )
    commitment_hours: float = Field(
        24.0,
        ge=0,
        description=(
            "Time for which the report of a storage commitment is retried. Then it is"
            " dead until it is requeued."
        ),
    )
    allow_unencrypted: bool = Field(
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
            "PEM file of that authority's certificate revocation list, and of the list of"
            " each other authority that signs certificates of senders. A new one is used"
            " without restart. While one has expired, every sender over TLS is refused."
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
        if not self.tls_port and not self.allow_unencrypted:
            raise ValueError("allow_unencrypted = false needs tls_port: no port would be open")
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
