"""A-ASSOCIATE-RQ, AC and RJ (PS3.8 9.3.2 to 9.3.4), as in the standard and as peers write them.

The structure, AE Titles, Presentation Contexts, the maximum length and roles are read. The rest
describes the peer: Implementation Class UID, Version Name, negotiation that we do not do. It
decides nothing, so nothing in it can end an association.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.dicom import pdu

APPLICATION_CONTEXT: Final = "1.2.840.10008.3.1.1.1"  # PS3.7 A.2.1
# PS3.8 Table 9-18.
ACCEPTANCE = 0
USER_REJECTION = 1
ABSTRACT_SYNTAX_NOT_SUPPORTED = 3
TRANSFER_SYNTAXES_NOT_SUPPORTED = 4

_ITEM = struct.Struct(">BxH")
# Type, length, protocol version, Called and Calling AE Title.
_FIXED = struct.Struct(">BxLH2x16s16s32x")
# Presentation Context ID and, in an AC, the result, before the sub-items.
_CONTEXT = struct.Struct(">BxBx")
_LENGTH = struct.Struct(">L")
_LENGTH_OF_UID = struct.Struct(">H")
_ROLES: Final = 2  # bytes: SCU role, SCP role; each 0 or 1 (PS3.7 D.3.3.4)
_APPLICATION_CONTEXT = 0x10
_PROPOSED = 0x20
_ANSWERED = 0x21
_ABSTRACT_SYNTAX = 0x30
_TRANSFER_SYNTAX = 0x40
_USER_INFORMATION = 0x50
_MAXIMUM_LENGTH = 0x51
_IMPLEMENTATION_CLASS_UID = 0x52
_ROLE_SELECTION = 0x54
_IMPLEMENTATION_VERSION_NAME = 0x55
_TITLE_BYTES: Final = 16
# One object is made of each. 128 contexts with 60 Transfer Syntaxes stay below this limit.
_MAXIMUM_ITEMS: Final = 8192


class Roles(NamedTuple):
    """The roles of the requestor of an association, for one SOP Class (PS3.7 D.3.3.4)."""

    is_scu: bool
    is_scp: bool


class Malformed(ValueError):
    """The PDU does not have the structure of PS3.8 9.3; the text names the place."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A Presentation Context of a request (PS3.8 9.3.2.2)."""

    context_id: int
    abstract_syntax: str
    transfer_syntaxes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """A Presentation Context of an acceptance (PS3.8 9.3.3.2): `result` as in Table 9-18."""

    context_id: int
    result: int
    transfer_syntax: str


@dataclass(frozen=True, slots=True)
class Request:
    """The fields of an A-ASSOCIATE-RQ that are used.

    AE Titles are the 16 bytes as received. `maximum_pdu_bytes`: the largest PDU that the peer
    takes, 0: any. `roles`: by SOP Class whether the peer proposes to be its SCU, and its SCP.
    """

    protocol_version: int
    called_ae_title: bytes
    calling_ae_title: bytes
    maximum_pdu_bytes: int
    contexts: tuple[Proposed, ...]
    roles: Mapping[str, Roles] = field(default_factory=dict)


def titles(encoded: bytes) -> tuple[bytes, bytes]:
    """Return the Called and Calling AE Title of an A-ASSOCIATE-RQ, 16 bytes each.

    Raises Malformed where it is too short to have them.
    """
    if len(encoded) < _FIXED.size:
        raise Malformed("it is shorter than its fixed fields")
    _, _, _, called, calling = _FIXED.unpack_from(encoded)
    return called, calling


def title_text(title: bytes) -> str:
    """Return an AE Title as it is compared, stored and shown: 16 characters of ASCII at most.

    Spaces around it do not count (PS3.5 6.2, VR AE). Bytes after a NUL do not count either, because
    some peers fill up with NUL. Bytes outside of the default repertoire become `%` and two
    hexadecimal digits. So does the backslash, which would separate two values.
    """
    shown = (
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"%{byte:02X}"
        for byte in title.split(b"\0")[0].strip(b" ")
    )
    return "".join(shown)[:_TITLE_BYTES].strip()


