"""Our certificate and its key, for either side of TLS."""

from __future__ import annotations

import errno
import ssl
from pathlib import Path


def load_own_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Raises OSError, also for an encrypted key: OpenSSL would ask for its password on the terminal, and wait there."""

    def refuse() -> str:
        raise OSError(errno.EINVAL, "the key must not be encrypted", str(key))

    context.load_cert_chain(certificate, key, refuse)
