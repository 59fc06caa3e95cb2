"""A-ASSOCIATE-RQ, AC and RJ: as pynetdicom reads them, and as peers write them who do not read the standard closely."""

from __future__ import annotations

import struct

import pytest
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom.pdu import A_ASSOCIATE_AC, A_ASSOCIATE_RJ, A_ASSOCIATE_RQ

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.dicom import associate, pdu
from hilum.dicom.associate import Answered, Malformed, Proposed, Request, title_text
from tests.support.peers.odd_user_information import MAXIMUM, ODD_USER_INFORMATION
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import VERIFICATION, item
from tests.support.peers.wire import pdu as encoded_pdu

PROPOSED = (
    Proposed(1, DX, (ExplicitVRLittleEndian, ImplicitVRLittleEndian)),
    Proposed(3, VERIFICATION, (ImplicitVRLittleEndian,)),
)

ODD_UIDS = {"NUL": b"\0", "two NUL": b"\0\0", "a space": b" "}


def requested(
    user: bytes,
    *,
    padding: bytes = b"",
    behind: bytes = b"",
    called: bytes = b"HILUM",
    calling: bytes = b"CR1",
) -> bytes:
    """An A-ASSOCIATE-RQ for PROPOSED."""
    contexts = b"".join(
        item(
            0x20,
            bytes((proposed.context_id, 0, 0, 0))
            + item(0x30, proposed.abstract_syntax.encode() + padding)
            + b"".join(
                item(0x40, syntax.encode() + padding) for syntax in proposed.transfer_syntaxes
            ),
        )
        for proposed in PROPOSED
    )
    items = item(0x10, b"1.2.840.10008.3.1.1.1" + padding) + contexts + item(0x50, user) + behind
    return encoded_pdu(
        1, struct.pack(">H2x16s16s32x", 1, called.ljust(16), calling.ljust(16)) + items
    )


def accepted(user: bytes, padding: bytes = b"") -> bytes:
    """An A-ASSOCIATE-AC that accepts 1 and refuses 3."""
    answers = item(
        0x21, bytes((1, 0, 0, 0)) + item(0x40, ExplicitVRLittleEndian.encode() + padding)
    )
    answers += item(0x21, bytes((3, 0, 4, 0)) + item(0x40, padding))
    fixed = struct.pack(">H2x16s16s32x", 1, b"PACS".ljust(16), b"HILUM".ljust(16))
    return encoded_pdu(2, fixed + item(0x10, b"1.2.840.10008.3.1.1.1") + answers + item(0x50, user))


def test_a_request_is_read_by_pynetdicom_as_it_was_meant() -> None:
    read = A_ASSOCIATE_RQ()
    read.decode(associate.encode_request("HILUM", "PACS", PROPOSED, 65_536))
    primitive = read.to_primitive()
    contexts = [
        (each.context_id, each.abstract_syntax, tuple(each.transfer_syntax))
        for each in primitive.presentation_context_definition_list
    ]
    assert contexts == [
        (each.context_id, each.abstract_syntax, each.transfer_syntaxes) for each in PROPOSED
    ]
    assert (
        primitive.calling_ae_title,
        primitive.called_ae_title,
        primitive.maximum_length_received,
    ) == ("HILUM", "PACS", 65_536)
    assert primitive.implementation_class_uid == IMPLEMENTATION_CLASS_UID
    assert read.user_information.implementation_version_name == IMPLEMENTATION_VERSION_NAME


def test_what_is_written_is_read() -> None:
    found = associate.decode_request(associate.encode_request("CR1", "HILUM", PROPOSED, 4096))
    assert found == Request(1, b"HILUM".ljust(16), b"CR1".ljust(16), 4096, PROPOSED)
    answers = (Answered(1, 0, ExplicitVRLittleEndian), Answered(3, 4, ImplicitVRLittleEndian))
    assert associate.decode_acceptance(associate.encode_acceptance(found, answers, 131_072)) == (
        answers,
        131_072,
    )
    assert associate.decode_rejection(pdu.rejection(1, 2, 3)) == (1, 2, 3)


