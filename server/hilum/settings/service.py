"""Settings of the service itself: site, stages, ledger, REST, logs, traces and audit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from hilum.dicom.text import LongString
from hilum.settings.fields import (
    LOOPBACK,
    AeTitle,
    Host,
    Network,
    OptionalAeTitle,
    Port,
    Section,
    printable_token,
)

_SQLITE = "sqlite:///"


_POSTGRESQL = "postgresql+psycopg://"


# As SQLAlchemy divides it; else what is left of a password with an @ in it is taken for a host, or
# a port, and shown in errors.
_SERVER = re.compile(r"([^@]*@)?(\[[^]@/?]+\]|[^][@:/?]*)(:[0-9]+)?([/?].*)?")


class Site(Section):
    """The operator of this installation."""

    name: LongString = Field(
        "Hilum", description="Institution or installation name; written into reports. No backslash."
    )
    state_dir: Path = Field(
        Path("state"),
        description="Folder for the archive, the ledger, built models and run-time files.",
    )


class Pipeline(Section):
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
            "First pause between tries. It doubles with each try that counts; a try that"
            " failed for an outage does not count. An unavailable destination is probed"
            " after this time, and then at growing intervals of up to 30 s."
        ),
    )
    maximum_backoff_seconds: float = Field(300.0, gt=0, description="Longest pause between tries.")
    poll_seconds: float = Field(
        5.0, gt=0, description="A stage looks for work this often even if nothing notifies it."
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


class LedgerSection(Section):
    """Where the rows are."""

    url: Annotated[str, AfterValidator(_ledger_url)] = Field(
        "",
        description=(
            "SQLAlchemy URL; empty: SQLite in the state folder; postgresql+psycopg://… for many"
            " hosts (operations.md)."
        ),
    )
    clock_tolerance_seconds: float = Field(
        2.0,
        gt=0,
        le=60,
        description=(
            "A host's clock may differ from that of PostgreSQL by so much. Above it, readiness, a"
            " metric and `hilum check` report the host (docs/operate/hosts.md)."
        ),
    )

    direct_url: Annotated[str, AfterValidator(_ledger_url)] = Field(
        "",
        description=(
            "The same database without a pooler, where `url` is PgBouncer's: for"
            " notifications, which a pooler does not carry. Empty: as `url`; behind a pooler stages"
            " then look for work every pipeline.poll_seconds (docs/operate/postgresql.md)."
        ),
    )

    @model_validator(mode="after")
    def _direct_url_is_of_a_server(self) -> LedgerSection:
        if self.direct_url and not (
            self.url.startswith(_POSTGRESQL) and self.direct_url.startswith(_POSTGRESQL)
        ):
            raise ValueError("direct_url needs a PostgreSQL in url, and names the same database")
        return self

    @property
    def words(self) -> Mapping[str, str]:
        """The words of libpq behind the question mark of `url`."""
        return {name: found[-1] for name, found in parse_qs(urlsplit(self.url).query).items()}

    @property
    def tls_files(self) -> Mapping[str, Path]:
        """The files of TLS that `url` names, by libpq's words.

        `sslrootcert=system` means the authorities of this machine, and is no file.
        """
        words = self.words
        named = ("sslrootcert", "sslcert", "sslkey")
        return {word: Path(words[word]) for word in named if words.get(word, "system") != "system"}

    @property
    def file(self) -> Path | None:
        """Of SQLite, where `url` names one."""
        return (
            Path(self.url.removeprefix(_SQLITE).partition("?")[0])
            if self.url.startswith(_SQLITE)
            else None
        )


class Api(Section):
    """REST, pages, health and metrics.

    Each request needs a token: `hilum token create`, or this setting.
    """

    host: Host = Field(
        "127.0.0.1", description="Address to bind. Beyond loopback, set up TLS or a proxy."
    )
    port: Port = Field(8640, description="TCP port of REST, health and metrics.")
    names: tuple[Host, ...] = Field(
        (),
        description=(
            "Names of this server. Requests without a token reach health only under"
            " these, the host's own name, localhost and addresses."
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
            "Whether pages show Patient ID, Accession Number and Study Date, and pages"
            " and REST find studies by them. Each display is a row of the audit"
            " (docs/operate/audit.md)."
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


class Stow(Section):
    """Images by DICOMweb: `POST /dicom-web/studies` on the port of REST (STOW-RS).

    One request is one whole study, or several.
    """

    enabled: bool = Field(
        default=True,
        description="Whether STOW-RS is offered. It needs a token of the scope operate.",
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


class Log(Section):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field(
        "console", description="console for people, json for collectors."
    )


class Tracing(Section):
    """OpenTelemetry spans of each study (docs/operate/tracing.md).

    They last from its association to the SR that is accepted.
    """

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


class Syslog(Section):
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


class Audit(Section):
    """The audit (docs/operate/audit.md)."""

    look_minutes: float = Field(
        5.0,
        ge=0,
        le=1440,
        description=(
            "Repeated displays of one study to one actor within this time are one row; 0:"
            " each is a row."
        ),
    )
    syslog: Syslog = Syslog()
