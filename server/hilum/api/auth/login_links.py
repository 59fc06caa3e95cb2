"""Links that log a browser in once.

A link holds a random code. The code's digest is the name of a file that only the server's user can
make. Deleting the file redeems the code, which succeeds for one request of all processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hilum.settings import Api, Settings

LINK_SECONDS: Final = 600
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class LoginLinks:
    """Of the server that keeps its state there."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._folder = settings.run_dir / "login"
        self._address = base_address(settings.api)
        self._clock = clock

    def make(self, user: str) -> str:
        """A link that logs `user` in, once and within ten minutes. Raises OSError."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._forget_old()
        code = secrets.token_urlsafe(24)
        content = json.dumps({"user": user, "until": self._clock() + LINK_SECONDS})
        with os.fdopen(
            os.open(self._file(code), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write(content)
        return f"{self._address}/login?code={code}"

    def redeem(self, code: str) -> str | None:
        """Return the user of a code that is shown for the first time.

        None: the code is used, too old, or unknown.
        """
        file = self._file(code)
        try:
            found = json.loads(file.read_text())
            file.unlink()
        except FileNotFoundError:
            return None
        return str(found["user"]) if self._clock() < found["until"] else None

    def _file(self, code: str) -> Path:
        return self._folder / hashlib.sha256(code.encode("utf-8", "surrogateescape")).hexdigest()

    def _forget_old(self) -> None:
        for file in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was redeemed just now
                if self._clock() - file.stat().st_mtime > LINK_SECONDS:
                    file.unlink()


def base_address(api: Api) -> str:
    """Where a browser reaches the pages; behind a proxy, under the first of `api.names`."""
    if api.proxies and api.names:
        return f"https://{api.names[0]}"
    host = "127.0.0.1" if api.host in _WILDCARDS else api.host
    if api.names and api.is_public:
        host = api.names[0]
    return (
        f"{'https' if api.is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{api.port}"
    )