def decode_request(encoded: bytes) -> Request:
    """Return an A-ASSOCIATE-RQ, decoded from all its bytes. Raises Malformed."""
    titles(encoded)
    _, _, version, called, calling = _FIXED.unpack_from(encoded)
    items = _items(encoded)
    contexts = tuple(_proposed(content) for kind, content in items if kind == _PROPOSED)
    if len({context.context_id for context in contexts}) < len(contexts):
        raise Malformed("a Presentation Context ID occurs twice")
    return Request(version, called, calling, _maximum_length(items), contexts, _roles(items))


def decode_acceptance(encoded: bytes) -> tuple[tuple[Answered, ...], int]:
    """Return the contexts of an A-ASSOCIATE-AC, and the largest PDU that the peer takes, 0: any.

    Raises Malformed.
    """
    titles(encoded)
    items = _items(encoded)
    return tuple(
        _answered(content) for kind, content in items if kind == _ANSWERED
    ), _maximum_length(items)


def decode_rejection(encoded: bytes) -> tuple[int, int, int]:
    """Return result, source and reason of an A-ASSOCIATE-RJ (PS3.8 Table 9-21).

    Raises Malformed.
    """
    if len(encoded) < pdu.HEADER.size + 4:
        raise Malformed("it is shorter than its fields")
    result, source, reason = encoded[pdu.HEADER.size + 1 : pdu.HEADER.size + 4]
    return result, source, reason


def encode_request(
    calling: str,
    called: str,
    contexts: Iterable[Proposed],
    maximum_pdu_bytes: int,
    scp_of: Iterable[str] = (),
) -> bytes:
    """Return an A-ASSOCIATE-RQ.

    `maximum_pdu_bytes`: the largest PDU that we take. `scp_of`: SOP Classes of which we are the SCP
    (PS3.7 D.3.3.4).
    """
    items = (
        _item(
            _PROPOSED,
            _CONTEXT.pack(context.context_id, 0)
            + _item(_ABSTRACT_SYNTAX, context.abstract_syntax.encode("ascii", "replace"))
            + b"".join(
                _item(_TRANSFER_SYNTAX, syntax.encode("ascii", "replace"))
                for syntax in context.transfer_syntaxes
            ),
        )
        for context in contexts
    )
    return _encode(
        pdu.ASSOCIATE_RQ,
        called.encode("ascii", "replace"),
        calling.encode("ascii", "replace"),
        items,
        maximum_pdu_bytes,
        dict.fromkeys(scp_of, Roles(is_scu=False, is_scp=True)),
    )


def encode_acceptance(
    request: Request,
    contexts: Iterable[Answered],
    maximum_pdu_bytes: int,
    roles: Mapping[str, Roles] | None = None,
) -> bytes:
    """Return an A-ASSOCIATE-AC. AE Titles go back as they came (PS3.8 Table 9-17).

    `roles`: those that the requestor may take, where they are not only SCU.
    """
    items = (
        _item(
            _ANSWERED,
            _CONTEXT.pack(context.context_id, context.result)
            + _item(_TRANSFER_SYNTAX, context.transfer_syntax.encode("latin-1")),
        )
        for context in contexts
    )
    return _encode(
        pdu.ASSOCIATE_AC,
        request.called_ae_title,
        request.calling_ae_title,
        items,
        maximum_pdu_bytes,
        roles or {},
    )


def _encode(
    kind: int,
    called: bytes,
    calling: bytes,
    contexts: Iterable[bytes],
    maximum_pdu_bytes: int,
    roles: Mapping[str, Roles],
) -> bytes:
    ours = (
        _item(_MAXIMUM_LENGTH, _LENGTH.pack(maximum_pdu_bytes)),
        _item(_IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_CLASS_UID.encode("ascii")),
        *(
            _item(
                _ROLE_SELECTION,
                _LENGTH_OF_UID.pack(len(uid)) + uid.encode("latin-1") + bytes(taken),
            )
            for uid, taken in roles.items()
        ),
        _item(_IMPLEMENTATION_VERSION_NAME, IMPLEMENTATION_VERSION_NAME.encode("ascii")),
    )
    items = (
        _item(_APPLICATION_CONTEXT, APPLICATION_CONTEXT.encode("ascii")),
        *contexts,
        _item(_USER_INFORMATION, b"".join(ours)),
    )
    body = b"".join(items)
    length = _FIXED.size - pdu.HEADER.size + len(body)
    return (
        _FIXED.pack(kind, length, 1, called.ljust(_TITLE_BYTES), calling.ljust(_TITLE_BYTES)) + body
    )


