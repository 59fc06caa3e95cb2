"""TLS of the web server: our certificate, read again when its files have changed."""

from __future__ import annotations

import ssl
from pathlib import Path

from hilum.dicom.own_certificate import load_own_certificate
from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.settings import Api

log = telemetry.logger("api")
_Stamp = tuple[int, int]


class WebTls:
    """The context for each handshake.

    Files that are no longer usable are logged, and the last good ones stay.
    """

    def __init__(self, api: Api) -> None:
        """Raises ConfigurationError."""
        assert api.tls_certificate_file is not None
        assert api.tls_key_file is not None
        self._files = api.tls_certificate_file, api.tls_key_file
        try:
            self._stamps = self._read_stamps()
            self._current = self._load()
        except OSError as error:
            advice = "give PEM files that belong together and that this user may read."
            raise ConfigurationError(
                [f"api.tls_certificate_file, tls_key_file: {_why(error)}; {advice}"]
            ) from error

    def context(self) -> ssl.SSLContext:
        """For the web server: each handshake takes the certificate of its moment."""
        outer = self._load()
        outer.sni_callback = self._choose
        return outer

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        try:
            if (stamps := self._read_stamps()) != self._stamps:
                self._stamps = (
                    stamps  # a pair that does not fit is tried again when its other half has come
                )
                self._current = self._load()
                log.info("certificate_reloaded")
        except OSError as error:
            log.error(
                "certificate_not_usable",
                problem=_why(error),
                advice="the former one stays in use until it is",
            )
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        load_own_certificate(context, *self._files)
        return context

    def _read_stamps(self) -> tuple[_Stamp, ...]:
        return tuple(_stamp(file) for file in self._files)


def _stamp(file: Path) -> _Stamp:
    """A file that was replaced has another inode, one that was rewritten another time."""
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no PEM").lower().replace("_", " ")
    return f"{error.filename or 'a file'}: {error.strerror}"
