"""Sessions of a browser: a signed cookie that names a token and never holds it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from hilum.domain import AccessToken

SESSION_SECONDS: Final = 12 * 3600
_ENDED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """One browser that was logged in.

    `proof`: of the token's digest, so that another token under this name is another one.
    """

    token_name: str
    user: str
    proof: str
    key: str
    until: int


class Sessions:
    """Cookies signed by one secret of this host.

    Thread-safe. An ended session is remembered until its time or this process is over.
    """

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hashlib.sha256(f"hilum session 1 {secret}".encode()).digest()
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: OrderedDict[str, int] = OrderedDict()

    def begin(self, token: AccessToken, user: str) -> str:
        """The cookie of a new session."""
        until = int(self._clock()) + SESSION_SECONDS
        session = Session(token.name, user, self._proof(token), secrets.token_hex(8), until)
        content = _encoded(json.dumps(asdict(session)).encode())
        return f"{content}.{self._signed(content)}"

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie that we made and that has not expired."""
        content, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signed(content).encode()):
            return None
        session = Session(**json.loads(base64.urlsafe_b64decode(content)))
        with self._lock:
            is_over = session.key in self._ended
        return None if is_over or self._clock() >= session.until else session

    def is_of(self, session: Session, token: AccessToken) -> bool:
        """Whether it was begun with this token."""
        return hmac.compare_digest(session.proof, self._proof(token))

    def end(self, session: Session) -> None:
        """The cookie opens nothing any more."""
        with self._lock:
            self._ended[session.key] = session.until
            if len(self._ended) > _ENDED:
                self._ended.popitem(last=False)

    def _proof(self, token: AccessToken) -> str:
        return self._signed(f"token {token.digest}")

    def _signed(self, content: str) -> str:
        return _encoded(hmac.digest(self._key, content.encode(), "sha256"))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode()
