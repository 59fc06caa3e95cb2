"""Errors of an object store by their cause, each with its remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CAUSES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "no_answer": (
            "it does not answer",
            "Look at the store and the network; images wait on the listener's disk meanwhile.",
        ),
        "slow_down": (
            "it asks for fewer requests (SlowDown)",
            "Lower archive.transfers, or give the store more capacity.",
        ),
        "server_error": (
            "it has an error of its own",
            "Look at the store's log; requests are repeated.",
        ),
        "full": ("it is full, or the quota is spent", "Give it more space."),
        "no_bucket": ("there is no such bucket", "Create it, or set archive.url."),
        "denied": (
            "it refuses these credentials, or they may not do this",
            "Give them s3:GetObject, PutObject, DeleteObject and ListBucket on the prefix.",
        ),
        "region": ("the bucket is in another region", "Set archive.region."),
        "clock": (
            "this host's clock differs too much from the store's (RequestTimeTooSkewed)",
            "Keep time by NTP.",
        ),
        "not_ours": (
            "the prefix belongs to another installation",
            "Set archive.url to a prefix of this installation alone.",
        ),
        "empty": (
            "the prefix is not an archive: its marker hilum-archive.json is missing",
            "Set archive.url to the right bucket and prefix, or restore the bucket.",
        ),
        "damaged": (
            "it gave other bytes than it has stored",
            "Look at the store and at proxies before it; requests are repeated.",
        ),
    }
)
"""Cause, as metrics name it: a sentence about the store, and the advice."""

_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_BY_CODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NoSuchBucket": "no_bucket",
        "AccessDenied": "denied",
        "AllAccessDisabled": "denied",
        "AccountProblem": "denied",
        "ExpiredToken": "denied",
        "InvalidAccessKeyId": "denied",
        "InvalidToken": "denied",
        "SignatureDoesNotMatch": "denied",
        "RequestTimeTooSkewed": "clock",
        "PermanentRedirect": "region",
        "AuthorizationHeaderMalformed": "region",
        "IllegalLocationConstraintException": "region",
        "SlowDown": "slow_down",
        "SlowDownWrite": "slow_down",
        "SlowDownRead": "slow_down",
        "TooManyRequests": "slow_down",
        "ServiceUnavailable": "slow_down",
        "QuotaExceeded": "full",
        "InsufficientStorage": "full",
        "XMinioStorageFull": "full",
        "XMinioAdminBucketQuotaExceeded": "full",
        "BadDigest": "damaged",
        "XAmzContentSHA256Mismatch": "damaged",
    }
)
_BY_STATUS: Final[Mapping[str, str]] = MappingProxyType(
    {"301": "region", "307": "region", "401": "denied", "403": "denied", "429": "slow_down"}
    | {"503": "slow_down", "507": "full"}
)
_OF_REGION: Final = "incorrectly configured region"  # words of the library for a bare redirect
_OF_ACCESS: Final = "credential"  # none are found, or their file is wrong


class StoreAway(OSError):
    """The object store cannot be used now. Nothing is lost: the work waits, and is repeated.

    `cause`: a key of CAUSES.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(errno.EHOSTDOWN, f"object store: {CAUSES[cause][0]}")
        self.cause = cause

    def __reduce__(self) -> tuple[type[StoreAway], tuple[str]]:
        """Comes back whole from another process."""
        return type(self), (self.cause,)

    @property
    def said(self) -> str:
        """The cause as a sentence."""
        return f"object store: {CAUSES[self.cause][0]}"

    @property
    def advice(self) -> str:
        """The remedy."""
        return CAUSES[self.cause][1]


def cause_of(message: str) -> str:
    """Return the key of CAUSES for the message of a library's error."""
    for code in _CODE.findall(message):
        if code in _BY_CODE:
            return _BY_CODE[code]
    if _OF_REGION in message:
        return "region"
    if (found := _STATUS.search(message)) is not None:
        return _BY_STATUS.get(found[1], "server_error")
    if os.strerror(errno.ENOSPC) in message:
        return "full"
    return "denied" if _OF_ACCESS in message.lower() else "no_answer"