def test_a_rejection_is_read_as_pynetdicom_reads_it() -> None:
    read = A_ASSOCIATE_RJ()
    read.decode(pdu.rejection(2, 3, 2))
    assert (
        associate.decode_rejection(bytes(read.encode()))
        == (read.result, read.source, read.reason_diagnostic)
        == (2, 3, 2)
    )


@pytest.mark.parametrize("name", ODD_USER_INFORMATION)
def test_what_a_peer_says_of_itself_ends_no_association(name: str) -> None:
    user = ODD_USER_INFORMATION[name]
    request = associate.decode_request(requested(user))
    assert (request.contexts, request.maximum_pdu_bytes) == (PROPOSED, 4096)
    answers, maximum = associate.decode_acceptance(accepted(user))
    assert ([(each.context_id, each.result) for each in answers], maximum) == (
        [(1, 0), (3, 4)],
        4096,
    )


@pytest.mark.parametrize("name", ODD_UIDS)
def test_uids_that_are_padded_are_the_uids_that_are_meant(name: str) -> None:
    padding = ODD_UIDS[name]
    assert associate.decode_request(requested(MAXIMUM, padding=padding)).contexts == PROPOSED
    assert associate.decode_acceptance(accepted(MAXIMUM, padding))[0][0] == Answered(
        1, 0, ExplicitVRLittleEndian
    )


def test_items_of_unknown_type_and_padding_behind_all_are_passed_over() -> None:
    request = associate.decode_request(requested(MAXIMUM, behind=item(0x7E, b"what?") + b"\0\0"))
    assert (request.contexts, request.maximum_pdu_bytes) == (PROPOSED, 4096)


def test_without_user_information_a_peer_takes_pdus_of_any_length() -> None:
    assert associate.decode_request(requested(b"")).maximum_pdu_bytes == 0
    assert associate.decode_request(requested(item(0x51, b"\0"))).maximum_pdu_bytes == 0


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (b"CR1             ", "CR1"),
        (b"  CR1           ", "CR1"),
        (b"CR1\0\0\0\0\0\0\0\0\0\0\0\0\0", "CR1"),
        (b"CR1  \0\0\0\0\0\0\0\0\0\0\0", "CR1"),
        (b"CR1\0from before  ", "CR1"),
        (b"MY STATION      ", "MY STATION"),
        (b" " * 16, ""),
        (b"\0" * 16, ""),
        ("RÖNTGEN".encode("latin-1").ljust(16), "R%D6NTGEN"),
        ("RÖNTGEN".encode().ljust(16), "R%C3%96NTGEN"),
        ("胸部".encode("shift_jis").ljust(16), "%8B%B9%95%94"),
        (b"\xff" * 16, "%FF%FF%FF%FF%FF%"),
        (b"A\\B\x1b[31m         ", "A%5CB%1B[31m"),
    ],
)
def test_an_ae_title_is_compared_and_shown_as_ascii_of_16_characters(
    title: bytes, shown: str
) -> None:
    assert title_text(title) == shown
    assert len(shown) <= 16


