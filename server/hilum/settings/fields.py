"""The types of single settings, and the base of every section."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES
from hilum_preprocessing.spec.fields import nearest


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


def host_name(value: str) -> str:
    """Return a host name that the resolver takes.

    For others it raises UnicodeError, not OSError, and ValueError for a null character.
    """
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


OptionalHost = Annotated[str, AfterValidator(host_name)]


Host = Annotated[str, Field(min_length=1), AfterValidator(host_name)]


Port = Annotated[int, Field(ge=1, le=65535)]


def _network(value: str) -> str:
    """An address or a range. Host bits that are set are refused: they would widen the range."""
    ipaddress.ip_network(value)
    return value


Network = Annotated[str, AfterValidator(_network)]


FINGERPRINT = "sha256:"


def certificate_name(value: str) -> str:
    """As names of certificates compare.

    Fingerprints without colons, host names without regard to case (RFC 5280 7.2); a URI as it is.
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
        raise ValueError(f"no {what}{nearest(value, known, cutoff=0.5)}")
    return value


SopClass = Annotated[str, AfterValidator(_sop_class)]


TransferSyntax = Annotated[str, AfterValidator(_transfer_syntax)]


PriorityName = Literal["urgent", "live", "reanalysis"]


_LARGEST = 2_000_000


LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_ae_title(text: str) -> bool:
    """Whether a setting may hold it."""
    try:
        TypeAdapter(AeTitle).validate_python(text)
    except ValidationError:
        return False
    return True


class Section(BaseModel):
    """A section of the settings: frozen, without unknown names, and each value is usable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _is_usable(cls, value: object) -> object:
        """Return a value that has JSON and that poll(2) can wait for.

        Infinity has no JSON, in which children get the settings. The limit of poll(2) is 2^31 ms.
        """
        if isinstance(value, float) and not abs(value) <= _LARGEST:
            raise ValueError(f"must be at most {_LARGEST}; no number says for ever")
        if isinstance(value, Path):
            _require_path(value)
        return value


def _grpc_address(value: str) -> str:
    """host:port, as gRPC takes it; empty where nothing is named."""
    host, _, port = value.rpartition(":")
    if value and (not host or "/" in value or not (port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError("must be host:port, such as gpu1:8001")
    host_name(host)
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