def _item(kind: int, content: bytes) -> bytes:
    return _ITEM.pack(kind, len(content)) + content


def _items(encoded: bytes) -> list[tuple[int, bytes]]:
    """Return the items after the fixed fields, including those of unknown type.

    Items of unknown type are to be ignored (PS3.8 9.3.1).
    """
    found = list(_siblings(encoded[_FIXED.size :]))
    inner = sum(_count(kind, content) for kind, content in found)
    if len(found) + inner > _MAXIMUM_ITEMS:
        raise Malformed(f"it has more than {_MAXIMUM_ITEMS} items and sub-items")
    return found


def _count(kind: int, content: bytes) -> int:
    """Count sub-items by their headers, without making an object of any."""
    at = {_PROPOSED: _CONTEXT.size, _ANSWERED: _CONTEXT.size, _USER_INFORMATION: 0}.get(
        kind, len(content)
    )
    count = 0
    while at + _ITEM.size <= len(content):
        at += _ITEM.size + _ITEM.unpack_from(content, at)[1]
        count += 1
    return count


def _siblings(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over items. Fewer bytes than an item's header at the end are padding."""
    at = 0
    while at + _ITEM.size <= len(content):
        kind, length = _ITEM.unpack_from(content, at)
        at += _ITEM.size
        if at + length > len(content):
            raise Malformed(f"an item of type {kind:02X} is longer than what holds it")
        yield kind, content[at : at + length]
        at += length


def _proposed(content: bytes) -> Proposed:
    context_id, inner = _context(content)
    if not context_id % 2:
        raise Malformed(f"the Presentation Context ID {context_id} is even")
    sub_items = list(_siblings(inner))
    abstract = next((_uid(value) for kind, value in sub_items if kind == _ABSTRACT_SYNTAX), "")
    syntaxes = tuple(
        uid for kind, value in sub_items if kind == _TRANSFER_SYNTAX and (uid := _uid(value))
    )
    if not abstract or not syntaxes:
        raise Malformed(
            f"the Presentation Context {context_id} has no {'Transfer' if abstract else 'Abstract'}"
            " Syntax"
        )
    return Proposed(context_id, abstract, syntaxes)


def _answered(content: bytes) -> Answered:
    context_id, inner = _context(content)
    syntax = next((_uid(value) for kind, value in _siblings(inner) if kind == _TRANSFER_SYNTAX), "")
    return Answered(context_id, content[2], syntax)


def _context(content: bytes) -> tuple[int, bytes]:
    if len(content) < _CONTEXT.size:
        raise Malformed("a Presentation Context is shorter than its fixed fields")
    return content[0], content[_CONTEXT.size :]


def _uid(value: bytes) -> str:
    """Return a UID without padding: some peers pad to an even length, which PS3.8 F.1 forbids."""
    return value.strip(b"\0 ").decode("latin-1")


def _maximum_length(items: Iterable[tuple[int, bytes]]) -> int:
    """Return the peer's maximum PDU length; a sub-item that is too long ends the search."""
    for kind, content in _user_information(items):
        if kind == _MAXIMUM_LENGTH and len(content) == _LENGTH.size:
            return int(_LENGTH.unpack(content)[0])
    return 0


def _roles(items: Iterable[tuple[int, bytes]]) -> dict[str, Roles]:
    """Return the proposed roles by SOP Class; one that cannot be read is left out."""
    found: dict[str, Roles] = {}
    for kind, content in _user_information(items):
        if kind == _ROLE_SELECTION and len(content) > _LENGTH_OF_UID.size + _ROLES:
            size = _LENGTH_OF_UID.unpack_from(content)[0]
            uid = _uid(content[_LENGTH_OF_UID.size : _LENGTH_OF_UID.size + size])
            is_scu, is_scp = (byte == 1 for byte in content[-_ROLES:])
            found.setdefault(uid, Roles(is_scu, is_scp))
    return found


def _user_information(items: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Iterate over the sub-items about the peer; one that is too long ends its item."""
    for kind, content in items:
        at = 0
        while kind == _USER_INFORMATION and at + _ITEM.size <= len(content):
            sub_kind, length = _ITEM.unpack_from(content, at)
            at += _ITEM.size
            if at + length <= len(content):
                yield sub_kind, content[at : at + length]
            at += length