def test_ae_titles_go_back_as_they_came() -> None:
    called, calling = b"HILUM\0\0\0\0\0\0\0\0\0\0\0", "RÖNTGEN".encode("latin-1").ljust(16, b"\0")
    request = associate.decode_request(requested(MAXIMUM, called=called, calling=calling))
    assert associate.encode_acceptance(request, (), 0)[10:42] == called + calling


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b"\1\0\0\0\0\4CR1 ", "shorter than its fixed fields"),
        (requested(MAXIMUM).replace(item(0x30, DX.encode()), b"", 1), "longer than what holds it"),
        (requested(MAXIMUM, behind=struct.pack(">BxH", 0x20, 40)), "item of type 20 is longer"),
        (requested(MAXIMUM, behind=item(0x20, b"\1")), "shorter than its fixed fields"),
        (
            requested(
                MAXIMUM,
                behind=item(0x20, bytes((1, 0, 0, 0)) + item(0x30, b"1.2") + item(0x40, b"1.2")),
            ),
            "occurs twice",
        ),
        (
            requested(
                MAXIMUM,
                behind=item(0x20, bytes((2, 0, 0, 0)) + item(0x30, b"1.2") + item(0x40, b"1.2")),
            ),
            "2 is even",
        ),
        (
            requested(MAXIMUM, behind=item(0x20, bytes((5, 0, 0, 0)) + item(0x40, b"1.2"))),
            "5 has no Abstract Syntax",
        ),
        (
            requested(
                MAXIMUM,
                behind=item(0x20, bytes((5, 0, 0, 0)) + item(0x30, b"1.2") + item(0x40, b"\0")),
            ),
            "5 has no Transfer Syntax",
        ),
        (requested(MAXIMUM, behind=item(0x7E, b"") * 9000), "more than 8192 items"),
        (requested(item(0x5E, b"") * 9000), "more than 8192 items"),
    ],
)
def test_what_has_not_the_structure_of_the_standard_is_said_to_be_so(
    broken: bytes, said: str
) -> None:
    with pytest.raises(Malformed, match=said):
        associate.decode_request(broken)


def test_an_acceptance_and_a_rejection_that_are_cut_are_malformed() -> None:
    for broken in (accepted(MAXIMUM)[:40], accepted(MAXIMUM)[:-60]):
        with pytest.raises(Malformed):
            associate.decode_acceptance(broken)
    with pytest.raises(Malformed):
        associate.decode_rejection(b"\3\0\0\0\0\4\0\1")


def test_an_answer_to_a_request_of_ours_is_read_by_pynetdicom() -> None:
    request = associate.decode_request(requested(MAXIMUM))
    read = A_ASSOCIATE_AC()
    read.decode(
        associate.encode_acceptance(request, (Answered(1, 0, ExplicitVRLittleEndian),), 131_072)
    )
    assert read.to_primitive().maximum_length_received == 131_072


COMMITMENT = "1.2.840.10008.1.20.1"


@pytest.mark.parametrize(
    ("sub_item", "roles"),
    [
        (struct.pack(">H", 20) + COMMITMENT.encode() + b"\0\1", {COMMITMENT: (False, True)}),
        (struct.pack(">H", 20) + COMMITMENT.encode() + b"\1\1", {COMMITMENT: (True, True)}),
        (struct.pack(">H", 21) + COMMITMENT.encode() + b"\0\0\1", {COMMITMENT: (False, True)}),
        (b"", {}),
        (b"\0", {}),
        (struct.pack(">H", 20) + b"\1", {}),
    ],
    ids=["SCP", "both", "padded", "empty", "one byte", "no UID"],
)
def test_proposed_roles_are_read_and_broken_ones_left_out(
    sub_item: bytes, roles: dict[str, tuple[bool, bool]]
) -> None:
    found = associate.decode_request(requested(MAXIMUM + item(0x54, sub_item)))
    assert found.roles == roles
    assert found.maximum_pdu_bytes == 4096


def test_an_acceptance_returns_the_roles_of_the_requestor() -> None:
    request = associate.decode_request(requested(MAXIMUM))
    roles = {COMMITMENT: associate.Roles(is_scu=False, is_scp=True)}
    encoded = associate.encode_acceptance(request, (), 16_384, roles)
    answer = A_ASSOCIATE_AC()
    answer.decode(encoded)
    selected = answer.user_information.role_selection
    assert {uid: (role.scu_role, role.scp_role) for uid, role in selected.items()} == {
        COMMITMENT: (False, True)
    }
