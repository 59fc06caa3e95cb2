"""Requests to an object store: Amazon S3 and its like, Google, Azure, or a folder (`file://`).

By `obstore`, the Rust crate object_store (docs/decisions/object-store-client.md). Errors are
OSError: FileNotFoundError for an object that is not there, StoreAway for all others.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from hilum.errors import ConfigurationError
from hilum.settings.archive import ArchiveSection
from hilum.store.archive.directory_sync import sync_file_system
from hilum.store.archive.store_errors import StoreAway, cause_of

_BACKOFF_SECONDS: Final = (0.2, 5.0)  # the first pause, and the longest
_MAXIMUM_RETRIES: Final = 50  # the time ends them, not their number
_CONNECT_SECONDS: Final = 5.0
_DOWNLOADS: Final = 10  # times the limit of other requests, while bytes come
_OF_EMPTY: Final = "InvalidRange"  # an empty object has no first byte (416)
_KEYS: Final[Mapping[str, str]] = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


class KeyTaken(FileExistsError):
    """Other bytes are in the store under the name of an object of ours."""


class ObjectClient:
    """The objects below one prefix. Thread-safe.

    Requests are repeated after errors of the store, with growing pauses, within
    `archive.timeout_seconds`.
    """

    def __init__(self, settings: ArchiveSection) -> None:
        """Read the credentials. Connects nowhere. Raises ConfigurationError."""
        self.url = settings.url
        self._folder = _folder_of(settings.url)
        self._store: Any = _open(settings, self._folder)

    def put_new(self, key: str, file: Path) -> None:
        """Store the file, never in the place of another object.

        The store verifies a checksum (SHA-256). The same bytes under this name are ours, from
        before a crash or from a request whose answer was lost. Raises KeyTaken, StoreAway, and
        OSError of the file.
        """
        content = file.read_bytes()
        if not self.put_bytes(key, content) and not self._holds(key, content):
            raise KeyTaken(f"other bytes are in the store under {key}")

    def put_bytes(self, key: str, content: bytes) -> bool:
        """Store an object; False: there is one of this name."""
        try:
            obstore.put(self._store, key, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, OSError, ValueError) as error:
            raise _away(error) from None
        return True

    def read(self, key: str) -> memoryview:
        """Return the whole object."""
        try:
            answer = obstore.get(self._store, key)
            expected: int = answer.meta["size"]
            content = memoryview(answer.bytes())
        except (BaseError, OSError, ValueError) as error:
            raise _missing_or_away(error, key) from None
        if len(content) != expected:
            raise StoreAway("damaged")
        return content

    def read_first(self, key: str, count: int) -> memoryview:
        """Return the first bytes of an object, at most `count`."""
        return self._beginning(key, count)[0]

    def size_of(self, key: str) -> int:
        """Return the size in bytes.

        By a request for a first byte: a HEAD could not tell a missing bucket from a missing object.
        """
        return self._beginning(key, 1)[1]

    def copy(self, key: str, target: str) -> None:
        """Copy an object within the store."""
        try:
            obstore.copy(self._store, key, target)
        except (BaseError, OSError, ValueError) as error:
            raise _missing_or_away(error, key) from None

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, many in one request; those that are not there are passed over."""
        try:
            obstore.delete(self._store, list(keys))
        except FileNotFoundError as error:
            if cause_of(str(error)) == "no_bucket":
                raise StoreAway("no_bucket") from None
            if len(keys) > 1:  # not of S3: the first that is not there has ended the request
                for key in keys:
                    self.delete([key])
        except (BaseError, OSError, ValueError) as error:
            raise _away(error) from None

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all objects below a prefix, some thousand at a time."""
        try:
            for page in obstore.list(self._store, prefix or None):
                yield from (str(item["path"]) for item in page)
        except FileNotFoundError as error:
            if cause_of(str(error)) == "no_bucket":
                raise StoreAway("no_bucket") from None
        except (BaseError, OSError, ValueError) as error:
            raise _away(error) from None

    def sync(self) -> None:
        """Make all that was put durable; a store has done that before it answered."""
        if self._folder is not None:
            sync_file_system(self._folder)

    def _beginning(self, key: str, count: int) -> tuple[memoryview, int]:
        """Return the first bytes of an object, and its whole size."""
        try:
            options: Any = {"range": (0, count)}
            answer = obstore.get(self._store, key, options=options)
            return memoryview(answer.bytes()), int(answer.meta["size"])
        except (BaseError, OSError, ValueError) as error:
            if _OF_EMPTY in str(error):
                return memoryview(b""), 0
            raise _missing_or_away(error, key) from None

    def _holds(self, key: str, content: bytes) -> bool:
        """Return whether the object has these bytes."""
        try:
            return bytes(self.read(key)) == content
        except FileNotFoundError:  # two requests for one name at once: the store refused both
            raise StoreAway("server_error") from None


def _away(error: Exception) -> StoreAway:
    """Return the error without the library's words, which quote requests."""
    return error if isinstance(error, StoreAway) else StoreAway(cause_of(str(error)))


