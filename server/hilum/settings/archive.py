"""Settings of the place of received objects: the state folder, or an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from hilum.settings.fields import Section

_SCHEMES: Final = ("s3", "gs", "az", "file")


def _url(value: str) -> str:
    """Return the URL of an object store, without credentials, query or an empty bucket."""
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in _SCHEMES:
        raise ValueError(
            f"must begin with one of {', '.join(f'{name}://' for name in _SCHEMES)}; empty: the"
            " state folder"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "leave credentials out of the URL; they belong in archive.credentials_file or in"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise ValueError("a file:// URL has three slashes and the path of a folder")
    if parts.scheme != "file" and not parts.netloc:
        raise ValueError("it names no bucket; write s3://bucket/prefix")
    return value.rstrip("/")


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in {"http", "https"} or not parts.netloc or "@" in value):
        raise ValueError("must be https://host or http://host:port, without credentials")
    return value.rstrip("/")


class ArchiveSection(Section):
    """The place of received objects (object_store.md)."""

    url: Annotated[str, AfterValidator(_url)] = Field(
        "",
        description=(
            "Object store, such as s3://bucket/prefix; empty: the folder archive/ of the state"
            " folder, which several hosts may share."
        ),
    )
    endpoint: Annotated[str, AfterValidator(_endpoint)] = Field(
        "", description="URL of an S3 server that is not Amazon's, such as https://minio:9000."
    )
    region: str = Field("", description="Region of the bucket; empty: AWS_REGION, or us-east-1.")
    path_style: bool = Field(
        default=True,
        description="The bucket stands in the path of requests; false: in the host name.",
    )
    credentials_file: Path | None = Field(
        None,
        description=(
            "File with aws_access_key_id and aws_secret_access_key, in the form of"
            " ~/.aws/credentials; none: AWS_ACCESS_KEY_ID and so on, or the role of the machine."
        ),
    )
    profile: str = Field("default", description="Section of credentials_file.", min_length=1)
    ca_file: Path | None = Field(
        None, description="PEM file of the authority that signed the store's certificate."
    )
    timeout_seconds: float = Field(
        30.0,
        gt=0,
        le=300,
        description=(
            "Limit for one request, and for its repetitions after errors of the store. A download"
            " may take ten times as long, while its bytes come."
        ),
    )
    transfers: int = Field(
        8,
        ge=1,
        le=64,
        description="Objects that one process moves to the store, or from it, at once.",
    )
