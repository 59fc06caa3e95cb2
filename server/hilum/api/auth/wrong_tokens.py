"""Wrong tokens by address.

An address that sends many is locked out for a while. The log names it once a minute.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hilum.observability import telemetry

MOST: Final = 10
WINDOW_SECONDS: Final = 60.0
LOCKED_SECONDS: Final = 60.0
_ADDRESSES: Final = 10_000
_LINES: Final = 20
log = telemetry.logger("api")


@dataclass(slots=True)
class _Attempts:
    since: float
    count: int = 0
    locked_until: float = 0.0


class Guesses:
    """Counts of wrong tokens, in bounded memory. Thread-safe. `clock`: as time.monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._attempts: OrderedDict[str, _Attempts] = OrderedDict()
        self._unsaid: Counter[str] = Counter()
        self._timer: threading.Timer | None = None

    def locked_seconds(self, address: str) -> float:
        """How long this address is still locked out; 0: it is not."""
        return self._locked_seconds(source_of(address))

    def note(self, address: str) -> bool:
        """Count a wrong token from there; whether it is the one that locks the address out."""
        source = source_of(address)
        with self._lock:
            is_locking = self._count(self._of(source))
            self._unsaid[
                source if source in self._unsaid or len(self._unsaid) < _ADDRESSES else "others"
            ] += 1
            if self._timer is None:
                self._timer = threading.Timer(WINDOW_SECONDS, self.report)
                self._timer.daemon = True
                self._timer.start()
        return is_locking

    def report(self) -> None:
        """Log one line for each address since the last time, the busiest ones first."""
        with self._lock:
            counts = self._unsaid
            self._unsaid = Counter()
            self._timer = None
        busiest = counts.most_common(_LINES)
        for source, count in busiest:
            log.warning(
                "wrong_tokens",
                address=source,
                count=count,
                is_locked_out=self._locked_seconds(source) > 0,
            )
        if left := counts.total() - sum(count for _, count in busiest):
            log.warning("wrong_tokens", address="others", count=left)

    def _locked_seconds(self, source: str) -> float:
        with self._lock:
            found = self._attempts.get(source)
            return max(0.0, found.locked_until - self._clock()) if found else 0.0

    def _of(self, source: str) -> _Attempts:
        now = self._clock()
        found = self._attempts.pop(source, None)
        if found is None or (now - found.since >= WINDOW_SECONDS and now >= found.locked_until):
            found = _Attempts(now)
        self._attempts[source] = found
        if len(self._attempts) > _ADDRESSES:
            self._attempts.popitem(last=False)
        return found

    def _count(self, attempts: _Attempts) -> bool:
        """Count one wrong token. Further ones do not prolong a lock-out that others there share."""
        attempts.count += 1
        is_locking = attempts.count == MOST
        if is_locking:
            attempts.locked_until = self._clock() + LOCKED_SECONDS
        return is_locking


def source_of(address: str) -> str:
    """The addresses that one guesser may have: of IPv6 a network of 64 bits, of loopback all.

    Any other address stands for itself.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return "loopback"
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
