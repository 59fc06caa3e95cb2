"""Connections that failed, as errors with advice."""

from __future__ import annotations

import ssl
from typing import Final

import httpx

_SILENT: Final = "it was silent for timeout_seconds"


class HttpError(Exception):
    """The peer gave no usable answer. `detail` holds the remedy, and no patient data.

    `is_outage`: it is down or unreachable, so another request would fail alike. `is_final`: asking
    again cannot help until a person changes something. `is_silent`: no byte came in time.
    `was_sent`: the whole request left, so the peer may have acted on it.
    """

    def __init__(
        self,
        detail: str,
        *,
        is_outage: bool = False,
        is_final: bool = False,
        is_silent: bool = False,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.is_outage = is_outage
        self.is_final = is_final
        self.is_silent = is_silent
        self.was_sent = False


def transport_problem(error: Exception, *, has_begun: bool) -> HttpError:
    """Return the error for a connection that failed. `has_begun`: within a body."""
    return _not_connected(error) or _not_answered(error, has_begun=has_begun)


def _not_connected(error: Exception) -> HttpError | None:
    """Return the error for a connection that was not made; None: it was."""
    if isinstance(error, httpx.ConnectTimeout):
        return _unreachable("no connection within timeout_seconds")
    tls = _tls_cause(error)
    if tls is not None:
        return _untrusted(tls)
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return _unreachable("no connection")
    return None


def _not_answered(error: Exception, *, has_begun: bool) -> HttpError:
    if isinstance(error, httpx.TimeoutException):
        return HttpError(_SILENT, is_silent=True)
    if isinstance(error, httpx.UnsupportedProtocol):
        return HttpError("`url` must begin with http:// or https://", is_final=True)
    if not isinstance(error, httpx.HTTPError):
        return HttpError("its address or its answer is no HTTP; check `url`")
    if has_begun:
        return HttpError("the connection ended before the body did")
    return HttpError("the connection ended before the answer; its log may say why")


def _untrusted(cause: str) -> HttpError:
    return HttpError(
        f"TLS failed: {cause}; give ca_file, or certificate_file where it asks for one, or have"
        " its certificate renewed",
        is_outage=True,
        is_final=True,
    )


def _unreachable(text: str) -> HttpError:
    return HttpError(f"{text}: check `url`, the firewall, and that it runs", is_outage=True)


def _tls_cause(error: BaseException) -> str | None:
    """Return OpenSSL's reason, from the chain of causes; None: it is not about TLS."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLCertVerificationError):
            return found.verify_message
        if isinstance(found, ssl.SSLError) and not isinstance(found, ssl.SSLEOFError):
            return (found.reason or "no reason given").lower().replace("_", " ")
        found = found.__cause__ or found.__context__
    return None