def _missing_or_away(error: Exception, key: str) -> OSError:
    if isinstance(error, FileNotFoundError) and cause_of(str(error)) != "no_bucket":
        return FileNotFoundError(2, os.strerror(2), key)
    return _away(error)


def _folder_of(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(parts.path) if parts.scheme == "file" else None


def _open(settings: ArchiveSection, folder: Path | None) -> Any:  # noqa: ANN401 - each kind of store has a class of its own
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        return LocalStore(prefix=folder, mkdir=True)
    seconds = timedelta(seconds=settings.timeout_seconds)
    client: Any = {
        "timeout": _DOWNLOADS * seconds,
        "read_timeout": seconds,  # to the answer, and for each pause in it
        "connect_timeout": min(seconds, timedelta(seconds=_CONNECT_SECONDS)),
        "allow_http": settings.endpoint.startswith("http://"),
    }
    if settings.ca_file is not None:
        client["root_certificate"] = _text_of(settings.ca_file, "archive.ca_file")
    first, longest = (timedelta(seconds=value) for value in _BACKOFF_SECONDS)
    retry: Any = {
        "max_retries": _MAXIMUM_RETRIES,
        "retry_timeout": seconds,
        "backoff": {"init_backoff": first, "max_backoff": longest, "base": 2},
    }
    own = _of_s3(settings) if settings.url.startswith("s3://") else {}
    try:
        return from_url(settings.url, client_options=client, retry_config=retry, **own)
    except (BaseError, ValueError) as error:
        raise ConfigurationError([f"archive.url: {type(error).__name__}; see its form"]) from None


def _of_s3(settings: ArchiveSection) -> dict[str, Any]:
    """Return the options of S3 alone. Environment variables stand for those that are not set."""
    found: dict[str, Any] = {
        "virtual_hosted_style_request": not settings.path_style,
        "checksum_algorithm": "SHA256",
    }
    if settings.endpoint:
        found["endpoint"] = settings.endpoint
    if settings.region:
        found["region"] = settings.region
    if settings.credentials_file is not None:
        found |= _credentials(settings.credentials_file, settings.profile)
    return found


def _credentials(file: Path, profile: str) -> dict[str, str]:
    """Return the credentials of a profile. Raises ConfigurationError without quoting the file."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(_text_of(file, "archive.credentials_file"))
    except configparser.Error:
        raise ConfigurationError(
            [f"archive.credentials_file: {file} is not in the form of ~/.aws/credentials"]
        ) from None
    section = parser[profile] if parser.has_section(profile) else {}
    found = {ours: section[name] for name, ours in _KEYS.items() if name in section}
    if missing := {"access_key_id", "secret_access_key"} - found.keys():
        raise ConfigurationError(
            [
                (
                    f"archive.credentials_file: section [{profile}] of {file} lacks"
                    f" {', '.join(sorted(f'aws_{name}' for name in missing))}"
                )
            ]
        )
    return found


def _text_of(file: Path, setting: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "no text"
        raise ConfigurationError([f"{setting}: {file}: {problem}"]) from None
